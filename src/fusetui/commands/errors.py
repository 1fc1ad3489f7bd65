"""Turns exceptions into one plain sentence on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from fusetui import Error, signals
from fusetui.report import streams

DONE = 0
NO = 1
UNUSABLE = 2
CANNOT_TELL = 3
CRASHED = 70  # EX_SOFTWARE of sysexits.h
PIPE_CLOSED = signals.ENDED + 13  # as for a program killed by SIGPIPE
NOWHERE = "Standard output is closed: the result cannot be written anywhere."


class CommandError(Error):
    """One plain sentence for the user: what is wrong and what to do."""


GITHUB = "GITHUB_ACTIONS"
"""The environment variable that GitHub sets where it runs lines of a log as
commands."""
WORKFLOW_COMMANDS = ("::", "##[")
"""What such lines begin with: a message may begin with the name of a file that does."""


OUR_SENTENCES = Error | streams.OutputError


def guarded(command: Callable[[], int]) -> int:
    """The exit code of a command. An error is one sentence; a traceback goes into a
    file."""
    is_open = streams.prepare()
    try:
        with signals.ending():
            code = _code_of(command) if is_open else _told(CommandError(NOWHERE))
            streams.settle()
            return code
    except KeyboardInterrupt as interrupt:
        streams.forget()
        return signals.code_of(interrupt)


def say(*sentences: str) -> None:
    """Writes messages to stderr, each on one line. That stderr cannot be written is no
    error."""
    # only messages need them
    from fusetui.text.printable import printable, without_credentials

    for sentence in sentences:
        line = printable(without_credentials(sentence))
        is_command = line.lstrip().startswith(WORKFLOW_COMMANDS)
        print_line(f"| {line}" if is_command and GITHUB in os.environ else line)


def print_line(line: str) -> None:
    """Writes a line without control characters to stderr, as it is. That stderr cannot
    be written is no error."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _code_of(command: Callable[[], int]) -> int:
    try:
        try:
            code = command()
        except SystemExit as ended:  # as --help does
            code = ended.code if isinstance(ended.code, int) else DONE
        streams.write("")
        return code
    except BrokenPipeError:
        return PIPE_CLOSED
    except Exception as error:
        return _told(error)


def _told(error: Exception) -> int:
    try:
        if isinstance(error, OUR_SENTENCES):
            say(str(error))
            return UNUSABLE
        if isinstance(error, ModuleNotFoundError):
            raise error
        from fusetui.commands.crash import crash_sentence

        say(crash_sentence(error))
    except ImportError as missing:
        with suppress(OSError):
            print(
                f"fusetui is not completely installed: {str(missing)!a}",
                file=sys.stderr,
            )
    return CRASHED
