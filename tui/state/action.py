"""What a key does: a function from one state to the next, and how users find it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache

import msgspec
from msgspec.structs import replace

from fusetui.text.patterns import lazy_pattern
from fusetui.tui.state.state import TIMELINE, Outcome, State, told

_NAMES = """
    plus + equals_sign = minus - full_stop . comma , colon : apostrophe ' slash / asterisk *
    question_mark ? number_sign # left_square_bracket [ right_square_bracket ] less_than_sign <
    left_curly_bracket { right_curly_bracket } greater_than_sign > escape Esc enter Enter
    at @ backslash \\ underscore _
    space Space tab Tab pagedown PgDn pageup PgUp left ← right → up ↑ down ↓ home Home end End
"""
SYMBOLS = dict(zip(_NAMES.split()[::2], _NAMES.split()[1::2], strict=True))
"""The keys whose names, which are those of Textual, are not how people write them."""
WORDS = {name: name.capitalize() for name in ("left", "right", "up", "down")}
"""Instead of arrows, where there is only ASCII."""


FUNCTION = lazy_pattern(r"f([1-9]|1[0-9]|2[0-4])")


def key_text(key: str, ascii_only: bool = False) -> str:
    """A key as it is written for people: `]`, `Shift+←` or `Shift+Left`, `Ctrl+r`."""
    *modifiers, last = key.split("+")
    last = last.upper() if FUNCTION.fullmatch(last) else last
    text = (WORDS if ascii_only else {}).get(last) or SYMBOLS.get(last, last)
    return "+".join([*(m.capitalize() for m in modifiers), text])


BY_TEXT = {text.lower(): name for name, text in SYMBOLS.items()} | {
    name: name for name in SYMBOLS
}
MODIFIERS = ("ctrl", "alt", "shift")


def key_name(text: str) -> str | None:
    """Textual's name of a key that a person wrote as `key_text` does; None for what is
    no key."""
    before, plus, last = text.rpartition("+") if len(text) > 1 else ("", "", text)
    if plus and not last:  # the key + itself
        before, last = before.removesuffix("+"), "+"
    modifiers, low = [word.lower() for word in before.split("+") if word], last.lower()
    name = BY_TEXT.get(low) or (low if FUNCTION.fullmatch(low) else "")
    if not name and len(last) == 1 and last.isprintable():
        called = unicodedata.name(last, "").lower().replace(" ", "_").replace("-", "_")
        name = last if last.isalnum() else called
    return (
        "+".join([*modifiers, name])
        if name and set(modifiers) <= set(MODIFIERS)
        else None
    )


Run = Callable[[State], Outcome]
Where = Callable[[State], bool]
Needs = Callable[[State], str]
NAMED = lazy_pattern(r"\{([a-z0-9-]+)\}")


def everywhere(state: State) -> bool:
    return state.overlay is None


def on(page: str) -> Where:
    return lambda state: state.page == page and state.overlay is None


on_timeline = on(TIMELINE)


def nothing(state: State) -> str:
    return ""


def a_trace(state: State) -> str:
    return "" if state.sides else "No trace is open yet."


def anything_open(state: State) -> str:
    return "" if state.is_open else a_trace(state)


def two_traces(state: State) -> str:
    if len(state.sides) == 2:
        return ""
    ways = filter(None, (keys_text("choose", state), ":diff PATH"))
    return f"this needs two traces: {' or '.join(ways)} opens another"


class Action(msgspec.Struct, frozen=True, dict=True):
    """One command; spaces divide its keys: `"w + ctrl+r"`. Raises ValueError for what
    is no key and for a name that another action has."""

    name: str
    title: str
    written: str
    help: str
    run: Run
    section: str = "Everywhere"  # of the help
    where: Where = everywhere
    needs: Needs = a_trace  # a sentence that says what is missing; "" if nothing is
    always: bool = False  # also while a text is typed or an overlay is open

    def __post_init__(self) -> None:
        if self.name in MADE or len(self.keys) < len(self.written.split()):
            raise ValueError(
                f"{self.name} is there already, or {self.written} are no keys"
            )
        MADE[self.name] = self

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Textual's names; the first is shown where there is room for one."""
        return tuple(filter(None, map(key_name, self.written.split())))


action = Action  # how the tables of actions call it
# by their names, which sentences use: a person may choose keys
MADE: dict[str, Action] = {}


def perform(action: Action, state: State) -> Outcome:
    """The outcome, without a sentence that an earlier action left, if this one changed
    anything and the sentence does not tell what other keys do now."""
    if missing := action.needs(state):
        return told(state, missing)
    outcome = action.run(state)
    now, *effects = outcome if isinstance(outcome, tuple) else (outcome,)
    if now is state or now.hint is not state.hint or now.hint_keys:
        return outcome
    now = replace(now, hint="")
    return (now, effects[0]) if effects else now


def applies(action: Action, state: State) -> bool:
    return action.always or action.where(state)


def chosen(actions: Iterable[Action], key: str, state: State) -> Action | None:
    return next(
        (a for a in actions if key in keys_of(a, state) and applies(a, state)), None
    )


def keys_of(action: Action, state: State) -> tuple[str, ...]:
    return state.keymap.get(action.name, action.keys)


def all_keys_text(action: Action, state: State, between: str = "  ") -> str:
    return between.join(
        key_text(key, state.ascii_only) for key in keys_of(action, state)
    )


def keys_text(names: str, state: State) -> str:
    """The first key of each of some actions: `w/s` of `zoom-in/zoom-out`; "" where none
    has any."""
    return _first_keys(names, tuple(state.keymap.items()), state.ascii_only)


@lru_cache(maxsize=1000)  # every frame asks for those of its tabs and hints
def _first_keys(
    names: str, keymap: tuple[tuple[str, tuple[str, ...]], ...], ascii_only: bool
) -> str:
    own = dict(keymap)
    keys = [own.get(name, MADE[name].keys)[:1] for name in names.split("/")]
    return "/".join(key_text(key, ascii_only) for some in keys for key in some)


def hint_text(hint: str, state: State) -> str:
    """`w/s zoom` of the hint `zoom-in/zoom-out zoom`; "" where they have no keys."""
    names, _, what = hint.partition(" ")
    text = keys_text(names, state)
    return f"{text} {what}" if text else ""


def hints_text(hints: Iterable[str], state: State, between: str = "   ") -> str:
    return between.join(filter(None, (hint_text(hint, state) for hint in hints)))


def with_keys(text: str, state: State) -> str:
    """A sentence with the keys of the actions that it names: `{zoom-in}` becomes `w`.
    What has no key is chosen in the palette, by its title."""

    def keys(found: re.Match[str]) -> str:
        return keys_text(found[1], state) or f"Ctrl+p {MADE[found[1]].title}"

    return NAMED.sub(keys, text)
