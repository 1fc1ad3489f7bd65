"""A document packed as gzip or zstd, whole or damaged, in one member or in many."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable
from random import Random

from fuzz.damage import damaged

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SKIPPABLE = b"\x50\x2a\x4d\x18\x05\x00\x00\x00hello"
NAMED = b"\x1f\x8b\x08\x1c\x00\x00\x00\x00\x00\x03\x05\x00extraname\x00comment\x00"


def packed(data: bytes, rnd: Random) -> bytes:
    pack = rnd.choice((_gzip, _zstd))
    found = b"".join(pack(part, rnd) for part in _parts(data, rnd))
    share = rnd.random()
    if share < 0.3:
        return damaged(found, rnd)
    return (
        found + rnd.choice((b"\x00" * 700, b"garbage", found[:9]))
        if share < 0.4
        else found
    )


def _parts(data: bytes, rnd: Random) -> list[bytes]:
    places = sorted(
        rnd.randint(0, len(data)) for _ in range(rnd.choice((0, 0, 0, 1, 5)))
    )
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def _gzip(data: bytes, rnd: Random) -> bytes:
    found = gzip.compress(data, rnd.choice((0, 1, 6, 9)), mtime=0)
    if rnd.random() < 0.2:  # a header with every optional field
        return NAMED + found[10:]
    return found


def _zstd(data: bytes, rnd: Random) -> bytes:
    options: dict[int, int] = {
        zstd.CompressionParameter.checksum_flag: rnd.choice((0, 1))
    }
    skipped = SKIPPABLE if rnd.random() < 0.2 else b""
    return skipped + zstd.compress(data, options=options)


def unpacked(data: bytes) -> bytes | None:
    """The document in a file, as Python's own modules read it; None where it is
    damaged."""
    unpack = _unpacking(data)
    if unpack is None:
        return data
    try:
        return unpack(data)
    except (OSError, EOFError, ValueError, zlib.error, zstd.ZstdError):
        return None


def _unpacking(data: bytes) -> Callable[[bytes], bytes] | None:
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress
    zstd_marks = (
        b"\x28\xb5\x2f\xfd",
        *(bytes([n]) + b"\x2a\x4d\x18" for n in range(0x50, 0x60)),
    )
    return zstd.decompress if data.startswith(zstd_marks) else None
