"""Some args of some events, and the sequence numbers of all, in one pass over the document, which
other processes may share.

Decoding a list takes about as long for ten args as for one, so what several answers need is decoded
together.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import IO, Generic, NamedTuple, TypeVar

from fusetui.trace.model.arrays import Floats, Int64s
from fusetui.trace.model.events import NOTHING, Arguments, Events, Numbered, Wanted
from fusetui.trace.read import workers
from fusetui.trace.read.autograd import NO_NUMBERS, Autograd, autograd_of, numbers_in
from fusetui.trace.read.elements import args_in
from fusetui.trace.read.memory import file_in_memory
from fusetui.trace.read.workers import NUMBER_SIZE, forked, may_fork, taken

T = TypeVar("T")
MOST = 4  # processes beside the caller, which has something else to do first


class StretchArgs(NamedTuple):
    args: Numbered
    sequence: Int64s  # see numbers_of
    totals: Floats | None = None  # see totals_in


class Reread(Wanted):
    """The parts may be read in any order, and in several processes."""

    def __init__(
        self, events: Events, orders: Int64s, names: tuple[str, ...], numbered: bool = True
    ) -> None:
        """As of Wanted. Without `numbered`, sequence numbers are not looked for."""
        super().__init__(events, orders, names)
        self.stretches = len(events.stretches)
        self._events, self._numbered = events, numbered

    def part(self, stretch: int) -> StretchArgs:
        """Reads one stretch; blank for what cannot be read any more."""
        own, first = self._events.stretches[stretch], int(self.firsts[stretch])
        places = self.places(stretch)
        found = args_in(self._events.text, own, places, self.names, self._numbered)
        if found is not None:
            return StretchArgs(found[0], found[1] + (first, 0, 0), found[2])
        args = self._events.args(stretch, places, self.names) if places else NOTHING
        sequence = numbers_in(self._events, own, first) if self._numbered else NO_NUMBERS
        return StretchArgs(args, sequence)

    def args(self, parts: Sequence[StretchArgs]) -> Arguments:
        """From the parts of all stretches, in order."""
        return self.together(part.args for part in parts)

    def autograd(self, parts: Sequence[StretchArgs]) -> Autograd:
        """From the parts of all stretches, in order; the flows, if needed, are read now."""
        return autograd_of(self._events, [part.sequence for part in parts])


class Aside(ExitStack, Generic[T]):
    """The results of the tasks 0 to `count` - 1; other processes work through them while the
    caller does something else first.

    They are forked if this is the only thread and there are other cores; else, and where they
    fail, the caller does all tasks in `results`. `task` must be pure, and its results small: they
    are pickled. Use as a context manager: at its end the processes are stopped.
    """

    def __init__(self, count: int, task: Callable[[int], T], is_worth_it: bool = True) -> None:
        super().__init__()
        self._count, self._task = count, task
        self._children: dict[int, IO[bytes]] = {}  # where each puts its results
        others = min(workers.core_count() - 1, count, MOST)
        if is_worth_it and others > 0 and may_fork():
            with suppress(OSError):  # no more processes or files
                self._start(others)

    def results(self) -> dict[int, T]:
        """Takes part in the rest, and waits for the other processes."""
        given = taken(self._given, seconds=0) if self._children else ()
        found = {number: self._task(number) for number in given}
        while self._children:
            file = self._wait()
            file.seek(0)
            with suppress(OSError, EOFError, pickle.UnpicklingError):  # it ended early
                found |= pickle.load(file)  # no other process can write to it
        return found | {n: self._task(n) for n in range(self._count) if n not in found}

    def _start(self, others: int) -> None:
        """Raises OSError."""
        self._given, give = os.pipe()
        self.callback(os.close, self._given)
        for end in (self._given, give):
            os.set_blocking(end, False)
        with suppress(BlockingIOError):  # what does not fit into the pipe is done at the end
            for number in range(self._count):
                os.write(give, number.to_bytes(NUMBER_SIZE, "little"))
        os.close(give)
        self.callback(self._stop)
        for _ in range(others):
            file = self.enter_context(file_in_memory())
            self._children[forked(partial(self._work, file))] = file

    def _stop(self) -> None:
        while self._children:
            os.kill(next(reversed(self._children)), signal.SIGKILL)
            self._wait()

    def _work(self, file: IO[bytes]) -> None:
        done = {number: self._task(number) for number in taken(self._given)}
        pickle.dump(done, file, protocol=pickle.HIGHEST_PROTOCOL)
        file.flush()

    def _wait(self) -> IO[bytes]:
        """For the last one of the processes: the file that it filled."""
        child, file = self._children.popitem()
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
        return file
