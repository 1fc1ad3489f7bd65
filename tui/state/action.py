"""What a key does: a function from one state to the next, and how users find it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from fusetui.tui.state.keys import key_text
from fusetui.tui.state.state import TIMELINE, Outcome, State, told

Run = Callable[[State], Outcome]
Where = Callable[[State], bool]
Needs = Callable[[State], str]


NAMED = re.compile(r"\{([a-z0-9-]+)\}")


def everywhere(state: State) -> bool:
    """On every page, unless an overlay is open."""
    return state.overlay is None


def on(page: str) -> Where:
    """On one page alone."""

    def is_there(state: State) -> bool:
        return state.page == page and state.overlay is None

    return is_there


on_timeline = on(TIMELINE)


def nothing(state: State) -> str:
    """Needs nothing."""
    return ""


def a_trace(state: State) -> str:
    """Needs an open trace."""
    return "" if state.sides else "no trace is open yet"


def two_traces(state: State) -> str:
    if len(state.sides) == 2:
        return ""
    ways = filter(None, (keys_text("choose", state), ":diff PATH"))
    return f"this needs two traces: {' or '.join(ways)} opens another"


class Action(msgspec.Struct, frozen=True):
    """One command. `keys` are Textual's names; the first is shown where there is room for one."""

    name: str
    title: str
    keys: tuple[str, ...]
    help: str
    run: Run
    section: str  # of the help
    where: Where
    needs: Needs  # a sentence that says what is missing; "" if nothing is
    always: bool  # also while a text is typed or an overlay is open


MADE: dict[str, Action] = {}
"""Every action by its name: sentences name actions, because a person may have chosen other keys."""


def action(
    name: str,
    title: str,
    keys: str,
    help: str,  # noqa: A002
    run: Run,
    section: str = "Everywhere",
    where: Where = everywhere,
    needs: Needs = a_trace,
    always: bool = False,
) -> Action:
    """An action; keys are separated by spaces: `"w plus equals_sign"`."""
    made = Action(name, title, tuple(keys.split()), help, run, section, where, needs, always)
    return MADE.setdefault(name, made)


def perform(action: Action, state: State) -> Outcome:
    """Runs the action, or says what it needs."""
    missing = action.needs(state)
    return told(state, missing) if missing else action.run(state)


def applies(action: Action, state: State) -> bool:
    """Whether it acts on what is in front."""
    return action.always or action.where(state)


def chosen(actions: Iterable[Action], key: str, state: State) -> Action | None:
    """The first action that has this key and applies now."""
    return next((a for a in actions if key in keys_of(a, state) and applies(a, state)), None)


def keys_of(action: Action, state: State) -> tuple[str, ...]:
    """The keys that it has now: those that the person chose, else its own."""
    return state.keymap.get(action.name, action.keys)


def keys_text(names: str, state: State) -> str:
    """The first key of each of some actions: `w/s` of `zoom-in/zoom-out`; "" where none has any."""
    keys = [keys_of(MADE[name], state)[:1] for name in names.split("/")]
    return "/".join(key_text(key, state.ascii_only) for some in keys for key in some)


def hint_text(hint: str, state: State) -> str:
    """`w/s zoom` of the hint `zoom-in/zoom-out zoom`; "" where they have no keys."""
    names, _, what = hint.partition(" ")
    text = keys_text(names, state)
    return f"{text} {what}" if text else ""


def hints_text(hints: Iterable[str], state: State, between: str = "   ") -> str:
    """Several hints, without those that have no keys."""
    return between.join(filter(None, (hint_text(hint, state) for hint in hints)))


def with_keys(text: str, state: State) -> str:
    """A sentence with the keys of the actions that it names: `{zoom-in}` becomes `w`. What has no
    key is chosen in the palette, by its title."""

    def keys(found: re.Match[str]) -> str:
        return keys_text(found[1], state) or f"Ctrl+p {MADE[found[1]].title}"

    return NAMED.sub(keys, text)
