"""Standard input, output and error, even if some are closed or a disk is full."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class OutputError(Exception):
    """One plain sentence: why standard output cannot be written."""


def write(text: str) -> None:
    """Write text to standard output at once. Raises BrokenPipeError if the reader of a
    pipe has left, and OutputError if the text cannot be written."""
    try:
        if text:  # writing "" would still cause a write to a terminal
            sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"Standard output cannot be written: {error.strerror}."
        ) from None


def prepare() -> bool:
    """Make the standard streams usable, and return whether standard output was open.

    The null device takes the place of closed streams, so that no other file gets their
    numbers. Characters that an encoding lacks are escaped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY)  # gets the lowest free number
    stdout_was_open = sys.stdout is not None
    if sys.stdin is None:
        sys.stdin = open(0)  # noqa: SIM115  (open until the end)
    if sys.stdout is None:
        sys.stdout = open(1, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w")  # noqa: SIM115
    for name in ("stdout", "stderr"):
        # One that has no buffer (`python -u`) gets one, which is emptied after each
        # line: only buffers write again what the system did not take, or raise.
        stream = getattr(sys, name)
        if isinstance(getattr(stream, "buffer", None), io.RawIOBase):
            whole = open(stream.fileno(), "w", 1, stream.encoding, closefd=False)  # noqa: SIM115
            setattr(sys, name, whole)
            setattr(sys, f"__{name}__", whole)  # the app's
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # escape what the encoding cannot represent
            stream.reconfigure(errors="backslashreplace")
    return stdout_was_open


def settle() -> None:
    """Flush standard output, so that the interpreter does not fail to write it at exit.
    What cannot be written is discarded."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


def discard_output() -> None:
    """Discard what is still in the buffer of standard output, by leading it to the null
    device."""
    # standard output may be closed, and then nothing is written at exit
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
