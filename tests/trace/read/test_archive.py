"""A zip with one trace in it opens, whole or up to where it is damaged."""

from __future__ import annotations

import gzip
import struct
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from tests import pftraces

from fusetui.sample_traces import lessons
from fusetui.trace import CannotReadError, NotATraceError, open_trace
from fusetui.trace.model.errors import TraceError

LESSON = lessons.path("mlp-eager")
TRACE = gzip.decompress(LESSON.read_bytes())
METHODS = (
    zipfile.ZIP_STORED,
    zipfile.ZIP_DEFLATED,
    zipfile.ZIP_BZIP2,
    zipfile.ZIP_LZMA,
)

EVENTS = 2000
MANY = b'{"traceEvents":[%s]}' % b",".join(
    b'{"ph":"X","name":"n","pid":1,"tid":1,"ts":%d,"dur":%d}' % (3 * at, at * 7919 % 3)
    for at in range(EVENTS)
)


def message(path: Path) -> str:
    with pytest.raises((NotATraceError, CannotReadError)) as found:
        open_trace(str(path), cached=False)
    return str(found.value)


def zipped(
    path: Path, *names: str, content: bytes = TRACE, method: int = zipfile.ZIP_DEFLATED
) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in names:
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("name", ["trace.json", "folder/trace.json"])
def test_a_zip_with_one_trace_opens(tmp_path: Path, name: str) -> None:
    trace = open_trace(
        str(zipped(tmp_path / "a.zip", "notes.txt", "__MACOSX/x.json", name))
    )
    plain = open_trace(str(LESSON))
    assert (trace.start == plain.start).all()
    row = int(plain.gpu_rows[0])
    assert trace.args_of(row) == plain.args_of(row)


def test_zip_with_a_pftrace_opens(tmp_path: Path) -> None:
    content = b"".join((*pftraces.head(), pftraces.stage(4000, 500, 1, (20, 3))))
    path = zipped(tmp_path / "a.zip", "a.pftrace", content=content)
    trace = open_trace(str(path), cached=False)
    assert (trace.report.format, trace.names) == ("pftrace", ("sgemm",))


def test_settings_beside_the_trace_in_a_zip_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("run/trace.json", TRACE)
        archive.writestr("run/server_args.json", '{"model_path": "m"}')
    assert len(open_trace(str(path), cached=False)) == len(open_trace(str(LESSON)))


def test_zip_with_a_compressed_trace_opens(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", "a.json.gz", content=LESSON.read_bytes())
    assert len(open_trace(str(path))) == len(open_trace(str(LESSON)))


def test_a_large_zip_is_not_kept_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its args would be looked for in the zip itself."""
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 1)
    path = zipped(tmp_path / "a.zip", "a.json")
    for _ in range(2):
        trace = open_trace(str(path))
        assert trace.args_of(int(trace.gpu_rows[0]))


def test_zips_with_two_traces_or_none_say_what_they_hold(tmp_path: Path) -> None:
    assert "2 traces (a.json, b.json)" in message(
        zipped(tmp_path / "a.zip", "a.json", "b.json")
    )
    assert "torch.save" in message(zipped(tmp_path / "b.zip", "archive/data.pkl"))
    assert "without a trace" in message(zipped(tmp_path / "c.zip", "a.txt"))
    assert "without a trace" in message(zipped(tmp_path / "d.zip"))


def test_a_zip_that_ends_early_says_so(tmp_path: Path) -> None:
    """The list of its files is missing, which stands at the end."""
    path = zipped(tmp_path / "a.zip", "a.json")
    content = path.read_bytes()[:-2000]
    path.write_bytes(content)
    assert message(path) == (
        f"{path} is a damaged zip file: the list of its files is not at its end, byte "
        f"{len(content)}. Was it cut short?"
    )


def test_a_zip_with_damage_gives_what_is_before_it(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", "a.json", content=MANY)
    whole = path.read_bytes()
    at = len(whole) // 2
    path.write_bytes(whole[:at] + bytes(64) + whole[at + 64 :])
    trace = open_trace(str(path))
    assert 0 < trace.report.events < EVENTS
    assert str(trace.report.cut).startswith("the zip file is damaged")


def test_a_zip_with_a_wrong_checksum_gives_all_of_it(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", "a.json", content=MANY)
    checksum = zlib.crc32(MANY).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(checksum, bytes(4)))
    trace = open_trace(str(path))
    assert trace.report.events == EVENTS
    assert trace.report.cut == "the zip file is damaged (its checksum does not fit)"


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_byte_in_a_zip_is_never_a_bug(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(
            "a.json", b'{"traceEvents":[{"ph":"X","name":"n","ts":1,"dur":2}]}'
        )
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with suppress(TraceError):
            open_trace(str(path))


def test_zip_beyond_the_unpack_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSETUI_UNPACK_LIMIT", "0.000001")
    assert "too much for a trace" in message(zipped(tmp_path / "a.zip", "a.json"))


@pytest.mark.parametrize("method", METHODS)
def test_a_zip_that_says_a_wrong_size_is_not_damaged(
    tmp_path: Path, method: int
) -> None:
    """The checksum tells that nothing is missing."""
    path = zipped(tmp_path / "a.zip", "a.json", method=method)
    content = bytearray(path.read_bytes())
    for mark, at in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<I", content, content.find(mark) + at, len(TRACE) - 7)
    path.write_bytes(content)
    assert open_trace(str(path)).report.cut is None


def test_a_zip_with_a_password_or_of_an_unknown_kind_says_so(tmp_path: Path) -> None:
    plain = zipped(tmp_path / "a.zip", "a.json").read_bytes()
    for at, value, says in ((6, 1, "with a password"), (8, 9, "by method 9, which")):
        found = bytearray(plain)
        for place in (at, plain.find(b"PK\1\2") + at + 2):  # the two headers
            struct.pack_into("<H", found, place, value)
        (tmp_path / "b.zip").write_bytes(found)
        assert says in message(tmp_path / "b.zip")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_unpacks_to_far_too_much_is_unpacked_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int
) -> None:
    """Also where the zip says that it is small."""
    monkeypatch.setenv("FUSETUI_UNPACK_LIMIT", "0.001")
    sizes: list[int] = []

    def noted(piece: bytes, _before: int) -> int:
        sizes.append(len(piece))
        return 0

    monkeypatch.setattr("fusetui.trace.read.archive.zlib.crc32", noted)
    bomb = b" " * 5_000_000
    path = zipped(tmp_path / "a.zip", "a.json", content=bomb, method=method)
    size = struct.pack("<I", len(bomb))
    path.write_bytes(path.read_bytes().replace(size, struct.pack("<I", 0)))
    assert "too much for a trace" in message(path)
    assert max(sizes) <= 1 << 20


def test_what_precedes_damage_in_one_piece_of_lzma_is_read(tmp_path: Path) -> None:
    """The whole archive is one piece to the decompressor, which gives nothing of a piece
    with damage in it."""
    path = zipped(
        tmp_path / "a.zip", "trace.json", content=MANY[:3000], method=zipfile.ZIP_LZMA
    )
    with zipfile.ZipFile(path) as archive:
        (entry,) = archive.infolist()
    data = bytearray(path.read_bytes())
    data_begin = entry.header_offset + 30 + len("trace.json")
    damaged_at = data_begin + entry.compress_size * 3 // 4
    data[damaged_at : damaged_at + 8] = b"\xff" * 8
    path.write_bytes(data)
    trace = open_trace(str(path), cached=False)
    assert trace.report.cut is not None
    assert len(trace.start) > 10
