"""Signals that end the process do so as Ctrl+C does: files and helper processes are cleaned up."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None] | signal.Handlers

ENDED = 128  # plus the number of a signal: the exit code of a process that it ended
ENDING = ("SIGTERM", "SIGHUP", "SIGQUIT")  # those that the system has


class Ended(KeyboardInterrupt):
    """A signal other than that of Ctrl+C; its number is the argument."""


@contextmanager
def ending() -> Iterator[None]:
    """Within the block the first of these signals raises Ended, unless it was ignored (nohup).
    Further ones are then ignored, so that they do not interrupt the clean-up.

    In a process that was forked within the block they have their default effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()
    numbers = [getattr(signal, name) for name in ENDING if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: FrameType | None) -> None:
        if os.getpid() == owner:
            _handle(ours, signal.SIG_IGN)
            raise Ended(number)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    _handle(ours, end)
    try:
        yield
    finally:
        _handle(ours, signal.SIG_DFL)


def _handle(numbers: Sequence[int], handler: Handler) -> None:
    for number in numbers:
        signal.signal(number, handler)


def code_of(interrupt: KeyboardInterrupt) -> int:
    """The exit code for this signal: 128 and its number."""
    number = interrupt.args[0] if isinstance(interrupt, Ended) else signal.SIGINT
    return ENDED + int(number)
