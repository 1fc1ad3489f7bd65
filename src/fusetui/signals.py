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
    """Make signals raise exceptions within the block.

    SIGINT raises KeyboardInterrupt, and each of ENDING raises SignalInterrupt. Signals
    that were ignored before (nohup) stay ignored. A signal that comes during an import
    waits for the end of the import. In a process that was forked within the block,
    signals have their default effect.

    After a SignalInterrupt, further signals are ignored, so that they do not interrupt
    the clean-up. If that takes longer than CLEANUP_SECONDS, the process ends all the
    same: somebody may have caught the exception, or wait for a terminal that is gone.
    """
    if not _may_handle():
        yield
        return
    owner = os.getpid()
    default_handlers = (signal.SIG_DFL, signal.default_int_handler)
    handled_numbers = [
        number
        for number in numbers_of(("SIGINT", *ENDING))
        if signal.getsignal(number) in default_handlers
    ]
    came_during_import: set[int] = set()
    timers: list[threading.Timer] = []

    def end(number: int, frame: FrameType | None) -> None:
        is_fork = os.getpid() != owner
        if is_fork:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if _is_importing(frame):
            came_during_import.add(number)
            timers.append(_after(RETRY_SECONDS, os.kill, owner, number))
            return
        came_during_import.discard(number)
        if number == signal.SIGINT:  # a prompt may catch it and go on
            raise KeyboardInterrupt
        for other_number in handled_numbers:
            signal.signal(other_number, signal.SIG_IGN)
        timers.append(_after(CLEANUP_SECONDS, os._exit, ENDED + number))
        raise SignalInterrupt(number)

    with handled(handled_numbers, end):
        try:
            yield
            if came_during_import:
                raise SignalInterrupt(min(came_during_import))
        finally:
            for timer in timers:
                timer.cancel()


class Endable(Protocol):
    """What a signal ends: the app."""

    @property
    def is_alone(self) -> bool:
        """Whether its terminal has gone away."""

    def end(self, number: int) -> None:
        """End the app, from any thread. Raises RuntimeError if its loop ends by itself
        right now."""

    def leave(self, code: int) -> None:
        """End its process at once."""


@contextmanager
def ended_by_signals(app: Endable) -> Iterator[None]:
    """Make signals end the app within the block.

    Signals that were ignored before (nohup) stay ignored. A thread waits for signals,
    because it runs whatever the app is doing.
    """
    if not _may_handle():
        yield
        return
    import socket

    numbers = [
        number
        for number in numbers_of(("SIGINT", *ENDING))
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    # Python writes the number of each signal to one end. On Windows, that has to be a
    # socket rather than a pipe.
    read_end, signal_end = socket.socketpair()
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
    """Wait for a signal, and end the app then.

    If the app has not ended within GRACE_SECONDS, its process ends.

    Args:
        read_end: The socket that delivers the numbers of signals. It is closed when the
            app has ended.
        numbers: The signals that end the app.
        app: The app.
    """
    number = _first_ending_signal(read_end, numbers, app)
    if number is None:
        return
    with suppress(RuntimeError):  # it ends by itself right now
        app.end(number)

    deadline = time.monotonic() + GRACE_SECONDS
    seconds_left = GRACE_SECONDS
    while seconds_left > 0:
        if _is_ready(read_end, seconds_left):
            is_closed = not read_end.recv(1)
            if is_closed:
                return
        seconds_left = deadline - time.monotonic()
    app.leave(ENDED + number)


def _first_ending_signal(
    read_end: socket.socket, numbers: Sequence[int], app: Endable
) -> int | None:
    """Wait for the first signal that ends the app, and return its number.

    If the terminal goes away, that counts as HUNG_UP: it may do so without a signal,
    and whoever writes to it would wait forever. Returns None if the app ends before.
    """
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
    """Wait until a socket can be read, and return whether it can after some seconds."""
    import select

    readable, _, _ = select.select([read_end], [], [], seconds)
    return bool(readable)


def _may_handle() -> bool:
    """Return whether this is the main thread; Python handles signals only there."""
    return threading.current_thread() is threading.main_thread()


def numbers_of(names: Sequence[str]) -> list[int]:
    """Return the numbers of signals by their names, of those that the system has."""
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


@contextmanager
def handled(numbers: Sequence[int], handler: Handler) -> Iterator[None]:
    """Handle some signals with a function within the block."""
    handlers_before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler_before in handlers_before.items():
            signal.signal(number, handler_before)


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a stack frame runs, directly or not, within an import.

    Modules in C may crash, or lose the exception, when one is raised while they are
    set up.
    """
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _after(
    seconds: float, call: Callable[..., object], *arguments: int
) -> threading.Timer:
    """Call a function after some seconds, unless the timer is cancelled before."""
    timer = threading.Timer(seconds, call, arguments)
    timer.daemon = True
    timer.start()
    return timer
