"""Reads a zip file that contains one trace."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from typing import IO, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipExtFile, ZipFile, ZipInfo

from fusetui.trace.model.errors import CannotReadError, NotATraceError
from fusetui.trace.read.unpack import limit_for, too_large_error

FORMS = (".json", ".pftrace", ".sqlite")
ENDINGS = tuple(f"{form}{packed}" for form in FORMS for packed in ("", ".gz", ".zst"))
SETTINGS = ("server_args.json",)  # SGLang writes them beside its traces
CHECKPOINT = "data.pkl"  # torch.save writes one into its zip
MAX_SHOWN_NAMES = 4  # in a message
ENCRYPTED = 1  # a flag of an entry
PIECE_BYTES = 1 << 16  # that are read at once
UNLIMITED_PIECE_BYTES = 1 << 12
"""The same where zipfile does not limit what that unpacks to."""
MAX_BYTES_ONE_BY_ONE = 1 << 20  # of a compressed trace that is damaged
UNKNOWN_SIZE = 1 << 60  # bytes
DAMAGE = (
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
        """Open a zip file and find the trace in it. Raises CannotReadError if it is
        damaged or needs a password, NotATraceError unless it has exactly one trace."""
        self._path = path
        self._file = file
        try:
            self._archive = ZipFile(file)
        except (*DAMAGE, NotImplementedError):
            end = file.seek(0, 2)
            raise CannotReadError(
                f"{path} is a damaged zip file: the list of its files is not at its end, byte {end}. "
                "Was it cut short?"
            ) from None
        self._checksum = 0  # of what was copied last
        self._trace = self._find_only_trace(self._archive.infolist())
        if self._trace.flag_bits & ENCRYPTED:
            raise CannotReadError(
                f"{path} is a zip file with a password: unpack it first."
            )

    @property
    def size(self) -> int:
        """The unpacked size of the trace in bytes, as the archive states it. A trace
        that is compressed once more inside the archive stays so."""
        return self._trace.file_size

    def extract(self, room: IO[bytes]) -> str | None:
        """Write the trace into the file `room`, as far as it is undamaged. Return a
        sentence about the damage, or None.

        Raises CannotReadError if nothing can be unpacked, or more than the limit for a
        file of this size.
        """
        limit = limit_for(self._trace.compress_size)
        expected_checksum = self._trace.CRC
        # zipfile would compare both with what it unpacks, and keep back the last piece
        # where they differ.
        del self._trace.CRC
        self._trace.file_size = UNKNOWN_SIZE
        wrong = self._copy(room, limit)
        if wrong and self._trace.compress_size <= MAX_BYTES_ONE_BY_ONE:
            # Decompressors give nothing of a piece that has damage in it.
            room.seek(0)
            room.truncate()
            wrong = self._copy(room, limit, one_by_one=True)
        if wrong and not room.tell():
            raise CannotReadError(
                f"{self._path} is a zip file that cannot be unpacked: {wrong}."
            )
        if self._checksum != expected_checksum:
            return wrong or "the zip file is damaged (its checksum does not fit)"
        return None

    def _copy(
        self, room: IO[bytes], limit: int, *, one_by_one: bool = False
    ) -> str | None:
        """Write the trace into the file `room`, up to damage. Return where the damage
        is, or None.

        `one_by_one` decompresses single bytes, which is slow but gets everything before
        the damage. Raises CannotReadError if the trace is larger than `limit` bytes.
        """
        self._checksum = 0
        pieces = self._pieces(one_by_one)
        while True:
            try:
                piece = next(pieces, b"")
            except DAMAGE:
                room.flush()
                return f"the zip file is damaged before byte {self._file.tell()}"
            if not piece:
                room.flush()
                return None
            self._checksum = zlib.crc32(piece, self._checksum)
            room.write(piece)
            if room.tell() > limit:
                raise too_large_error(self._path, limit)

    def _pieces(self, one_by_one: bool) -> Iterator[bytes]:
        """Yield the unpacked trace in pieces. `one_by_one` feeds the decompressor
        single bytes. Raises one of DAMAGE, or CannotReadError if this Python does not
        know the compression."""
        method = self._trace.compress_type
        is_limited = method in (ZIP_STORED, ZIP_DEFLATED)
        # of other methods, a small piece may already unpack to very much
        size = PIECE_BYTES if is_limited else UNLIMITED_PIECE_BYTES
        try:
            with self._archive.open(self._trace) as member:
                if one_by_one:
                    yield from _read_by_single_bytes(cast(ZipExtFile, member))
                while piece := member.read(size):
                    yield piece
        except NotImplementedError:
            raise CannotReadError(
                f"{self._path} is a zip file compressed by method {method}, which "
                "this Python does not support: unpack it first."
            ) from None

    def _find_only_trace(self, entries: list[ZipInfo]) -> ZipInfo:
        """The entry of the only trace among the entries of the archive. A file of
        settings beside a trace does not count. Raises NotATraceError unless there is
        exactly one."""
        traces = [entry for entry in entries if _is_trace(entry.filename)]
        if len(traces) > 1:
            others = [entry for entry in traces if _base_name(entry) not in SETTINGS]
            traces = others or traces
        if len(traces) == 1:
            return traces[0]
        if traces:
            names = [entry.filename for entry in traces[:MAX_SHOWN_NAMES]]
            more = ", ..." if len(traces) > MAX_SHOWN_NAMES else ""
            raise NotATraceError(
                f"{self._path} is a zip file with {len(traces)} traces "
                f"({', '.join(names)}{more}): unpack it, and open one or the folder."
            )
        if any(_base_name(entry) == CHECKPOINT for entry in entries):
            raise NotATraceError(
                f"{self._path} is a file of torch.save: record a trace with "
                "torch.profiler and prof.export_chrome_trace."
            )
        raise NotATraceError(
            f"{self._path} is a zip file without a trace ({', '.join(FORMS)})."
        )


def _read_by_single_bytes(member: ZipExtFile) -> Iterator[bytes]:
    """Yield what a file in a zip unpacks to, feeding its decompressor one byte at a
    time. It then gives all that comes before damage."""
    member.MIN_READ_SIZE = 1
    while ready := member.peek(1):
        yield member.read(len(ready))


def _base_name(entry: ZipInfo) -> str:
    """The file name of an entry, without its folders."""
    return entry.filename.rpartition("/")[2]


def _is_trace(name: str) -> bool:
    """Whether a file name ends like that of a trace. The folder that macOS adds to an
    archive does not count."""
    return name.endswith(ENDINGS) and not name.startswith("__MACOSX/")
