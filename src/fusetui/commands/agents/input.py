"""Reads lines of JSON from a client and replaces lone surrogates, because the SDK drops
a line that contains one without an answer."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import BinaryIO

STAND_IN = rb"\ufdd0"
"""As JSON: a noncharacter, which Unicode reserves for use within a program."""
ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
"""A pair of surrogates, one alone, or any other escape."""


def replace_lone_surrogates(line: bytes) -> bytes:
    """Return a line of JSON with STAND_IN in place of each escape of a lone surrogate.
    Pairs of surrogates and all other escapes stay as they are.

    A lone surrogate is half of a UTF-16 pair, such as `ud800` after a backslash, which
    is not valid Unicode.
    """
    if rb"\u" not in line:
        return line
    return ESCAPES.sub(lambda found: STAND_IN if found["lone"] else found[0], line)


@contextmanager
def filter_input(number: int = 0) -> Iterator[None]:
    """Within the block, the file descriptor `number` gives lines without lone
    surrogates. A thread reads the original input, and writes the lines into a pipe that
    takes the place of the descriptor."""
    source = os.fdopen(os.dup(number), "rb")
    read_end, write_end = os.pipe()
    os.dup2(read_end, number)
    os.close(read_end)
    Thread(
        target=_forward_lines, args=(source, os.fdopen(write_end, "wb")), daemon=True
    ).start()
    try:
        yield
    finally:
        # at the end of a program the descriptor may be closed already
        with suppress(OSError):
            os.dup2(source.fileno(), number)


def _forward_lines(source: BinaryIO, sink: BinaryIO) -> None:
    """Copy lines from `source` to `sink`, each without lone surrogates, until either
    ends. `sink` is closed at the end."""
    # the block may end, and close the pipe, while a line is being written
    with suppress(OSError, ValueError), sink:
        for line in source:
            sink.write(replace_lone_surrogates(line))
            sink.flush()
