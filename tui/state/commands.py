"""The commands typed after `:`: `goto 12.5ms`, `step 2`, `open PATH`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from fusetui.text.cutting import clip
from fusetui.text.figures import parse_time, plural, tick
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import steps_of
from fusetui.tui.layout.moves import at_time, over
from fusetui.tui.state import moving
from fusetui.tui.state.action import action
from fusetui.tui.state.moving import shown
from fusetui.tui.state.reading import read
from fusetui.tui.state.state import Order, Outcome, Prompt, State, told

EXAMPLES = ("goto 12.5ms", "step 2", "mark a", "only gpu", "open PATH", "diff PATH", "q")
VERBS = tuple(example.partition(" ")[0] for example in EXAMPLES)
NUMBER = re.compile(r"[0-9]{1,9}")
LETTER = re.compile(r"[A-Za-z]")
LONGEST_NOTE = 200  # characters
LONGEST = 30  # characters of a wrong word that are repeated
NO_STEPS = "this trace has no steps: no annotation and no optimizer tells them"


def obeyed(state: State, line: str) -> Outcome:
    """Obeys a verb and the rest of the line, or says in one sentence what would be right."""
    state = replace(state, prompt=None, hint="")
    if not line.strip():
        return state
    verb, _, rest = line.strip().removeprefix(":").strip().partition(" ")
    if verb in COMMANDS:
        return COMMANDS[verb](state, rest.strip())
    word = clip(printable(verb), LONGEST)
    return told(state, f"{word or 'nothing'} is not a command: {', '.join(VERBS)}")


def _goto(state: State, rest: str) -> State:
    """To a time, counted as on the ruler."""
    side, ns = state.side, parse_time(rest)
    if ns is None:
        return told(state, "goto takes a time with its unit: goto 12.5ms")
    if side.begin <= ns <= side.end:
        return shown(state, at_time(side, state.view, ns))
    unit = max(1, (side.end - side.begin) // 100)
    begin, end = (tick(time, unit) for time in (side.begin, side.end))
    return told(state, f"the trace goes from {begin} to {end}")


def _step(state: State, rest: str) -> State:
    """The step of the active side with this number fills the window."""
    steps = steps_of(state.side.trace)
    if not NUMBER.fullmatch(rest):
        return told(state, "step takes a number: step 2")
    if not len(steps):
        return told(state, NO_STEPS)
    at = steps.place(int(rest))
    return shown_step(state, at) if at >= 0 else told(state, f"this trace has {steps.known}")


def shown_step(state: State, at: int) -> State:
    """A step, by index, fills the window."""
    side, steps = state.side, steps_of(state.side.trace)
    begin = int(steps.start[at]) - side.origin
    window = over(side, state.view, begin, begin + int(steps.dur[at]))
    there = shown(state, window)
    if steps.printed:
        return told(
            there, f"{printable(steps.names[at])}, {at + 1} of {plural(len(steps), 'step')}"
        )
    name = steps.by if steps.are_iterations else steps.names[at]
    return told(there, f"step #{at + 1} of {len(steps)}: {printable(name)}")


def _mark(state: State, rest: str) -> State:
    letter, _, note = rest.partition(" ")
    if not LETTER.fullmatch(letter):
        return told(state, "mark takes one letter, then a note: mark a slow step")
    return moving.set_mark(state, letter, clip(printable(note.strip()), LONGEST_NOTE))


def _open(state: State, rest: str, verb: str = "open", of: str = "a", beside: int = 0) -> Outcome:
    """A trace, after so many of those that are open."""
    if not rest:
        return told(state, f"{verb} takes the path of {of} trace")
    path = Path(rest).expanduser()
    if path.is_file():
        return read(state, (*state.paths[:beside], str(path)))
    what = "is a folder, not a trace" if path.is_dir() else "does not exist"
    return told(state, f"{printable(str(path))} {what}")


def _quit(state: State, rest: str) -> Outcome:
    return told(state, "q takes no argument") if rest else (state, Order.QUIT)


_diff = partial(_open, verb="diff", of="another", beside=1)
COMMANDS: dict[str, Callable[[State, str], Outcome]] = dict(
    zip(VERBS, (_goto, _step, _mark, moving.only, _open, _diff, _quit), strict=True)
)
_ask = partial(replace, prompt=Prompt.COMMAND)
ACTIONS = (action("command", "Command", ":", "goto, step, mark, only, open, diff, q", _ask),)
