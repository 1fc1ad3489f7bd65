"""The kind of inputs that are archives: whole, damaged, encrypted, nested, or far too
large."""

from __future__ import annotations

import io
import struct
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from fuzz.campaign import Kind
from fuzz.checks import check, check_trace
from fuzz.commands import answer
from fuzz.damage import cut, damaged
from fuzz.document import document
from fuzz.examine import Limited
from fuzz.limits import check_memory, limited
from fuzz.losses import check_losses, check_refused
from fuzz.packing import packed
from fuzz.sizes import sized
from tests.hostile import PAYLOADS

from fusetui.trace import Trace, TraceError, open_trace

METHODS = (
    zipfile.ZIP_STORED,
    zipfile.ZIP_DEFLATED,
    zipfile.ZIP_BZIP2,
    zipfile.ZIP_LZMA,
)
NAMES = (
    "trace.json",
    "a/b.json",
    "a.json.gz",
    "a.json.zst",
    "é.json",
    "../../up.json",
    "/x.json",
)
HOSTILE = tuple(text.encode("utf-8", "replace").decode() for text in PAYLOADS.values())
BESIDE = (
    *HOSTILE,
    "notes.txt",
    "__MACOSX/._a.json",
    "folder/",
    "archive/data.pkl",
    "b.json",
)
COMMANDS = ("summary", "why", "kernels", "ops", "ranks")
MARK = b"PK\x03\x04"
HEADERS = ((MARK, 6), (b"PK\x01\x02", 8))
"""What a header begins with, and where its flags stand; the other fields follow in one
order."""
FIELDS = {"flags": (0, "H"), "method": (2, "H"), "CRC": (8, "I"), "size": (16, "I")}
LIMIT = "0.002"  # GiB that a document may take
BOMB = 4_000_000  # bytes of one that takes more
# bytes of an archive that is unpacked byte by byte, and of the trace
FINE, MOST = 30_000, 300_000


def archive(seed: int, number: int) -> bytes:
    """Always the same for the same numbers."""
    rnd = Random(f"zip {seed}/{number}")
    data = _written(_members(rnd), rnd)
    for _ in range(rnd.choice((0, 1, 1, 1, 2))):
        data = rnd.choice(CHANGES)(data, rnd)
    return data


def _members(rnd: Random) -> list[tuple[str, bytes]]:
    """Mostly one trace, and other files beside it, sometimes very many."""
    if rnd.random() < 0.03:
        return [("bomb.json", rnd.choice((b" ", b"\0", b"[")) * BOMB)]
    found = [
        (_name(rnd), _trace(rnd)) for _ in range(rnd.choice((0, 1, 1, 1, 1, 1, 1, 2)))
    ]
    found += [
        (rnd.choice(BESIDE), b"some text") for _ in range(rnd.choice((0, 0, 1, 3)))
    ]
    if rnd.random() < 0.05:
        found += [
            (f"{number}{rnd.choice(('.txt', '.json'))}", b"") for number in range(300)
        ]
    return rnd.sample(found, len(found))


def _name(rnd: Random) -> str:
    return rnd.choice(NAMES) if rnd.random() < 0.9 else f"{rnd.choice(HOSTILE)}.json"


def _trace(rnd: Random) -> bytes:
    text = document(rnd).text().encode("utf-8", "surrogatepass")
    share = rnd.random()
    if share < 0.1:
        return packed(text, rnd)
    if share < 0.15:
        return _written([("trace.json", text)], rnd)
    return damaged(text, rnd) if share < 0.25 else text


def _written(members: list[tuple[str, bytes]], rnd: Random) -> bytes:
    room = _Pipe() if rnd.random() < 0.2 else io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(room, "w") as made:
        for name, content in members:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = rnd.choice(METHODS)
            with made.open(entry, "w", force_zip64=rnd.random() < 0.1) as file:
                file.write(content)
        made.comment = b"PK\x05\x06" * (rnd.random() < 0.05)
    return room.getvalue()


class _Pipe(io.BytesIO):
    """Where one cannot go back: sizes and checksums stand behind the bytes."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise io.UnsupportedOperation


def _flipped(data: bytes, rnd: Random) -> bytes:
    found = bytearray(data)
    for _ in range(rnd.choice((1, 1, 1, 3, 20)) if data else 0):
        found[rnd.randrange(len(found))] ^= 1 << rnd.randrange(8)
    return bytes(found)


def _encrypted(data: bytes, rnd: Random) -> bytes:
    return _with_field(data, "flags", rnd.choice((1, 1 | 1 << 6)))


def _wrong_field(data: bytes, rnd: Random) -> bytes:
    field = rnd.choice(("method", "CRC", "CRC", "size"))
    return _with_field(
        data, field, rnd.choice((0, 1, 9, 99, 0xFFFF, rnd.getrandbits(16)))
    )


def _with_field(data: bytes, field: str, value: int) -> bytes:
    """In all headers."""
    found = bytearray(data)
    at, form = FIELDS[field]
    for mark, flags in HEADERS:
        begin = data.find(mark)
        while begin >= 0 and begin + flags + at + 4 <= len(data):
            struct.pack_into(f"<{form}", found, begin + flags + at, value)
            begin = data.find(mark, begin + 1)
    return bytes(found)


CHANGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(
        _flipped,
        _flipped,
        _flipped,
        cut,
        cut,
        damaged,
        _wrong_field,
        _wrong_field,
        _encrypted,
    ),
)


def examine_archive(data: bytes, seed: int, limited: Limited) -> str:
    """What became of it: `refused`, `damaged`, or how its losses were judged."""
    rnd = Random(seed)
    with (
        warnings.catch_warnings(action="error"),
        tempfile.TemporaryDirectory() as folder,
        sized(rnd.choice(("usual", "small", "tiny"))),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("FUSETUI_UNPACK_LIMIT", LIMIT)
        path = Path(folder) / "trace.zip"
        path.write_bytes(data)
        with limited("open"):
            found = opened(path)
        with limited("a command"):
            answer([rnd.choice(COMMANDS), str(path), *rnd.choice(([], ["--json"]))])
        check_memory()
        return _judged(found, data)


def opened(path: Path | str) -> Trace | str:
    """A trace, or the sentence that refuses it."""
    try:
        return open_trace(str(path), cached=False)
    except TraceError as error:
        sentence = str(error)
        check(sentence.endswith((".", "?")), "no sentence", sentence)
        return sentence


def _judged(found: Trace | str, data: bytes) -> str:
    """Beside what Python's zipfile unpacks if that is all; of damage somebody is
    told."""
    inside, is_whole = unpacked(data)
    if inside is not None and (len(inside) >= BOMB or inside.startswith(MARK)):
        check(isinstance(found, str), "a bomb, or a zip in a zip")
        return "refused"
    if isinstance(found, str):
        if inside and is_whole:
            check_refused(found, inside)
        return "refused"
    check_trace(found)
    if not data.startswith(MARK):  # what the damage left is no archive
        return check_losses(found, data)
    if is_whole and inside is not None:
        return check_losses(found, inside)
    is_told = (
        found.report.cut is not None or inside == b""
    )  # the checksum fits, beside a wrong header
    check(is_told, "damage that nobody was told of")
    return "damaged"


def unpacked(data: bytes) -> tuple[bytes | None, bool]:
    """The only trace in an archive, and whether that is all of it; None if it is not
    known."""
    if not data.startswith(MARK):
        return None, False
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            traces = [
                entry for entry in archive.infolist() if _is_trace(entry.filename)
            ]
            if len(traces) != 1:
                return None, False
            try:
                whole = archive.read(traces[0])
            except Exception:
                whole = b""
            return (
                (whole, True)
                if whole
                else _before_damage(archive, traces[0], len(data))
            )
    except Exception:  # whatever it raises, it cannot read that
        return None, False


def _is_trace(name: str) -> bool:
    return name.endswith((".json", ".json.gz", ".json.zst")) and not name.startswith(
        "__MACOSX/"
    )


def _before_damage(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, size: int
) -> tuple[bytes | None, bool]:
    """Whatever length the archive says; byte by byte, unless the archive is large."""
    found, checksum = bytearray(), entry.CRC
    del entry.CRC
    entry.file_size = 1 << 40
    try:
        with archive.open(entry) as file:
            if size <= FINE:
                file.MIN_READ_SIZE = 1  # type: ignore[attr-defined]
            while len(found) < MOST and (piece := file.read(1)):
                found += piece
    except Exception:  # that is where the damage is
        pass
    return (bytes(found), zlib.crc32(found) == checksum) if found else (b"", False)


def attempt(seed: int, number: int) -> str:
    return examine_archive(archive(seed, number), number, limited)


def save(seed: int, number: int, what: str, place: Path) -> Path:
    path = place.with_name(f"{place.name}.zip")
    path.write_bytes(archive(seed, number))
    return path


KIND = Kind("zip", attempt, save)
