"""What threads do beside the app: they read, compare, search, summarize and replay
traces; what is found arrives as a change of the state."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
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

LARGE = 100_000  # slices: in fewer all is found before another process has read them
SOON = 8 << 20  # bytes of a snapshot that is read in a few tenths of a second
PAUSE = 0.3  # seconds without a key, until another process is started for a search


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
    captures are read, then Loaded or why it failed, then what takes longer, which
    `helper` may work out. Once `stopped`, posts Loaded with what was read by then; once
    `cancelled`, nothing more."""
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
        post(TracesLoaded(paths, sides, notices, *read_kept(only)))
        for lane in (lane for side in sides for lane in side.lanes):
            if cancelled():
                return
            lane.prepare()
        for trace in traces:
            if not trace.elements.text.at_hand:
                trace.elements.warm()
                post(reading.unpacked)
        for path, trace in zip(paths, traces, strict=False):
            for piece in helper.answers((path, trace), cancelled):
                post(partial(reading.learned, trace=trace, piece=piece))
        cutting.warm()


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
    from fusetui.analysis.graphs.opening import said, with_captures

    @cache
    def show() -> None:
        if preview is not None:
            preview(trace)

    def opened(path: str) -> Trace:
        show()
        return open_trace(path)

    if numbers_nodes(trace):
        show()
    joined, joins = with_captures(trace, captured_by, opened)
    return joined, list(said(joins))


def _sides(traces: Sequence[Trace], paths: Sequence[str]) -> tuple[Side, ...]:
    """What the first picture needs is computed here, not in the thread that draws."""
    sides = make_sides(traces, [short_label(path) for path in paths[: len(traces)]])
    for side in sides:
        for lane in side.lanes:
            lane.prepare(FIRST_LINES)
        for make in (busy_of, shares, parts):
            make(side.trace)
        _ = side.quiet, side.trace.launch_index
    return sides


def compare(
    asked: effects.Compare, post: Post, cancelled: Stop, start: Start = None
) -> None:
    """Posts the diff, unless nobody wants it any more."""
    a, b = asked.a.trace, asked.b.trace
    with beside(start, a, b, least=LARGE) as helper:
        for found in helper.answers(
            (asked.paths[0], a), cancelled, (asked.paths[1], b)
        ):
            if not cancelled():
                post(partial(reading.compared, a=a, b=b, diff=found))


def rank(asked: effects.ReadRanks, post: Post, cancelled: Stop, *_: object) -> None:
    """Reads the ranks of a job, each in a process; posts each, then who waits for
    whom."""
    from fusetui.analysis.ranks.answer import explained, strip_of
    from fusetui.analysis.ranks.executors import summarize as summarize_ranks

    known = partial(ranks.known, paths=asked.paths)

    def told(done: int, total: int) -> None:
        _posted(post, cancelled, partial(known, done=done))

    with suppress(CancelledError):
        try:
            found = explained(summarize_ranks(asked.paths, progress=told))
            post(partial(known, answer=found.answer, strip=strip_of(found)))
        except TraceError as error:
            post(partial(known, problem=printable(str(error))))


def summarize(
    asked: effects.Summarize, post: Post, cancelled: Stop, *_: object
) -> None:
    """Posts a line about each of the traces to choose from: its place in the list, and
    its path."""
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
    side, text, trace = asked.side, asked.text, asked.side.trace

    def found_now(found: SearchHits) -> None:
        post(partial(search.arrived, side=side, found=found))

    try:
        query, rows = parse(text), by_names(trace, text)
    except WrongQueryError as wrong:
        found_now(SearchHits(text, wrong=str(wrong)))
        return
    missing = "" if len(rows) else why_nothing(trace, query)
    if not query.reads_args:
        if not query.words or trace.report.prefix:
            found_now(replace(found_of(trace, text, rows), missing=missing))
            return
        found_now(found_of(trace, text, rows, 0.0))
    if start and len(trace) >= LARGE and not _paused(cancelled):
        return
    with beside(start, trace, least=LARGE) as helper:
        for held, extra, share in helper.answers(
            (asked.path, trace), cancelled, search=text
        ):
            if cancelled():
                return
            found = found_of(
                trace, text, held, share, extra, named=not query.reads_args
            )
            found_now(replace(found, missing=missing))


def match_lanes(asked: effects.MatchLanes, post: Post, *_: object) -> None:
    """Posts the lanes that a pattern matches, or what is wrong with it."""
    side, pattern = asked.side, asked.pattern
    lanes, said = frozenset[int](), ""
    try:
        flags = matching(pattern.text, names_of(side.lanes)) ^ pattern.excluded
        lanes = frozenset(np.flatnonzero(flags).tolist())
    except WrongQueryError as wrong:
        said = str(wrong)
    text = f"/{pattern.text}/"
    post(partial(moving.matched, side=side, text=text, lanes=lanes, wrong=said))


def _paused(cancelled: Stop) -> bool:
    """Waits a little; False if a person went on typing meanwhile."""
    until = time.monotonic() + PAUSE
    while not (goes_on := cancelled()) and time.monotonic() < until:
        time.sleep(0.02)
    return not goes_on


def read_memory(
    asked: effects.ReadMemory, post: Post, cancelled: Stop, start: Start
) -> None:
    """Posts the snapshots, or what the memory events of a trace tell, or why there are
    none."""
    if asked.trace is not None:
        (path,), trace = asked.paths, asked.trace
        with beside(start, trace) as helper:
            for found in helper.answers((path, trace), cancelled, replayed=MEMORY):
                if not cancelled():
                    post(partial(memory.of_trace, asked=asked, found=found))
        return
    alone = asked.alone or start is None  # no key waits
    try:
        sides = [_snapshot(path, cancelled, alone) for path in asked.paths]
        known = tuple(filter(None, sides))
        if not cancelled() and len(known) == len(sides):
            post(partial(memory.arrived, sides=known))
    except TraceError as error:
        post(partial(memory.failed, sentence=str(error)))


def _snapshot(path: str, cancelled: Stop, alone: bool) -> MemorySide | None:
    """Large ones, and those beside a trace, another process reads, so that no key waits
    for it. None once nobody wants it. Raises TraceError."""
    try:
        with Beside(
            start="" if alone and getsize(path) <= SOON else SNAPSHOTS
        ) as helper:
            found = helper.snapshot(path, cancelled)
    except HelperUnavailableError:
        return None if cancelled() else snapshot(path)
    if isinstance(found, str):
        raise CannotReadError(found)
    return found


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


SELECTED = "what is selected tells no change: whatif family:gemm x0.8 names one"
WHAT = {
    Role.OP: "op",
    Role.CALL: "op",
    Role.PYTHON: "python",
    Role.ANNOTATION: "module",
}
WHAT |= dict.fromkeys(GPU_ROLES, "kernel")


def replay(
    asked: effects.Replay, post: Post, cancelled: Stop, start: Start = None
) -> None:
    """Posts the answer, unless nobody wants it any more."""
    from fusetui.report.whatif import replayed_sentence  # rarely needed

    state, trace = asked.state, asked.state.side.trace
    worth: Any = getattr(state.overlay, "found", None)
    tell = partial(replays.arrived, trace=trace, asked=asked.asked)
    if not (change := named(state, asked.asked)):
        post(partial(tell, found=SELECTED))
        return
    with beside(start, trace) as helper:
        for found in helper.answers(
            (state.paths[state.active], trace), cancelled, replayed=change
        ):
            if isinstance(found, tuple):
                found = second_of(trace, found, replayed_sentence(worth))
            if not cancelled():
                post(partial(tell, found=found))


def named(state: State, asked: str) -> str:
    """The whole change where only an amount was given: that of what is selected, or of
    a finding, whatever the amount; "" for nothing."""
    from fusetui.analysis.replay.changes import AMOUNT  # rarely needed

    if not re.fullmatch(AMOUNT, asked):
        return asked
    page = registry.page_of(state)
    if change := page.change(state):
        return change
    row = state.view.selected if state.page == TIMELINE else page.subject(state)
    trace = state.side.trace
    what = WHAT.get(Role(int(trace.role[row]))) if row >= 0 else None
    what = "module" if what == "python" and state.page == "modules" else what
    return f"{what}:{trace.name_of(row)} {asked}" if what else ""
