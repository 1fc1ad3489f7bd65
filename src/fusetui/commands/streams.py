"""Standard input, output and error, also where the shell has closed some or a disk is full."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


class OutputError(Exception):
    """One plain sentence: why standard output cannot be written."""


def write(text: str) -> None:
    """To standard output, at once.

    Raises BrokenPipeError when nobody reads it any more, OutputError when it cannot be written.
    """
    try:
        if text:  # else even nothing would be written to a terminal
            sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"Standard output cannot be written: {error.strerror}.") from None


def prepare() -> bool:
    """Open the null device in place of what is closed, so that no other file gets its number;
    reading or writing it fails or leads nowhere. False when standard output was closed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY)  # gets the lowest number that is free
    there = sys.stdout is not None
    if sys.stdin is None:
        sys.stdin = open(0)  # noqa: SIM115  (open until the end)
    if sys.stdout is None:
        sys.stdout = open(1, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w")  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what is no text in its encoding is shown escaped
            stream.reconfigure(errors="backslashreplace")
    return there


def finish() -> None:
    """Write what standard output still holds; raises as `write` does."""
    write("")


def settle() -> None:
    """Nothing is left that the interpreter would try to write at its end, and fail."""
    try:
        sys.stdout.flush()
    except OSError:
        forget()


def forget() -> None:
    """What standard output still holds goes nowhere."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
