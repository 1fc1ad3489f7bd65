"""Protects a capture from side effects of the user's code, and cleans up when a signal
ends it.

The user's code may change the working directory (`keep_working_directory`) or fork
(`end_forked_children`). Signals that end the process end it still, after a clean-up
(`clean_up_on_signal`)."""

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

from fusetui.capture.errors import print_message
from fusetui.signals import ENDED, ENDING, numbers_of


@contextmanager
def keep_working_directory() -> Iterator[None]:
    """Restore the working directory after the block. Nothing is restored if that folder
    was removed before or within the block."""
    try:
        folder: str | None = os.getcwd()
    except OSError:  # it was removed
        folder = None

    try:
        yield
    finally:
        if folder is not None:
            # the folder may have been removed in the block
            with suppress(OSError):
                os.chdir(folder)


@contextmanager
def end_forked_children() -> Iterator[None]:
    """End every child process that the block forks at the end of the block, or where
    the block raises in it. Only the parent continues after the block."""
    parent = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != parent:
            _exit_child(error)
        raise
    exit_if_forked(parent)


def exit_if_forked(parent: int) -> None:
    """Ends this process with exit code 0 unless its number is `parent`."""
    if os.getpid() != parent:
        _exit_child(None)


def _exit_child(error: BaseException | None) -> NoReturn:
    """End this process as Python would for `error`: with the same exit code, after
    printing its traceback or the text given to `sys.exit`. Nothing is cleaned up,
    because that is the parent's."""
    code = 0
    if isinstance(error, SystemExit):
        code = _print_exit_text(error.code)
    elif error is not None:
        traceback.print_exception(error)
        code = 1

    for stream in (sys.stdout, sys.stderr):
        # a stream may be closed, or replaced by the user's code
        with suppress(Exception):
            stream.flush()

    os._exit(code)


def _print_exit_text(given: object) -> int:
    """Return the exit code for what was given to `sys.exit`. None means 0, and a number
    means itself. Anything else is printed and means 1."""
    if given is None:
        return 0
    if isinstance(given, int):
        return given
    # the text of an object of the user may raise anything
    with suppress(Exception):
        print_message(str(given))
    return 1


_ENDING_SIGNALS = numbers_of(ENDING)
GRACE_SECONDS = 2.0
"""How long the main thread may take to handle a signal before a thread ends the
process."""


@contextmanager
def clean_up_on_signal(tidy: Callable[[], None]) -> Iterator[None]:
    """Call `tidy` when SIGTERM, SIGHUP or SIGQUIT ends the process in the block.

    A handler that is already installed is called instead; if it raises, the block can
    clean up. Ignored signals stay ignored. Nothing is done outside the main thread,
    where Python cannot handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = _EndingHandlers(tidy)
    try:
        yield
    finally:
        handlers.stop()


class _EndingHandlers:
    """The signal handlers of one block, and a thread that acts if they are not called.

    Python calls a handler only between two of its instructions, so none is called while
    the main thread waits for a GPU. Therefore the system also writes the number of each
    signal into a pipe (`signal.set_wakeup_fd`). The thread reads it, and ends the
    process if the handler has not run after `GRACE_SECONDS`.
    """

    def __init__(self, tidy: Callable[[], None]) -> None:
        """Handles the ending signals from now on; `tidy` is called when one comes."""
        self._tidy = tidy
        self._previous_handlers: dict[int, Any] = {}
        self._handled_signals: set[int] = set()
        self._pipe_output, self._pipe_input = os.pipe()
        self._thread = threading.Thread(target=self._watch_pipe, daemon=True)
        _register_fork_hooks()
        _active.add(self)

        if hasattr(os, "set_blocking"):  # Windows has it from Python 3.12 on
            self._set_wakeup_pipe()

        for number in _ENDING_SIGNALS:
            handler = signal.getsignal(number)
            if handler is signal.SIG_DFL or callable(handler):
                self._previous_handlers[number] = handler
                signal.signal(number, self._handle_signal)

        self._thread.start()

    def _set_wakeup_pipe(self) -> None:
        """Let signals write to the pipe, unless an event loop already lets them write
        to its own."""
        os.set_blocking(self._pipe_input, False)
        previous = signal.set_wakeup_fd(self._pipe_input, warn_on_full_buffer=False)
        if previous != -1:  # give it back
            signal.set_wakeup_fd(previous)

    def stop(self) -> None:
        """Restore the handlers, and end the thread by closing its pipe."""
        self.restore()
        os.close(self._pipe_input)
        self._thread.join()
        os.close(self._pipe_output)

    def restore(self) -> None:
        """Restore the handlers and the wakeup descriptor, except those that other code
        has replaced since."""
        _active.discard(self)
        for number, handler in self._previous_handlers.items():
            if self._is_installed(number):
                signal.signal(number, handler)
        current = signal.set_wakeup_fd(-1)
        if current != self._pipe_input:
            signal.set_wakeup_fd(current)

    def _is_installed(self, number: int) -> bool:
        return signal.getsignal(number) == self._handle_signal

    def _handle_signal(self, number: int, frame: Any) -> None:
        """Clean up and let the signal end the process. If the program has a handler of
        its own for this signal, that is called instead."""
        self._handled_signals.add(number)
        previous = self._previous_handlers[number]
        if previous is not signal.SIG_DFL:
            previous(number, frame)
            return
        self._tidy()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _watch_pipe(self) -> None:
        """Read the numbers of signals from the pipe until `stop` closes it; runs in the
        thread. A signal that no handler has handled after GRACE_SECONDS ends the
        process here."""
        while data := os.read(self._pipe_output, 1):
            number = data[0]
            if not self._is_installed(number):
                continue
            # the main thread may still call the handler itself
            time.sleep(GRACE_SECONDS)
            if number not in self._handled_signals:
                self._tidy()
                os._exit(ENDED + number)


_active: set[_EndingHandlers] = set()
_thread_state = threading.local()
"""`mask`: the signal mask of a thread before it began to fork."""


@cache
def _register_fork_hooks() -> None:
    """Register hooks that keep a forked child from running the parent's clean-up on a
    signal. Signals are blocked from before the fork until the child has removed our
    handlers."""
    os.register_at_fork(
        before=_block_signals,
        after_in_parent=_unblock_signals,
        after_in_child=_restore_in_child,
    )


def _block_signals() -> None:
    if _active:
        _thread_state.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)


def _unblock_signals() -> None:
    mask = _thread_state.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _restore_in_child() -> None:
    with suppress(ValueError):  # not in the main thread
        for handlers in list(_active):
            handlers.restore()
    _unblock_signals()
