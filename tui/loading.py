"""Reads traces, compares and summarizes them in threads; what is found arrives as a change of the
state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from fusetui.analysis.serving.graphs import wants_capture
from fusetui.text import cutting
from fusetui.text.printable import printable
from fusetui.trace.load import Preview, open_trace
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import NothingRead, TraceError
from fusetui.trace.model.report import Stop, never
from fusetui.tui import registry
from fusetui.tui.background_results import Made, Piece, pieces
from fusetui.tui.drawing.chrome import parts, summary_line
from fusetui.tui.helper_client import ALONE, Beside, NotBeside
from fusetui.tui.layout.answer import Insight
from fusetui.tui.layout.frame import busy_of
from fusetui.tui.layout.kinds import shares
from fusetui.tui.layout.view import Side, make_sides, short_label
from fusetui.tui.state import ranks, reading
from fusetui.tui.state.action import Run
from fusetui.tui.view_store import Kept, name_of, read_kept

Pair = tuple[Side, Side]


class Loaded(msgspec.Struct, frozen=True, eq=False):
    """All traces, read; if reading was stopped, what was read of them, or none."""

    paths: Sequence[str]
    sides: tuple[Side, ...]
    notices: Sequence[str]
    kept: Kept  # of the only trace
    kept_as: str

    @property
    def is_whole(self) -> bool:
        """Whether every path was read."""
        return len(self.sides) == len(self.paths)


Post = Callable[[Run | Loaded], object]


def load(
    paths: Sequence[str],
    post: Post,
    cancelled: Stop,
    stopped: Stop = never,
    beside: Beside = ALONE,
    *,
    captured_by: Sequence[str] = (),
) -> None:
    """Read every path; posts how far it is, and previews, while reading and before captures are
    read, then Loaded or why it failed, then what takes longer, which `beside` may work out.

    Once `stopped`, posts Loaded with what was read by then; once `cancelled`, nothing more.
    """
    traces: list[Trace] = []
    notices: list[str] = []
    preview = _previewer(paths, post, cancelled) if len(paths) == 1 else None
    try:
        for path in paths:
            report = _reporter(path, post, cancelled)
            trace = open_trace(path, report, stop=stopped, preview=preview)
            trace, sentences = _joined(trace, captured_by, preview)
            traces.append(trace)
            notices += [*trace.notes, *sentences]
            if stopped():
                break
    except NothingRead:
        pass
    except TraceError as error:
        post(partial(reading.failed, paths=paths, sentence=str(error)))
        return
    except Cancelled:
        return
    is_only = len(traces) == len(paths) == 1
    kept, kept_as = (read_kept(paths[0]), name_of(paths[0])) if is_only else (Kept(), "")
    post(Loaded(paths, _sides(traces, paths), notices, kept, kept_as))
    for trace in traces:
        if not trace.elements.at_hand:
            trace.elements.warm()
            post(reading.unpacked)
    for path, trace in zip(paths, traces, strict=False):
        _go_on(path, trace, post, cancelled, beside)
    cutting.warm()


def _go_on(path: str, trace: Trace, post: Post, cancelled: Stop, beside: Beside) -> None:
    """What takes longer, and is not needed for the lanes."""

    def post_all(found: Iterable[Piece]) -> None:
        for piece in found:
            if cancelled():
                return
            post(_told(trace, piece))

    try:
        post_all(beside.pieces(path, trace, cancelled))
    except NotBeside:
        post_all(pieces(trace, cancelled))


def _told(trace: Trace, piece: Piece) -> Run:
    if isinstance(piece, Insight):
        return partial(reading.explained, trace=trace, insight=piece)
    if isinstance(piece, Made):
        return partial(reading.prepared, trace=trace, made=piece.by)
    return partial(reading.counted, trace=trace, curves=piece)


def compare(
    sides: Pair, paths: Sequence[str], post: Post, cancelled: Stop, beside: Beside = ALONE
) -> None:
    """Posts the diff, unless nobody wants it any more; `beside` may work it out."""
    a, b = sides
    try:
        found = beside.diff((paths[0], a.trace), (paths[1], b.trace), cancelled)
    except NotBeside:
        from fusetui.analysis.diff.compare import diff

        found = diff(a.trace, b.trace)
    if found is not None and not cancelled():
        post(partial(reading.compared, a=a.trace, b=b.trace, diff=found))


class Cancelled(Exception):  # noqa: N818
    """The file is no longer wanted."""


def _sides(traces: Sequence[Trace], paths: Sequence[str]) -> tuple[Side, ...]:
    """Everything that drawing needs is computed here, not in the thread that draws."""
    sides = make_sides(traces, [short_label(path) for path in paths[: len(traces)]])
    for side in sides:
        for lane in side.lanes:
            lane.prepare()
        side.once(busy_of)
        side.once(shares)
        side.once(parts)
        _ = side.quiet, side.trace.launch_index
    return sides


def _reporter(path: str, post: Post, cancelled: Stop) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if cancelled():
            raise Cancelled
        post(partial(reading.progressed, path=path, done=done, total=total))

    return report


def _joined(
    trace: Trace, captured_by: Sequence[str], preview: Preview | None
) -> tuple[Trace, Sequence[str]]:
    """The trace with the names that captures give to the nodes of its graphs, and what is said."""
    if not captured_by and not wants_capture(trace):
        return trace, ()
    from fusetui.analysis.serving.opening import said, with_captures  # many modules

    trace, joins = with_captures(trace, captured_by, _showing(trace, preview))
    return trace, list(said(joins))


def _showing(trace: Trace, preview: Preview | None) -> Callable[[str], Trace]:
    """Opens captures. The trace is shown before the first of them is read."""
    shown: list[str] = []

    def opened(path: str) -> Trace:
        if preview is not None and not shown:
            preview(trace)
        shown.append(path)
        return open_trace(path)

    return opened


def _previewer(paths: Sequence[str], post: Post, cancelled: Stop) -> Preview:
    def show(trace: Trace) -> None:
        if cancelled():
            raise Cancelled
        post(partial(registry.previewed, paths=paths, sides=_sides([trace], paths)))

    return show


def rank(paths: tuple[str, ...], post: Post, cancelled: Stop) -> None:
    """Reads the ranks of a job, each in a process; posts each, and then who waits for whom, or why
    it is not known."""
    from fusetui.analysis.ranks.answer import explained, strip_of
    from fusetui.analysis.ranks.executors import summarize as summarize_ranks

    def told(done: int, total: int) -> None:
        if cancelled():
            raise Cancelled
        post(partial(ranks.progressed, paths=paths, done=done))

    try:
        found = explained(summarize_ranks(paths, progress=told))
        post(partial(ranks.found, paths=paths, answer=found.answer, strip=strip_of(found)))
    except TraceError as error:
        post(partial(ranks.failed, paths=paths, sentence=str(error)))
    except Cancelled:
        return


def summarize(wanted: Sequence[tuple[int, str]], post: Post, cancelled: Stop) -> None:
    """Posts a line about each of the traces to choose from: its place in the list, and its path."""
    for index, path in wanted:
        if cancelled():
            return
        try:
            text = summary_line(open_trace(path))
        except TraceError as error:
            text = printable(str(error))
        post(partial(reading.summarized, index=index, text=text))
