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
TIDYING = 10.0  # seconds that the clean-up may take before the process is ended all the same
AGAIN = 0.02  # seconds until a signal that came during an import is delivered once more


class Ended(KeyboardInterrupt):
    """A signal other than that of Ctrl+C; its number is the argument."""


@contextmanager
def ending() -> Iterator[None]:
    """Within the block the first of these signals raises Ended, unless it was ignored (nohup).
    Further ones are then ignored, so that they do not interrupt the clean-up, which a thread
    bounds: somebody may have caught Ended, or wait for a terminal that is gone.

    In a process that was forked within the block they have their default effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()
    numbers = [getattr(signal, name) for name in ENDING if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    waiting: list[int] = []  # signals that came during an import
    timers: list[threading.Timer] = []

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif _is_importing(frame):
            waiting.append(number)
            timers.append(_after(AGAIN, os.kill, owner, number))
        else:
            _handle(ours, signal.SIG_IGN)
            timers.append(_after(TIDYING, os._exit, ENDED + number))
            raise Ended(number)

    _handle(ours, end)
    try:
        yield
        if waiting:
            raise Ended(waiting[0])
    finally:
        for timer in timers:
            timer.cancel()
        _handle(ours, signal.SIG_DFL)


def _is_importing(frame: FrameType | None) -> bool:
    """Modules written in C may crash, or lose the exception, when one is raised while they are
    set up."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _after(seconds: float, call: Callable[..., object], *arguments: int) -> threading.Timer:
    timer = threading.Timer(seconds, call, arguments)
    timer.daemon = True
    timer.start()
    return timer


def _handle(numbers: Sequence[int], handler: Handler) -> None:
    for number in numbers:
        signal.signal(number, handler)


def code_of(interrupt: KeyboardInterrupt) -> int:
    """The exit code for this signal: 128 and its number."""
    number = interrupt.args[0] if isinstance(interrupt, Ended) else signal.SIGINT
    return ENDED + int(number)
