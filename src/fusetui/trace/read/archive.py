"""A zip with one trace in it.

A damaged one gives everything that can be unpacked before the damage, and the reason.
"""

from __future__ import annotations

import struct
import sys
import zlib
from bz2 import BZ2Decompressor
from collections.abc import Callable
from functools import partial
from lzma import FILTER_LZMA1, FORMAT_RAW, LZMADecompressor, LZMAError
from typing import IO, Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from isal import igzip_lib

from fusetui.trace.model.errors import CannotRead, NotATrace
from fusetui.trace.read.document import Document, read_at
from fusetui.trace.read.unpack import (
    Damaged,
    Packing,
    Stream,
    TooLarge,
    limit_for,
    member,
    too_large,
    zstd_stream,
)

FORMS = (".json", ".pftrace", ".sqlite")
ENDINGS = tuple(f"{form}{packed}" for form in FORMS for packed in ("", ".gz", ".zst"))
SETTINGS = ("server_args.json",)  # SGLang writes them beside its traces
CHECKPOINT = "data.pkl"  # torch.save writes one into its zip
SHOWN = 4  # names in a message
LOCAL = struct.Struct("<4s5H3I2H")
"""The header before the bytes of an entry (PKWARE's APPNOTE.TXT, 4.3.7)."""
MARK = b"PK\3\4"  # of that header
ENCRYPTED, MARKED_END = 1, 2  # flags; the second of LZMA
# a version, the length of what follows, lc/lp/pb, the window (5.8.8)
LZMA = struct.Struct("<HHBI")
NO_ZIP = (
    BadZipFile,
    LookupError,
    NotImplementedError,
    OSError,
    OverflowError,
    ValueError,
)
"""What zipfile raises on wrong bytes in the list of files, beside struct.error."""


class Archive:
    """An open zip. Raises CannotRead if it is damaged, NotATrace unless it holds one
    trace."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._path = path
        self._file = file
        self._wrong: str | None = None
        try:
            with ZipFile(file) as archive:
                self._trace = self._only_trace(archive.infolist())
        except (*NO_ZIP, struct.error) as error:
            self._wrong = "the zip file ends early"
            self._trace = _first_entry(file)
            if not _is_trace(self._trace.filename):
                raise CannotRead(f"{path} is a damaged zip file ({error}).") from None
        if self._trace.flag_bits & ENCRYPTED:
            raise CannotRead(f"{path} is a zip file with a password: unpack it first.")

    @property
    def size(self) -> int:
        """Bytes of the trace as it is in the archive once unpacked, by what the archive
        says."""
        return self._trace.file_size

    def extract(self, room: IO[bytes]) -> str | None:
        """Writes the trace into `room`, up to damage; returns what is wrong with it.

        Raises CannotRead if nothing can be unpacked, or too much.
        """
        limit = limit_for(self._trace.compress_size)
        wrong, checksum = self._wrong, 0
        try:
            for piece, _ in member(
                Member(self._trace, self._file), self._packing, 0, limit
            ):
                checksum = zlib.crc32(piece, checksum)
                room.write(piece)
        except Damaged as damage:
            wrong = wrong or f"the zip file is damaged ({damage})"
        except TooLarge:
            raise too_large(self._path, limit) from None
        room.flush()
        if wrong and not room.tell():
            raise CannotRead(
                f"{self._path} is a zip file that cannot be unpacked: {wrong}."
            )
        if self._wrong or checksum != self._trace.CRC:
            return wrong or "the zip file is damaged (its checksum does not fit)"
        return None

    @property
    def _packing(self) -> Packing:
        """Raises CannotRead if it is of no kind that is known."""
        ends = self._trace.flag_bits & MARKED_END or not self.size
        streams: dict[int, Callable[[], Any]] = {
            0: partial(Plain, self._trace.compress_size),
            8: partial(igzip_lib.IgzipDecompressor, flag=igzip_lib.DECOMP_DEFLATE),
            12: Bzip2,
            14: partial(Lzma, sys.maxsize if ends else self.size),
            93: zstd_stream,
        }
        method = self._trace.compress_type
        if method not in streams:
            raise CannotRead(
                f"{self._path} is a zip file compressed by method {method}, which fusetui does not "
                "know: unpack it first."
            )
        return Packing("compressed", (), streams[method])

    def _only_trace(self, entries: list[ZipInfo]) -> ZipInfo:
        found = [one for one in entries if _is_trace(one.filename)]
        if len(found) > 1:
            beside = [
                one for one in found if one.filename.rpartition("/")[2] not in SETTINGS
            ]
            found = beside or found
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(one.filename for one in found[:SHOWN])
            more = ", ..." if len(found) > SHOWN else ""
            raise NotATrace(
                f"{self._path} is a zip file with {len(found)} traces ({shown}{more}): unpack it, "
                "and open one or the folder."
            )
        if any(one.filename.rpartition("/")[2] == CHECKPOINT for one in entries):
            raise NotATrace(
                f"{self._path} is a file of torch.save: record a trace with torch.profiler and "
                "prof.export_chrome_trace."
            )
        raise NotATrace(
            f"{self._path} is a zip file without a trace ({', '.join(FORMS)})."
        )


def _is_trace(name: str) -> bool:
    """Not what macOS adds to an archive."""
    return name.endswith(ENDINGS) and not name.startswith("__MACOSX/")


def _first_entry(file: IO[bytes]) -> ZipInfo:
    """By the header before its bytes: the list of all entries, at the end of a zip, is
    missing."""
    file.seek(0)
    head = file.read(LOCAL.size)
    if len(head) < LOCAL.size:
        return ZipInfo("")
    _, _, flags, method, _, _, _, packed, size, length, _ = LOCAL.unpack(head)
    entry = ZipInfo(file.read(length).decode("utf-8", "replace").replace("\0", ""))
    entry.compress_type, entry.flag_bits = method, flags
    entry.compress_size, entry.file_size = packed or file.seek(0, 2), size
    entry.header_offset = 0
    return entry


class Member(Document):
    """The compressed bytes of an entry, which follow a header of their own."""

    def __init__(self, entry: ZipInfo, file: IO[bytes]) -> None:
        """Raises Damaged."""
        at, end = max(entry.header_offset, 0), file.seek(0, 2)
        head = read_at(file.fileno(), at, LOCAL.size)
        if len(head) < LOCAL.size or not head.startswith(MARK):
            raise Damaged("there is no header before the trace")
        *_, length, extra = LOCAL.unpack(head)
        self._begin = at + LOCAL.size + length + extra
        super().__init__(
            file.fileno(), max(min(entry.compress_size, end - self._begin), 0)
        )

    def __getitem__(self, place: slice) -> bytes:
        start, end, _ = place.indices(len(self))
        return read_at(self.number, self._begin + start, end - start)


class Plain:
    """A Stream of so many bytes that are not compressed."""

    needs_input, unused_data = True, b""

    def __init__(self, size: int) -> None:
        self._left = size

    @property
    def eof(self) -> bool:
        return self._left <= 0

    def decompress(self, data: bytes, _max_length: int = -1) -> bytes:
        self._left -= len(data)
        return data


class Bzip2:
    """A Stream that raises EOFError where bytes are wrong."""

    def __init__(self) -> None:
        self._stream: Stream | None = BZ2Decompressor()
        self._left = -1

    @property
    def eof(self) -> bool:
        return self._left == 0 or (self._stream is not None and self._stream.eof)

    @property
    def needs_input(self) -> bool:
        return self._stream is None or self._stream.needs_input

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data if self._stream else b""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        try:
            return self._stream.decompress(data, max_length) if self._stream else b""
        except (OSError, ValueError, LZMAError) as error:
            raise EOFError from error


class Lzma(Bzip2):
    """Begins with a header, and may have no end: then it ends after `size` unpacked
    bytes."""

    def __init__(self, size: int) -> None:
        self._stream = None
        self._left, self._head = size, b""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        if self._stream is None:
            self._head += data
            if len(self._head) < LZMA.size:
                return b""
            self._stream, data = self._begun(), self._head[LZMA.size :]
        most = self._left if max_length < 0 else min(max_length, self._left)
        found = super().decompress(data, most)
        self._left -= len(found)
        return found

    def _begun(self) -> Stream:
        _, _, properties, window = LZMA.unpack_from(self._head)
        rest, lc = divmod(properties, 9)
        pb, lp = divmod(rest, 5)
        window = max(min(window, self._left), 4096)
        known = {"id": FILTER_LZMA1, "lc": lc, "lp": lp, "pb": pb, "dict_size": window}
        try:
            return LZMADecompressor(FORMAT_RAW, filters=[known])
        except (ValueError, LZMAError) as error:
            raise EOFError from error
