"""What a cache entry was made from: enough to notice that the file has changed."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

ENDS = 1 << 16  # bytes of the head and of the tail


class Origin(msgspec.Struct, frozen=True):
    """A state of a file."""

    path: str  # absolute, links resolved
    size: int  # bytes
    mtime_ns: int
    ends: bytes  # a hash of head and tail
    ctime_ns: int = 0  # no program can set it
    inode: int = 0


def origin_of(path: str) -> Origin:
    """The current state of a file. Raises OSError."""
    from hashlib import blake2b  # not needed if the cache is off

    with Path(path).open("rb") as file:
        state = os.fstat(file.fileno())
        hashed = blake2b(file.read(ENDS), digest_size=16)
        file.seek(max(0, state.st_size - ENDS))
        hashed.update(file.read(ENDS))
    return Origin(
        os.path.realpath(path),
        state.st_size,
        state.st_mtime_ns,
        hashed.digest(),
        state.st_ctime_ns,
        state.st_ino,
    )
