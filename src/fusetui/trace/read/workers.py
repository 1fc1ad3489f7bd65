"""Several processes that decode the extents of one document.

Extents to decode go through a pipe that all workers read: each takes the next one when
it is free, and if one dies, the others do the rest. The workers put their chunks into
buffers, and report finished extents through another pipe. An extent that no worker
could decode is missing from the result.

Workers are forked if this is the only thread, which is cheap. Otherwise they are
started as new processes, and the caller does not decode itself, so as not to disturb
the other threads. On macOS and Windows there are no workers.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fusetui.trace.read.chunks import EXTENT, Chunk, decode_extent
from fusetui.trace.read.memory import file_in_memory

if TYPE_CHECKING:
    import subprocess

FEWEST_FORKED = 16 << 20  # bytes of a document that are worth a second process
FEWEST_STARTED = 64 << 20  # the same if that process has to import everything
EACH = 8 << 20  # bytes that are worth one process more
MOST = 16  # processes: so many decode in less time than it takes to join their columns
NUMBER_SIZE = 4  # bytes of an extent's number in a pipe
SOON = 0.05  # seconds that a turn waits for reports at most
STUCK = 10.0  # seconds without reports after which workers are given up
PROCESS = (
    "import gc, sys; gc.disable(); from fusetui.trace.read.workers import work; "
    "work(*map(int, sys.argv[1:]))"
)
"""What a worker runs that is started as a new process."""


class Buffer:
    """Where a worker puts its chunks: a file in memory, from which others read them as
    soon as they are complete, while the worker writes and after it has died."""

    def __init__(self) -> None:
        """Raises OSError."""
        self.file = file_in_memory()
        place = Path(f"/proc/self/fd/{self.file.fileno()}")
        self._read = place.open("rb")  # with a position of its own

    def close(self) -> None:
        self.file.close()
        self._read.close()

    def new(self) -> Iterator[tuple[int, Chunk | None]]:
        """The extents finished since the last call, with their chunks."""
        while True:
            at = self._read.tell()
            try:
                yield pickle.load(self._read)  # no other process can write to it
            except (EOFError, pickle.UnpicklingError):
                self._read.seek(at)
                return


def put(buffer: IO[bytes], extent: int, chunk: Chunk | None) -> None:
    """Appends to the file of a Buffer."""
    pickle.dump((extent, chunk), buffer, pickle.HIGHEST_PROTOCOL)
    buffer.flush()


class Workers(ExitStack):
    """Release extents, take turns until none is left, and collect the chunks at any
    time.

    Use as a context manager: workers that are still running at its end are stopped.
    """

    def __init__(self, file: int, size: int, extent: int = EXTENT) -> None:
        """`file` holds the document, whose `size` may be an estimate; both sizes are in
        bytes."""
        super().__init__()
        self._file, self._extent = file, extent
        self._released = 0
        # extents that did not fit into the pipe, decoded here
        self._own: list[int] = []
        self._done: set[int] = set()
        self._first_open = 0  # the first extent that is not done
        self._chunks: dict[int, Chunk] = {}
        self._given = self._give = self._finished = self._finish = -1
        self._buffers: list[Buffer] = []
        self._workers: list[int] = []
        self._forks = may_fork()
        fewest = FEWEST_FORKED if self._forks else FEWEST_STARTED
        cores = min(core_count(), MOST, max(2, size // EACH))
        # Only Linux has files in memory and pipes that can be waited for: others decode
        # alone.
        shares = (
            hasattr(os, "memfd_create")
            and hasattr(os, "pread")
            and hasattr(select, "poll")
        )
        if shares and cores > 1 and size >= fewest:
            # no more processes or files: go on with those that there are
            with suppress(OSError):
                self._start(cores - self._forks)

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
            if not (self._buffers and _sent(self._give, extent)):
                self._own.append(extent)
        self._released = max(self._released, extents)

    def turn(self) -> None:
        """Called while more extents may come: collects reports, or without workers
        decodes all."""
        if self._buffers:
            self._hear(0)
            return
        while self._own:
            self._decode(self._own.pop(0))

    def turns(self) -> Iterator[None]:
        """Decodes, or waits a little, repeatedly until all extents are done; no others
        may follow.

        Also ends if the workers are stuck; their extents are then missing.
        """
        self._give = _close(self._give)
        self._finish = _close(self._finish)
        if self._forks:
            for extent in taken(self._given, seconds=0) if self._buffers else ():
                self._decode(extent)
                self._hear(0)
                yield
        while self._own:
            self._decode(self._own.pop(0))
            yield
        heard = time.monotonic()
        while self._buffers and time.monotonic() - heard < STUCK:
            done = self.done
            if not self._hear(SOON):
                return
            heard = time.monotonic() if self.done > done else heard
            yield

    def collect(self) -> dict[int, Chunk]:
        """The chunks of all extents decoded so far, by their start (byte)."""
        for buffer in self._buffers:
            for extent, chunk in buffer.new():
                self._keep(extent, chunk)
        return self._chunks

    def halt(self) -> None:
        for worker in self._workers:
            os.kill(worker, signal.SIGKILL)
        while self._workers:
            with suppress(ChildProcessError):
                os.waitpid(self._workers.pop(), 0)

    def _decode(self, extent: int) -> None:
        self._keep(extent, decode_extent(self._file, extent, self._extent))

    def _keep(self, extent: int, chunk: Chunk | None) -> None:
        self._mark(extent)
        if chunk is not None:
            self._chunks[chunk.start] = chunk

    def _mark(self, extent: int) -> None:
        self._done.add(extent)
        while self._first_open in self._done:
            self._first_open += 1

    def _hear(self, seconds: float) -> bool:
        """Marks finished extents, waiting at most this long; False if no worker is
        left."""
        while _is_ready(self._finished, seconds):
            number = os.read(self._finished, NUMBER_SIZE)
            if not number:
                return False
            self._mark(int.from_bytes(number, "little"))
            seconds = 0
        return True

    def _start(self, workers: int) -> None:
        """Raises OSError if not all workers can be started."""
        self.callback(self._end)
        self._given, self._give = os.pipe()
        self._finished, self._finish = os.pipe()
        for end in (self._given, self._give, self._finish):
            os.set_blocking(end, False)
        for _ in range(workers):
            buffer = self.enter_context(closing(Buffer()))
            self._workers.append(
                self._fork(buffer) if self._forks else self._spawn(buffer)
            )
            self._buffers.append(buffer)

    def _end(self) -> None:
        self.halt()
        for end in (self._given, self._give, self._finished, self._finish):
            _close(end)

    def _fork(self, buffer: Buffer) -> int:
        parent = os.getpid()

        def run() -> None:
            os.close(self._give)
            work(
                self._file,
                self._given,
                self._finish,
                buffer.file.fileno(),
                self._extent,
                parent,
            )

        return forked(run)

    def _spawn(self, buffer: Buffer) -> int:
        files = (self._file, self._given, self._finish, buffer.file.fileno())
        process = started(PROCESS, *files, self._extent, os.getpid(), pass_fds=files)
        process.returncode = 0  # it is waited for elsewhere
        return process.pid


def started(code: str, *arguments: int, **streams: Any) -> subprocess.Popen[bytes]:
    """A process of ours that was started anew and runs this code; its streams lead
    nowhere unless they are given. Interrupting keys reach only this process. Raises
    OSError."""
    import subprocess  # rarely needed

    nowhere = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, process_group=0, bufsize=0, **{**nowhere, **streams}
    )


def forked(run: Callable[[], None]) -> int:
    """The number of a process that does this and ends. Raises OSError."""
    with warnings.catch_warnings():  # idle threads of numpy
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            run()
        finally:
            os._exit(0)
    return child


def work(
    file: int, given: int, finished: int, buffer: int, size: int, parent: int
) -> None:
    """The main loop of a worker, until there are no extents left, or its parent is
    gone."""
    with open(buffer, "wb", closefd=False) as out:
        for extent in taken(given):
            if os.getppid() != parent:
                return
            put(out, extent, decode_extent(file, extent, size))
            with suppress(BrokenPipeError):
                _sent(finished, extent)


def taken(pipe: int, seconds: float | None = None) -> Iterator[int]:
    """Numbers from a non-blocking pipe, until it is closed and empty.

    Also ends if there is none for this many seconds; with None it waits indefinitely.
    """
    while _is_ready(pipe, seconds):
        try:
            number = os.read(pipe, NUMBER_SIZE)
        except BlockingIOError:  # another process was faster
            continue
        if not number:
            return
        yield int.from_bytes(number, "little")


def _is_ready(pipe: int, seconds: float | None) -> bool:
    """Whether it can be read, waiting at most this many seconds."""
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else seconds * 1000))


def _sent(pipe: int, number: int) -> bool:
    """Whether a number fits into a non-blocking pipe. Raises BrokenPipeError if nobody
    reads it."""
    try:
        return os.write(pipe, number.to_bytes(NUMBER_SIZE, "little")) > 0
    except BlockingIOError:
        return False


def _close(end: int) -> int:
    if end != -1:
        os.close(end)
    return -1


def may_fork() -> bool:
    """Whether a process may be forked now: a copy of one that has other threads may
    hang, and on macOS libraries of the system do not survive it."""
    can = hasattr(os, "fork") and sys.platform != "darwin"
    return can and threading.active_count() == 1


def core_count() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
