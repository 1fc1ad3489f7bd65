"""One input of the fuzzer: the bytes of a file, and the sizes with which they are
read."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from fuzz import words
from fuzz.damage import damaged, damaged_lines
from fuzz.document import document
from fuzz.packing import packed

SIZES = ("usual", "small", "small", "tiny", "tiny", "tiny", "team")
LARGE = 10_000  # bytes; with tiny sizes it would be many thousands of chunks
EXECUTION_TRACE = b'{"schema": "1.0.2", "pid": 1, "nodes": [{"id": 1, "name": "a"}]}'


class Case(NamedTuple):
    data: bytes
    sizes: str  # a key of sizes.SIZES


def case(seed: int, number: int) -> Case:
    """Always the same for the same numbers."""
    rnd = Random(f"{seed}/{number}")
    data = _data(rnd)
    if rnd.random() < 0.12:
        data = packed(data, rnd)
    sizes = "usual" if len(data) > LARGE else rnd.choice(SIZES)
    return Case(data, "small" if sizes == "team" and rnd.random() < 0.7 else sizes)


def _data(rnd: Random) -> bytes:
    """Mostly documents that Python's json can read, or of which only some lines are
    damaged: what is lost of the others nobody can say."""
    whole = document(rnd)
    share = rnd.random()
    if share < 0.5:
        return whole.text().encode()
    if share < 0.75 and whole.lines:
        return damaged_lines(whole, rnd)
    if share < 0.97:
        return damaged(whole.text().encode(), rnd)
    return _nonsense(rnd)


def _nonsense(rnd: Random) -> bytes:
    return rnd.choice(
        (
            b"",
            rnd.randbytes(rnd.randint(1, 300)),
            b"\x00" * 5000,
            b"[" * rnd.randint(1, 3000),
            b"{" * rnd.randint(1, 3000),
            words.value(rnd).encode(),
            words.nested(rnd).encode(),
            EXECUTION_TRACE,
            b'{"traceEvents": null}',
            b'{"traceEvents": {}}',
            b'{"a": 1}',
        )
    )
