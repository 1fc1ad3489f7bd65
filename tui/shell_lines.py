"""Builds the command line of fusetui that prints the figures on the screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.text.printable import without_credentials
from fusetui.text.shell import shell_path, shell_word
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.categories import Role
from fusetui.tui.layout.kernel_table import Only
from fusetui.tui.layout.moves import over
from fusetui.tui.pages import flame, kernels
from fusetui.tui.state.state import HitList, ShownCommand, State

PROGRAM = "fusetui"
QUOTE = '"'  # a query has no way to write it within quotes
STDIN = "-"
NO_PASSWORD = "The password or signature of the URL is left out."
NO_STDIN = "Standard input cannot be read again: name the file instead of -."
NO_SAME_SLICES = "No command lists these slices: they were chosen in a table."
ONLY_NAMES = "The command looks at names only; the search looked at args too."
NOT_FILTERED = "No command has the filter by {}: this one has all kernels."
IN_TABLES = ("kind", "library")
"""The filters of kernels that have a column where kernels are grouped by name."""
IN_SLICES = (*IN_TABLES, "op", "stream", "step")
"""Those that have one where each slice is a row."""
STACKS = {"ops": "ops", "modules": "modules", "frames": "python"}
"""What `stacks --of` calls the trees of the flame graph."""


class Command(msgspec.Struct, frozen=True):
    """A command with its options, and what it is about. The options come last, so that
    none of them takes a file for its value."""

    name: str
    paths: Sequence[str]
    options: Sequence[str] = ()
    notes: tuple[str, ...] = ()
    joins: bool = True  # takes captures of graphs
    has_log: bool = False  # takes a log of torch.compile


def shown_command(state: State) -> ShownCommand:
    """The command line of the list over the page, else of the page in front."""
    command = _command_of(state)
    words = [PROGRAM, command.name]
    notes = list(command.notes)
    for path in command.paths:
        shown_path = without_credentials(path)
        if shown_path != path:
            notes.append(NO_PASSWORD)
        if path == STDIN:
            notes.append(NO_STDIN)
        words.append(path if path == STDIN else shell_path(shown_path))
    words += map(shell_word, command.options)
    words += map(shell_word, _joined_by(state, command))
    return ShownCommand(" ".join(words), tuple(dict.fromkeys(notes)))


def _joined_by(state: State, command: Command) -> list[str]:
    """The options of captures and logs that were named when the app was started."""
    words = []
    if command.joins:
        for name in state.captured_by:
            kind, colon, path = name.partition(":")
            if colon and kind == "annotations":
                words.append(f"--annotations={path}")
            else:
                words.append(f"--captured-by={name}")
    if command.has_log and state.compile_log:
        words.append(f"--compile-log={state.compile_log}")
    return words


def _command_of(state: State) -> Command:
    if isinstance(state.overlay, HitList):
        return _hits(state, state.overlay)
    return OF_PAGE[state.page](state)


def _path(state: State) -> str:
    """The path of the active side."""
    return state.paths[state.active]


def _hits(state: State, overlay: HitList) -> Command:
    """The steps, or the slices that a search or a name finds."""
    path = (state.paths[overlay.hits.side],)
    if overlay.steps is not None:
        return Command("steps", path, ("--top=0",))
    what = overlay.hits.what
    if overlay.hits.is_of_name and QUOTE not in what:
        return Command("slices", path, (f"--where=name = {QUOTE}{what}{QUOTE}",))
    if not overlay.hits.searched:
        return Command("slices", path, notes=(NO_SAME_SLICES,))
    notes = (ONLY_NAMES,) if _reads_args(overlay, what) else ()
    return Command("slices", path, (f"--where={what}",), notes)


def _reads_args(overlay: HitList, query: str) -> bool:
    """Whether some hits are hits by their args alone."""
    try:
        reads_args = parse(query).reads_args
    except WrongQueryError:
        reads_args = False
    return reads_args or len(overlay.hits.by_args) > 0


def _timeline(state: State) -> Command:
    """The breakdown of the range or the window; of the whole, key figures, or the
    diff."""
    side = state.side
    trace = side.trace
    time_range = state.time_range
    if time_range is not None:
        begin = time_range.begin - trace.begin_ns
        end = time_range.end - trace.begin_ns
    elif _number_of_step(state):
        step = f"--step={_number_of_step(state)}"
        return Command("why", (_path(state),), (step,), has_log=True)
    else:
        begin = state.view.begin + side.origin - trace.begin_ns
        end = state.view.end + side.origin - trace.begin_ns
    whole_ns = trace.end_ns - trace.begin_ns
    if begin <= 0 and end >= whole_ns:
        if len(state.sides) == 2:
            return _diff(state)
        return Command("summary", (_path(state),))
    options = f"--from={max(0, begin)}", f"--to={min(end, whole_ns)}"
    return Command("why", (_path(state),), options, has_log=True)


def _number_of_step(state: State) -> str:
    """The number of the step over which the window lies as `:step` puts it; "" for
    another window."""
    side = state.side
    steps = steps_of(side.trace)
    for index, number in enumerate(steps.numbers):
        begin = int(steps.start[index]) - side.origin
        end = int(steps.end[index]) - side.origin
        window = over(side, state.view, begin, end)
        if window.begin == state.view.begin and window.end == state.view.end:
            return str(number)
    return ""


def _ops(state: State) -> Command:
    return Command("ops", (_path(state),), ("--top=0",), has_log=True)


def _kernels(state: State) -> Command:
    """The groups of kernels; of what was drilled into, those rows or its kernels."""
    path = (_path(state),)
    view = state.kernels
    if kernels.shown_table(state).role is not Role.KERNEL:
        return _ops(state)
    by = f"--by={kernels.shown_table(state).by}"
    all_groups = (by, "--top=0")
    if view.words:
        notes = (NOT_FILTERED.format("words"),)
        return Command("kernels", path, all_groups, notes, has_log=True)
    terms = [_term(state, only) for only in view.only]
    if not terms:
        return Command("kernels", path, all_groups, has_log=True)
    without_term = [
        only.by for only, term in zip(view.only, terms, strict=True) if not term
    ]
    if without_term:
        notes = (NOT_FILTERED.format(without_term[0]),)
        return Command("kernels", path, all_groups, notes, has_log=True)
    is_of_names = all(only.by in IN_TABLES for only in view.only)
    if is_of_names and kernels.shown_table(state).by == "name":
        where = f"--where={' and '.join(terms)}"
        return Command("kernels", path, (where,), has_log=True)
    where = f"--where={' and '.join(['kind = kernel', *terms])}"
    return Command("slices", path, (where,))


def _term(state: State, only: Only) -> str:
    """The term of a query for the kernels of a group; "" where there is none."""
    if only.by not in IN_SLICES:
        return ""
    fields = kernels.known_keys(state.side)[only.by].fields(only.number)
    if only.by == "step":
        numbers = steps_of(state.side.trace).numbers
        return f"step = {numbers[only.number]}" if only.number < len(numbers) else ""
    terms = []
    for field, value in fields.items():
        if value is None or QUOTE in str(value):
            return ""
        name = "library" if field == "family" else field
        terms.append(f"{name} = {QUOTE}{value}{QUOTE}")
    return " and ".join(terms)


def _diff(state: State) -> Command:
    return Command("diff", state.paths, joins=False, has_log=True)


def _why(state: State) -> Command:
    return Command("why", (_path(state),), has_log=True)


def _modules(state: State) -> Command:
    return Command("modules", (_path(state),), ("--top=0",))


def _hang(state: State) -> Command:
    paths = state.hang.paths if state.hang is not None else ()
    return Command("hang", paths, joins=False)


def _ranks(state: State) -> Command:
    return Command("ranks", state.job.paths, joins=False)


def _flame(state: State) -> Command:
    options = (
        f"--of={STACKS[state.flame.tree]}",
        f"--time={flame.time_of(state).lower()}",
    )
    return Command("stacks", (_path(state),), options)


def _memory(state: State) -> Command:
    """Who holds the memory, at the peak or at the moment of the cursor."""
    shown = state.memory
    if shown is None:
        return Command("memory", (), joins=False)
    if shown.trace is not None:
        paths: tuple[str, ...] = (shown.trace.report.file,)
    else:
        paths = tuple(side.path for side in shown.sides)
    options = []
    if shown.trace is None:
        options.append(f"--by={shown.by}")
    history = shown.moments(shown.active).history
    at = shown.view.at
    if at != history.peak_index and 0 <= at < len(history.events):
        options.append(f"--at={int(history.events.time_us[at])}")
    return Command("memory", paths, (*options, "--top=0"), joins=False)


OF_PAGE: Mapping[str, Callable[[State], Command]] = {
    "timeline": _timeline,
    "tree": _ops,
    "kernels": _kernels,
    "diff": _diff,
    "why": _why,
    "modules": _modules,
    "hang": _hang,
    "ranks": _ranks,
    "flame": _flame,
    "memory": _memory,
}
"""By the names of pages."""
