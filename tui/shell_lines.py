"""Builds the command line of fusetui that prints the figures on the screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

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


def make_shell_command(state: State) -> ShownCommand:
    """Return the command line of fusetui that gives the figures on the screen: of the
    list over the page, else of the page in front.

    Notes say what the line leaves out, such as the password of a URL.
    """
    command = _choose_command(state)
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
    words += map(shell_word, _list_joined_files(state, command))
    return ShownCommand(" ".join(words), tuple(dict.fromkeys(notes)))


def _list_joined_files(state: State, command: Command) -> list[str]:
    """Return the options that repeat the captures and the compile log that the app was
    started with."""
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


def _choose_command(state: State) -> Command:
    """Return the command for the list over the page, else for the page in front."""
    if isinstance(state.overlay, HitList):
        return _make_hits_command(state, state.overlay)
    return OF_PAGE[state.page](state)


def _active_path(state: State) -> str:
    """Return the path of the trace on the active side."""
    return state.paths[state.active]


def _make_hits_command(state: State, overlay: HitList) -> Command:
    """Return the command that lists the same steps, or the same slices as a search.

    Slices that were chosen in a table cannot be found by a query; a note says so.
    """
    paths = (state.paths[overlay.hits.side],)
    if overlay.steps is not None:
        return Command("steps", paths, ("--top=0",))
    query = overlay.hits.what
    # a query cannot escape a quote within quotes
    if overlay.hits.is_of_name and QUOTE not in query:
        return Command("slices", paths, (f"--where=name = {QUOTE}{query}{QUOTE}",))
    if not overlay.hits.searched:
        return Command("slices", paths, notes=(NO_SAME_SLICES,))
    notes = (ONLY_NAMES,) if _finds_args(overlay, query) else ()
    return Command("slices", paths, (f"--where={query}",), notes)


def _finds_args(overlay: HitList, query: str) -> bool:
    """Return whether the search also found slices by their args, which the command does
    not look at."""
    try:
        reads_args = parse(query).reads_args
    except WrongQueryError:
        reads_args = False
    return reads_args or len(overlay.hits.by_args) > 0


def _make_timeline_command(state: State) -> Command:
    """Return the command for what the timeline shows.

    For a selected range, or a window on a part of the trace, it is a breakdown of that
    time. For the whole trace it is the summary, or the diff of two traces.
    """
    side = state.side
    trace = side.trace
    paths = (_active_path(state),)
    time_range = state.time_range
    if time_range is not None:
        begin_ns = time_range.begin
        end_ns = time_range.end
    else:
        shown_step = _find_shown_step(state)
        if shown_step:
            return Command("why", paths, (f"--step={shown_step}",), has_log=True)
        begin_ns = state.view.begin + side.origin
        end_ns = state.view.end + side.origin
    is_whole_trace = begin_ns <= trace.begin_ns and end_ns >= trace.end_ns
    if is_whole_trace and len(state.sides) == 2:
        return _make_diff_command(state)
    if is_whole_trace:
        return Command("summary", paths)
    # the options count from the begin of the trace, and a window may reach beyond it
    from_ns = max(begin_ns, trace.begin_ns) - trace.begin_ns
    to_ns = min(end_ns, trace.end_ns) - trace.begin_ns
    return Command("why", paths, (f"--from={from_ns}", f"--to={to_ns}"), has_log=True)


def _find_shown_step(state: State) -> str:
    """Return the number of the step that the window shows exactly, as after the command
    `:step`; "" for another window."""
    side = state.side
    steps = steps_of(side.trace)
    for index, number in enumerate(steps.numbers):
        begin = int(steps.start[index]) - side.origin
        end = int(steps.end[index]) - side.origin
        window = over(side, state.view, begin, end)
        if window.begin == state.view.begin and window.end == state.view.end:
            return str(number)
    return ""


def _make_ops_command(state: State) -> Command:
    """Return the command that lists all CPU ops of the active trace."""
    return Command("ops", (_active_path(state),), ("--top=0",), has_log=True)


def _make_kernels_command(state: State) -> Command:
    """Return the command that lists the same groups of kernels, or the kernels of the
    groups that were entered.

    Filters that no command has are left out, and a note says so.
    """
    paths = (_active_path(state),)
    view = state.kernels
    table = kernels.shown_table(state)
    if table.role is not Role.KERNEL:
        return _make_ops_command(state)
    all_groups = Command(
        "kernels", paths, (f"--by={table.by}", "--top=0"), has_log=True
    )
    if view.words:
        return replace(all_groups, notes=(NOT_FILTERED.format("words"),))
    if not view.only:
        return all_groups
    terms = []
    for entered_group in view.only:
        term = _make_query_term(state, entered_group)
        if not term:
            return replace(all_groups, notes=(NOT_FILTERED.format(entered_group.by),))
        terms.append(term)
    query = " and ".join(terms)
    # the table of kernels has a column for these fields; for others, list the slices
    has_columns = all(entered_group.by in IN_TABLES for entered_group in view.only)
    if has_columns and table.by == "name":
        return Command("kernels", paths, (f"--where={query}",), has_log=True)
    return Command("slices", paths, (f"--where=kind = kernel and {query}",))


def _make_query_term(state: State, only: Only) -> str:
    """Return the query term that finds the kernels of a group, such as `library =
    "cutlass"`. It is "" where no query can find them."""
    if only.by not in IN_SLICES:
        return ""
    fields = kernels.known_groupings(state.side)[only.by].identify(only.number)
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


def _make_diff_command(state: State) -> Command:
    """Return the command that compares the two traces."""
    return Command("diff", state.paths, joins=False, has_log=True)


def _make_why_command(state: State) -> Command:
    """Return the command that says where the time of the active trace went."""
    return Command("why", (_active_path(state),), has_log=True)


def _make_modules_command(state: State) -> Command:
    """Return the command that lists the modules of the active trace."""
    return Command("modules", (_active_path(state),), ("--top=0",))


def _make_hang_command(state: State) -> Command:
    """Return the command that explains a hang by the flight-recorder dumps that are
    open."""
    paths = state.hang.paths if state.hang is not None else ()
    return Command("hang", paths, joins=False)


def _make_ranks_command(state: State) -> Command:
    """Return the command that compares the ranks of the open job."""
    return Command("ranks", state.job.paths, joins=False)


def _make_flame_command(state: State) -> Command:
    """Return the command that writes the stacks of the flame graph, by the same tree
    and time."""
    options = (
        f"--of={STACKS[state.flame.tree]}",
        f"--time={flame.choose_time(state).lower()}",
    )
    return Command("stacks", (_active_path(state),), options)


def _make_memory_command(state: State) -> Command:
    """Return the command that lists who holds memory at the moment under the cursor. At
    the peak no moment is named, because the command shows the peak by itself."""
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
    event_index = shown.view.at
    if event_index != history.peak_index and 0 <= event_index < len(history.events):
        options.append(f"--at={int(history.events.time_us[event_index])}")
    return Command("memory", paths, (*options, "--top=0"), joins=False)


OF_PAGE: Mapping[str, Callable[[State], Command]] = {
    "timeline": _make_timeline_command,
    "tree": _make_ops_command,
    "kernels": _make_kernels_command,
    "diff": _make_diff_command,
    "why": _make_why_command,
    "modules": _make_modules_command,
    "hang": _make_hang_command,
    "ranks": _make_ranks_command,
    "flame": _make_flame_command,
    "memory": _make_memory_command,
}
"""By the names of pages."""
