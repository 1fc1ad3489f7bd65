"""Decompresses gzip and zstd streams into the bytes of the document, chunk by chunk.

A truncated or damaged stream gives everything that can be unpacked before that place,
and the reason.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, pairwise
from typing import Any, Protocol, cast

import msgspec
from isal import igzip_lib

from fusetui.text.figures import amount
from fusetui.trace.model.errors import CannotReadError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GZIP = b"\x1f\x8b"
GZIP_CHECKSUM, GZIP_EXTRA, GZIP_NAME, GZIP_COMMENT = 2, 4, 8, 16  # flags of a header
ZSTD = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = tuple(bytes([byte]) + b"\x2a\x4d\x18" for byte in range(0x50, 0x60))
# Bytes that go into a stream at once: few at first, for files of tiny members.
FIRST_INPUT_BYTES = 1 << 12
MAX_INPUT_BYTES = 1 << 18
NEAR_DAMAGE_BYTES = 64
MAX_OUTPUT_BYTES = 1 << 20  # that come out at once
MAX_HEADER_BYTES = 1 << 18

LIMIT = "FUSETUI_UNPACK_LIMIT"
"""The environment variable with the size of the largest document to unpack, in GiB."""
GIB = 1 << 30
MAX_RATIO = 100  # traces compress 7 to 29 times
MIN_LIMIT_BYTES = GIB
MAX_LIMIT_BYTES = 64 * GIB
# its stubs call the class an instance
IsalError = cast(type[Exception], igzip_lib.IsalError)
DAMAGE: tuple[type[Exception], ...] = (IsalError, zstd.ZstdError, EOFError)


class Stream(Protocol):
    """The common interface of the decompressors of isal and zstd."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: Any, max_length: int = -1) -> bytes: ...


class Packing(msgspec.Struct, frozen=True):
    """How a document is compressed; there may be several members (frames) in
    sequence."""

    name: str
    marks: tuple[bytes, ...]  # the first bytes of a member
    stream: Callable[[], Stream]
    padded: bool = False  # zeros may follow a member, as on tapes
    header: Callable[[Any, int], int] = lambda stored, at: 0
    """The bytes of the member that begins at `at` that must go in at once."""


class TooLargeError(Exception):
    """The document unpacks to more than the limit."""


class DamagedError(Exception):
    """The stream ends early or contains wrong bytes; the message says which and
    where."""


def too_large_error(path: str, limit: int) -> CannotReadError:
    """The error for a file at `path` that unpacks to more than `limit` bytes. Its
    message names the environment variable that raises the limit."""
    return CannotReadError(
        f"{path} unpacks to more than {limit / GIB:.3g} GiB, too much for a trace of "
        f"its size. If it is a trace, set {LIMIT} to the number of GiB to allow."
    )


def measure_gzip_header(stored: Any, at: int) -> int:
    """The length of the gzip header that begins at the byte `at` of a file (RFC 1952,
    2.3); at most MAX_HEADER_BYTES.

    The whole header must go into ISA-L at once: fed by pieces, it forgets what it still
    has to skip.
    """
    # nearly all headers are short; a long name or comment needs the second try
    for size in (FIRST_INPUT_BYTES, MAX_HEADER_BYTES):
        head = stored[at : at + size]
        header_flags = head[3] if len(head) > 3 else 0
        # the fixed part of a header
        end = 10
        if header_flags & GZIP_EXTRA:
            end += 2 + int.from_bytes(head[10:12], "little")
        for flag in (GZIP_NAME, GZIP_COMMENT):  # each ends with a zero
            if header_flags & flag:
                end = head.find(b"\0", end) + 1 or len(head)
        if header_flags & GZIP_CHECKSUM:
            end += 2
        if end < len(head):
            break
    return min(end, MAX_HEADER_BYTES)


_gzip = partial(igzip_lib.IgzipDecompressor, flag=igzip_lib.DECOMP_GZIP)
zstd_stream: Callable[[], Stream] = zstd.ZstdDecompressor
PACKINGS = (
    Packing("gzip", (GZIP,), _gzip, True, measure_gzip_header),
    Packing("zstd", (ZSTD, *ZSTD_SKIPPABLE), zstd_stream),
)


def packing_of(start: bytes) -> Packing | None:
    """The compression format whose mark is at the start of a file; None if the file is
    not compressed. `start` is the first bytes of the file, four at least."""
    for packing in PACKINGS:
        if start.startswith(packing.marks):
            return packing
    return None


def limit_for(stored: int) -> int:
    """The most bytes that a file of this size may unpack to.

    A hundred times its size, but at least 1 GiB and at most 64 GiB; or the value of
    FUSETUI_UNPACK_LIMIT, in GiB.
    """
    gib = amount(os.environ.get(LIMIT, ""))
    if gib is not None:
        return int(gib * GIB)
    return min(max(MAX_RATIO * stored, MIN_LIMIT_BYTES), MAX_LIMIT_BYTES)


def unpack(stored: Any, packing: Packing, limit: int) -> Iterator[tuple[bytes, int]]:
    """Yield pieces of an unpacked document, each with the byte of the stored file up to
    which it was read.

    `limit` is the most bytes that the document may have. Raises TooLargeError beyond
    it, and DamagedError after the last piece that could be unpacked.
    """
    at = 0
    left = limit  # bytes of the document
    while stored[at : at + 4].startswith(packing.marks):
        at, left = yield from member(stored, packing, at, left)
        if packing.padded:
            at = _skip_zeros(stored, at)
    if stored[at : at + 1]:
        raise DamagedError(f"other data follows the {packing.name} data, at byte {at}")


def first_pieces(document: Any, packing: Packing | None, most: int) -> Iterator[bytes]:
    """Yield the first `most` bytes of a document in pieces, or some more, as far as it
    can be unpacked. `packing` is None for a document that is not compressed. Damage
    ends the pieces without an error."""
    if packing is None:
        for at in range(0, most, MAX_OUTPUT_BYTES):
            yield document[at : min(at + MAX_OUTPUT_BYTES, most)]
        return
    size = 0
    with suppress(DamagedError, TooLargeError):
        for piece, _ in unpack(document, packing, most):
            yield piece
            size += len(piece)
            if size >= most:
                return


def member(
    stored: Any, packing: Packing, at: int, limit: int
) -> Generator[tuple[bytes, int], None, tuple[int, int]]:
    """Yield the pieces of one compressed member that begins at the byte `at`, like
    `unpack`. A file may consist of several members in sequence.

    Returns the byte after the member, and the bytes that are left of `limit`. Raises
    TooLargeError and DamagedError.
    """
    stream = packing.stream()
    used_up_to = at  # the byte up to which the stored file went in
    written = 0  # bytes of the document
    try:
        first_input_bytes = max(FIRST_INPUT_BYTES, packing.header(stored, at))
        for piece, reached in _decompress_pieces(
            stream, stored, at, first_input_bytes, MAX_INPUT_BYTES
        ):
            used_up_to = reached
            written += len(piece)
            yield piece, used_up_to
            if written > limit:
                raise TooLargeError
    except DAMAGE:
        yield from _unpack_up_to_damage(stored, packing, at, written)
    if not stream.eof:
        raise DamagedError(f"the {packing.name} data ends early, at byte {len(stored)}")
    return used_up_to - len(stream.unused_data), limit - written


def _skip_zeros(stored: Any, at: int) -> int:
    """The place of the first byte from `at` on that is not zero, or the end of the
    file. Tapes fill up blocks with zeros."""
    while (piece := stored[at : at + MAX_INPUT_BYTES]) and not piece.strip(b"\0"):
        at += len(piece)
    zeros = len(piece) - len(piece.lstrip(b"\0"))
    return at + zeros


def _decompress_pieces(
    stream: Stream, stored: Any, at: int, size: int, largest: int
) -> Iterator[tuple[bytes, int]]:
    """Yield the pieces that a decompressor gives for the bytes from `at` on, each with
    the byte up to which the file went in.

    The first `size` bytes go in at once, then twice as many each time, up to `largest`.
    A decompressor that has more output than fits into a piece gets no new input before
    it has given it.
    """
    while not stream.eof:
        fed = b""
        if stream.needs_input:
            fed = stored[at : at + size]
            if not fed:
                return
            at += len(fed)
            size = min(size * 2, largest)
        yield stream.decompress(fed, MAX_OUTPUT_BYTES), at


def _unpack_up_to_damage(
    stored: Any, packing: Packing, at: int, known: int
) -> Iterator[tuple[bytes, int]]:
    """Yield the rest of a damaged member that can still be unpacked, then raise
    DamagedError.

    A decompressor gives nothing of input that contains damage. So the bytes near the
    damage go in one by one, to get what comes before it.

    Args:
        stored: The bytes of the file.
        packing: How they are compressed.
        at: Where the member begins.
        known: How many bytes of what it unpacks to were given already; they are left
            out.

    Yields:
        Pieces, each with the byte of the file up to which it goes, roughly.
    """
    first_size = max(NEAR_DAMAGE_BYTES, packing.header(stored, at))
    damage = _find_damage(stored, packing, at, first_size)
    later_begins = range(
        at + first_size, len(stored) + NEAR_DAMAGE_BYTES, NEAR_DAMAGE_BYTES
    )
    stream = packing.stream()
    with suppress(*DAMAGE):
        for begin, end in pairwise(chain((at,), later_begins)):
            input_bytes = end - begin if begin < damage else 1
            pieces = _decompress_pieces(
                stream, stored[begin:end], 0, input_bytes, input_bytes
            )
            for piece, _ in pieces:
                if len(piece) > known:
                    yield piece[known:], begin
                known = max(known - len(piece), 0)
    raise DamagedError(f"the {packing.name} data is damaged near byte {damage}")


def _find_damage(stored: Any, packing: Packing, at: int, first_size: int) -> int:
    """Return where a member that begins at byte `at` is damaged, to within
    NEAR_DAMAGE_BYTES: the last byte up to which it can be unpacked.

    `first_size` is how many bytes the decompressor gets first, for the header.
    """
    unpacked_up_to = at
    with suppress(*DAMAGE):
        pieces = _decompress_pieces(
            packing.stream(), stored, at, first_size, NEAR_DAMAGE_BYTES
        )
        for _, reached in pieces:
            unpacked_up_to = reached
    return unpacked_up_to
