"""Several processes that decode the cells of one document.

Cells to decode go through a pipe that everybody reads: so each takes the next one when it is free,
and whoever dies leaves the rest to the others. The helpers put their chunks into a file in memory.
A cell that nobody could decode is simply missing in the result.

Helpers are forked where this is the only thread, which is cheap; else started anew, and then the
caller does not decode itself, so that the other threads of its process go on undisturbed.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Self

from fusetui.trace.read.chunks import CELL, Chunk, decode_cell
from fusetui.trace.read.source import file_in_memory

FEWEST_FORKED = 16 << 20  # bytes of a document that are worth a second process
FEWEST_STARTED = 64 << 20  # the same when it has to import everything anew
MOST = 4  # processes; more of them wait for memory, not for a core
NUMBER = 4  # bytes of a cell's number in the pipe

Reached = Callable[[int], None]
"""Called with the number of cells that are done."""


class Team:
    """Use as a context manager: what is still running at its end is stopped."""

    def __init__(self, file: int, size: int, cell: int = CELL) -> None:
        """`file` holds the document, whose size (bytes) may be a guess; `cell` is in bytes."""
        self._file = file
        self._cell = cell
        self._released = 0
        self._given, self._give = os.pipe()
        self._finished, self._finish = os.pipe()
        for end in (self._give, self._finish):
            os.set_blocking(end, False)
        self._waiting: list[int] = []  # cells that the pipe did not take
        self._boxes: list[IO[bytes]] = []
        self._helpers: list[int] = []
        self._forks = threading.active_count() == 1 and hasattr(os, "fork")
        self._start(self._helpers_for(size))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for helper in self._helpers:
            os.kill(helper, signal.SIGKILL)
        self._wait()
        for end in (self._given, self._give, self._finished, self._finish):
            _close(end)
        for box in self._boxes:
            box.close()

    def release(self, length: int, whole: bool = False) -> None:
        """So many bytes of the document are there: cells that end before may be decoded, and the
        last one when it is `whole`."""
        cells = length // self._cell - 1
        if whole and cells > 0:
            cells = -(-length // self._cell)
        for cell in range(self._released, cells):
            try:
                os.write(self._give, cell.to_bytes(NUMBER, "little"))
            except BlockingIOError:
                self._waiting.append(cell)
        self._released = max(self._released, cells)

    def decoded(self, reached: Reached) -> dict[int, Chunk]:
        """The chunks of all released cells that could be decoded, by their start (byte)."""
        self._give = _close(self._give)
        self._finish = _close(self._finish)
        found: list[Chunk | None] = []
        if self._forks or not self._helpers:
            for cell in taken(self._given):
                found.append(self._decode(cell))
                reached(cell + 1)
        else:
            for done, _ in enumerate(taken(self._finished)):
                reached(done + 1)
        found += [self._decode(cell) for cell in self._waiting]
        self._wait()
        for box in self._boxes:
            found += _unpacked(box)
        return {chunk.start: chunk for chunk in found if chunk is not None}

    def _decode(self, cell: int) -> Chunk | None:
        return decode_cell(self._file, cell, self._cell)

    def _helpers_for(self, size: int) -> int:
        cores = min(_cores(), MOST)
        if cores == 1 or size < (FEWEST_FORKED if self._forks else FEWEST_STARTED):
            return 0
        return cores - 1 if self._forks else cores

    def _start(self, helpers: int) -> None:
        for _ in range(helpers):
            box = file_in_memory()
            try:
                self._helpers.append(self._fork(box) if self._forks else self._spawn(box))
            except OSError:  # no more processes: then without
                box.close()
                return
            self._boxes.append(box)

    def _fork(self, box: IO[bytes]) -> int:
        with warnings.catch_warnings():  # numpy has idle threads of its own
            warnings.simplefilter("ignore", DeprecationWarning)
            parent, child = os.getpid(), os.fork()
        if child:
            return child
        try:
            os.close(self._give)
            work(self._file, self._given, self._finish, box.fileno(), self._cell, parent)
        finally:
            os._exit(0)

    def _spawn(self, box: IO[bytes]) -> int:
        import subprocess  # most commands never need it

        files = (self._file, self._given, self._finish, box.fileno())
        command = [sys.executable, "-P", "-m", "fusetui.trace.read.worker"]
        process = subprocess.Popen(
            [*command, *map(str, (*files, self._cell, os.getpid()))],
            pass_fds=files,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,  # keys that interrupt are for the app
        )
        process.returncode = 0  # waited for here, not there
        return process.pid

    def _wait(self) -> None:
        while self._helpers:
            with suppress(ChildProcessError):
                os.waitpid(self._helpers.pop(), 0)


def work(file: int, given: int, finished: int, box: int, size: int, parent: int) -> None:
    """What a helper does until there are no cells left, or its parent is gone."""
    with os.fdopen(box, "wb", closefd=False) as out:
        for cell in taken(given):
            if os.getppid() != parent:
                return
            pickle.dump(decode_cell(file, cell, size), out, protocol=5)
            _tell(finished, cell)


def taken(pipe: int) -> Iterator[int]:
    """Numbers from a pipe, until it is closed and empty."""
    while number := os.read(pipe, NUMBER):
        yield int.from_bytes(number, "little")


def _tell(finished: int, cell: int) -> None:
    with suppress(BlockingIOError, BrokenPipeError):  # when nobody reads it
        os.write(finished, cell.to_bytes(NUMBER, "little"))


def _unpacked(box: IO[bytes]) -> Iterator[Chunk | None]:
    """What a helper left; of one that died, all but its last chunk."""
    box.seek(0)
    while True:
        try:
            yield pickle.load(box)
        except (EOFError, pickle.UnpicklingError):
            return


def _close(end: int) -> int:
    if end != -1:
        os.close(end)
    return -1


def _cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
