"""Reads traces and compares them in threads; the results arrive as messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from textual.message import Message

from fusetui.analysis.diff.model import Diff
from fusetui.analysis.serving.graphs import wants_capture
from fusetui.text import cutting
from fusetui.trace.cells.counters import Curve
from fusetui.trace.load import Preview, open_trace
from fusetui.trace.model.callbacks import Stop, never
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import NothingRead, TraceError
from fusetui.tui.background_results import Made, Piece, pieces
from fusetui.tui.drawing.chrome import parts
from fusetui.tui.helper_client import Beside, NotBeside
from fusetui.tui.layout.answer import Insight
from fusetui.tui.layout.frame import busy_of
from fusetui.tui.layout.kinds import shares
from fusetui.tui.layout.view import Side, make_sides, short_label
from fusetui.tui.view_store import Kept, name_of, read_kept

if TYPE_CHECKING:
    from fusetui.analysis.ranks.answer import Strip
    from fusetui.analysis.ranks.records import JobAnswer


from fusetui.text.printable import printable
from fusetui.tui.drawing.chrome import summary_line

Post = Callable[[Message], object]
Pair = tuple[Side, Side]


class Loading(Message):
    """The number of bytes of a file read so far."""

    def __init__(self, path: str, done: int, total: int) -> None:
        super().__init__()
        self.path, self.done, self.total = path, done, total


class Previewed(Message):
    """What was read so far of the only trace; the rest is still being read."""

    def __init__(self, paths: Sequence[str], sides: tuple[Side, ...]) -> None:
        super().__init__()
        self.paths, self.sides = paths, sides


class Loaded(Message):
    """All traces, read; if reading was stopped, what was read of them, or none."""

    def __init__(
        self,
        paths: Sequence[str],
        sides: tuple[Side, ...],
        kept: Kept | None = None,
        notices: Sequence[str] = (),
        kept_as: str = "",
    ) -> None:
        super().__init__()
        self.paths, self.sides, self.notices, self.kept_as = paths, sides, notices, kept_as
        self.kept = kept or Kept()  # of the only trace

    @property
    def is_whole(self) -> bool:
        """Whether every path was read."""
        return len(self.sides) == len(self.paths)


class Unpacked(Message):
    """The args of slices can now be shown."""


class Counted(Message):
    """The counters of a trace are known."""

    def __init__(self, trace: Trace, curves: tuple[Curve, ...]) -> None:
        super().__init__()
        self.trace, self.curves = trace, curves


class Explained(Message):
    """What is known about a trace so far."""

    def __init__(self, trace: Trace, insight: Insight) -> None:
        super().__init__()
        self.trace, self.insight = trace, insight


class Prepared(Message):
    """Pages need not make this of a trace themselves."""

    def __init__(self, trace: Trace, made: Made) -> None:
        super().__init__()
        self.trace, self.made = trace, made


class Failed(Message):
    """A trace could not be read; the sentence says why."""

    def __init__(self, paths: Sequence[str], sentence: str) -> None:
        super().__init__()
        self.paths, self.sentence = paths, sentence


class Compared(Message):
    """The diff of these sides."""

    def __init__(self, a: Side, b: Side, result: Diff) -> None:
        super().__init__()
        self.a, self.b, self.result = a, b, result


def load(
    paths: Sequence[str],
    post: Post,
    cancelled: Stop,
    stopped: Stop = never,
    beside: Beside | None = None,
    *,
    captured_by: Sequence[str] = (),
) -> None:
    """Read every path; posts Loading and Previewed while reading and before captures are read, then
    Loaded or Failed, then what takes longer: Unpacked, Counted, Explained, which `beside` may work
    out.

    Once `stopped`, posts Loaded with what was read by then. Once `cancelled`, ends without a
    message.
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
        post(Failed(paths, str(error)))
        return
    except Cancelled:
        return
    is_only = len(traces) == len(paths) == 1
    kept, kept_as = (read_kept(paths[0]), name_of(paths[0])) if is_only else (None, "")
    post(Loaded(paths, _sides(traces, paths), kept, notices, kept_as))
    for trace in traces:
        if not trace.elements.at_hand:
            trace.elements.warm()
            post(Unpacked())
    for path, trace in zip(paths, traces, strict=False):
        _go_on(path, trace, post, cancelled, beside)
    cutting.warm()


def _go_on(path: str, trace: Trace, post: Post, cancelled: Stop, beside: Beside | None) -> None:
    """What takes longer, and is not needed for the lanes."""
    try:
        if beside is None:
            raise NotBeside
        _post_all(trace, beside.pieces(path, trace, cancelled), post, cancelled)
    except NotBeside:
        _post_all(trace, pieces(trace, cancelled), post, cancelled)


def _post_all(trace: Trace, found: Iterable[Piece], post: Post, cancelled: Stop) -> None:
    for piece in found:
        if cancelled():
            return
        post(_message(trace, piece))


def _message(trace: Trace, piece: Piece) -> Message:
    if isinstance(piece, Insight):
        return Explained(trace, piece)
    return Prepared(trace, piece) if isinstance(piece, Made) else Counted(trace, piece)


def compare(
    sides: Pair, paths: Sequence[str], post: Post, cancelled: Stop, beside: Beside | None = None
) -> None:
    """Posts Compared, unless nobody wants it any more; `beside` may work it out."""
    a, b = sides
    try:
        if beside is None:
            raise NotBeside
        found = beside.diff((paths[0], a.trace), (paths[1], b.trace), cancelled)
    except NotBeside:
        from fusetui.analysis.diff.compare import diff

        found = diff(a.trace, b.trace)
    if found is not None and not cancelled():
        post(Compared(a, b, found))


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
        post(Loading(path, done, total))

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
        post(Previewed(paths, _sides([trace], paths)))

    return show


class Ranking(Message):
    """So many ranks were read."""

    def __init__(self, paths: tuple[str, ...], done: int) -> None:
        super().__init__()
        self.paths, self.done = paths, done


class Ranked(Message):
    """All were."""

    def __init__(self, paths: tuple[str, ...], answer: JobAnswer, strip: Strip) -> None:
        super().__init__()
        self.paths, self.answer, self.strip = paths, answer, strip


class NotRanked(Message):
    """They could not be."""

    def __init__(self, paths: tuple[str, ...], sentence: str) -> None:
        super().__init__()
        self.paths, self.sentence = paths, sentence


class _Cancelled(Exception):  # noqa: N818
    """Nobody waits for them any more."""


def rank(paths: tuple[str, ...], post: Callable[[Message], object], cancelled: Stop) -> None:
    """Posts Ranking for each rank, and Ranked, or NotRanked with a sentence."""
    from fusetui.analysis.ranks.answer import explained, strip_of
    from fusetui.analysis.ranks.executors import summarize
    from fusetui.trace.model.errors import TraceError

    def told(done: int, total: int) -> None:
        if cancelled():
            raise _Cancelled
        post(Ranking(paths, done))

    try:
        found = explained(summarize(paths, progress=told))
        post(Ranked(paths, found.answer, strip_of(found)))
    except TraceError as error:
        post(NotRanked(paths, str(error)))
    except _Cancelled:
        return


class Summarized(Message):
    """The line about one of the traces to choose from."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__()
        self.index, self.text = index, text


def summarize(
    wanted: Sequence[tuple[int, str]], post: Callable[[Message], object], cancelled: Stop
) -> None:
    """Posts Summarized for every place in the list and its path, in order."""
    for index, path in wanted:
        if cancelled():
            return
        post(Summarized(index, _summary(path)))


def _summary(path: str) -> str:
    try:
        return summary_line(open_trace(path))
    except TraceError as error:
        return printable(str(error))
