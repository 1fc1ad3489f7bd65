"""How the app ends other than by `q`: by Ctrl+C, by a signal, by a bug. The terminal is restored,
and what Textual would print about a bug is not shown."""

from __future__ import annotations

import io
import os
import signal

from rich.console import Console, RenderableType
from textual.app import App
from textual.css.query import NoMatches
from textual.worker import WorkerFailed

from fusetui.trace.model.errors import CannotRead

ENDED = 128  # plus the number of a signal: the exit code of a process that it ended
HUNG_UP = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has no SIGHUP


class TerminalFailedError(Exception):
    """Keys can no longer be read; the message says why."""


class Ending(App[int]):
    """Keeps what ended the app for `outcome`."""

    _refused = ""

    def outcome(self) -> int:
        """The exit code of the app after it has run.

        Raises CannotRead when a trace was refused, and the exception of a bug.
        """
        error = self._exception
        if error is not None:
            raise _cause(error)
        if self._refused:
            raise CannotRead(self._refused)
        return self.return_value if self.return_value is not None else 0

    def refuse(self, sentence: str) -> None:
        """End, because there is nothing to show."""
        self._refused = sentence
        self.exit(2)

    def end(self, number: int) -> None:
        """End because of a signal; callable from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.exit, ENDED + number)

    def interrupt(self) -> None:
        """Ctrl+C, which arrives as a key."""
        self._end_as_by(signal.SIGINT)

    @property
    def is_alone(self) -> bool:
        """Has the terminal gone away: an end of file would be read from it forever."""
        return not self.is_headless and not os.isatty(0)

    def _end_as_by(self, number: signal.Signals) -> None:
        """The signal comes first, so that no thread still working delays the end."""
        if not self.is_headless:
            signal.raise_signal(number)
        self.exit(ENDED + number)

    def _handle_exception(self, error: Exception) -> None:
        """Textual would print it, with the values of all variables. What looks for a part of the
        screen once the app ends, as the palette may, finds it gone."""
        if self._exit and isinstance(_cause(error), NoMatches):
            return
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
        self._close_messages_no_wait()

    def panic(self, *renderables: RenderableType) -> None:
        """Called by the terminal driver when it has failed."""
        if self.is_alone:
            self._end_as_by(HUNG_UP)
            return
        text = io.StringIO()
        Console(file=text, width=100, color_system=None).print(*renderables)
        self._handle_exception(TerminalFailedError(text.getvalue()))


def _cause(error: Exception) -> BaseException:
    return error.error if isinstance(error, WorkerFailed) else error
