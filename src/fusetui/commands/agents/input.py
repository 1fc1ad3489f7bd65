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


def without_lone_surrogates(line: bytes) -> bytes:
    """The line with STAND_IN in the place of each escape of a surrogate without its
    partner."""
    if rb"\u" not in line:
        return line
    return ESCAPES.sub(lambda found: STAND_IN if found["lone"] else found[0], line)


@contextmanager
def readable_input(number: int = 0) -> Iterator[None]:
    """Within the block, the descriptor of standard input gives such lines: a thread
    reads it, and writes them into a pipe that takes its place."""
    source = os.fdopen(os.dup(number), "rb")
    read_end, write_end = os.pipe()
    os.dup2(read_end, number)
    os.close(read_end)
    Thread(
        target=_pass_on, args=(source, os.fdopen(write_end, "wb")), daemon=True
    ).start()
    try:
        yield
    finally:
        with suppress(OSError):
            os.dup2(source.fileno(), number)


def _pass_on(source: BinaryIO, sink: BinaryIO) -> None:
    with suppress(OSError, ValueError), sink:
        for line in source:
            sink.write(without_lone_surrogates(line))
            sink.flush()
