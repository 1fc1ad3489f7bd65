"""What the commands typed after `:` do to the state."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from fusetui.text.figures import tick
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import steps
from fusetui.tui.layout.moves import at_time, over
from fusetui.tui.state import arranging, marks
from fusetui.tui.state.action import action
from fusetui.tui.state.command_line import Goto, Mark, Only, Open, Quit, Step, Wrong, parse
from fusetui.tui.state.effects import Quit as QuitApp
from fusetui.tui.state.moving import brought
from fusetui.tui.state.reading import read
from fusetui.tui.state.state import Outcome, Prompt, State, told


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
    """A step of the active side fills the window; the first step is 1."""
    side, found = state.side, steps(state.side.trace)
    if not found:
        return told(state, "this trace has no steps (annotations named ProfilerStep#N)")
    if not 1 <= number <= len(found):
        return told(state, f"this trace has the steps 1 to {len(found)}")
    step = found[number - 1]
    begin = step.start_ns - side.origin
    window = over(side, state.view, begin, begin + step.dur_ns)
    there = brought(state, state.session.moved(state.active, window), state.active)
    return told(there, f"step {number} of {len(found)}: {printable(step.name)}")


def _open(state: State, text: str, beside: bool) -> Outcome:
    path = Path(text).expanduser()
    if path.is_file():
        return read(state, (*state.paths[:1], str(path)) if beside else (str(path),))
    what = "is a folder, not a trace" if path.is_dir() else "does not exist"
    return told(state, f"{printable(str(path))} {what}")


ACTIONS = (action("command", "Command", ":", "goto, step, mark, only, open, diff, q", ask),)
