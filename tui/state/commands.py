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
from fusetui.trace.model.arrays import NO_ROW
from fusetui.tui.layout.moves import over, show_time
from fusetui.tui.state import moving, replays
from fusetui.tui.state.action import (
    action,
    anywhere,
    everywhere,
    nothing,
    on_timeline,
    why_nothing_open,
    with_keys,
)
from fusetui.tui.state.moving import shown
from fusetui.tui.state.reading import read
from fusetui.tui.state.state import (
    Chooser,
    Cut,
    HitList,
    Order,
    Outcome,
    Prompt,
    Record,
    Reproduce,
    SavePicture,
    SaveTable,
    ShowCommand,
    State,
    told,
)

EXAMPLES = (
    "goto 9ms",
    "step 2",
    "mark a",
    "only gpu",
    "open FILE",
    "diff FILE",
    "save FILE",
    "cut FILE",
    "picture FILE",
    "shell",
    "path",
    "whatif x0.5",
    "record",
    "again",
    "q",
)
VERBS = tuple(example.partition(" ")[0] for example in EXAMPLES)
NOT_RECORDED = (
    "again needs a trace recorded with :record, fusetui record or fusetui run"
)
WITHOUT_TRACE = ("open", "record", "q")
OVER_HITS = ("save", "shell")  # commands about a list of hits that lies over the page
NUMBER = lazy_pattern(r"[0-9]{1,9}")
LETTER = lazy_pattern(r"[A-Za-z]")
MAX_NOTE_CHARS = 200
MAX_WRONG_WORD_CHARS = 16  # of a wrong word that are repeated
NO_RANGE = "This needs a time range: press {range} at its start and at its end"
SCRIPT_SUFFIX = ".py"
NO_SLICE = "This needs a slice: select one in the timeline"
RECORDED = lazy_pattern(
    r"_([0-9]{1,9})\.json\Z"
)  # how libkineto ends the names of its traces
WRONG_PID = "record takes the PID of a program, or nothing to list them: record 1234"
NO_STEPS = "This trace has no steps (no annotations or optimizer calls)."


def obeyed(state: State, line: str) -> Outcome:
    """Carry out a typed command: a verb and the rest of the line. A wrong verb, or one
    that needs a trace where none is open, gives a message."""
    state = replace(state, prompt=None, hint="")
    if not line.strip():
        return state
    command = line.strip().removeprefix(":").strip()
    verb, _, rest = command.partition(" ")
    if isinstance(state.overlay, HitList) and verb not in OVER_HITS:
        state = replace(state, overlay=None)
    if verb not in COMMANDS:
        word = clip(printable(verb), MAX_WRONG_WORD_CHARS) or "nothing"
        return told(state, f"{word} is not a command: {', '.join(VERBS)}")
    # a memory snapshot has tables and pages too
    is_about_page = verb in ("save", "picture", "shell") and state.is_open
    needs_trace = verb not in WITHOUT_TRACE and not is_about_page
    if needs_trace and not state.sides:
        return told(state, f"{verb} needs a trace, and none is open")
    return COMMANDS[verb](state, rest.strip())


def _go_to_time(state: State, rest: str) -> State:
    """Show the time that was typed in the middle of the window.

    Times count from the origin of the side. The rounded begin and end of the trace, as
    fusetui writes them, stand for the exact ones.
    """
    side = state.side
    time_ns = parse_time(rest)
    if time_ns is None:
        return told(state, "goto takes a time with its unit: goto 12.5ms")
    # the end is looked at last, so that it wins where both are written alike
    for exact_ns in (side.begin, side.end):
        if duration(time_ns) == duration(exact_ns):
            time_ns = exact_ns
    if not side.begin <= time_ns <= side.end:
        begin_and_end = dict.fromkeys((duration(side.begin), duration(side.end)))
        return told(state, f"the trace goes from {' to '.join(begin_and_end)}")
    return shown(state, show_time(side, state.view, time_ns))


def _step(state: State, rest: str) -> State:
    """Show the step with the number that was typed; it fills the window. A message says
    which steps there are otherwise."""
    if not NUMBER.fullmatch(rest):
        return told(state, "step takes a number: step 2")
    steps = steps_of(state.side.trace)
    if not len(steps):
        return told(state, NO_STEPS)
    index = steps.place(int(rest))
    if index < 0:
        return told(state, f"this trace has {steps.known}")
    return shown_step(state, index)


def shown_step(state: State, index: int) -> State:
    """Return the state with step number `index` (from 0) filling the window. The
    message has its name and number."""
    side = state.side
    steps = steps_of(side.trace)
    begin = int(steps.start[index]) - side.origin
    end = int(steps.end[index]) - side.origin
    shown_state = shown(state, over(side, state.view, begin, end))
    number = index + 1
    if steps.printed:
        name = printable(steps.names[index])
        return told(shown_state, f"{name}, {number} of {plural(len(steps), 'step')}")
    name = steps.by if steps.are_iterations else steps.names[index]
    return told(shown_state, f"step #{number} of {len(steps)}: {printable(name)}")


def _set_mark(state: State, rest: str) -> State:
    """Set the mark of a letter, with the note that follows it."""
    letter, _, note = rest.partition(" ")
    if not LETTER.fullmatch(letter):
        return told(state, "mark takes one letter, then a note: mark a slow step")
    note = clip(printable(note.strip()), MAX_NOTE_CHARS)
    return moving.set_mark(state, letter, note)


def _open_path(
    state: State, rest: str, verb: str = "open", of: str = "a", beside: int = 0
) -> Outcome:
    """Open the trace at a typed path, after the first `beside` traces that are open.
    `verb` and `of` word the message if the path is missing."""
    if not rest:
        return told(state, f"{verb} takes the path of {of} trace")
    path = Path(rest).expanduser()
    if path.is_file():
        return read(state, (*state.paths[:beside], str(path)))
    problem = "is a folder, not a trace" if path.is_dir() else "does not exist"
    return told(state, f"{printable(str(path))} {problem}")


def _save_file(state: State, rest: str) -> Outcome:
    """Write the table of the page to a new file. With a name that ends in .py, write a
    script that repeats the op of the selected slice."""
    if not rest:
        return told(state, "save takes the name of a new file: save kernels.csv")
    path = str(Path(rest).expanduser())
    if rest.lower().endswith(SCRIPT_SUFFIX) and state.sides:
        return _save_script(state, path)
    return told(state, "saving the table"), SaveTable(state, path)


def _save_picture(state: State, rest: str) -> Outcome:
    """Draw the page in front into a new file."""
    if not rest:
        return told(state, "picture takes the name of a new file: picture page.svg")
    path = str(Path(rest).expanduser())
    return told(state, "drawing the page"), SavePicture(state, path)


def shell(state: State, rest: str = "") -> Outcome:
    """Show the command line that gives the figures on the screen, ready to be copied."""
    if rest:
        return told(state, "shell takes no argument")
    return state, ShowCommand(state)


def _cut_range(state: State, rest: str) -> Outcome:
    """Write the selected range of time to a new file, as a trace of its own. A message
    says what is missing: the range, the name, or the rest of the trace."""
    time_range = state.time_range
    if time_range is None:
        return told(state, with_keys(NO_RANGE, state))
    if not rest:
        return told(state, "cut takes the name of a new file: cut part.json.gz")
    trace = state.side.trace
    if trace.report.prefix:
        return told(state, "cut needs the whole trace, which is being read")
    effect = Cut(
        trace=state.paths[state.active],
        path=str(Path(rest).expanduser()),
        begin=time_range.begin - trace.begin_ns,
        end=time_range.end - trace.begin_ns,
    )
    return told(state, f"cutting {duration(effect.end - effect.begin)}"), effect


def _save_script(state: State, path: str) -> Outcome:
    """Write a script that repeats the op of the selected slice to a new file."""
    row = state.view.selected
    if row == NO_ROW:
        return told(state, NO_SLICE)
    if state.side.trace.report.prefix:
        return told(state, "a script needs the whole trace, which is being read")
    return told(state, "writing the script"), Reproduce(
        trace=state.paths[state.active], path=path, row=row
    )


def ask_for_script(state: State) -> State:
    """Open the command line with a name for the script of the selected slice."""
    if not state.view.has_selection:
        return told(state, NO_SLICE)
    return asked(state, typed=f"save reproduce-{state.view.selected}{SCRIPT_SUFFIX}")


def _record_program(state: State, rest: str) -> Outcome:
    """Record the program with the typed process id; without one, list the programs that
    run."""
    if not rest:
        return told(state, "Looking for running programs..."), Record()
    if not NUMBER.fullmatch(rest):
        return told(state, WRONG_PID)
    return recorded(state, int(rest))


def _record_again(state: State, rest: str) -> Outcome:
    """Record the program of the last trace once more and open it beside that trace. The
    process id is taken from the name of the trace's file."""
    if rest:
        return told(state, "again takes no argument, after :record")
    pid_in_name = RECORDED.search(state.paths[-1]) if state.paths else None
    if pid_in_name is None:
        return told(state, NOT_RECORDED)
    return recorded(state, int(pid_in_name[1]), state.paths[-1:])


def _quit_app(state: State, rest: str) -> Outcome:
    """Quit the app."""
    if rest:
        return told(state, "q takes no argument")
    return state, Order.QUIT


def recorded(state: State, pid: int, beside: tuple[str, ...] = ()) -> Outcome:
    """Return the state and the effect that records a program. Its trace is opened after
    the traces in `beside`."""
    return told(state, f"recording {pid}, which asks every 5 s"), Record(pid, beside)


COMMANDS: dict[str, Callable[[State, str], Outcome]] = {
    "goto": _go_to_time,
    "step": _step,
    "mark": _set_mark,
    "only": moving.only,
    "open": _open_path,
    "diff": partial(_open_path, verb="diff", of="another", beside=1),
    "save": _save_file,
    "picture": _save_picture,
    "shell": shell,
    "cut": _cut_range,
    "path": replays.rows,
    "whatif": replays.whatif,
    "record": _record_program,
    "again": _record_again,
    "q": _quit_app,
}


def asked(state: State, typed: str = "") -> State:
    """Open the line for a command, with `typed` in it.

    An overlay is closed, except a list of hits. While nothing is open, a list of
    choices stays too.
    """
    is_kept = isinstance(state.overlay, HitList) or not state.is_open
    overlay = state.overlay if is_kept else None
    return replace(state, overlay=overlay, prompt=Prompt.COMMAND, typed=typed)


def is_choosing(state: State) -> bool:
    """Return whether a list of traces or programs to choose from is open."""
    return isinstance(state.overlay, Chooser)


def on_page_or_hits(state: State) -> bool:
    """Return whether nothing lies over the page, or a list of hits does."""
    return everywhere(state) or isinstance(state.overlay, HitList)


def on_page_or_list(state: State) -> bool:
    """Return whether nothing lies over the page, or a list of hits or choices does."""
    return on_page_or_hits(state) or is_choosing(state)


def _why_no_command(state: State) -> str:
    """Return why no command can be given: nothing is open. It is "" where something is,
    or an overlay lies over the page."""
    return why_nothing_open(state) if state.overlay is None else ""


ACTIONS = (
    action(
        name="command",
        title="Command",
        written=":",
        help=", ".join(VERBS),
        run=asked,
        where=anywhere,
        needs=_why_no_command,
    ),
    action(
        name="what-if",
        title="What if",
        written="W",
        help="the estimated gain of changing the row or slice",
        run=partial(asked, typed="whatif x0.5"),
    ),
    action(
        name="record",
        title="Record a program",
        written="",
        help="a running PyTorch program",
        run=partial(_record_program, rest=""),
        where=on_page_or_list,
        needs=nothing,
    ),
    action(
        name="cut",
        title="Cut this range",
        written="",
        help="write it as a separate trace",
        run=partial(asked, typed="cut part.json.gz"),
        needs=lambda state: "" if state.time_range else with_keys(NO_RANGE, state),
    ),
    action(
        name="reproduce",
        title="Make this op again",
        written="R",
        help="write a script that runs only the op of the slice",
        run=ask_for_script,
        where=on_timeline,
    ),
)
