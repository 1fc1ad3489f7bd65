"""A second process that works through numbered tasks while the caller does something else first."""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Generic, Self, TypeVar

from fusetui.trace.read.memory import file_in_memory
from fusetui.trace.read.workers import NUMBER, has_second_core, may_fork, taken

T = TypeVar("T")


class Aside(Generic[T]):
    """The results of the tasks 0 to `count` - 1.

    The process is forked if this is the only thread and there is a second core; else, and where it
    fails, the caller does all tasks in `results`. `task` must be pure, and its results small: they
    are pickled. Use as a context manager: at its end the process is stopped.
    """

    def __init__(self, count: int, task: Callable[[int], T], is_worth_it: bool = True) -> None:
        self._count = count
        self._task = task
        self._given = -1
        self._child = 0
        self._file: IO[bytes] | None = None
        if is_worth_it and may_fork() and has_second_core():
            with suppress(OSError):  # no more processes or files
                self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            self._wait()
        if self._given != -1:
            os.close(self._given)
        if self._file is not None:
            self._file.close()

    def results(self) -> dict[int, T]:
        """Takes part in the rest, and waits for the other process."""
        found = {number: self._task(number) for number in self._left()}
        if self._child:
            self._wait()
            found |= self._of_child()
        return found | {n: self._task(n) for n in range(self._count) if n not in found}

    def _left(self) -> Iterator[int]:
        return taken(self._given, seconds=0) if self._child else iter(())

    def _start(self) -> None:
        """Raises OSError."""
        self._file = file_in_memory()
        self._given, give = os.pipe()
        for end in (self._given, give):
            os.set_blocking(end, False)
        with suppress(BlockingIOError):  # what does not fit into the pipe is done at the end
            for number in range(self._count):
                os.write(give, number.to_bytes(NUMBER, "little"))
        os.close(give)
        with warnings.catch_warnings():  # idle threads of numpy
            warnings.simplefilter("ignore", DeprecationWarning)
            self._child = os.fork()
        if not self._child:
            try:
                done = {number: self._task(number) for number in taken(self._given)}
                with os.fdopen(os.dup(self._file.fileno()), "wb") as out:
                    pickle.dump(done, out, protocol=pickle.HIGHEST_PROTOCOL)
            finally:
                os._exit(0)

    def _wait(self) -> None:
        with suppress(ChildProcessError):
            os.waitpid(self._child, 0)
        self._child = 0

    def _of_child(self) -> dict[int, T]:
        """Nothing if it ended early."""
        assert self._file is not None
        try:
            self._file.seek(0)
            with os.fdopen(os.dup(self._file.fileno()), "rb") as file:
                found: dict[int, T] = pickle.load(file)  # no other process can write to it
        except (OSError, EOFError, pickle.UnpicklingError):
            return {}
        return found
