"""The smallest part of an input that still fails in the same way (delta debugging,
Zeller 2002)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Part = TypeVar("Part")

SECONDS = 60.0  # after which it is small enough
LINES = re.compile(rb"[^\n]*\n|[^\n]+")
TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[^"\s]|\s+|"', re.DOTALL)
BYTES = re.compile(rb".", re.DOTALL)


def shrunk(
    parts: Sequence[Part],
    fails: Callable[[Sequence[Part]], bool],
    seconds: float = SECONDS,
) -> Sequence[Part]:
    """Leaves out ever smaller stretches of parts, as long as what is left `fails`."""
    until = time.monotonic() + seconds
    size = max(len(parts) // 2, 1)
    while len(parts):
        at, before = 0, len(parts)
        while at < len(parts) and time.monotonic() < until:
            fewer = [*parts[:at], *parts[at + size :]]
            if fails(fewer):
                parts = fewer
            else:
                at += size
        if time.monotonic() >= until or (size == 1 and len(parts) == before):
            break
        size = max(min(size // 2, len(parts) // 2), 1)
    return parts


def shrunk_bytes(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """First without whole lines, then without tokens, then without bytes."""
    for pattern in (LINES, TOKENS, BYTES):
        parts = pattern.findall(data)
        data = b"".join(shrunk(parts, lambda some: fails(b"".join(some)), SECONDS / 3))
    return data
