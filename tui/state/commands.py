"""What the commands typed after `:` do to the state."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from fusetui.text.figures import plural, tick
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import steps_of
from fusetui.tui.layout.moves import at_time, over
from fusetui.tui.state import arranging, marks
from fusetui.tui.state.action import action
from fusetui.tui.state.command_line import Goto, Mark, Only, Open, Quit, Step, Wrong, parse
from fusetui.tui.state.effects import Quit as QuitApp
from fusetui.tui.state.moving import brought
from fusetui.tui.state.reading import read
from fusetui.tui.state.state import Outcome, Prompt, State, told

NO_STEPS = "this trace has no steps: no annotation and no optimizer tells them"


def ask(state: State) -> State:
    return replace(state, prompt=Prompt.COMMAND)


def obeyed(state: State, line: str) -> Outcome:
    """The state after a command; a wrong one is answered with one sentence."""
    state = replace(state, prompt=None, hint="")
    if not line.strip():
        return state
    match parse(line):
        case Goto(ns):
            return _go_to_time(state, ns)
        case Step(number):
            return to_step(state, number)
        case Mark(letter, note):
            return marks.set_mark(state, letter, note)
        case Only(pattern):
            return arranging.only(state, pattern)
        case Open(path, beside):
            return _open(state, path, beside)
        case Quit():
            return state, QuitApp()
        case Wrong(sentence):
            return told(state, sentence)


def _go_to_time(state: State, ns: int) -> State:
    side = state.side
    if side.begin <= ns <= side.end:
        session = state.session.moved(state.active, at_time(side, state.view, ns))
        return brought(state, session, state.active)
    step = max(1, (side.end - side.begin) // 100)
    begin, end = (tick(time, step) for time in (side.begin, side.end))
    return told(state, f"the trace goes from {begin} to {end}")


def to_step(state: State, number: int) -> State:
    """The step of the active side with this number fills the window."""
    steps = steps_of(state.side.trace)
    if not len(steps):
        return told(state, NO_STEPS)
    at = steps.place(number)
    return shown_step(state, at) if at >= 0 else told(state, f"this trace has {steps.known}")


def shown_step(state: State, at: int) -> State:
    """A step, by index, fills the window."""
    side, steps = state.side, steps_of(state.side.trace)
    begin = int(steps.start[at]) - side.origin
    window = over(side, state.view, begin, begin + int(steps.dur[at]))
    there = brought(state, state.session.moved(state.active, window), state.active)
    if steps.printed:
        return told(
            there, f"{printable(steps.names[at])}, {at + 1} of {plural(len(steps), 'step')}"
        )
    name = steps.by if steps.are_iterations else steps.names[at]
    return told(there, f"step #{at + 1} of {len(steps)}: {printable(name)}")


def _open(state: State, text: str, beside: bool) -> Outcome:
    path = Path(text).expanduser()
    if path.is_file():
        return read(state, (*state.paths[:1], str(path)) if beside else (str(path),))
    what = "is a folder, not a trace" if path.is_dir() else "does not exist"
    return told(state, f"{printable(str(path))} {what}")


ACTIONS = (action("command", "Command", ":", "goto, step, mark, only, open, diff, q", ask),)
