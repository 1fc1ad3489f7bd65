"""Signals end the app as a key would or, if the app does not respond, the process."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fusetui.tui.ending import ENDED, HUNG_UP, Ending

ENDING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")  # as far as the system has them
GRACE = 3.0  # seconds that the app and its threads have to end by themselves
LOOK = 1.0  # seconds between two checks whether the terminal is still there

RESTORE = b"\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u"
RESTORE += b"\x1b[?1049l\x1b[?25h\x1b[?1004l"
"""What Textual writes when it restores the terminal (drivers/linux_driver.py)."""


@contextmanager
def ended_by_signals(app: Ending) -> Iterator[None]:
    """Handles signals within the block. A signal that was ignored before (nohup) stays ignored.

    A thread waits for them, because it runs whatever the app is doing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    named = [getattr(signal, name) for name in ENDING if hasattr(signal, name)]
    numbers = [n for n in named if signal.getsignal(n) is not signal.SIG_IGN]
    heard, told = socket.socketpair()  # unlike a pipe, also for the wakeups of Windows
    told.setblocking(False)
    hearing = threading.Thread(target=_hear, args=(heard, numbers, app), daemon=True)
    hearing.start()
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    wakeup = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        told.close()
        hearing.join()
        heard.close()


def _hear(heard: socket.socket, numbers: Collection[int], app: Ending) -> None:
    """Runs until the socket that delivers the numbers of signals is closed."""
    number = _first(heard, numbers, app)
    if number is None:
        return
    with suppress(RuntimeError):  # its loop may end by itself right now
        app.end(number)
    until = time.monotonic() + GRACE
    while (left := until - time.monotonic()) > 0:
        if select.select([heard], [], [], left)[0] and not heard.recv(1):
            return
    leave(app, ENDED + number)


def _first(heard: socket.socket, numbers: Collection[int], app: Ending) -> int | None:
    """The first signal that ends the app; None: it ended before. A terminal may go away without
    one, for instance where it is ignored, and whoever writes to it would wait forever."""
    while True:
        if not select.select([heard], [], [], LOOK)[0]:
            if app.is_alone:
                return HUNG_UP
        elif not (number := heard.recv(1)):
            return None
        elif number[0] in numbers:
            return number[0]


def leave(app: Ending, code: int) -> None:
    """Ends the process at once; first restores the terminal, if the app has not done so."""
    driver = app._driver
    writer = getattr(driver, "_writer_thread", None)  # it ends once everything is written
    if writer is not None and writer.is_alive():
        restore(0, sys.__stderr__.fileno(), getattr(driver, "attrs_before", None))  # type: ignore[union-attr]
    os._exit(code)


def restore(keys: int, screen: int, attributes: list[Any] | None) -> None:
    """Restores the terminal; never waits, because it may be gone."""
    try:
        import termios
    except ImportError:  # Windows restores its console by itself
        return
    with suppress(OSError, termios.error):
        if attributes is not None:
            termios.tcsetattr(keys, termios.TCSANOW, attributes)
        if select.select([], [screen], [], 0)[1]:
            os.write(screen, RESTORE)
