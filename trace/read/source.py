"""Paths and compressed files -> the bytes of one JSON document.

What a file is, its first bytes say; its name says nothing.
"""

from __future__ import annotations

import mmap
import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from isal import igzip_lib, isal_zlib

from fusetui.trace.errors import CannotRead, NotATrace

GZIP = b"\x1f\x8b"
GZIP_BITS = 16 + zlib.MAX_WBITS
PIECE = 1 << 22
IsalError = cast(type[Exception], igzip_lib.IsalError)  # its stubs call the class an instance


@dataclass(frozen=True, eq=False)
class Source:
    """The bytes of one document. `cut` says how a compressed file ended too early, or is None."""

    path: str
    size: int  # of the file as stored, in bytes
    data: bytes | mmap.mmap
    cut: str | None = None


def open_source(path: str) -> Source:
    """Map or decompress a file; `-` reads standard input. Raises CannotRead or NotATrace."""
    if path == "-":
        return _unpack("standard input", sys.stdin.buffer.read())
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise CannotRead(f"{path} is empty: was the profiler stopped before it exported?")
            if file.read(2) == GZIP:
                file.seek(0)
                return _unpack(path, file.read())
            return Source(path, size, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CannotRead(f"{path} cannot be opened: {reason}.") from None


def _unpack(path: str, stored: bytes) -> Source:
    if not stored:
        raise CannotRead(f"{path} is empty: was the profiler stopped before it exported?")
    if not stored.startswith(GZIP):
        return Source(path, len(stored), stored)
    data, cut = gunzip(stored)
    if not data:
        raise NotATrace(
            f"{path} is a gzip file of which nothing can be unpacked ({cut or 'empty'})."
        )
    return Source(path, len(stored), data, cut)


def gunzip(stored: bytes) -> tuple[bytes, str | None]:
    """All that can be unpacked, and why it ended early (None: whole, checksum included)."""
    pieces: list[bytes] = []
    rest: bytes = stored
    while rest.startswith(GZIP):
        begin = len(pieces)
        member = isal_zlib.decompressobj(wbits=GZIP_BITS)
        try:
            for start in range(0, len(rest), PIECE):
                pieces.append(member.decompress(rest[start : start + PIECE]))
                if member.eof:
                    rest = member.unused_data + rest[start + PIECE :]
                    break
            else:
                return b"".join(pieces), f"the gzip data ends early, at byte {len(stored)}"
        except IsalError:
            found, at = _before_damage(rest)
            damaged = f"the gzip data is damaged near byte {len(stored) - len(rest) + at}"
            return b"".join([*pieces[:begin], found]), damaged
    return b"".join(pieces), None


def _before_damage(member: bytes) -> tuple[bytes, int]:
    """What can be unpacked up to the first wrong byte, and where that is.

    A piece that fails is tried again in smaller pieces, the last time byte by byte.
    """
    pieces: list[bytes] = []
    stream = zlib.decompressobj(wbits=GZIP_BITS)
    at = 0
    for size in (1 << 16, 1 << 8, 1):
        before = stream.copy()
        try:
            while at < len(member):
                pieces.append(stream.decompress(member[at : at + size]))
                before = stream.copy()
                at += size
        except zlib.error:
            stream = before
    return b"".join(pieces), at
