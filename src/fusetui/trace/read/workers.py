"""Several threads that decode the extents of one document.

Each takes the next extent when it is free. They run at the same time, because the
compiled scanner (scan.c) releases the GIL while it goes through an extent. Where it
could not be compiled, a thread of a large document has a process decode. An extent that
no thread could decode is missing from the result.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from fusetui.trace.read import scanned
from fusetui.trace.read.chunks import EXTENT, Chunk, decode_extent

if TYPE_CHECKING:
    from fusetui.own_process import OwnProcess

FEWEST = 16 << 20  # bytes of a document that are worth a second thread
EACH = 8 << 20  # bytes that are worth one thread more
MOST = 16  # threads: so many decode in less time than it takes to join their columns
FEWEST_FOR_PROCESSES = 64 << 20  # bytes that are worth processes without the scanner
SOON = 0.05  # seconds that a turn waits for a finished extent at most


class Workers(ExitStack):
    """Release extents, take turns until none is left, and collect the chunks at any
    time.

    Use as a context manager: at its end, extents that no thread has begun are dropped.
    """

    def __init__(self, file: int, size: int, extent: int = EXTENT) -> None:
        """`file` holds the document, whose `size` may be an estimate; both sizes are in
        bytes."""
        super().__init__()
        self._file, self._extent = file, extent
        self._released = 0
        self._done: set[int] = set()
        self._first_open = 0  # the first extent that is not done
        self._chunks: dict[int, Chunk] = {}
        self._open: SimpleQueue[int | None] = SimpleQueue()  # None: a thread ends
        self._finished: SimpleQueue[tuple[int, Chunk | None]] = SimpleQueue()
        self._is_halted = False
        self._has_processes = scanned.scan is None and size >= FEWEST_FOR_PROCESSES
        self._threads: list[threading.Thread] = []
        self.callback(self.halt)
        threads = min(core_count(), MOST, max(2, size // EACH))
        # without pread, reading moves the place where unpacked data is written
        if hasattr(os, "pread") and threads > 1 and size >= FEWEST:
            # no more threads: go on with those that there are
            with suppress(RuntimeError, MemoryError):
                self._start(threads)

    @property
    def done(self) -> int:
        return len(self._done)

    @property
    def reached(self) -> int:
        """The byte before which all extents are done."""
        return self._first_open * self._extent

    def release(self, length: int, whole: bool = False) -> None:
        """Announces that `length` bytes of the document are available: extents that end
        before may be decoded, and if it is `whole`, the last one too."""
        extents = length // self._extent - 1
        if whole and extents > 0:
            extents = -(-length // self._extent)
        for extent in range(self._released, extents):
            self._open.put(extent)
        self._released = max(self._released, extents)

    def turn(self) -> None:
        """Called while more extents may come: keeps what is finished, or without
        threads decodes all."""
        if not self._threads:
            list(self._decode_here())
        self._keep_finished()

    def turns(self) -> Iterator[None]:
        """Decodes, or waits a little, repeatedly until all extents are done; no others
        may follow."""
        if not self._threads:
            yield from self._decode_here()
        while self.done < self._released:
            with suppress(Empty):
                self._keep(*self._finished.get(timeout=SOON))
            self._keep_finished()
            yield

    def collect(self) -> dict[int, Chunk]:
        """The chunks of all extents decoded so far, by their start (byte)."""
        self._keep_finished()
        return self._chunks

    def halt(self) -> None:
        """Has every thread end after its present extent, and waits for that: they read
        the file, which may be closed afterwards."""
        self._is_halted = True
        for _ in self._threads:
            self._open.put(None)
        while self._threads:
            self._threads.pop().join()

    def _start(self, count: int) -> None:
        """Raises RuntimeError or MemoryError if not all threads can be started."""
        for _ in range(count):
            thread = threading.Thread(target=self._work, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _work(self) -> None:
        """What a thread does."""
        with ExitStack() as stack:
            process = self._started(stack) if self._has_processes else None
            while (extent := self._open.get()) is not None and not self._is_halted:
                try:
                    chunk = self._decoded(extent, process)
                except Exception:  # whoever needs the extent fails again, and says why
                    chunk = None
                self._finished.put((extent, chunk))

    def _started(self, stack: ExitStack) -> OwnProcess | None:
        """A process that ends with `stack`; None if it could not be started."""
        from fusetui.own_process import (  # only without the scanner
            OwnProcess,
            ProcessDiedError,
        )

        with suppress(ProcessDiedError):
            return stack.enter_context(OwnProcess(kept_files=[self._file]))
        return None

    def _decode_here(self) -> Iterator[None]:
        """Decodes all extents that are open, one a step."""
        with suppress(Empty):
            while (extent := self._open.get_nowait()) is not None:
                self._keep(extent, self._decoded(extent))
                yield

    def _decoded(self, extent: int, process: OwnProcess | None = None) -> Chunk | None:
        place = self._file, extent, self._extent
        if process is not None:
            from fusetui.own_process import ProcessDiedError

            with suppress(ProcessDiedError):
                return process.call(decode_extent, *place)
        return decode_extent(*place)

    def _keep_finished(self) -> None:
        with suppress(Empty):
            while True:
                self._keep(*self._finished.get_nowait())

    def _keep(self, extent: int, chunk: Chunk | None) -> None:
        self._done.add(extent)
        while self._first_open in self._done:
            self._first_open += 1
        if chunk is not None:
            self._chunks[chunk.start] = chunk


def core_count() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
