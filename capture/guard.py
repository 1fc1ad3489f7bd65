"""Guards a capture against what the user's code may do to this process, such as fork or
change its folder, and against signals that end it, which are obeyed once it has cleaned
up."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NoReturn

from fusetui.signals import ENDING, numbers_of


@contextmanager
def same_folder() -> Iterator[None]:
    """Restores the working directory after the block."""
    try:
        before = os.getcwd()
    except OSError:  # it was removed
        before = None
    try:
        yield
    finally:
        if before is not None:
            with suppress(OSError):
                os.chdir(before)


@contextmanager
def parent_only() -> Iterator[None]:
    """A child process that was forked in the block ends here, as if its program had
    ended."""
    parent = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != parent:
            _leave(error)
        raise
    leave_if_forked(parent)


def leave_if_forked(parent: int) -> None:
    """Ends the process, unless it is the one with this number."""
    if os.getpid() != parent:
        _leave(None)


def _leave(error: BaseException | None) -> NoReturn:
    """Exits with the code that Python would have used, but without the parent's
    clean-up."""
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code or 0
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)


_NUMBERS = numbers_of(ENDING)
# seconds after which a thread ends the process if the main thread does not respond
GRACE = 2.0

_forking = threading.local()


@contextmanager
def tidied(tidy: Callable[[], None]) -> Iterator[None]:
    """Calls `tidy` when SIGTERM, SIGHUP or SIGQUIT ends the process inside the block.
    An existing handler is called instead; the block may clean up after what it raises.
    Ignored signals stay ignored. Does nothing outside the main thread, where Python has
    no handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = _Ending(tidy)
    try:
        yield
    finally:
        ending.stop()


class _Ending:
    """The handlers of one block, and a thread. The thread ends the process when the
    main thread waits for a GPU and runs no Python, so that no handler is called: the
    system also writes the number of each signal into a pipe, which the thread reads."""

    def __init__(self, tidy: Callable[[], None]) -> None:
        self._tidy = tidy
        self._before: dict[int, Any] = {}
        self._heard: set[int] = set()
        self._told, self._tell = os.pipe()
        self._thread = threading.Thread(target=self._wait, daemon=True)
        _know_forks()
        _active.add(self)
        if hasattr(os, "set_blocking"):  # Windows has it from Python 3.12 on
            os.set_blocking(self._tell, False)
            listening = signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
            if listening != -1:  # an event loop already does
                signal.set_wakeup_fd(listening)
        for number in _NUMBERS:
            before = signal.getsignal(number)
            if before is signal.SIG_DFL or callable(before):
                self._before[number] = before
                signal.signal(number, self._handle)
        self._thread.start()

    def stop(self) -> None:
        self.forget()
        os.close(self._tell)
        self._thread.join()
        os.close(self._told)

    def forget(self) -> None:
        """Restores everything, unless other code has changed it since."""
        _active.discard(self)
        for number, before in self._before.items():
            if self._handles(number):
                signal.signal(number, before)
        listening = signal.set_wakeup_fd(-1)
        if listening != self._tell:
            signal.set_wakeup_fd(listening)

    def _handles(self, number: int) -> bool:
        return signal.getsignal(number) == self._handle

    def _handle(self, number: int, frame: Any) -> None:
        self._heard.add(number)
        before = self._before[number]
        if before is not signal.SIG_DFL:
            before(number, frame)
            return
        self._tidy()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _wait(self) -> None:
        while told := os.read(self._told, 1):
            number = told[0]
            if self._handles(number):
                time.sleep(GRACE)
                if number not in self._heard:
                    self._tidy()
                    os._exit(128 + number)


_active: set[_Ending] = set()


@cache
def _know_forks() -> None:
    """A signal to a forked child does not end this process, even right after a fork."""
    os.register_at_fork(before=_hold, after_in_parent=_resume, after_in_child=_forget)


def _hold() -> None:
    """Blocks signals while the child still has our handlers."""
    if _active:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)


def _resume() -> None:
    mask = _forking.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forget() -> None:
    with suppress(ValueError):  # not in the main thread
        for ending in list(_active):
            ending.forget()
    _resume()
