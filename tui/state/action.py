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
    """A key as it is written for people: `]`, `Shift+←` or `Shift+Left`, `Ctrl+r`."""
    *modifiers, last = key.split("+")
    if FUNCTION.fullmatch(last):
        text = last.upper()
    elif ascii_only and last in ARROWS_IN_ASCII:
        text = ARROWS_IN_ASCII[last]
    else:
        text = SYMBOLS.get(last, last)
    return "+".join([*(modifier.capitalize() for modifier in modifiers), text])


NAME_OF_TEXT = {text.lower(): name for name, text in SYMBOLS.items()}
NAME_OF_TEXT |= {name: name for name in SYMBOLS}
MODIFIERS = {"ctrl", "alt", "shift"}


def key_name(text: str) -> str | None:
    """Textual's name of a key that a person wrote as `key_text` does; None for what is
    no key."""
    before, plus, last = text.rpartition("+")
    if plus and not last:  # the key + itself, alone or after others
        before = before.removesuffix("+")
        last = "+"
    modifiers = [word.lower() for word in before.split("+") if word]
    name = _name_without_modifiers(last)
    if not name or not MODIFIERS.issuperset(modifiers):
        return None
    return "+".join([*modifiers, name])


def _name_without_modifiers(text: str) -> str:
    """Textual's name of a key that is written without modifiers; "" for what is no
    key."""
    low = text.lower()
    if low in NAME_OF_TEXT:
        return NAME_OF_TEXT[low]
    if FUNCTION.fullmatch(low):
        return low
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
    """On all pages, with nothing over them."""
    return state.overlay is None


def anywhere(state: State) -> bool:
    """On all pages, and over what lies over them."""
    return True


def on(page: str) -> Where:
    """On one page, with nothing over it."""
    return lambda state: state.page == page and state.overlay is None


on_timeline = on(TIMELINE)


def nothing(state: State) -> str:
    return ""


def a_trace(state: State) -> str:
    """That no trace is open, and how to open one beside a snapshot that is; "" where
    one is."""
    if state.sides:
        return ""
    if state.memory is not None and state.memory.trace is None:
        return "This needs a trace: fusetui open TRACE --memory SNAPSHOT opens both"
    return "No trace is open yet."


def anything_open(state: State) -> str:
    return "" if state.is_open else a_trace(state)


def two_traces(state: State) -> str:
    """That a second trace is missing, and how to open it; "" where there are two."""
    if len(state.sides) == 2:
        return ""
    ways = [":diff PATH"]
    keys = keys_text("choose", state)
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
    needs: Needs = a_trace  # a sentence that says what is missing; "" if nothing is
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
        """Textual's names; the first is shown where there is room for one."""
        names = [key_name(text) for text in self.written.split()]
        return tuple(name for name in names if name)


action = Action  # how the tables of actions call it
# by their names, which sentences use: a person may choose keys
MADE: dict[str, Action] = {}


def perform(action: Action, state: State) -> Outcome:
    """The outcome, without a sentence that an earlier action left, if this one changed
    anything and the sentence does not tell what other keys do now."""
    missing = action.needs(state)
    if missing:
        return told(state, missing)
    outcome = action.run(state)
    now = outcome[0] if isinstance(outcome, tuple) else outcome
    has_changed = now is not state
    is_old_hint = now.hint is state.hint and not now.hint_keys
    if not has_changed or not is_old_hint:
        return outcome
    now = replace(now, hint="")
    return (now, outcome[1]) if isinstance(outcome, tuple) else now


def applies(action: Action, state: State) -> bool:
    """Whether the keys of an action act now."""
    return action.always or action.where(state)


def chosen(actions: Iterable[Action], key: str, state: State) -> Action | None:
    """The first of some actions that a key chooses now."""
    for candidate in actions:
        if key in keys_of(candidate, state) and applies(candidate, state):
            return candidate
    return None


def keys_of(action: Action, state: State) -> tuple[str, ...]:
    """The keys of an action, as Textual names them: those that the user chose, if
    any."""
    return state.keymap.get(action.name, action.keys)


def all_keys_text(action: Action, state: State, between: str = "  ") -> str:
    """All keys of an action, as they are written for people."""
    keys = keys_of(action, state)
    return between.join(key_text(key, state.ascii_only) for key in keys)


def keys_text(names: str, state: State) -> str:
    """The first key of each of some actions: `w/s` of `zoom-in/zoom-out`; "" where none
    has any."""
    return _first_keys(names, tuple(state.keymap.items()), state.ascii_only)


@lru_cache(maxsize=1000)  # every frame asks for those of its tabs and hints
def _first_keys(
    names: str, keymap: tuple[tuple[str, tuple[str, ...]], ...], ascii_only: bool
) -> str:
    """The first key of each of some actions, whose names `/` divides; `keymap`: the
    keys that the user chose."""
    chosen_keys = dict(keymap)
    texts = []
    for name in names.split("/"):
        keys = chosen_keys.get(name, MADE[name].keys)
        if keys:
            texts.append(key_text(keys[0], ascii_only))
    return "/".join(texts)


def hint_text(hint: str, state: State) -> str:
    """`w/s zoom` of the hint `zoom-in/zoom-out zoom`; "" where they have no keys."""
    names, _, what = hint.partition(" ")
    text = keys_text(names, state)
    return f"{text} {what}" if text else ""


def hints_text(hints: Iterable[str], state: State, between: str = "   ") -> str:
    """What keys do, without hints whose actions have no keys: see hint_text."""
    texts = [hint_text(hint, state) for hint in hints]
    return between.join(text for text in texts if text)


def with_keys(text: str, state: State) -> str:
    """A sentence with the keys of the actions that it names: `{zoom-in}` becomes `w`.
    What has no key is chosen in the palette, by its title."""

    def keys(match: re.Match[str]) -> str:
        name = match[1]
        palette = keys_text("palette", state) or "Ctrl+p"  # which Textual has anyway
        return keys_text(name, state) or f"{palette} {MADE[name].title}"

    return NAMED.sub(keys, text)
