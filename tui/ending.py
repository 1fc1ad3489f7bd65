"""Handles the end of the app by Ctrl+C, by a signal or by a bug. The terminal is
restored, and what Textual would print about a bug is not shown."""

from __future__ import annotations

import asyncio
import io
import os
import select
import signal
import sys
from contextlib import suppress
from typing import Any

from rich.console import Console, RenderableType
from textual.app import App
from textual.css.query import NoMatches
from textual.worker import WorkerFailed

from fusetui.signals import ENDED, HUNG_UP
from fusetui.trace.model.errors import CannotReadError

RESTORE = (
    b"\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u"
)
RESTORE += b"\x1b[?1049l\x1b[?25h\x1b[?1004l"
"""What Textual writes when it restores the terminal (drivers/linux_driver.py)."""


class TerminalFailedError(Exception):
    """Keys can no longer be read; the message says why."""


class Ending(App[int]):
    """Keeps what ended the app for `outcome`."""

    _refused = ""
    _failure: Exception | None = None
    _is_ending = False
    _event_loop: asyncio.AbstractEventLoop | None = None

    def on_load(self) -> None:
        """Remember the event loop, so that other threads can end the app."""
        self._event_loop = asyncio.get_running_loop()

    def outcome(self) -> int:
        """Return the exit code of the app after it has run. Raise CannotReadError if a
        trace was refused, and the exception of a bug."""
        if self._failure is not None:
            raise _unwrap_failure(self._failure)
        if self._refused:
            raise CannotReadError(self._refused)
        return self.return_value if self.return_value is not None else 0

    def refuse(self, sentence: str) -> None:
        """End the app with exit code 2, because there is nothing to show. `sentence`
        says why."""
        self._refused = sentence
        self.exit(2)

    def exit(self, *result: Any, **options: Any) -> None:
        """End the app as App.exit does. Errors that Textual raises afterwards are
        ignored."""
        self._is_ending = True
        super().exit(*result, **options)

    def end(self, number: int) -> None:
        """End the app because of a signal, whose number is part of the exit code. Any
        thread may call this."""
        if self._event_loop is not None:
            self._event_loop.call_soon_threadsafe(self.exit, ENDED + number)

    def leave(self, code: int) -> None:
        """End the process at once with this exit code. The terminal is restored first,
        if that was not done."""
        # ends once everything is written
        writer = getattr(self._driver, "_writer_thread", None)
        if writer is not None and writer.is_alive():
            attributes = getattr(self._driver, "attrs_before", None)
            restore_terminal(0, sys.__stderr__.fileno(), attributes)  # type: ignore[union-attr]
        os._exit(code)

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """End the app as Ctrl+C does, which arrives as a key. The signal is raised
        first, so that no working thread delays the end."""
        if not self.is_headless:
            signal.raise_signal(number)
        self.exit(ENDED + number)

    @property
    def is_alone(self) -> bool:
        """Whether the terminal has gone away. An end of file would then be read from it
        forever."""
        return not self.is_headless and not os.isatty(0)

    def _handle_exception(self, error: Exception) -> None:
        """Keep an exception for `outcome` and end the app.

        Textual would print it with the values of all variables, and has no public way
        to prevent that. While the app ends, missing widgets are no error: the palette
        may still look for one.
        """
        if self._is_ending and isinstance(_unwrap_failure(error), NoMatches):
            return
        if self._failure is None:
            self._failure = error
            # what drives the app in tests looks here
            self._exception = error
            self._exception_event.set()
        self._close_messages_no_wait()

    def panic(self, *renderables: RenderableType) -> None:
        """End the app because the terminal driver has failed. If the terminal is gone,
        end as by a hang-up; otherwise keep the text of the error."""
        if self.is_alone:
            self.interrupt(HUNG_UP)
            return
        text = io.StringIO()
        Console(file=text, width=100, color_system=None).print(*renderables)
        self._handle_exception(TerminalFailedError(text.getvalue()))


def _unwrap_failure(error: Exception) -> BaseException:
    """Return the exception behind a failed worker, or the exception itself."""
    return error.error if isinstance(error, WorkerFailed) else error


def restore_terminal(keys: int, screen: int, attributes: list[Any] | None) -> None:
    """Restore the terminal to how it was before the app started. It never waits,
    because the terminal may be gone.

    `keys` and `screen` are file descriptors; `attributes` are those of the terminal
    before the start, or None.
    """
    try:
        import termios
    except ImportError:  # Windows restores its console by itself
        return
    with suppress(OSError, termios.error):
        if attributes is not None:
            termios.tcsetattr(keys, termios.TCSANOW, attributes)
        # only if it can be written to without waiting
        if select.select([], [screen], [], 0)[1]:
            os.write(screen, RESTORE)
