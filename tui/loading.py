"""Background threads of the app, which read, compare, search, summarize and replay
traces; each result arrives as a change of the state."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from os.path import getsize
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.launches import wants_capture
from fusetui.analysis.questions.query import match_names, parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import explain_missing_parts
from fusetui.own_process import CancelledError
from fusetui.text import cutting
from fusetui.text.printable import printable
from fusetui.trace.load import Preview, open_trace
from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotReadError, NothingReadError, TraceError
from fusetui.trace.model.op_names import is_compiler
from fusetui.trace.model.report import Stop, never
from fusetui.tui import registry
from fusetui.tui.background_results import opened as snapshot
from fusetui.tui.background_results import search_names
from fusetui.tui.drawing.chrome import parts
from fusetui.tui.helper_client import (
    ALONE,
    SNAPSHOTS,
    Beside,
    HelperUnavailableError,
    Start,
    beside,
)
from fusetui.tui.layout.frame import find_busy_times
from fusetui.tui.layout.kinds import compute_kind_shares
from fusetui.tui.layout.lanes import FIRST_LINES, join_lane_names
from fusetui.tui.layout.memory import MEMORY, MemorySide
from fusetui.tui.layout.search_hits import SearchHits, group_hits
from fusetui.tui.layout.view import Side, make_sides, short_label
from fusetui.tui.pages import ranks
from fusetui.tui.state import hang, memory, moving, reading, replays, search
from fusetui.tui.state import state as effects
from fusetui.tui.state.action import Run
from fusetui.tui.state.comparison import make_second_timeline
from fusetui.tui.state.state import TIMELINE, State
from fusetui.tui.view_store import KeptView, read_saved_view

MIN_SLICES_FOR_HELPER = 100_000
"""In fewer slices all is found before another process has read them."""
MAX_QUICK_SNAPSHOT_BYTES = 8 << 20  # read in a few tenths of a second
PAUSE_SECONDS = 0.3
"""So long without a key, until another process is started for a search."""


class TracesLoaded(msgspec.Struct, frozen=True, eq=False):
    """All traces, read; if reading was stopped, what was read of them, or none."""

    paths: Sequence[str]
    sides: tuple[Side, ...]
    notices: Sequence[str]
    kept: KeptView  # of the only trace
    kept_as: str

    @property
    def is_whole(self) -> bool:
        """Whether every trace was read to its end and none was left out because reading
        was stopped."""
        return len(self.sides) == len(self.paths)


Answer = Run | TracesLoaded
Post = Callable[[Answer], object]


def load(
    paths: Sequence[str],
    post: Post,
    cancelled: Stop,
    stopped: Stop = never,
    helper: Beside = ALONE,
) -> None:
    """Read the trace in every path, and post what is found as changes of the state.

    While reading, it posts the progress and previews. Then it posts TracesLoaded, or a
    change with the reason for the failure. Last comes what takes longer to work out,
    which `helper` (another process) may do.

    Once `stopped` returns true, TracesLoaded has what was read by then. Once
    `cancelled` returns true, nothing more is posted.
    """
    post = partial(_post_unless_cancelled, post, cancelled)
    with suppress(CancelledError):
        try:
            traces, notices = _read(
                paths, post, stopped, helper.captured_by, helper.compile_log
            )
        except TraceError as error:
            post(partial(reading.failed, paths=paths, sentence=str(error)))
            return
        sides = _make_sides(traces, paths)
        are_all_read = len(traces) == len(paths)
        # views are saved for single traces only
        only_path = paths[0] if are_all_read and len(paths) == 1 else ""
        kept, kept_as = read_saved_view(only_path)
        if are_all_read:
            from fusetui.tui.recent_traces import remember_opened  # not at the start

            remember_opened(paths)
        post(TracesLoaded(paths, sides, notices, kept, kept_as))
        _prepare_lanes(sides, cancelled)
        _unpack_args(traces, post)
        _post_slow_answers(paths, traces, post, cancelled, helper)
        # last, because nothing waits for it
        cutting.warm()


def _post_slow_answers(
    paths: Sequence[str],
    traces: Sequence[Trace],
    post: Post,
    cancelled: Stop,
    helper: Beside,
) -> None:
    """Post the answers about traces that take longer, one at a time as they are found.
    `helper` works them out; a trace is known to the app by its identity."""
    for path, trace in zip(paths, traces, strict=False):
        for answer in helper.answers((path, trace), cancelled):
            post(partial(reading.accept_answer, trace=trace, piece=answer))


def _prepare_lanes(sides: Sequence[Side], cancelled: Stop) -> None:
    """Compute the drawn lines of all lanes, so that no frame has to do it. Raise
    CancelledError as soon as `cancelled` returns true."""
    for side in sides:
        for lane in side.lanes:
            if cancelled():
                raise CancelledError
            lane.prepare()


def _unpack_args(traces: Sequence[Trace], post: Post) -> None:
    """Unpack the files of traces whose args cannot be read yet, and post for each that
    they can be read now."""
    for trace in traces:
        if not trace.elements.text.at_hand:
            trace.elements.warm()
            post(reading.unpacked)


def _post_unless_cancelled(post: Post, cancelled: Stop, answer: Answer) -> None:
    """Post an answer, or raise CancelledError if the work was cancelled."""
    if cancelled():
        raise CancelledError
    post(answer)


def _read(
    paths: Sequence[str],
    post: Post,
    stopped: Stop,
    captured_by: Sequence[str],
    compile_log: str,
) -> tuple[list[Trace], list[str]]:
    """Read the traces one after the other until `stopped` returns true.

    Return those that were read, and sentences for the user about them. Kernels get the
    names that captures give, and compilations are noted on the lanes. Raise TraceError
    where a file cannot be read.
    """

    def post_preview(trace: Trace) -> None:
        sides = _make_sides([trace], paths)
        post(partial(registry.previewed, paths=paths, sides=sides))

    def post_progress(path: str, done: int, total: int) -> None:
        post(partial(reading.progressed, path=path, done=done, total=total))

    traces: list[Trace] = []
    notices: list[str] = []
    # two traces are shown together, once both are read
    preview = post_preview if len(paths) == 1 else None
    with suppress(NothingReadError):
        for path in paths:
            report = partial(post_progress, path)
            trace = open_trace(path, report, stop=stopped, preview=preview)
            trace, sentences = _join_captures(trace, captured_by, preview)
            trace = _add_compilations(trace, compile_log)
            traces.append(trace)
            notices += [*trace.notes, *sentences]
            # the trace that was being read is kept, as far as it was read
            if stopped():
                break
    return traces, notices


def _add_compilations(trace: Trace, compile_log: str) -> Trace:
    """Return the trace with the torch.compile log at path `compile_log`; "" is none.
    Graph breaks and compilations are noted on its lanes where it shows a compiler."""
    if compile_log:
        from fusetui.analysis.compiled.finding import attach_log  # many modules

        trace = attach_log(trace, compile_log)
    shows_compiler = any(is_compiler(name) for name in trace.names)
    if shows_compiler:
        _note_compilations(trace)
    return trace


def _note_compilations(trace: Trace) -> None:
    """Note graph breaks and compilations on the lanes of a trace, if there is a
    torch.compile log beside it.

    A log that cannot be read is ignored here: the key that needs the log says what is
    wrong with it.
    """
    from fusetui.analysis.compiled.finding import find_compile_log  # many modules

    with suppress(TraceError):
        log = find_compile_log(trace)
        if log is not None:
            from fusetui.tui.layout.lane_notes import keep_compile_notes

            keep_compile_notes(trace, log)


def _join_captures(
    trace: Trace, captured_by: Sequence[str], preview: Preview | None
) -> tuple[Trace, Sequence[str]]:
    """Return the trace with the names that captures give to the nodes of its CUDA
    graphs, and sentences about that.

    A trace that needs no captures is returned as it is. `preview` shows the trace
    before the first capture is read, because that takes longer.
    """
    if not captured_by and not wants_capture(trace):
        return trace, ()
    from fusetui.analysis.graphs.captures import has_node_numbers  # many modules
    from fusetui.analysis.graphs.opening import join_sentences, with_captures

    @cache
    def show_once() -> None:
        if preview is not None:
            preview(trace)

    def open_capture(path: str) -> Trace:
        show_once()
        return open_trace(path)

    if has_node_numbers(trace):
        show_once()
    joined, joins = with_captures(trace, captured_by, open_capture)
    return joined, list(join_sentences(joins))


def _make_sides(traces: Sequence[Trace], paths: Sequence[str]) -> tuple[Side, ...]:
    """Return a side for each trace: the trace with its lanes and label, as the app
    draws it.

    What the first frame needs is computed here, because this runs beside the thread
    that draws.
    """
    labels = [short_label(path) for path in paths[: len(traces)]]
    sides = make_sides(traces, labels)
    for side in sides:
        for lane in side.lanes:
            lane.prepare(FIRST_LINES)
        for compute in (find_busy_times, compute_kind_shares, parts):
            compute(side.trace)
        # cached properties: computed by being read
        _ = side.quiet, side.trace.launch_index
    return sides


def compare(
    asked: effects.Compare, post: Post, cancelled: Stop, start: Start = None
) -> None:
    """Compare the two traces of `asked` and post their differences. Nothing is posted
    once `cancelled` returns true. Another process compares large traces."""
    path_a, path_b = asked.paths[:2]
    a = asked.a.trace
    b = asked.b.trace
    with beside(start, a, b, least=MIN_SLICES_FOR_HELPER) as helper:
        for diff in helper.answers((path_a, a), cancelled, (path_b, b)):
            if not cancelled():
                post(partial(reading.accept_diff, a=a, b=b, diff=diff))


def rank(asked: effects.ReadRanks, post: Post, cancelled: Stop, *_: object) -> None:
    """Read the traces of all ranks of a job, each in a process of its own.

    Post how many are done, then which ranks wait for which others. Where that fails,
    post the reason.
    """
    from fusetui.analysis.ranks.answer import explained, make_strip
    from fusetui.analysis.ranks.executors import summarize as summarize_ranks

    known = partial(ranks.known, paths=asked.paths)

    def report(done: int, total: int) -> None:
        _post_unless_cancelled(post, cancelled, partial(known, done=done))

    with suppress(CancelledError):
        try:
            summaries = summarize_ranks(asked.paths, progress=report)
            explanation = explained(summaries)
            strip = make_strip(explanation)
            post(partial(known, answer=explanation.answer, strip=strip))
        except TraceError as error:
            post(partial(known, problem=printable(str(error))))


def summarize(
    asked: effects.Summarize, post: Post, cancelled: Stop, *_: object
) -> None:
    """Post the recently opened traces, then one line about each trace that can be
    chosen. A trace that cannot be read gets the reason as its line. Nothing more is
    posted once `cancelled` returns true."""
    from fusetui.tui.recent_traces import make_recent_offers, recent_traces

    recent = make_recent_offers(recent_traces(), asked.known)
    post(partial(reading.accept_recent, recent=recent, is_alone=asked.is_alone))
    for index, path in asked.wanted:
        if cancelled():
            return
        try:
            summary = "   ".join(parts(open_trace(path)))
        except TraceError as error:
            summary = printable(str(error))
        post(partial(reading.accept_summary, index=index, text=summary))


def look(
    asked: effects.Search, post: Post, cancelled: Stop, start: Start = None
) -> None:
    """Search a trace for a query, and post the hits as they are found.

    Hits by name come first. Where the query may match args, these are read afterwards,
    and all hits are posted again and again. A large trace is read by another process,
    so that no key waits. A wrong query posts what is wrong.
    """
    trace = asked.side.trace

    def post_hits(hits: SearchHits) -> None:
        """Posts what has been found by now."""
        post(partial(search.arrived, side=asked.side, found=hits))

    try:
        query = parse(asked.text)
        rows = search_names(trace, asked.text)
    except WrongQueryError as wrong:
        post_hits(SearchHits(asked.text, wrong=str(wrong)))
        return
    missing = "" if len(rows) else explain_missing_parts(trace, query)
    if not query.reads_args:
        # words may also match args, which are not read before the trace is whole
        are_names_enough = not query.words or trace.report.prefix
        if are_names_enough:
            post_hits(replace(group_hits(trace, asked.text, rows), missing=missing))
            return
        post_hits(group_hits(trace, asked.text, rows, share=0.0))
    needs_process = start and len(trace) >= MIN_SLICES_FOR_HELPER
    # a process is only worth its start once the user has stopped typing
    if needs_process and not _wait_for_pause(cancelled):
        return
    for hits in _search_args(asked, query.reads_args, cancelled, start):
        post_hits(replace(hits, missing=missing))


def _search_args(
    asked: effects.Search, reads_args: bool, cancelled: Stop, start: Start
) -> Iterator[SearchHits]:
    """Yield all hits found so far, again and again while the args of the trace are
    read. It ends once `cancelled` returns true. `reads_args` says that the query is
    about args alone."""
    trace = asked.side.trace
    with beside(start, trace, least=MIN_SLICES_FOR_HELPER) as helper:
        answers = helper.answers((asked.path, trace), cancelled, search=asked.text)
        for by_name, by_args, share in answers:
            if cancelled():
                return
            yield group_hits(
                trace, asked.text, by_name, share, by_args, named=not reads_args
            )


def post_matching_lanes(asked: effects.MatchLanes, post: Post, *_: object) -> None:
    """Find the lanes whose names match the pattern of `asked`, and post their numbers.
    An excluding pattern takes the lanes that do not match. For a wrong pattern, post
    what is wrong."""
    pattern = asked.pattern
    lanes: frozenset[int] = frozenset()
    wrong = ""
    try:
        is_match = match_names(pattern.text, join_lane_names(asked.side.lanes))
        is_wanted = ~is_match if pattern.excluded else is_match
        lanes = frozenset(np.flatnonzero(is_wanted).tolist())
    except WrongQueryError as error:
        wrong = str(error)
    answer = partial(
        moving.accept_matching_lanes,
        side=asked.side,
        text=f"/{pattern.text}/",
        lanes=lanes,
        wrong=wrong,
    )
    post(answer)


def _wait_for_pause(cancelled: Stop) -> bool:
    """Wait for PAUSE_SECONDS and return true; return false early when `cancelled` does,
    which means that the user went on typing."""
    deadline = time.monotonic() + PAUSE_SECONDS
    while time.monotonic() < deadline:
        if cancelled():
            return False
        # short enough that typing on ends the wait at once
        time.sleep(0.02)
    return not cancelled()


def load_memory(
    asked: effects.ReadMemory, post: Post, cancelled: Stop, start: Start
) -> None:
    """Read memory snapshots, or the memory events of a trace, and post them. Where they
    cannot be read, post the reason. Nothing is posted once `cancelled` returns true."""
    if asked.trace is not None:
        _read_memory_events(asked, asked.trace, post, cancelled, start)
        return
    no_key_waits = asked.alone or start is None
    try:
        sides = []
        for path in asked.paths:
            side = _read_snapshot(path, cancelled, no_key_waits)
            if side is not None:
                sides.append(side)
    except TraceError as error:
        post(partial(memory.failed, sentence=str(error)))
        return
    # fewer sides: reading one was given up
    if not cancelled() and len(sides) == len(asked.paths):
        post(partial(memory.arrived, sides=tuple(sides)))


def _read_memory_events(
    asked: effects.ReadMemory,
    trace: Trace,
    post: Post,
    cancelled: Stop,
    start: Start,
) -> None:
    """Replay the memory events of a trace and post the allocations over time, or why
    there are none."""
    (path,) = asked.paths
    with beside(start, trace) as helper:
        for moments in helper.answers((path, trace), cancelled, replayed=MEMORY):
            if not cancelled():
                post(partial(memory.of_trace, asked=asked, found=moments))


def _read_snapshot(path: str, cancelled: Stop, no_key_waits: bool) -> MemorySide | None:
    """Read one memory snapshot and return it; None if it was cancelled.

    Small ones are read here if no key waits for that. Otherwise another process reads
    them, or this one where no other can be started. Raise TraceError if the file cannot
    be read.
    """
    is_read_here = no_key_waits and getsize(path) <= MAX_QUICK_SNAPSHOT_BYTES
    try:
        with Beside(start="" if is_read_here else SNAPSHOTS) as helper:
            memory_side = helper.snapshot(path, cancelled)
    except HelperUnavailableError:
        return None if cancelled() else snapshot(path)
    if isinstance(memory_side, str):
        raise CannotReadError(memory_side)
    return memory_side


def load_source(
    asked: effects.ReadSource, post: Post, cancelled: Stop, *_: object
) -> None:
    """Find the source code of the slice in `asked`, and post it. Where the
    torch.compile log of its trace cannot be read, post the reason."""
    from fusetui.analysis.compiled.finding import find_compile_log  # many modules
    from fusetui.analysis.compiled.source import find_source
    from fusetui.tui.drawing.source import make_lexer
    from fusetui.tui.layout.source import list_source_lines
    from fusetui.tui.state import source

    trace = asked.side.trace
    with suppress(CancelledError):
        try:
            found = find_source(trace, find_compile_log(trace), asked.row)
        except TraceError as error:
            _post_unless_cancelled(
                post, cancelled, partial(source.failed, sentence=str(error))
            )
            return
        source_text = None if found is None else list_source_lines(found)
        for language in ("python", "cpp"):  # imported here, not while keys wait
            make_lexer(language)
        _post_unless_cancelled(
            post, cancelled, partial(source.arrived, shown=source_text)
        )


def load_dumps(
    asked: effects.ReadDumps, post: Post, cancelled: Stop, *_: object
) -> None:
    """Read flight-recorder dumps of a job, and post which ranks hang and why. Where no
    dump can be read, post the reason."""
    from fusetui.analysis.hang.grid import make_collective_grid  # many modules
    from fusetui.trace.flight.reading import read_dumps

    def progressed(done: int, total: int) -> None:
        _post_unless_cancelled(
            post, cancelled, partial(hang.progressed, paths=asked.paths, done=done)
        )

    with suppress(CancelledError):
        dumps = read_dumps(asked.paths, progressed)
        if dumps.ranks:
            grid = make_collective_grid(dumps)
            post(partial(hang.arrived, paths=asked.paths, grid=grid))
        else:
            post(partial(hang.failed, sentence=dumps.unread[0].reason))


NO_CHANGE = "The selection cannot be changed: type, for example, whatif kind:gemm x0.8"
CHANGED_BY_ROLE = {
    Role.OP: "op",
    Role.CALL: "op",
    Role.PYTHON: "python",
    Role.ANNOTATION: "module",
    **dict.fromkeys(GPU_ROLES, "kernel"),
}
"""What a change is called that is about a slice of this role."""


def replay(
    asked: effects.Replay, post: Post, cancelled: Stop, start: Start = None
) -> None:
    """Replay a trace with the change in `asked`, and post the answer unless it was
    cancelled.

    An amount alone is applied to what is selected. Where nothing selected can be
    changed, a sentence says so. A predicted trace is made into a second side, to be
    drawn beside the recorded one.
    """
    from fusetui.report.whatif import describe_replay  # rarely needed

    state = asked.state
    trace = state.side.trace
    path = state.paths[state.active]
    worth: Any = getattr(state.overlay, "found", None)
    arrived = partial(replays.arrived, trace=trace, asked=asked.asked)
    change = named(state, asked.asked)
    if not change:
        post(partial(arrived, found=NO_CHANGE))
        return
    with beside(start, trace) as helper:
        for answer in helper.answers((path, trace), cancelled, replayed=change):
            if isinstance(answer, tuple):  # a predicted trace
                answer = make_second_timeline(trace, answer, describe_replay(worth))
            if not cancelled():
                post(partial(arrived, found=answer))


def named(state: State, asked: str) -> str:
    """Return a full what-if change for what the user typed.

    An amount alone, such as `x0.8`, gets its object: the selected slice or the row
    under the cursor. The change of a finding replaces it whatever the amount. The
    result is "" where nothing selected can be changed; a full change is returned as it
    is.

        "x0.8" with the cursor on kind gemm: "kind:gemm x0.8"
    """
    from fusetui.analysis.replay.changes import AMOUNT  # rarely needed

    is_amount_alone = re.fullmatch(AMOUNT, asked) is not None
    if not is_amount_alone:
        return asked
    page = registry.page_of(state)
    change_of_finding = page.change(state)
    if change_of_finding:
        return change_of_finding
    object_of_row = page.changed_part(state)
    if object_of_row is None:  # the slice decides
        object_of_row = _name_selected_slice(state)
    return f"{object_of_row} {asked}" if object_of_row else ""


def _name_selected_slice(state: State) -> str:
    """Return the selected slice, or that of the row under the cursor, as a change names
    it, such as `op:aten::mm`; "" where no change can name it."""
    if state.page == TIMELINE:
        row = state.view.selected
    else:
        row = registry.page_of(state).subject(state)
    if row == NO_ROW:
        return ""
    trace = state.side.trace
    object_kind = CHANGED_BY_ROLE.get(Role(int(trace.role[row])))
    if object_kind is None:
        return ""
    # the page of modules also lists those that are Python frames
    if object_kind == "python" and state.page == "modules":
        object_kind = "module"
    return f"{object_kind}:{trace.name_of(row)}"
