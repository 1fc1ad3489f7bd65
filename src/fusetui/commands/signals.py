"""What ends the process from outside ends it as Ctrl+C does: files and helpers are tidied up."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None] | signal.Handlers

ENDED = 128  # and the number of a signal: the exit code of what it ended
ENDING = ("SIGTERM", "SIGHUP", "SIGQUIT")  # as far as the system has them


class Ended(KeyboardInterrupt):
    """A signal other than that of Ctrl+C; its number is the argument."""


@contextmanager
def ending() -> Iterator[None]:
    """Within the block the first of these signals raises Ended, unless it was ignored (nohup); the
    others then do not disturb the tidying up.

    A process that was forked meanwhile dies of them, as it would without.
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
    """The exit code that tells of it."""
    number = interrupt.args[0] if isinstance(interrupt, Ended) else signal.SIGINT
    return ENDED + int(number)
