"""Delegates long computations to another process, because a thread in this process
would delay key presses. The other process is started before the trace is read, and then
reads it too, usually from the cache. Only systems where one can wait for a pipe have
it; elsewhere, and where anything goes wrong, a thread does the work. What refers to the
trace, which both have, refers to that of the reader afterwards."""

from __future__ import annotations

import io
import os
import pickle
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Self, TypeVar

import msgspec
from msgspec.structs import replace

from fusetui.analysis.questions.groups import Grouping
from fusetui.own_process import CancelledError, OwnProcess, ProcessDiedError
from fusetui.trace.load import open_trace
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.report import Stop, never
from fusetui.tui.background_results import answers, opened
from fusetui.tui.layout.memory import MemorySide

R = TypeVar("R")
Named = tuple[str, Trace]  # a path, and the trace that was read from it
SNAPSHOTS = "import os; os.nice(5)"
"""The app comes first where there are few cores, from the first import on."""
START = f"""{SNAPSHOTS}
import gc; gc.disable()
from fusetui.tui.helper_client import import_modules; import_modules()
"""
"""What traces need is imported while the app still reads the trace."""
MIN_SLICES = 20_000
"""About fewer slices, all is known before another process has read them."""


class Request(msgspec.Struct, frozen=True):
    """Which trace, and what it must be like, since rows and names are told by number;
    `against`: the other trace of a diff; `search`: a query whose args are read;
    `replayed`: see state.Replay; else its pieces."""

    path: str
    slices: int
    begin_ns: int
    total_ns: int
    names: int  # a checksum
    captured_by: tuple[str, ...]  # see opening.with_captures
    against: Request | None = None
    search: str = ""
    replayed: str = ""
    compile_log: str = ""  # that the user named


class HelperUnavailableError(Exception):
    """The other process does not do it."""


class Packed(msgspec.Struct, frozen=True):
    """A record without the trace that it refers to."""

    body: bytes
    columns: list[pickle.PickleBuffer]


def make_request(path: str, trace: Trace, captured_by: tuple[str, ...] = ()) -> Request:
    """Return a request that identifies the trace read from a path. Its counts and
    checksum let the other process see whether it reads the same trace."""
    names = "\0".join(trace.names).encode(errors="surrogatepass")
    return Request(
        path=path,
        slices=len(trace),
        begin_ns=trace.begin_ns,
        total_ns=int(trace.dur.sum()),
        names=zlib.crc32(names),
        captured_by=captured_by,
        compile_log=trace.report.compile_log,
    )


class Beside:
    """The other process. Use as a context manager: it is ended at the end."""

    def __init__(
        self,
        captured_by: tuple[str, ...] = (),
        start: str = START,
        compile_log: str = "",
    ) -> None:
        """Start the other process.

        `start` is the code that it runs first; "" means that there is no other process.
        `captured_by` and `compile_log` are the captures and the log that the user
        named.
        """
        self.captured_by = captured_by
        self.compile_log = compile_log
        self._process: OwnProcess | None = None
        if os.name == "posix" and start:
            with suppress(ProcessDiedError):
                self._process = OwnProcess(first=start)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._process is not None:
            self._process.__exit__(*problem)

    def answers(
        self, named: Named, cancelled: Stop, other: Named | None = None, **asked: str
    ) -> Iterator[Any]:
        """Yield the results of background work on a trace (see background_results). If
        the other process fails, all of them are computed here. The iterator ends early
        once `cancelled` returns true."""
        try:
            yield from self.told(named, cancelled, other, **asked)
        except HelperUnavailableError:
            _, trace = named
            other_trace = other[1] if other else None
            yield from answers(trace, cancelled, other_trace, **asked)

    def told(
        self, named: Named, cancelled: Stop, other: Named | None = None, **asked: str
    ) -> Iterator[Any]:
        """Yield the results of the other process only. Raise HelperUnavailableError if
        it fails, possibly after some results."""
        path, trace = named
        compared_request = self._request(*other) if other else None
        request = replace(self._request(path, trace), against=compared_request, **asked)
        for record in self._stream(answered, request, cancelled):
            if record is None:
                raise HelperUnavailableError
            yield unpacked(record, trace)

    def snapshot(self, path: str, cancelled: Stop) -> MemorySide | str | None:
        """Return a memory snapshot that the other process has read, or a sentence why
        it cannot be read. None once `cancelled` returns true. Raise
        HelperUnavailableError if the process fails."""
        return next(self._stream(read_snapshot_or_reason, path, cancelled), None)

    def _stream(
        self, function: Callable[..., Iterator[R]], asked: object, cancelled: Stop
    ) -> Iterator[R]:
        """Yield what `function` yields in the other process for `asked`. The iterator
        ends early once `cancelled` returns true. Raise HelperUnavailableError for any
        failure."""
        if self._process is None:
            raise HelperUnavailableError
        try:
            yield from self._process.stream(function, asked, cancelled=cancelled)
        except CancelledError:
            return
        except Exception as error:  # whoever does it instead fails again, and says why
            raise HelperUnavailableError from error

    def _request(self, path: str, trace: Trace) -> Request:
        """Return a request for a trace.

        Raise HelperUnavailableError if there is no other process or it cannot read this
        trace: standard input, a part of a trace, or a file that has changed.
        """
        report = trace.report
        is_readable = path != "-" and report.prefix is None and not report.changed
        if self._process is None or not is_readable:
            raise HelperUnavailableError
        return make_request(path, trace, self.captured_by)


ALONE = Beside(start="")
Start = Callable[[], Beside] | None  # None: no other process helps


def beside(start: Start, *traces: Trace, least: int = MIN_SLICES) -> Beside:
    """Return another process for work on these traces, or ALONE, which stands for none.

    It is ALONE where `start` is None, or the traces have fewer than `least` slices on
    average. Starting a process would then take longer than the work.
    """
    if start is None:
        return ALONE
    slices = sum(len(trace) for trace in traces)
    return start() if slices >= least * len(traces) else ALONE


def packed(record: object, trace: Trace | None) -> Packed:
    """Return a record as bytes, without the trace that it refers to. The other side has
    that trace already."""
    columns: list[pickle.PickleBuffer] = []
    body = io.BytesIO()
    pickler = _Pickler(body, protocol=5, buffer_callback=columns.append)
    pickler.trace = trace
    pickler.dump(record)
    return Packed(body.getvalue(), columns)


def unpacked(record: Packed, trace: Trace | None) -> Any:
    """Return a record from its bytes, with `trace` in place of the trace that was left
    out."""
    unpickler = _Unpickler(io.BytesIO(record.body), buffers=record.columns)
    unpickler.trace = trace
    return unpickler.load()


class _Pickler(pickle.Pickler):
    """Leaves the trace out; what a record has worked out on first use goes with it."""

    trace: Trace | None

    def persistent_id(self, item: object) -> str | None:
        """Return a mark in place of the trace, which is not pickled; None for all other
        objects."""
        return "the trace" if isinstance(item, Trace) and item is self.trace else None

    def reducer_override(self, item: object) -> Any:
        """Return how an object is made again when it is unpickled; NotImplemented for
        those that pickle by themselves.

        Groupings hold a function, which becomes a dict. Records keep what they have
        computed on first use.
        """
        if isinstance(item, Grouping):
            numbers = set(item.number.tolist())
            fields = {number: item.identify(number) for number in numbers}
            return Grouping, (item.number, fields.__getitem__)
        if isinstance(item, msgspec.Struct) and getattr(item, "__dict__", None):
            values = tuple(getattr(item, name) for name in item.__struct_fields__)
            return _rebuild_record, (type(item), values, item.__dict__)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Puts a trace where one was left out."""

    trace: Trace | None

    def persistent_load(self, _: str) -> Trace | None:
        """Return the trace that this process has, in place of the one that was left
        out."""
        return self.trace


def _rebuild_record(
    kind: type[msgspec.Struct], values: tuple[Any, ...], worked_out: dict[str, Any]
) -> Any:
    """Return a record of a kind from the values of its fields, with the results that it
    had computed on first use."""
    record = kind(*values)
    record.__dict__.update(worked_out)
    return record


# In the other process


def import_modules() -> None:
    """Import the modules that work on traces needs, before the first request comes."""
    import fusetui.analysis.diff.compare
    import fusetui.analysis.why.answer  # noqa: F401


def answered(request: Request) -> Iterator[Packed | None]:
    """Yield the packed answers to a request; this runs in the other process. Only None
    is yielded where a file cannot be read, or has other content by now."""
    try:
        trace = _open_requested_trace(
            replace(request, against=None, search="", replayed="")
        )
        other = _open_requested_trace(request.against) if request.against else None
    except (TraceError, HelperUnavailableError):
        yield None
        return
    for answer in answers(trace, never, other, request.search, request.replayed):
        yield packed(answer, trace)


def read_snapshot_or_reason(path: str) -> Iterator[MemorySide | str]:
    """Yield one memory snapshot, or the reason why it cannot be read; this runs in the
    other process."""
    try:
        yield opened(path)
    except TraceError as error:
        yield str(error)


def _open_requested_trace(request: Request) -> Trace:
    """Read the trace of a request and return it. Raise TraceError if it cannot be read,
    and HelperUnavailableError if it is another trace by now."""
    from fusetui.analysis.graphs.opening import with_captures  # many modules

    trace, _ = with_captures(open_trace(request.path), request.captured_by, open_trace)
    if request.compile_log:
        from fusetui.analysis.compiled.finding import attach_log

        trace = attach_log(trace, request.compile_log)
    if make_request(request.path, trace, request.captured_by) != request:
        raise HelperUnavailableError
    return trace
