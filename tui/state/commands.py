"""The commands typed after `:`: `goto 12.5ms`, `step 2`, `open PATH`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from fusetui.text.cutting import clip
from fusetui.text.figures import duration, parse_time, plural
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import steps_of
from fusetui.tui.layout.moves import at_time, over
from fusetui.tui.state import moving, replays
from fusetui.tui.state.action import (
    action,
    anything_open,
    everywhere,
    nothing,
    on_timeline,
    with_keys,
)
from fusetui.tui.state.moving import shown
from fusetui.tui.state.reading import read
from fusetui.tui.state.state import (
    Chooser,
    Cut,
    Order,
    Outcome,
    Prompt,
    Record,
    Reproduce,
    SaveTable,
    State,
    told,
)

EXAMPLES = (
    *("goto 9ms", "step 2", "mark a", "only gpu", "open FILE", "diff FILE"),
    *("save FILE", "cut FILE", "path", "whatif x0.5", "record", "again", "q"),
)
VERBS = tuple(example.partition(" ")[0] for example in EXAMPLES)
NOT_RECORDED = (
    "again needs a trace that was recorded with :record, fusetui record or fusetui run"
)
WITHOUT_TRACE = ("open", "record", "q")
NUMBER = lazy_pattern(r"[0-9]{1,9}")
LETTER = lazy_pattern(r"[A-Za-z]")
LONGEST_NOTE = 200  # characters
LONGEST = 30  # characters of a wrong word that are repeated
NO_RANGE = "this needs a range of time: {range} at its beginning and at its end"
SCRIPT_SUFFIX = ".py"
NO_SLICE = "this needs a slice: select one in the timeline"
RECORDED = lazy_pattern(
    r"_([0-9]{1,9})\.json\Z"
)  # how libkineto ends the names of its traces
WRONG_PID = "record takes the PID of a program, or nothing to list them: record 1234"
NO_STEPS = "this trace has no steps: no annotation and no optimizer tells them"


def obeyed(state: State, line: str) -> Outcome:
    """Obeys a verb and the rest of the line, or says in one sentence what would be
    right."""
    state = replace(state, prompt=None, hint="")
    if not line.strip():
        return state
    verb, _, rest = line.strip().removeprefix(":").strip().partition(" ")
    has_table = verb == "save" and state.is_open  # a memory snapshot has tables too
    if verb in COMMANDS and (state.sides or has_table or verb in WITHOUT_TRACE):
        return COMMANDS[verb](state, rest.strip())
    if verb in COMMANDS:
        return told(state, f"{verb} needs a trace, and none is open")
    word = clip(printable(verb), LONGEST) or "nothing"
    return told(state, f"{word} is not a command: {', '.join(VERBS)}")


def _goto(state: State, rest: str) -> State:
    side, ns = state.side, parse_time(rest)
    if ns is None:
        return told(state, "goto takes a time with its unit: goto 12.5ms")
    ends = {duration(time): time for time in (side.begin, side.end)}  # as they are told
    ns = ends.get(duration(ns), ns)
    if side.begin <= ns <= side.end:
        return shown(state, at_time(side, state.view, ns))
    return told(state, f"the trace goes from {' to '.join(ends)}")


def _step(state: State, rest: str) -> State:
    if not NUMBER.fullmatch(rest):
        return told(state, "step takes a number: step 2")
    if not len(steps := steps_of(state.side.trace)):
        return told(state, NO_STEPS)
    at = steps.place(int(rest))
    return (
        shown_step(state, at)
        if at >= 0
        else told(state, f"this trace has {steps.known}")
    )


def shown_step(state: State, at: int) -> State:
    side, steps = state.side, steps_of(state.side.trace)
    begin = int(steps.start[at]) - side.origin
    end = int(steps.end[at]) - side.origin
    there = shown(state, over(side, state.view, begin, end))
    if steps.printed:
        name = printable(steps.names[at])
        return told(there, f"{name}, {at + 1} of {plural(len(steps), 'step')}")
    name = steps.by if steps.are_iterations else steps.names[at]
    return told(there, f"step #{at + 1} of {len(steps)}: {printable(name)}")


def _mark(state: State, rest: str) -> State:
    letter, _, note = rest.partition(" ")
    if not LETTER.fullmatch(letter):
        return told(state, "mark takes one letter, then a note: mark a slow step")
    return moving.set_mark(state, letter, clip(printable(note.strip()), LONGEST_NOTE))


def _open(
    state: State, rest: str, verb: str = "open", of: str = "a", beside: int = 0
) -> Outcome:
    """A trace, after so many of those that are open."""
    if not rest:
        return told(state, f"{verb} takes the path of {of} trace")
    path = Path(rest).expanduser()
    if path.is_file():
        return read(state, (*state.paths[:beside], str(path)))
    what = "is a folder, not a trace" if path.is_dir() else "does not exist"
    return told(state, f"{printable(str(path))} {what}")


def _save(state: State, rest: str) -> Outcome:
    """Saves the table of the page, or as FILE.py the script of the selected slice."""
    if not rest:
        return told(state, "save takes the name of a new file: save kernels.csv")
    if rest.lower().endswith(SCRIPT_SUFFIX) and state.sides:
        return _save_script(state, str(Path(rest).expanduser()))
    return told(state, "saving the table"), SaveTable(
        state, str(Path(rest).expanduser())
    )


def _cut(state: State, rest: str) -> Outcome:
    side, found = state.side, state.time_range
    if found is None:
        return told(state, with_keys(NO_RANGE, state))
    if not rest:
        return told(state, "cut takes the name of a new file: cut part.json.gz")
    if side.trace.report.prefix:
        return told(state, "cut needs the whole trace, which is being read")
    begin, end = found.begin - side.trace.begin_ns, found.end - side.trace.begin_ns
    effect = Cut(state.paths[state.active], str(Path(rest).expanduser()), begin, end)
    return told(state, f"cutting {duration(end - begin)}"), effect


def _save_script(state: State, path: str) -> Outcome:
    """Writes the script that makes the op of the selected slice again."""
    row = state.view.selected
    if row < 0:
        return told(state, NO_SLICE)
    if state.side.trace.report.prefix:
        return told(state, "a script needs the whole trace, which is being read")
    return told(state, "writing the script"), Reproduce(
        trace=state.paths[state.active], path=path, row=row
    )


def asked_for_script(state: State) -> State:
    """Asks for the name of the script of the selected slice."""
    if state.view.selected < 0:
        return told(state, NO_SLICE)
    return asked(state, typed=f"save reproduce-{state.view.selected}{SCRIPT_SUFFIX}")


def _record(state: State, rest: str) -> Outcome:
    if not rest:
        return told(state, "looking for programs that run"), Record()
    return (
        recorded(state, int(rest)) if NUMBER.fullmatch(rest) else told(state, WRONG_PID)
    )


def _again(state: State, rest: str) -> Outcome:
    found = RECORDED.search(state.paths[-1]) if state.paths else None
    if rest or found is None:
        return told(
            state, "again takes no argument, after :record" if rest else NOT_RECORDED
        )
    return recorded(state, int(found[1]), state.paths[-1:])


def recorded(state: State, pid: int, beside: tuple[str, ...] = ()) -> Outcome:
    return told(state, f"recording {pid}, which asks every 5 s"), Record(pid, beside)


_diff = partial(_open, verb="diff", of="another", beside=1)
COMMANDS: dict[str, Callable[[State, str], Outcome]] = {
    **{"goto": _goto, "step": _step, "mark": _mark, "only": moving.only, "open": _open},
    **{
        "diff": _diff,
        "save": _save,
        "cut": _cut,
        "path": replays.rows,
        "whatif": replays.whatif,
    },
    **{"record": _record, "again": _again},
    "q": lambda state, rest: (
        told(state, "q takes no argument") if rest else (state, Order.QUIT)
    ),
}


def asked(state: State, typed: str = "") -> State:
    """Asks for a command. A list to choose from is closed, unless nothing is open: then
    it is all that there is, and stays."""
    overlay = None if state.is_open else state.overlay
    return replace(state, overlay=overlay, prompt=Prompt.COMMAND, typed=typed)


def is_choosing(state: State) -> bool:
    """Whether a list of traces or programs to choose from is shown."""
    return isinstance(state.overlay, Chooser)


def on_page_or_list(state: State) -> bool:
    return everywhere(state) or is_choosing(state)


def _anything_open_or_list(state: State) -> str:
    return "" if is_choosing(state) else anything_open(state)


_WORTH = "what a change of the row or slice would be worth"
_programs, _RUNS = partial(_record, rest=""), "that runs: those of PyTorch"
_part = partial(asked, typed="cut part.json.gz")
ACTIONS = (
    action(
        name="command",
        title="Command",
        written=":",
        help=", ".join(VERBS),
        run=asked,
        where=on_page_or_list,
        needs=_anything_open_or_list,
    ),
    action("what-if", "What if", "W", _WORTH, partial(asked, typed="whatif x0.5")),
    action(
        name="record",
        title="Record a program",
        written="",
        help=_RUNS,
        run=_programs,
        where=on_page_or_list,
        needs=nothing,
    ),
    action(
        *("cut", "Cut this range", "", "as a trace of its own", _part),
        needs=lambda state: "" if state.time_range else with_keys(NO_RANGE, state),
    ),
    action(
        name="reproduce",
        title="Make this op again",
        written="R",
        help="a script that runs the op of the slice alone",
        run=asked_for_script,
        where=on_timeline,
    ),
)
