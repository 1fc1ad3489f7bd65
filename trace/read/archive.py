"""A zip with one trace in it.

A damaged one gives everything that can be unpacked before the damage, and the reason.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from copy import copy
from lzma import LZMAError
from typing import IO, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipExtFile, ZipFile, ZipInfo

from fusetui.trace.model.errors import CannotRead, NotATrace
from fusetui.trace.read.unpack import GIB, LIMIT, limit_for

ENDINGS = (".json", ".json.gz", ".json.zst")
CHECKPOINT = "data.pkl"  # torch.save writes one into its zip
PIECE = 1 << 18  # bytes that come out at once, at most
SHOWN = 4  # names in a message
LOCAL = struct.Struct("<4s5H3I2H")
"""The header before the bytes of an entry (PKWARE's APPNOTE.TXT, 4.3.7)."""
DAMAGE: tuple[type[Exception], ...] = (
    BadZipFile,
    EOFError,
    LookupError,
    LZMAError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
    struct.error,
    zlib.error,
)
"""What zipfile and its decompressors raise on wrong bytes."""


class Archive:
    """An open zip. Raises CannotRead if it is damaged, NotATrace unless it holds one trace."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._path = path
        self._file = file
        self._zip: ZipFile | None = None
        try:
            self._zip = ZipFile(file)
            self._trace = self._only_trace(self._zip)
        except DAMAGE as error:
            self._trace = _first_entry(file)
            if not _is_trace(self._trace.filename):
                raise CannotRead(f"{path} is a damaged zip file ({error}).") from None

    @property
    def size(self) -> int:
        """Bytes of the trace as it is in the archive once unpacked, by what the archive says."""
        return self._trace.file_size

    def extract(self, room: IO[bytes]) -> str | None:
        """Writes the trace into `room`, up to damage; returns what is wrong with it.

        Raises CannotRead if nothing can be unpacked, or too much.
        """
        limit = limit_for(self._trace.compress_size)
        wrong = None if self._zip else "the zip file ends early"
        length = checksum = 0
        pieces = self._pieces()
        while self.size <= limit:
            try:
                piece = next(pieces, b"")
            except DAMAGE as error:
                wrong = f"the zip file is damaged ({error})"
                break
            length += len(piece)
            checksum = zlib.crc32(piece, checksum)
            if not piece or length > limit:
                break
            room.write(piece)
        if max(length, self.size) > limit:
            raise CannotRead(
                f"{self._path} unpacks to more than {limit / GIB:.3g} GiB, too much for a trace of "
                f"its size; if it is one, set {LIMIT} to the GiB that it may take."
            )
        if wrong and not length:
            raise CannotRead(f"{self._path} is a zip file that cannot be unpacked: {wrong}.")
        room.flush()
        if wrong is None and (length, checksum) != (self.size, self._trace.CRC):
            return "the zip file is damaged (its checksum does not fit)"
        return wrong

    def _pieces(self) -> Iterator[bytes]:
        """The trace, read without zipfile's check of the sum, which withholds the last piece.
        Raises any of DAMAGE."""
        if self._zip is None:
            yield from _inflated(self._file, self._trace)
            return
        unchecked = copy(self._trace)
        del unchecked.CRC
        with self._zip.open(unchecked) as packed:
            while piece := cast(ZipExtFile, packed).read1(PIECE):
                yield piece

    def _only_trace(self, archive: ZipFile) -> ZipInfo:
        names = [one.filename for one in archive.infolist()]
        found = [one for one in archive.infolist() if _is_trace(one.filename)]
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(one.filename for one in found[:SHOWN])
            more = ", ..." if len(found) > SHOWN else ""
            raise NotATrace(
                f"{self._path} is a zip file with {len(found)} traces ({shown}{more}): unpack it, "
                "and open one or the folder."
            )
        if any(name.rpartition("/")[2] == CHECKPOINT for name in names):
            raise NotATrace(
                f"{self._path} is a file of torch.save: record a trace with torch.profiler and "
                "prof.export_chrome_trace."
            )
        raise NotATrace(f"{self._path} is a zip file without a trace ({', '.join(ENDINGS)}).")


def _is_trace(name: str) -> bool:
    """Not what macOS adds to an archive."""
    return name.endswith(ENDINGS) and not name.startswith("__MACOSX/")


def _first_entry(file: IO[bytes]) -> ZipInfo:
    """By the header before its bytes: the list of all entries, at the end of a zip, is missing."""
    file.seek(0)
    head = file.read(LOCAL.size)
    if len(head) < LOCAL.size:
        return ZipInfo("")
    _, _, flags, method, _, _, _, packed, _, length, extra = LOCAL.unpack(head)
    name = file.read(length).decode("utf-8", "replace")
    entry = ZipInfo(name.replace("\0", ""))
    entry.compress_type, entry.compress_size = method, packed or file.seek(0, 2)
    entry.header_offset = LOCAL.size + length + extra
    is_plain = method in (ZIP_STORED, ZIP_DEFLATED) and not flags & 1  # 1: encrypted
    return entry if is_plain else ZipInfo("")


def _inflated(file: IO[bytes], entry: ZipInfo) -> Iterator[bytes]:
    """What can be unpacked of an entry that is followed by whatever is left of the file."""
    file.seek(entry.header_offset)
    left = entry.compress_size
    stream = zlib.decompressobj(-zlib.MAX_WBITS) if entry.compress_type == ZIP_DEFLATED else None
    while left > 0 and (stored := file.read(min(left, PIECE))):
        left -= len(stored)
        while stored and not (stream and stream.eof):
            piece = stream.decompress(stored, PIECE) if stream else stored
            stored = stream.unconsumed_tail if stream else b""
            if piece:
                yield piece
