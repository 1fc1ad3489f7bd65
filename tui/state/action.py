"""The definition of a key: a function from one state to the next, and the text with
which users find it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache

import msgspec
from msgspec.structs import replace

from fusetui.text.patterns import lazy_pattern
from fusetui.tui.state.state import TIMELINE, Outcome, State, told

SYMBOLS = {
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "full_stop": ".",
    "comma": ",",
    "colon": ":",
    "apostrophe": "'",
    "slash": "/",
    "asterisk": "*",
    "question_mark": "?",
    "number_sign": "#",
    "percent_sign": "%",
    "ampersand": "&",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "less_than_sign": "<",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "greater_than_sign": ">",
    "escape": "Esc",
    "enter": "Enter",
    "at": "@",
    "backslash": "\\",
    "underscore": "_",
    "space": "Space",
    "tab": "Tab",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "home": "Home",
    "end": "End",
}
"""The keys whose names, which are those of Textual, are not how people write them."""
ARROWS_IN_ASCII = {"left": "Left", "right": "Right", "up": "Up", "down": "Down"}
FUNCTION = lazy_pattern(r"f([1-9]|1[0-9]|2[0-4])")


def key_text(key: str, ascii_only: bool = False) -> str:
    """Return a key as people write it. With `ascii_only`, arrows are written as words.

    "right_square_bracket" gives "]", "shift+left" gives "Shift+←"
    """
    *modifiers, key_alone = key.split("+")
    if FUNCTION.fullmatch(key_alone):
        text = key_alone.upper()
    elif ascii_only and key_alone in ARROWS_IN_ASCII:
        text = ARROWS_IN_ASCII[key_alone]
    else:
        text = SYMBOLS.get(key_alone, key_alone)
    return "+".join([*(modifier.capitalize() for modifier in modifiers), text])


NAME_OF_TEXT = {text.lower(): name for name, text in SYMBOLS.items()}
NAME_OF_TEXT |= {name: name for name in SYMBOLS}
MODIFIERS = {"ctrl", "alt", "shift"}


def parse_key_name(text: str) -> str | None:
    """Return Textual's name of a key that a person wrote, such as `Ctrl+r` or
    `Shift+Left`; None for what is no key."""
    modifier_text, plus, key_alone = text.rpartition("+")
    if plus and not key_alone:  # the key + itself, alone or after others
        modifier_text = modifier_text.removesuffix("+")
        key_alone = "+"
    modifiers = [word.lower() for word in modifier_text.split("+") if word]
    name = _parse_plain_key(key_alone)
    if not name or not MODIFIERS.issuperset(modifiers):
        return None
    return "+".join([*modifiers, name])


def _parse_plain_key(text: str) -> str:
    """Return Textual's name of a key that is written without modifiers; "" for what is
    no key."""
    lower_text = text.lower()
    if lower_text in NAME_OF_TEXT:
        return NAME_OF_TEXT[lower_text]
    if FUNCTION.fullmatch(lower_text):
        return lower_text
    if len(text) != 1 or not text.isprintable():
        return ""
    if text.isalnum():
        return text
    return unicodedata.name(text, "").lower().replace(" ", "_").replace("-", "_")


EVERYWHERE = "Everywhere"  # a section of the help
Run = Callable[[State], Outcome]
Where = Callable[[State], bool]
Needs = Callable[[State], str]
NAMED = lazy_pattern(r"\{([a-z0-9-]+)\}")


def everywhere(state: State) -> bool:
    """Return whether an action applies that applies on all pages: nothing lies over the
    page."""
    return state.overlay is None


def anywhere(state: State) -> bool:
    """Return true, as the condition of actions that apply always, also over an overlay."""
    return True


def on(page: str) -> Where:
    """Return the condition of actions that apply on one page, with nothing over it."""
    return lambda state: state.page == page and state.overlay is None


on_timeline = on(TIMELINE)


def nothing(state: State) -> str:
    """Return "", as the check of actions that need nothing to be open."""
    return ""


def why_no_trace(state: State) -> str:
    """Return a sentence that says no trace is open; "" where one is. Beside a memory
    snapshot it says how to open both."""
    if state.sides:
        return ""
    if state.memory is not None and state.memory.trace is None:
        return "This needs a trace: fusetui open TRACE --memory SNAPSHOT opens both"
    return "No trace is open yet."


def why_nothing_open(state: State) -> str:
    """Return a sentence that says nothing is open; "" where a trace, a snapshot or
    dumps are."""
    return "" if state.is_open else why_no_trace(state)


def why_no_second_trace(state: State) -> str:
    """Return a sentence that says how to open a second trace; "" where two are open."""
    if len(state.sides) == 2:
        return ""
    ways = [":diff PATH"]
    keys = format_first_keys("choose", state)
    if keys:
        ways.insert(0, keys)
    return f"this needs two traces: {' or '.join(ways)} opens another"


class Action(msgspec.Struct, frozen=True, dict=True):
    """One command; spaces divide its keys: `"w + ctrl+r"`. Raises ValueError for what
    is no key and for a name that another action has."""

    name: str
    title: str
    written: str
    help: str
    run: Run
    section: str = EVERYWHERE  # of the help
    where: Where = everywhere
    needs: Needs = (
        why_no_trace  # a sentence that says what is missing; "" if nothing is
    )
    always: bool = False  # also while a text is typed or an overlay is open

    def __post_init__(self) -> None:
        are_all_keys = len(self.keys) == len(self.written.split())
        if self.name in MADE or not are_all_keys:
            raise ValueError(
                f"{self.name} is there already, or {self.written} are no keys"
            )
        MADE[self.name] = self

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Textual's names of the default keys; the first one is shown where there is
        room for one."""
        names = [parse_key_name(text) for text in self.written.split()]
        return tuple(name for name in names if name)


action = Action  # how the tables of actions call it
# by their names, which sentences use: a person may choose keys
MADE: dict[str, Action] = {}


def perform(action: Action, state: State) -> Outcome:
    """Run an action and return the next state, with an effect if it has one. Where
    something that it needs is missing, the state only gets a message.

    If the action changed something, the message of an earlier action is removed.
    """
    missing = action.needs(state)
    if missing:
        return told(state, missing)
    outcome = action.run(state)
    next_state = outcome[0] if isinstance(outcome, tuple) else outcome
    has_changed = next_state is not state
    is_old_hint = next_state.hint is state.hint and not next_state.hint_keys
    if not has_changed or not is_old_hint:
        return outcome
    next_state = replace(next_state, hint="")
    return (next_state, outcome[1]) if isinstance(outcome, tuple) else next_state


def action_applies(action: Action, state: State) -> bool:
    """Return whether the keys of an action act in this state."""
    return action.always or action.where(state)


def chosen(actions: Iterable[Action], key: str, state: State) -> Action | None:
    """Return the first of `actions` that has this key and applies now, or None."""
    for candidate in actions:
        if key in keys_of(candidate, state) and action_applies(candidate, state):
            return candidate
    return None


def keys_of(action: Action, state: State) -> tuple[str, ...]:
    """Return the keys of an action by Textual's names: those that the user chose, else
    the default ones."""
    return state.keymap.get(action.name, action.keys)


def format_all_keys(action: Action, state: State, between: str = "  ") -> str:
    """Return all keys of an action as people write them, with `between` between two of
    them."""
    keys = keys_of(action, state)
    return between.join(key_text(key, state.ascii_only) for key in keys)


def format_first_keys(names: str, state: State) -> str:
    """Return the first key of each named action, such as `w/s` for `zoom-in/zoom-out`.
    It is "" where none has a key."""
    return _join_first_keys(names, tuple(state.keymap.items()), state.ascii_only)


@lru_cache(maxsize=1000)  # every frame asks for those of its tabs and hints
def _join_first_keys(
    names: str, keymap: tuple[tuple[str, tuple[str, ...]], ...], ascii_only: bool
) -> str:
    """Return the first key of each action in `names`, which are divided by `/`.
    `keymap` has the keys that the user chose. Results are kept, because every frame
    asks for the same ones."""
    chosen_keys = dict(keymap)
    texts = []
    for name in names.split("/"):
        keys = chosen_keys.get(name, MADE[name].keys)
        if keys:
            texts.append(key_text(keys[0], ascii_only))
    return "/".join(texts)


def format_hint(hint: str, state: State) -> str:
    """Return a hint with keys in place of actions: `w/s zoom` for `zoom-in/zoom-out
    zoom`. It is "" where these actions have no keys."""
    names, _, effect_text = hint.partition(" ")
    text = format_first_keys(names, state)
    return f"{text} {effect_text}" if text else ""


def format_hints(hints: Iterable[str], state: State, between: str = "   ") -> str:
    """Return several hints with their keys in one line. Hints whose actions have no
    keys are left out."""
    texts = [format_hint(hint, state) for hint in hints]
    return between.join(text for text in texts if text)


def with_keys(text: str, state: State) -> str:
    """Return a sentence with keys in place of the actions that it names in braces:
    `{zoom-in}` becomes `w`.

    An action without a key is named by its title, after the key of the palette.
    """

    def keys(match: re.Match[str]) -> str:
        name = match[1]
        palette = (
            format_first_keys("palette", state) or "Ctrl+p"
        )  # which Textual has anyway
        return format_first_keys(name, state) or f"{palette} {MADE[name].title}"

    return NAMED.sub(keys, text)
