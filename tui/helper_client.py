"""Has another process work out what takes longer: in a thread of this one, keys would wait for it,
because Python runs one thread at a time.

The other process is started before the trace is read, and then reads it too, usually from the
cache. Only systems where one can wait for a pipe have it; elsewhere, and where anything goes wrong,
a thread does the work.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

import msgspec
import numpy as np

from fusetui.analysis.diff.model import Diff
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.report import Stop
from fusetui.tui.background_results import ArgsRead, Piece
from fusetui.tui.wire import unship

Named = tuple[str, Trace]
"""A path, and the trace that was read from it."""
START = "import os; os.nice(5); from fusetui.tui.helper_main import main; main()"
"""The app comes first where there are few cores, from the first import on."""
OFTEN = 0.1  # seconds between two looks whether the work is still wanted


class Request(msgspec.Struct, frozen=True):
    """Which trace, and what it must be like, since rows and names are told by number; `against`:
    the other trace of a diff; `search`: a query whose args are read; else its pieces."""

    path: str
    slices: int
    begin_ns: int
    total_ns: int
    names: int  # a checksum
    captured_by: tuple[str, ...]  # see opening.with_captures
    against: Request | None = None
    search: str = ""


class NotBeside(Exception):  # noqa: N818
    """The other process does not do it."""


def request_for(path: str, trace: Trace, captured_by: tuple[str, ...] = ()) -> Request:
    names = zlib.crc32("\0".join(trace.names).encode(errors="surrogatepass"))
    total_ns = int(trace.dur.sum())
    return Request(path, len(trace), trace.begin_ns, total_ns, names, captured_by)


class Beside:
    """The other process. Use as a context manager: it is ended at the end."""

    def __init__(self, captured_by: tuple[str, ...] = ()) -> None:
        """`captured_by`: the captures that traces are joined with, see opening.with_captures."""
        self._captured_by = captured_by
        self._process: subprocess.Popen[bytes] | None = None
        if os.name != "posix":
            return
        with suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,  # so that interrupting keys reach only the app
                bufsize=0,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def pieces(self, path: str, trace: Trace, cancelled: Stop) -> Iterator[Piece]:
        """See background_results.pieces. Raises NotBeside, possibly after some of them."""
        yield from self._answers(self._request(path, trace), trace, cancelled)

    def diff(self, a: Named, b: Named, cancelled: Stop) -> Diff | None:
        """What changed from one trace to the other; None once nobody wants it any more. Raises
        NotBeside."""
        request = msgspec.structs.replace(self._request(*a), against=self._request(*b))
        answers = [*self._answers(request, a[1], cancelled)]
        return answers[0] if answers else None

    def search(self, path: str, trace: Trace, text: str, cancelled: Stop) -> Iterator[ArgsRead]:
        """See background_results.as_read. Raises NotBeside, possibly after some of them."""
        request = msgspec.structs.replace(self._request(path, trace), search=text)
        yield from self._answers(request, trace, cancelled)

    def _request(self, path: str, trace: Trace) -> Request:
        """Raises NotBeside for what another process cannot read."""
        if path == "-" or trace.report.prefix is not None or trace.report.changed:
            raise NotBeside
        return request_for(path, trace, self._captured_by)

    def _answers(self, request: Request, trace: Trace, cancelled: Stop) -> Iterator[Any]:
        process = self._process
        if process is None or process.stdin is None:
            raise NotBeside
        try:
            left = memoryview(msgspec.json.encode(request) + b"\n")
            while left:  # it has no buffer
                left = left[process.stdin.write(left) :]
            while (found := unship(lambda size: self._take(size, cancelled), trace)) is not None:
                if found is False:
                    raise NotBeside
                yield found
        except _Cancelled:
            return
        except (OSError, EOFError, ValueError):
            raise NotBeside from None

    def _take(self, size: int, cancelled: Stop) -> memoryview:
        """The next bytes. Raises EOFError when the process has ended, and _Cancelled."""
        pipe = self._process.stdout if self._process else None
        rest = found = np.empty(size, dtype=np.uint8).data  # not filled before it is read
        while pipe is not None and rest:
            while not select.select([pipe], [], [], OFTEN)[0]:
                if cancelled():
                    raise _Cancelled
            count = pipe.readinto(rest)  # type: ignore[attr-defined]
            if not count:
                raise EOFError
            rest = rest[count:]
        return found


class _Cancelled(Exception):  # noqa: N818
    """Nobody wants it any more."""
