"""Threads that decode the extents of one document.

Each takes the next extent when it is free. They run at the same time, because the
compiled scanner (scan.c) releases the GIL while it goes through an extent. Where it
could not be compiled, each thread of a large document has a process that decodes. An
extent that no thread could decode is missing from the result.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from fusetui.debug_log import debug
from fusetui.trace.read import scanned
from fusetui.trace.read.chunks import EXTENT_BYTES, Chunk, decode_extent

if TYPE_CHECKING:
    from fusetui.own_process import OwnProcess

MIN_BYTES_FOR_THREADS = 16 << 20  # of a document
BYTES_PER_THREAD = 8 << 20
MAX_THREADS = 16  # so many decode in less time than it takes to join their columns
MIN_BYTES_FOR_PROCESSES = 64 << 20  # of a document, where there is no scanner
POLL_SECONDS = 0.05  # that a turn waits for a finished extent at most


class Workers(ExitStack):
    """Release extents, take turns until none is left, and collect the chunks at any
    time.

    Use as a context manager: at its end, extents that no thread has begun are dropped.
    """

    def __init__(self, file: int, size: int, extent: int = EXTENT_BYTES) -> None:
        """`file` holds the document, whose `size` may be an estimate; both sizes are in
        bytes."""
        super().__init__()
        self._file = file
        self._extent_bytes = extent
        self._released = 0  # extents
        self._done: set[int] = set()  # extents
        self._first_not_done = 0  # the first extent that is not done
        self._chunks: dict[int, Chunk] = {}  # by their first byte
        self._waiting: SimpleQueue[int | None] = SimpleQueue()  # None: a thread ends
        self._finished: SimpleQueue[tuple[int, Chunk | None]] = SimpleQueue()
        self._is_halted = False
        self._has_processes = scanned.scan is None and size >= MIN_BYTES_FOR_PROCESSES
        self._threads: list[threading.Thread] = []
        self.callback(self.halt)
        self._start_threads(size)

    @property
    def done(self) -> int:
        """The number of extents that are done. An extent is a range of the document of
        fixed size."""
        return len(self._done)

    @property
    def reached(self) -> int:
        """The byte up to which every extent is done."""
        return self._first_not_done * self._extent_bytes

    def release(self, length: int, whole: bool = False) -> None:
        """Announce that `length` bytes of the document are available, so that the
        extents in them may be decoded.

        The last extent waits until `whole` says that the document is complete, because
        decoding needs some bytes behind an extent.
        """
        # The last whole extent needs some bytes behind it, too.
        extents = length // self._extent_bytes - 1
        if whole and extents > 0:
            # rounded up: the last extent may be shorter
            extents = -(-length // self._extent_bytes)
        for extent in range(self._released, extents):
            self._waiting.put(extent)
        self._released = max(self._released, extents)

    def turn(self) -> None:
        """Keep the extents that threads have finished, or decode all waiting ones here
        if there are no threads. Called while more extents may still come."""
        if not self._threads:
            for _ in self._decode_here():
                pass
        self._keep_finished()

    def turns(self) -> Iterator[None]:
        """Wait until all released extents are done, yielding after each step. Without
        threads, each step decodes one extent here. No more extents may be released."""
        if not self._threads:
            yield from self._decode_here()
        while self.done < self._released:
            with suppress(Empty):
                extent, chunk = self._finished.get(timeout=POLL_SECONDS)
                self._keep(extent, chunk)
            self._keep_finished()
            yield

    def collect(self) -> dict[int, Chunk]:
        """The chunks decoded so far, by the byte at which each starts. A chunk holds
        the columns of one extent."""
        self._keep_finished()
        return self._chunks

    def halt(self) -> None:
        """End every thread after its present extent, and wait for all of them. The file
        may be closed only afterwards, because they read it."""
        self._is_halted = True
        for _ in self._threads:
            self._waiting.put(None)
        while self._threads:
            self._threads.pop().join()

    def _start_threads(self, size: int) -> None:
        """Start as many threads as pay off for a document of about `size` bytes. None
        are started for a small document, on a single core, or without pread."""
        threads = min(core_count(), MAX_THREADS, max(2, size // BYTES_PER_THREAD))
        # Without pread, reading moves the place where unpacked data is written.
        may_have_threads = hasattr(os, "pread")
        if not may_have_threads or threads < 2 or size < MIN_BYTES_FOR_THREADS:
            debug("this thread decodes a document of about %d bytes", size)
            return
        # Where no more threads can be started, those that there are have to do.
        with suppress(RuntimeError, MemoryError):
            for _ in range(threads):
                thread = threading.Thread(target=self._work, daemon=True)
                thread.start()
                self._threads.append(thread)
        debug(
            "%d threads%s decode a document of about %d bytes",
            len(self._threads),
            " with a process each" if self._has_processes else "",
            size,
        )

    def _work(self) -> None:
        """Decode waiting extents until there are no more. This is what each thread
        runs; None in the queue ends it."""
        with ExitStack() as stack:
            process = self._start_process(stack) if self._has_processes else None
            while (extent := self._waiting.get()) is not None and not self._is_halted:
                try:
                    chunk = self._decode(extent, process)
                except Exception:  # whoever needs the extent fails again, and says why
                    chunk = None
                self._finished.put((extent, chunk))

    def _start_process(self, stack: ExitStack) -> OwnProcess | None:
        """A process that decodes for a thread and ends with `stack`; None if it could
        not be started."""
        from fusetui.own_process import (
            OwnProcess,
            ProcessDiedError,
        )  # only without the scanner

        with suppress(ProcessDiedError):
            return stack.enter_context(OwnProcess(kept_files=[self._file]))
        return None

    def _decode_here(self) -> Iterator[None]:
        """Decode the waiting extents in this thread, yielding after each."""
        with suppress(Empty):
            while (extent := self._waiting.get_nowait()) is not None:
                self._keep(extent, self._decode(extent))
                yield

    def _decode(self, extent: int, process: OwnProcess | None = None) -> Chunk | None:
        """Decode one extent in `process`, or in this thread if there is none or it
        dies. None if the extent has no chunk."""
        if process is not None:
            from fusetui.own_process import ProcessDiedError

            with suppress(ProcessDiedError):
                return process.call(
                    decode_extent, self._file, extent, self._extent_bytes
                )
        return decode_extent(self._file, extent, self._extent_bytes)

    def _keep_finished(self) -> None:
        """Keep everything that the threads have finished, without waiting for more."""
        with suppress(Empty):
            while True:
                extent, chunk = self._finished.get_nowait()
                self._keep(extent, chunk)

    def _keep(self, extent: int, chunk: Chunk | None) -> None:
        """Mark an extent as done and keep its chunk, which is None if it could not be
        decoded."""
        self._done.add(extent)
        while self._first_not_done in self._done:
            self._first_not_done += 1
        if chunk is not None:
            self._chunks[chunk.start] = chunk


def core_count() -> int:
    """The number of CPU cores that this process may use, which may be fewer than the
    machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
