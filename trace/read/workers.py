"""Several processes that decode the cells of one document.

Cells to decode go through a pipe that everybody reads: so each takes the next one when it is free,
and whoever dies leaves the rest to the others. The helpers put their chunks into boxes (see
box.py), and tell through another pipe which cell is done. A cell that nobody could decode is simply
missing in the result.

Helpers are forked where this is the only thread, which is cheap; else started anew, and then the
caller does not decode itself, so that the other threads of its process go on undisturbed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Self

from fusetui.trace.read.buffer import Box, put
from fusetui.trace.read.chunks import CELL, Chunk, decode_cell

FEWEST_FORKED = 16 << 20  # bytes of a document that are worth a second process
FEWEST_STARTED = 64 << 20  # the same when it has to import everything anew
MOST = 4  # processes; more of them wait for memory, not for a core
NUMBER = 4  # bytes of a cell's number in a pipe
SOON = 0.05  # seconds that a turn waits for news at most
STUCK = 10.0  # seconds without news after which helpers are not waited for any more


class Team:
    """Release cells, take turns until there is none left, and collect the chunks at any time.

    Use as a context manager: what is still running at its end is stopped.
    """

    def __init__(self, file: int, size: int, cell: int = CELL) -> None:
        """`file` holds the document, whose size (bytes) may be a guess; `cell` is in bytes."""
        self._file = file
        self._cell = cell
        self._released = 0
        self._own: list[int] = []  # cells that the pipe did not take: this process decodes them
        self._done: set[int] = set()
        self._first_open = 0  # the first cell that is not done
        self._chunks: dict[int, Chunk] = {}
        self._given = self._give = self._finished = self._finish = -1
        self._boxes: list[Box] = []
        self._helpers: list[int] = []
        self._forks = threading.active_count() == 1 and hasattr(os, "fork")
        with suppress(OSError):  # no more processes or files: then with as many as there are
            self._start(self._helpers_for(size))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.halt()
        for end in (self._given, self._give, self._finished, self._finish):
            _close(end)
        for box in self._boxes:
            box.close()

    @property
    def done(self) -> int:
        """How many cells are done."""
        return len(self._done)

    @property
    def reached(self) -> int:
        """All cells before this byte are done."""
        return self._first_open * self._cell

    def release(self, length: int, whole: bool = False) -> None:
        """So many bytes of the document are there: cells that end before may be decoded, and the
        last one when it is `whole`."""
        cells = length // self._cell - 1
        if whole and cells > 0:
            cells = -(-length // self._cell)
        for cell in range(self._released, cells):
            if not (self._boxes and self._told(cell)):
                self._own.append(cell)
        self._released = max(self._released, cells)

    def turn(self) -> None:
        """While more cells may be released: hear which are done, or without helpers decode all."""
        if self._boxes:
            self._hear(0)
            return
        while self._own:
            self._decode(self._own.pop(0))

    def turns(self) -> Iterator[None]:
        """Decode, or wait a little, again and again until all cells are done; none can follow.

        Ends as well when the helpers are stuck; their cells are then missing.
        """
        self._give = _close(self._give)
        self._finish = _close(self._finish)
        if self._forks:
            for cell in taken(self._given, seconds=0) if self._boxes else ():
                self._decode(cell)
                self._hear(0)
                yield
        while self._own:
            self._decode(self._own.pop(0))
            yield
        heard = time.monotonic()
        while self._boxes and time.monotonic() - heard < STUCK:
            done = self.done
            if not self._hear(SOON):
                return
            heard = time.monotonic() if self.done > done else heard
            yield

    def collect(self) -> dict[int, Chunk]:
        """The chunks of all cells that were decoded up to now, by their start (byte)."""
        for box in self._boxes:
            for cell, chunk in box.new():
                self._keep(cell, chunk)
        return self._chunks

    def halt(self) -> None:
        """No process works any more."""
        for helper in self._helpers:
            os.kill(helper, signal.SIGKILL)
        while self._helpers:
            with suppress(ChildProcessError):
                os.waitpid(self._helpers.pop(), 0)

    def _told(self, cell: int) -> bool:
        try:
            os.write(self._give, cell.to_bytes(NUMBER, "little"))
        except BlockingIOError:
            return False
        return True

    def _decode(self, cell: int) -> None:
        self._keep(cell, decode_cell(self._file, cell, self._cell))

    def _keep(self, cell: int, chunk: Chunk | None) -> None:
        self._mark(cell)
        if chunk is not None:
            self._chunks[chunk.start] = chunk

    def _mark(self, cell: int) -> None:
        self._done.add(cell)
        while self._first_open in self._done:
            self._first_open += 1

    def _hear(self, seconds: float) -> bool:
        """Mark what was finished, waiting for it at most so long; False when no helper is left."""
        while _is_ready(self._finished, seconds):
            number = os.read(self._finished, NUMBER)
            if not number:
                return False
            self._mark(int.from_bytes(number, "little"))
            seconds = 0
        return True

    def _helpers_for(self, size: int) -> int:
        cores = min(_cores(), MOST)
        if cores == 1 or size < (FEWEST_FORKED if self._forks else FEWEST_STARTED):
            return 0
        return cores - 1 if self._forks else cores

    def _start(self, helpers: int) -> None:
        """Raises OSError when not all of them can be had."""
        if helpers:
            self._given, self._give = os.pipe()
            self._finished, self._finish = os.pipe()
            for end in (self._given, self._give, self._finish):
                os.set_blocking(end, False)
        for _ in range(helpers):
            with ExitStack() as undo:
                box = undo.enter_context(closing(Box()))
                self._helpers.append(self._fork(box) if self._forks else self._spawn(box))
                undo.pop_all()
            self._boxes.append(box)

    def _fork(self, box: Box) -> int:
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

    def _spawn(self, box: Box) -> int:
        import subprocess  # most commands never need it

        files = (self._file, self._given, self._finish, box.fileno())
        command = [sys.executable, "-P", "-m", "fusetui.trace.read.worker_process"]
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


def work(file: int, given: int, finished: int, box: int, size: int, parent: int) -> None:
    """What a helper does until there are no cells left, or its parent is gone."""
    for cell in taken(given):
        if os.getppid() != parent:
            return
        put(box, cell, decode_cell(file, cell, size))
        _tell(finished, cell)


def taken(pipe: int, seconds: float | None = None) -> Iterator[int]:
    """Numbers from a pipe that does not block, until it is closed and empty.

    Ends as well when there is none for so many seconds; None waits as long as it takes.
    """
    while _is_ready(pipe, seconds):
        try:
            number = os.read(pipe, NUMBER)
        except BlockingIOError:  # another process was faster
            continue
        if not number:
            return
        yield int.from_bytes(number, "little")


def _is_ready(pipe: int, seconds: float | None) -> bool:
    """Can it be read, after so many seconds at most."""
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else seconds * 1000))


def _tell(finished: int, cell: int) -> None:
    with suppress(BlockingIOError, BrokenPipeError):  # when nobody reads it
        os.write(finished, cell.to_bytes(NUMBER, "little"))


def _close(end: int) -> int:
    if end != -1:
        os.close(end)
    return -1


def _cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
