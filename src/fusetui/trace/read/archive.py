"""A zip with one trace in it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from fusetui.trace.model.errors import CannotReadError, NotATraceError
from fusetui.trace.read.unpack import limit_for, too_large

FORMS = (".json", ".pftrace", ".sqlite")
ENDINGS = tuple(f"{form}{packed}" for form in FORMS for packed in ("", ".gz", ".zst"))
SETTINGS = ("server_args.json",)  # SGLang writes them beside its traces
CHECKPOINT = "data.pkl"  # torch.save writes one into its zip
SHOWN = 4  # names in a message
ENCRYPTED = 1  # a flag
LARGE_PIECE = 1 << 16  # bytes that are read at once
SMALL_PIECE = 1 << 12
"""The same where zipfile does not limit what that unpacks to."""
UNKNOWN_SIZE = 1 << 60  # bytes
WRONG = (
    BadZipFile,
    EOFError,
    LookupError,
    LZMAError,
    OSError,
    OverflowError,
    ValueError,
    struct.error,
    zlib.error,
)
"""What zipfile raises on wrong bytes."""


class Archive:
    """An open zip. Raises CannotReadError if it is damaged, NotATraceError unless it
    holds one trace."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._path = path
        self._file = file
        try:
            self._archive = ZipFile(file)
        except (*WRONG, NotImplementedError):
            end = file.seek(0, 2)
            raise CannotReadError(
                f"{path} is a damaged zip file: the list of its files is not at its end, byte {end}. "
                "Was it cut short?"
            ) from None
        self._trace = self._only_trace(self._archive.infolist())
        if self._trace.flag_bits & ENCRYPTED:
            raise CannotReadError(
                f"{path} is a zip file with a password: unpack it first."
            )

    @property
    def size(self) -> int:
        """Bytes of the trace as it is in the archive once unpacked, by what the archive
        says."""
        return self._trace.file_size

    def extract(self, room: IO[bytes]) -> str | None:
        """Writes the trace into `room`, up to damage; returns what is wrong with it.

        Raises CannotReadError if nothing can be unpacked, or too much.
        """
        limit = limit_for(self._trace.compress_size)
        said, checksum = self._trace.CRC, 0
        # zipfile would compare both, and keep back the last piece where they differ
        del self._trace.CRC
        self._trace.file_size = UNKNOWN_SIZE
        wrong = None
        pieces = self._pieces()
        while True:
            try:
                piece = next(pieces, b"")
            except WRONG:
                wrong = f"the zip file is damaged before byte {self._file.tell()}"
                break
            if not piece:
                break
            checksum = zlib.crc32(piece, checksum)
            room.write(piece)
            if room.tell() > limit:
                raise too_large(self._path, limit)
        room.flush()
        if wrong and not room.tell():
            raise CannotReadError(
                f"{self._path} is a zip file that cannot be unpacked: {wrong}."
            )
        if checksum != said:
            return wrong or "the zip file is damaged (its checksum does not fit)"
        return None

    def _pieces(self) -> Iterator[bytes]:
        """Raises one of WRONG, and CannotReadError if the compression is not known."""
        method = self._trace.compress_type
        is_limited = method in (ZIP_STORED, ZIP_DEFLATED)
        size = LARGE_PIECE if is_limited else SMALL_PIECE
        try:
            with self._archive.open(self._trace) as member:
                while piece := member.read(size):
                    yield piece
        except NotImplementedError:
            raise CannotReadError(
                f"{self._path} is a zip file compressed by method {method}, which this Python does "
                "not know: unpack it first."
            ) from None

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
            raise NotATraceError(
                f"{self._path} is a zip file with {len(found)} traces ({shown}{more}): unpack it, "
                "and open one or the folder."
            )
        if any(one.filename.rpartition("/")[2] == CHECKPOINT for one in entries):
            raise NotATraceError(
                f"{self._path} is a file of torch.save: record a trace with torch.profiler and "
                "prof.export_chrome_trace."
            )
        raise NotATraceError(
            f"{self._path} is a zip file without a trace ({', '.join(FORMS)})."
        )


def _is_trace(name: str) -> bool:
    """Not what macOS adds to an archive."""
    return name.endswith(ENDINGS) and not name.startswith("__MACOSX/")
