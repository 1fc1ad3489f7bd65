"""From exceptions to one plain sentence on stderr and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from fusetui.commands import signals, streams
from fusetui.parser import WrongUse

DONE = 0
NO = 1
UNUSABLE = 2
CANNOT_TELL = 3
CRASHED = 70  # EX_SOFTWARE of sysexits.h
PIPE_CLOSED = signals.ENDED + 13  # as a program that dies of SIGPIPE
NOWHERE = "Standard output is closed: there is nowhere to write the result."


class CommandError(Exception):
    """One plain sentence for the user: what is wrong and what to do."""


OUR_SENTENCES = WrongUse | CommandError | streams.OutputError


def guarded(command: Callable[[], int]) -> int:
    """The exit code of a command: what a user can mend ends in a sentence, and so does a bug, whose
    traceback goes into a file."""
    is_open = streams.prepare()
    try:
        with signals.ending():
            code = _code_of(command) if is_open else _told(CommandError(NOWHERE))
            streams.settle()
            return code
    except KeyboardInterrupt as interrupt:
        streams.forget()
        return signals.code_of(interrupt)


def say(sentence: str) -> None:
    """Talk goes to stderr, on one line; it is no failure when nobody can hear it."""
    from fusetui.trace.text.printable import printable  # only after a failure, for its imports

    with suppress(OSError):
        print(printable(sentence), file=sys.stderr, flush=True)


def is_for_user(error: Exception) -> bool:
    """Is the message a sentence for the user; asked only after a failure, for its imports."""
    from fusetui.capture.errors import CaptureError
    from fusetui.trace.model.errors import TraceError

    return isinstance(error, OUR_SENTENCES | CaptureError | TraceError)


def _code_of(command: Callable[[], int]) -> int:
    try:
        code = _ended(command)
        streams.finish()
        return code
    except BrokenPipeError:
        return PIPE_CLOSED
    except Exception as error:
        return _told(error)


def _ended(command: Callable[[], int]) -> int:
    """The parser of the command line exits once it has shown its help."""
    try:
        return command()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else DONE


def _told(error: Exception) -> int:
    """Says what went wrong."""
    try:
        if is_for_user(error):
            say(str(error))
            return UNUSABLE
        from fusetui.commands.crash import crash_sentence

        say(crash_sentence(error))
    except ImportError as missing:  # of what even these sentences need
        with suppress(OSError):
            print(f"fusetui is not installed whole: {str(missing)!a}", file=sys.stderr)
    return CRASHED
