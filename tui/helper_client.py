"""Has another process work out what takes longer: in a thread of this one, keys would
wait for it, because Python runs one thread at a time. The other process is started
before the trace is read, and then reads it too, usually from the cache. Only systems
where one can wait for a pipe have it; elsewhere, and where anything goes wrong, a
thread does the work. Records go from one process to the other as bytes; what refers to
the trace, which both have, refers to that of the reader afterwards. Only our own
processes write to these pipes, so the bytes can be trusted."""

from __future__ import annotations

import io
import os
import pickle
import select
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from subprocess import PIPE, Popen
from threading import Thread
from typing import IO, Any, Self

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.groups import Keys
from fusetui.own_process import started
from fusetui.trace.load import open_trace
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.report import Stop, never
from fusetui.tui.background_results import answers, opened

Named = tuple[str, Trace]  # a path, and the trace that was read from it
NICE = "import gc, os; gc.disable(); os.nice(5);"
"""The app comes first where there are few cores, from the first import on."""
START = f"{NICE} from fusetui.tui.helper_client import main; main()"
SNAPSHOTS = "import os; os.nice(5); from fusetui.tui.helper_client import main; main(warm=False)"
SMALL = 20_000  # slices: about fewer all is known before another process has read them
OFTEN = 0.1  # seconds between two looks whether the work is still wanted
Buffer = bytes | bytearray | memoryview
SIZE = struct.Struct("<Q")


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


class NotBeside(Exception):  # noqa: N818
    """The other process does not do it."""


class Cancelled(Exception):  # noqa: N818
    """Nobody wants it any more."""


def request_for(path: str, trace: Trace, captured_by: tuple[str, ...] = ()) -> Request:
    names = zlib.crc32("\0".join(trace.names).encode(errors="surrogatepass"))
    return Request(
        path, len(trace), trace.begin_ns, int(trace.dur.sum()), names, captured_by
    )


class Beside:
    """The other process. Use as a context manager: it is ended at the end."""

    def __init__(self, captured_by: tuple[str, ...] = (), start: str = START) -> None:
        """`captured_by`: see opening.with_captures; `start`: the code that it runs; "":
        none."""
        self.captured_by = captured_by
        self._process: Popen[bytes] | None = None
        if os.name == "posix" and start:
            with suppress(OSError):
                self._process = started(start, stdin=PIPE, stdout=PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def answers(
        self, named: Named, cancelled: Stop, other: Named | None = None, **asked: str
    ) -> Iterator[Any]:
        """See background_results.answers; where the other process fails, all of them
        from this one. Ends early once nobody wants them any more."""
        try:
            yield from self.told(named, cancelled, other, **asked)
        except NotBeside:
            yield from answers(
                named[1], cancelled, other[1] if other else None, **asked
            )

    def told(
        self, named: Named, cancelled: Stop, other: Named | None = None, **asked: str
    ) -> Iterator[Any]:
        """Only from the other process. Raises NotBeside, possibly after some of
        them."""
        against = self._request(*other) if other else None
        request = replace(self._request(*named), against=against, **asked)
        for found in self.records(request, cancelled, named[1]):
            if found is None:
                return
            if found is False:
                raise NotBeside
            yield found

    def records(
        self, asked: object, cancelled: Stop, trace: Trace | None = None
    ) -> Iterator[Any]:
        """What the process sends, without end, until nobody wants it any more. Raises
        NotBeside."""
        if self._process is None or self._process.stdin is None:
            raise NotBeside
        try:
            left = memoryview(msgspec.json.encode(asked) + b"\n")
            while left:  # it has no buffer
                left = left[self._process.stdin.write(left) :]
            while True:
                yield unship(partial(self._take, cancelled=cancelled), trace)
        except Cancelled:
            return
        except (OSError, EOFError, ValueError):
            raise NotBeside from None

    def _request(self, path: str, trace: Trace) -> Request:
        """Raises NotBeside for what another process cannot read."""
        report = trace.report
        if (
            self._process is None
            or path == "-"
            or report.prefix is not None
            or report.changed
        ):
            raise NotBeside
        return request_for(path, trace, self.captured_by)

    def _take(self, size: int, cancelled: Stop) -> memoryview:
        """The next bytes. Raises EOFError when the process has ended, and Cancelled."""
        pipe: Any = self._process.stdout if self._process else None
        # not filled before it is read
        rest = found = np.empty(size, dtype=np.uint8).data
        while rest:
            while not select.select([pipe], [], [], OFTEN)[0]:
                if cancelled():
                    raise Cancelled
            if not (count := pipe.readinto(rest)):
                raise EOFError
            rest = rest[count:]
        return found


ALONE = Beside(start="")
Start = Callable[[], Beside] | None  # None: no other process helps


def beside(start: Start, *traces: Trace, least: int = SMALL) -> Beside:
    """Another process, if one may help and each trace has so many slices, taken
    together."""
    is_large = sum(map(len, traces)) >= least * len(traces)
    return start() if start and is_large else ALONE


def ship(record: object, trace: Trace | None, out: IO[bytes]) -> None:
    """Writes a record; its columns are written as they are. Raises OSError."""
    columns: list[pickle.PickleBuffer] = []
    body = io.BytesIO()
    pickler = _Pickler(body, protocol=5, buffer_callback=columns.append)
    pickler.trace = trace
    pickler.dump(record)
    parts = [body.getbuffer(), *(column.raw() for column in columns)]
    out.write(
        SIZE.pack(len(parts)) + b"".join(SIZE.pack(part.nbytes) for part in parts)
    )
    out.writelines(parts)
    out.flush()


def unship(take: Callable[[int], Buffer], trace: Trace | None) -> Any:
    """The next record. Raises EOFError, or what pickle does for bytes that are none."""
    (count,) = SIZE.unpack(take(SIZE.size))
    sizes = [SIZE.unpack(take(SIZE.size))[0] for _ in range(count)]
    body, *columns = [take(size) for size in sizes]
    unpickler = _Unpickler(io.BytesIO(body), buffers=columns)
    unpickler.trace = trace
    return unpickler.load()


class _Pickler(pickle.Pickler):
    """Leaves the trace out; what a record has worked out on first use goes with it."""

    trace: Trace | None

    def persistent_id(self, found: object) -> str | None:
        return "the trace" if isinstance(found, Trace) and found is self.trace else None

    def reducer_override(self, found: object) -> Any:
        if isinstance(found, Keys):
            fields = {
                number: found.fields(number) for number in set(found.number.tolist())
            }
            return Keys, (found.number, fields.__getitem__)
        if isinstance(found, msgspec.Struct) and getattr(found, "__dict__", None):
            own = tuple(getattr(found, name) for name in found.__struct_fields__)
            return _known, (type(found), own, found.__dict__)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    trace: Trace | None

    def persistent_load(self, _: str) -> Trace | None:
        return self.trace


def _known(
    kind: type[msgspec.Struct], own: tuple[Any, ...], known: dict[str, Any]
) -> Any:
    found = kind(*own)
    found.__dict__.update(known)
    return found


def main(warm: bool = True) -> None:
    """In the other process: each line of standard input asks about one trace, or names
    a snapshot; the answers go to standard output. It ends when standard input does:
    nobody waits for the rest then. `warm`: what traces need is imported while the app
    still reads the trace."""
    out = os.fdopen(os.dup(1), "wb")
    requests: SimpleQueue[Request | str] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            requests.put(msgspec.json.decode(line, type=Request | str))
        os._exit(0)

    Thread(target=listen, daemon=True).start()
    if warm:
        import fusetui.analysis.diff.compare
        import fusetui.analysis.why.answer  # noqa: F401
    with suppress(OSError):
        while True:
            answer(requests.get(), out)


def answer(request: Request | str, out: IO[bytes]) -> None:
    """Writes all pieces about a trace, or the diff of two, or another answer, then
    None. Where a file cannot be read, or is another one by now, writes only False; of a
    snapshot what it holds, or why it cannot be read. Raises OSError when nobody reads
    any more."""
    if isinstance(request, str):
        try:
            ship(opened(request), None, out)
        except TraceError as error:
            ship(str(error), None, out)
        return
    try:
        trace = _opened(replace(request, against=None, search="", replayed=""))
        other = _opened(request.against) if request.against else None
    except (TraceError, NotBeside):
        ship(False, None, out)
        return
    for found in answers(trace, never, other, request.search, request.replayed):
        ship(found, trace, out)
    ship(None, trace, out)


def _opened(request: Request) -> Trace:
    """The trace that is asked about. Raises TraceError, and NotBeside where it is
    another one."""
    from fusetui.analysis.graphs.opening import with_captures  # many modules

    trace, _ = with_captures(open_trace(request.path), request.captured_by, open_trace)
    if request_for(request.path, trace, request.captured_by) != request:
        raise NotBeside
    return trace
