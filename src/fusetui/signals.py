"""Signals that end the process: a command as Ctrl+C does, so that files and helper
processes are cleaned up; the app as a key does or, if it does not respond, its
process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket

Handler = Callable[[int, FrameType | None], object] | signal.Handlers

ENDED = 128  # plus the number of a signal: the exit code of a process that it ended
ENDING = ("SIGTERM", "SIGHUP", "SIGQUIT")  # those that the system has
HUNG_UP = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has no SIGHUP
# The clean-up may take so long before the process is ended all the same
CLEANUP_SECONDS = 10.0
RETRY_SECONDS = 0.02  # until a signal that came during an import is delivered again
GRACE_SECONDS = 3.0  # that the app and its threads have to end by themselves
TERMINAL_POLL_SECONDS = 1.0  # between two checks whether the terminal is still there


class SignalInterrupt(KeyboardInterrupt):
    """A signal other than that of Ctrl+C, which ends a command. It is no error, and no
    Exception: what handles errors lets it through."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def ending() -> Iterator[None]:
    """Within the block SIGINT raises KeyboardInterrupt and the first of the other
    signals raises SignalInterrupt, unless it was ignored (nohup); one that comes during
    an import waits for its end. Further ones of the others are then ignored, so that
    they do not interrupt the clean-up, which a thread bounds: somebody may have caught
    SignalInterrupt, or wait for a terminal that is gone.

    In a process that was forked within the block they have their default effect.
    """
    if not _may_handle():
        yield
        return
    owner = os.getpid()
    default_handlers = (signal.SIG_DFL, signal.default_int_handler)
    ours = [
        number
        for number in numbers_of(("SIGINT", *ENDING))
        if signal.getsignal(number) in default_handlers
    ]
    waiting: set[int] = set()  # signals that came during an import
    timers: list[threading.Timer] = []

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if _is_importing(frame):
            waiting.add(number)
            timers.append(_after(RETRY_SECONDS, os.kill, owner, number))
            return
        waiting.discard(number)
        if number == signal.SIGINT:  # a prompt may catch it and go on
            raise KeyboardInterrupt
        for other in ours:
            signal.signal(other, signal.SIG_IGN)
        timers.append(_after(CLEANUP_SECONDS, os._exit, ENDED + number))
        raise SignalInterrupt(number)

    with handled(ours, end):
        try:
            yield
            if waiting:
                raise SignalInterrupt(min(waiting))
        finally:
            for timer in timers:
                timer.cancel()


class Endable(Protocol):
    """What a signal ends: the app."""

    @property
    def is_alone(self) -> bool:
        """Whether its terminal has gone away."""

    def end(self, number: int) -> None:
        """Ends it, from any thread; its loop may end by itself right now:
        RuntimeError."""

    def leave(self, code: int) -> None:
        """Ends its process at once."""


@contextmanager
def ended_by_signals(app: Endable) -> Iterator[None]:
    """Within the block signals end the app. One that was ignored before (nohup) stays
    ignored. A thread waits for them, because it runs whatever the app is doing."""
    if not _may_handle():
        yield
        return
    import socket

    numbers = [
        number
        for number in numbers_of(("SIGINT", *ENDING))
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    read_end, signal_end = (
        socket.socketpair()
    )  # unlike a pipe, also for the wakeups of Windows
    signal_end.setblocking(False)
    waiter = threading.Thread(
        target=_wait_for_signals, args=(read_end, numbers, app), daemon=True
    )
    waiter.start()
    try:
        with handled(numbers, lambda *_: None):
            wakeup = signal.set_wakeup_fd(
                signal_end.fileno(), warn_on_full_buffer=False
            )
            try:
                yield
            finally:
                signal.set_wakeup_fd(wakeup)
    finally:
        signal_end.close()
        waiter.join()
        read_end.close()


def _wait_for_signals(
    read_end: socket.socket, numbers: Sequence[int], app: Endable
) -> None:
    """Runs until the socket that delivers the numbers of signals is closed."""
    number = _first_ending_signal(read_end, numbers, app)
    if number is None:
        return
    with suppress(RuntimeError):
        app.end(number)
    until = time.monotonic() + GRACE_SECONDS
    while (left := until - time.monotonic()) > 0:
        has_app_ended = _is_ready(read_end, left) and not read_end.recv(1)
        if has_app_ended:
            return
    app.leave(ENDED + number)


def _first_ending_signal(
    read_end: socket.socket, numbers: Sequence[int], app: Endable
) -> int | None:
    """The first signal that ends the app; None: it ended before. A terminal may go away
    without one, for instance where it is ignored, and whoever writes to it would wait
    forever."""
    while True:
        if not _is_ready(read_end, TERMINAL_POLL_SECONDS):
            if app.is_alone:
                return HUNG_UP
            continue
        received = read_end.recv(1)
        if not received:
            return None
        number = received[0]
        if number in numbers:
            return number


def _is_ready(read_end: socket.socket, seconds: float) -> bool:
    import select

    return bool(select.select([read_end], [], [], seconds)[0])


def _may_handle() -> bool:
    """Python handles signals in the main thread alone."""
    return threading.current_thread() is threading.main_thread()


def numbers_of(names: Sequence[str]) -> list[int]:
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


@contextmanager
def handled(numbers: Sequence[int], handler: Handler) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)


def _is_importing(frame: FrameType | None) -> bool:
    """Modules in C may crash, or lose the exception, when one is raised while they are
    set up."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _after(
    seconds: float, call: Callable[..., object], *arguments: int
) -> threading.Timer:
    timer = threading.Timer(seconds, call, arguments)
    timer.daemon = True
    timer.start()
    return timer
