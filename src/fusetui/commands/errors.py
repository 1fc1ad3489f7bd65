"""From exceptions to one plain sentence on stderr and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from fusetui.arguments import WrongUse

DONE = 0
NO = 1
UNUSABLE = 2
CANNOT_TELL = 3
INTERRUPTED = 130
PIPE_CLOSED = 141  # as a program that dies of SIGPIPE


class CommandError(Exception):
    """One plain sentence for the user: what is wrong and what to do."""


def guarded(command: Callable[[], int]) -> int:
    """The exit code of a command; what a user can mend ends in a sentence, a bug in a traceback."""
    for stream in (sys.stdout, sys.stderr):  # a name may hold what the terminal cannot show
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        return command()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if not is_for_user(error):
            raise
        say(str(error))
        return UNUSABLE


def say(sentence: str) -> None:
    """Talk goes to stderr."""
    print(sentence, file=sys.stderr, flush=True)


def is_for_user(error: Exception) -> bool:
    """Is the message a sentence for the user; asked only after a failure, for its imports."""
    from fusetui.capture.errors import CaptureError
    from fusetui.trace.errors import TraceError

    return isinstance(error, WrongUse | CommandError | CaptureError | TraceError)
