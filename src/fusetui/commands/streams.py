"""Standard input, output and error, also where the shell has closed some or a disk is full."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


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


def flush() -> OSError | None:
    """Write what standard output still holds; what went wrong, if it did. Then nothing more is
    written, so that the interpreter does not try again at its end."""
    try:
        sys.stdout.flush()
    except OSError as error:
        forget()
        return error
    return None


def forget() -> None:
    """What standard output still holds goes nowhere."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
