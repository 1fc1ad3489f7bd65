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
from fusetui.analysis.questions.query import matching, parse
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.questions.search import why_nothing
from fusetui.own_process import CancelledError
from fusetui.text import cutting
from fusetui.text.printable import printable
from fusetui.trace.load import Preview, open_trace
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotReadError, NothingReadError, TraceError
from fusetui.trace.model.op_names import is_compiler
from fusetui.trace.model.report import Stop, never
from fusetui.tui import registry
from fusetui.tui.background_results import by_names
from fusetui.tui.background_results import opened as snapshot
from fusetui.tui.drawing.chrome import parts
from fusetui.tui.helper_client import (
    ALONE,
    SNAPSHOTS,
    Beside,
    HelperUnavailableError,
    Start,
    beside,
)
from fusetui.tui.layout.frame import busy_of
from fusetui.tui.layout.kinds import shares
from fusetui.tui.layout.lanes import FIRST_LINES, names_of
from fusetui.tui.layout.memory import MEMORY, MemorySide
from fusetui.tui.layout.search_hits import SearchHits, found_of
from fusetui.tui.layout.view import Side, make_sides, short_label
from fusetui.tui.pages import ranks
from fusetui.tui.state import hang, memory, moving, reading, replays, search
from fusetui.tui.state import state as effects
from fusetui.tui.state.action import Run
from fusetui.tui.state.comparison import second_of
from fusetui.tui.state.state import TIMELINE, State
from fusetui.tui.view_store import KeptView, read_kept

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
    """Read every path; posts how far it is, and previews, while reading and before
    captures are read, then TracesLoaded or why it failed, then what takes longer, which
    `helper` may work out. Once `stopped`, posts TracesLoaded with what was read by
    then; once `cancelled`, nothing more."""
    post = partial(_posted, post, cancelled)
    with suppress(CancelledError):
        try:
            traces, notices = _read(
                paths, post, stopped, helper.captured_by, helper.compile_log
            )
        except TraceError as error:
            post(partial(reading.failed, paths=paths, sentence=str(error)))
            return
        only = paths[0] if len(traces) == len(paths) == 1 else ""
        sides = _sides(traces, paths)
        kept, kept_as = read_kept(only)
        if len(traces) == len(paths):
            from fusetui.tui.recent_traces import remember_opened  # not at the start

            remember_opened(paths)
        post(TracesLoaded(paths, sides, notices, kept, kept_as))
        _prepare_lanes(sides, cancelled)
        _warm_args(traces, post)
        _learn(paths, traces, post, cancelled, helper)
        cutting.warm()


def _learn(
    paths: Sequence[str],
    traces: Sequence[Trace],
    post: Post,
    cancelled: Stop,
    helper: Beside,
) -> None:
    """Posts what takes longer to know about traces, piece by piece."""
    for path, trace in zip(paths, traces, strict=False):
        for piece in helper.answers((path, trace), cancelled):
            post(partial(reading.learned, trace=trace, piece=piece))


def _prepare_lanes(sides: Sequence[Side], cancelled: Stop) -> None:
    """Makes the lines of all lanes, which a frame would make otherwise. Raises
    CancelledError."""
    for side in sides:
        for lane in side.lanes:
            if cancelled():
                raise CancelledError
            lane.prepare()


def _warm_args(traces: Sequence[Trace], post: Post) -> None:
    """Unpacks the files of which args cannot be read yet, and posts that they can."""
    for trace in traces:
        if not trace.elements.text.at_hand:
            trace.elements.warm()
            post(reading.unpacked)


def _posted(post: Post, cancelled: Stop, answer: Answer) -> None:
    """Raises CancelledError instead once that is so."""
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
    """What was read until it was stopped, and what is said of it. Raises TraceError."""

    def preview(trace: Trace) -> None:
        post(partial(registry.previewed, paths=paths, sides=_sides([trace], paths)))

    def report(path: str, done: int, total: int) -> None:
        post(partial(reading.progressed, path=path, done=done, total=total))

    traces: list[Trace] = []
    notices: list[str] = []
    shown = preview if len(paths) == 1 else None
    with suppress(NothingReadError):
        for path in paths:
            trace = open_trace(path, partial(report, path), stop=stopped, preview=shown)
            trace, sentences = _joined(trace, captured_by, shown)
            if compile_log:
                from fusetui.analysis.compiled.finding import with_log_at

                trace = with_log_at(trace, compile_log)
            if any(map(is_compiler, trace.names)):
                _note_compilations(trace)
            traces.append(trace)
            notices += [*trace.notes, *sentences]
            if stopped():
                break
    return traces, notices


def _note_compilations(trace: Trace) -> None:
    """Graph breaks and compilations stand on the lanes, if there is a compile log. One
    that cannot be read leaves them as they are: the key that needs it says why."""
    from fusetui.analysis.compiled.finding import compile_log_of  # many modules

    with suppress(TraceError):
        log = compile_log_of(trace)
        if log is not None:
            from fusetui.tui.layout.lane_notes import keep_notes

            keep_notes(trace, log)


def _joined(
    trace: Trace, captured_by: Sequence[str], preview: Preview | None
) -> tuple[Trace, Sequence[str]]:
    """The trace with the names that captures give to the nodes of its graphs, and what
    is said. It is shown before the first of them is read, and before the args of nodes
    are."""
    if not captured_by and not wants_capture(trace):
        return trace, ()
    from fusetui.analysis.graphs.captures import numbers_nodes  # many modules
    from fusetui.analysis.graphs.opening import join_sentences, with_captures

    @cache
    def show_once() -> None:
        if preview is not None:
            preview(trace)

    def open_capture(path: str) -> Trace:
        show_once()
        return open_trace(path)

    if numbers_nodes(trace):
        show_once()
    joined, joins = with_captures(trace, captured_by, open_capture)
    return joined, list(join_sentences(joins))


def _sides(traces: Sequence[Trace], paths: Sequence[str]) -> tuple[Side, ...]:
    """The sides of the traces that were read. What the first picture needs is computed
    here, not in the thread that draws."""
    labels = [short_label(path) for path in paths[: len(traces)]]
    sides = make_sides(traces, labels)
    for side in sides:
        for lane in side.lanes:
            lane.prepare(FIRST_LINES)
        for compute in (busy_of, shares, parts):
            compute(side.trace)
        _ = side.quiet, side.trace.launch_index
    return sides


def compare(
    asked: effects.Compare, post: Post, cancelled: Stop, start: Start = None
) -> None:
    """Posts the diff, unless nobody wants it any more."""
    path_a, path_b = asked.paths[:2]
    a = asked.a.trace
    b = asked.b.trace
    with beside(start, a, b, least=MIN_SLICES_FOR_HELPER) as helper:
        for diff in helper.answers((path_a, a), cancelled, (path_b, b)):
            if not cancelled():
                post(partial(reading.compared, a=a, b=b, diff=diff))


def rank(asked: effects.ReadRanks, post: Post, cancelled: Stop, *_: object) -> None:
    """Reads the ranks of a job, each in a process; posts each, then who waits for
    whom."""
    from fusetui.analysis.ranks.answer import explained, strip_of
    from fusetui.analysis.ranks.executors import summarize as summarize_ranks

    known = partial(ranks.known, paths=asked.paths)

    def report(done: int, total: int) -> None:
        _posted(post, cancelled, partial(known, done=done))

    with suppress(CancelledError):
        try:
            summaries = summarize_ranks(asked.paths, progress=report)
            explanation = explained(summaries)
            strip = strip_of(explanation)
            post(partial(known, answer=explanation.answer, strip=strip))
        except TraceError as error:
            post(partial(known, problem=printable(str(error))))


def summarize(
    asked: effects.Summarize, post: Post, cancelled: Stop, *_: object
) -> None:
    """Posts the recent traces, then a line about each of the traces to choose from: its
    place in the list, and its path."""
    from fusetui.tui.recent_traces import offers_of_recent, recent_traces

    recent = offers_of_recent(recent_traces(), asked.known)
    post(partial(reading.recalled, recent=recent, is_alone=asked.is_alone))
    for index, path in asked.wanted:
        if cancelled():
            return
        try:
            text = "   ".join(parts(open_trace(path)))
        except TraceError as error:
            text = printable(str(error))
        post(partial(reading.summarized, index=index, text=text))


def look(
    asked: effects.Search, post: Post, cancelled: Stop, start: Start = None
) -> None:
    """Posts what names say, then as long as args are read, again and again; those of a
    large trace another process reads, so that no key waits for it."""
    trace = asked.side.trace

    def post_hits(hits: SearchHits) -> None:
        """Posts what has been found by now."""
        post(partial(search.arrived, side=asked.side, found=hits))

    try:
        query = parse(asked.text)
        rows = by_names(trace, asked.text)
    except WrongQueryError as wrong:
        post_hits(SearchHits(asked.text, wrong=str(wrong)))
        return
    missing = "" if len(rows) else why_nothing(trace, query)
    are_names_enough = not query.words or trace.report.prefix
    if not query.reads_args and are_names_enough:
        post_hits(replace(found_of(trace, asked.text, rows), missing=missing))
        return
    if not query.reads_args:
        post_hits(found_of(trace, asked.text, rows, share=0.0))
    if start and len(trace) >= MIN_SLICES_FOR_HELPER and not _paused(cancelled):
        return
    for hits in _hits_by_args(asked, query.reads_args, cancelled, start):
        post_hits(replace(hits, missing=missing))


def _hits_by_args(
    asked: effects.Search, reads_args: bool, cancelled: Stop, start: Start
) -> Iterator[SearchHits]:
    """What has been found while args are read, again and again; nothing more once
    `cancelled`. `reads_args`: the query is about args alone."""
    trace = asked.side.trace
    with beside(start, trace, least=MIN_SLICES_FOR_HELPER) as helper:
        answers = helper.answers((asked.path, trace), cancelled, search=asked.text)
        for by_name, by_args, share in answers:
            if cancelled():
                return
            yield found_of(
                trace, asked.text, by_name, share, by_args, named=not reads_args
            )


def match_lanes(asked: effects.MatchLanes, post: Post, *_: object) -> None:
    """Posts the lanes that a pattern matches, or what is wrong with it."""
    pattern = asked.pattern
    lanes: frozenset[int] = frozenset()
    wrong = ""
    try:
        matches = matching(pattern.text, names_of(asked.side.lanes)) ^ pattern.excluded
        lanes = frozenset(np.flatnonzero(matches).tolist())
    except WrongQueryError as error:
        wrong = str(error)
    answer = partial(
        moving.matched,
        side=asked.side,
        text=f"/{pattern.text}/",
        lanes=lanes,
        wrong=wrong,
    )
    post(answer)


def _paused(cancelled: Stop) -> bool:
    """Waits for PAUSE_SECONDS; False as soon as a person has gone on typing."""
    until = time.monotonic() + PAUSE_SECONDS
    while time.monotonic() < until:
        if cancelled():
            return False
        time.sleep(0.02)
    return not cancelled()


def read_memory(
    asked: effects.ReadMemory, post: Post, cancelled: Stop, start: Start
) -> None:
    """Posts the snapshots, or what the memory events of a trace tell, or why there are
    none."""
    if asked.trace is not None:
        _read_memory_events(asked, asked.trace, post, cancelled, start)
        return
    no_key_waits = asked.alone or start is None
    try:
        sides = []
        for path in asked.paths:
            side = _snapshot(path, cancelled, no_key_waits)
            if side is not None:
                sides.append(side)
    except TraceError as error:
        post(partial(memory.failed, sentence=str(error)))
        return
    if not cancelled() and len(sides) == len(asked.paths):
        post(partial(memory.arrived, sides=tuple(sides)))


def _read_memory_events(
    asked: effects.ReadMemory,
    trace: Trace,
    post: Post,
    cancelled: Stop,
    start: Start,
) -> None:
    """Posts what the memory events of a trace tell, or why there are none."""
    (path,) = asked.paths
    with beside(start, trace) as helper:
        for moments in helper.answers((path, trace), cancelled, replayed=MEMORY):
            if not cancelled():
                post(partial(memory.of_trace, asked=asked, found=moments))


def _snapshot(path: str, cancelled: Stop, no_key_waits: bool) -> MemorySide | None:
    """A snapshot. Large ones, and those beside a trace, another process reads, so that
    no key waits for it. None once nobody wants it. Raises TraceError."""
    is_read_here = no_key_waits and getsize(path) <= MAX_QUICK_SNAPSHOT_BYTES
    try:
        with Beside(start="" if is_read_here else SNAPSHOTS) as helper:
            side = helper.snapshot(path, cancelled)
    except HelperUnavailableError:
        return None if cancelled() else snapshot(path)
    if isinstance(side, str):
        raise CannotReadError(side)
    return side


def read_source(
    asked: effects.ReadSource, post: Post, cancelled: Stop, *_: object
) -> None:
    """Posts the source of a slice, or why the log of its trace cannot be read."""
    from fusetui.analysis.compiled.finding import compile_log_of  # many modules
    from fusetui.analysis.compiled.source import source_of
    from fusetui.tui.drawing.source import lexer_of
    from fusetui.tui.layout.source import shown_source
    from fusetui.tui.state import source

    trace = asked.side.trace
    with suppress(CancelledError):
        try:
            found = source_of(trace, compile_log_of(trace), asked.row)
        except TraceError as error:
            _posted(post, cancelled, partial(source.failed, sentence=str(error)))
            return
        shown = None if found is None else shown_source(found)
        for language in ("python", "cpp"):  # imported here, not while keys wait
            lexer_of(language)
        _posted(post, cancelled, partial(source.arrived, shown=shown))


def read_dumps_of(
    asked: effects.ReadDumps, post: Post, cancelled: Stop, *_: object
) -> None:
    """Posts why a job hangs, by its dumps, or why they cannot be read."""
    from fusetui.analysis.hang.grid import grid_of  # many modules
    from fusetui.trace.flight.reading import read_dumps

    def progressed(done: int, total: int) -> None:
        _posted(post, cancelled, partial(hang.progressed, paths=asked.paths, done=done))

    with suppress(CancelledError):
        dumps = read_dumps(asked.paths, progressed)
        if dumps.ranks:
            grid = grid_of(dumps)
            post(partial(hang.arrived, paths=asked.paths, grid=grid))
        else:
            post(partial(hang.failed, sentence=dumps.unread[0].reason))


NO_CHANGE = "The selection is no change: write whatif kind:gemm x0.8, for example"
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
    """Posts the answer, unless nobody wants it any more."""
    from fusetui.report.whatif import replayed_sentence  # rarely needed

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
                answer = second_of(trace, answer, replayed_sentence(worth))
            if not cancelled():
                post(partial(arrived, found=answer))


def named(state: State, asked: str) -> str:
    """The whole change where only an amount was given: of what is selected or in the
    row under the cursor, or the change of a finding, whatever the amount; "" for
    nothing."""
    from fusetui.analysis.replay.changes import AMOUNT  # rarely needed

    if not re.fullmatch(AMOUNT, asked):
        return asked
    page = registry.page_of(state)
    change = page.change(state)
    if change:
        return change
    part = page.changed_part(state)
    if part is not None:
        return f"{part} {asked}" if part else ""
    row = state.view.selected if state.page == TIMELINE else page.subject(state)
    if row < 0:
        return ""
    trace = state.side.trace
    what = CHANGED_BY_ROLE.get(Role(int(trace.role[row])))
    if what == "python" and state.page == "modules":
        what = "module"
    return f"{what}:{trace.name_of(row)} {asked}" if what else ""
