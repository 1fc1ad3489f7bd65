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
INTERRUPTED = signals.ENDED + 2  # SIGINT
PIPE_CLOSED = signals.ENDED + 13  # as for a program killed by SIGPIPE

EXIT_CODES = {
    DONE: "done",
    NO: (
        "the answer is no: a diff over its threshold, a wrong number of kernels, "
        "a failed variant"
    ),
    UNUSABLE: "incorrect usage, unreadable input, or output that cannot be written",
    CANNOT_TELL: "inconclusive: the traces do not settle the question",
    CRASHED: "an internal error; fusetui writes the traceback to a file",
    INTERRUPTED: (
        "interrupted with Ctrl+C (129, 131, 143: by SIGHUP, SIGQUIT, SIGTERM)"
    ),
    PIPE_CLOSED: "the reader closed the pipe",
}
"""What each exit code means: in the help, the manual page and docs/reference.md."""

OUR_SENTENCES = Error | streams.OutputError
"""Exceptions whose message is a plain sentence for the user. OutputError is no Error,
so that a command that goes on after an Error ends when its output has nowhere to go."""

CODES_OF_ERRORS: tuple[tuple[type[BaseException], int], ...] = (
    (Error, UNUSABLE),
    (streams.OutputError, UNUSABLE),
    (BrokenPipeError, PIPE_CLOSED),
    (KeyboardInterrupt, INTERRUPTED),
    (Exception, CRASHED),
)
"""The exit code of a command that ends with an exception: that of the first class here
that it is an instance of. A SignalInterrupt gives the code of its own signal. Commands
that go on after an error, such as `ranks` without one of its files, return a code."""

STDOUT_CLOSED = "Standard output is closed: the result cannot be written."
ON_GITHUB = "GITHUB_ACTIONS"
"""The environment variable that GitHub sets where it runs lines of a log as
commands."""
WORKFLOW_COMMANDS = ("::", "##[")
"""What such lines begin with: a message may begin with the name of a file that does."""


class CommandError(Error):
    """One plain sentence for the user: what is wrong and what to do."""


def find_exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends with this exception, as
    CODES_OF_ERRORS says. A signal gives 128 and its number."""
    if isinstance(error, signals.SignalInterrupt):
        return signals.ENDED + error.number
    for kind, code in CODES_OF_ERRORS:
        if isinstance(error, kind):
            return code
    return CRASHED


def exit_codes_text() -> str:
    """All exit codes and what they mean, in one sentence for the help."""
    codes = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    return f"Exit codes: {codes}."


def run_guarded(command: Callable[[], int]) -> int:
    """Run a command and return its exit code, or that of the exception that it ends
    with.

    An error is reported as one sentence on stderr; the traceback of an internal error
    goes to a file. If standard output is closed, the command is not run.
    """
    stdout_is_open = streams.prepare()
    try:
        with signals.ending():
            if stdout_is_open:
                code = _run_command(command)
            else:
                closed = CommandError(STDOUT_CLOSED)
                _report_error(closed)
                code = find_exit_code(closed)
            streams.settle()
            return code
    except KeyboardInterrupt as interrupt:
        streams.discard_output()
        return find_exit_code(interrupt)


def say(*sentences: str) -> None:
    """Write messages to stderr, each on one line, without control characters and
    passwords. Failures to write are ignored, because there is nowhere to report them.
    """
    # only messages need them
    from fusetui.text.printable import printable, without_credentials

    for sentence in sentences:
        line = printable(without_credentials(sentence))
        is_command = line.lstrip().startswith(WORKFLOW_COMMANDS)
        # GitHub would run such a line of its log as a command
        if is_command and ON_GITHUB in os.environ:
            line = f"| {line}"
        print_line(line)


def print_line(line: str) -> None:
    """Write a line to stderr as it is; it must have no control characters. Failures to
    write are ignored, because there is nowhere to report them."""
    # there is nowhere to report that stderr cannot be written
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _run_command(command: Callable[[], int]) -> int:
    """Run a command and return its exit code, once all of its output is written. Any
    exception is reported on stderr; only KeyboardInterrupt is raised."""
    try:
        try:
            code = command()
        except SystemExit as ended:  # as --help does
            code = ended.code if isinstance(ended.code, int) else DONE
        streams.write(
            ""
        )  # raises here if what is still in the buffer cannot be written
        return code
    except Exception as error:
        _report_error(error)
        return find_exit_code(error)


def _report_error(error: Exception) -> None:
    """Say on stderr why a command ends. Nothing is said if the reader of its output
    closed the pipe.

    A missing module means an incomplete installation of fusetui, also if only this
    report needs it.
    """
    if isinstance(error, BrokenPipeError):
        return
    try:
        if isinstance(error, OUR_SENTENCES):
            say(str(error))
        # handled below, with the imports of this report
        elif isinstance(error, ModuleNotFoundError):
            raise error
        else:
            from fusetui.commands.crash import describe_crash

            say(describe_crash(error))
    except ImportError as missing:
        print_line(f"fusetui is not completely installed: {str(missing)!a}")
