"""Files of other programs are named, with what to do instead; a zip with one trace in it opens."""

from __future__ import annotations

import gzip
import pickle
import sqlite3
import struct
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from fusetui.sample_traces import lessons
from fusetui.trace import CannotRead, NotATrace, open_trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.read.foreign import foreign

LESSON = lessons.path("mlp-eager")
TRACE = gzip.decompress(LESSON.read_bytes())
EVENT = struct.pack("<QI", 24, 0) + b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2" + bytes(4)
PLANE = b"\x0a\x80\x04\x08\x01\x12\x0d/device:GPU:0" + bytes(500)
PACKET = b"\x0a\x04\x18\x01\x40\x02"


def message(path: Path) -> str:
    with pytest.raises((NotATrace, CannotRead)) as found:
        open_trace(str(path), cached=False)
    return str(found.value)


def database(path: Path, table: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"create table {table} (id integer)")
    connection.close()


@pytest.mark.parametrize(
    ("table", "what", "instead"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "Nsight Systems exported", "nsys2json"),
        ("rocpd_kernel_dispatch", "rocprofv3", "rocpd convert"),
        ("people", "a SQLite database", "torch.profiler"),
    ],
)
def test_databases(tmp_path: Path, table: str, what: str, instead: str) -> None:
    database(tmp_path / "report.db", table)
    told = message(tmp_path / "report.db")
    assert what in told
    assert instead in told


@pytest.mark.parametrize(
    ("content", "what", "instead"),
    [
        (b"QDSTRM\0\0", "Nsight Systems", "nsys export"),
        (b"NVR\0" + bytes(99), "Nsight Compute", "torch.profiler"),
        (pickle.dumps({"segments": [], "device_traces": [[]]}), "memory snapshot", "_memory_viz"),
        (pickle.dumps({"a": 1}), "a pickle file", "torch.profiler"),
        (EVENT, "TensorBoard", ".pt.trace.json"),
        (PLANE, "XPlane", "create_perfetto_trace"),
        (PACKET * 9, "Perfetto", "traceconv json"),
        (PACKET, "Perfetto", "traceconv json"),
        (b'{"rocprofiler-sdk-tool": []}', "JSON of rocprofv3", "pftrace"),
        (b'"Kind","Agent_Id","Queue_Id"\n', "table of rocprof", "pftrace"),
        (b"Index,KernelName,gpu-id\n", "table of rocprof", "pftrace"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "git lfs pull"),
        (b"\n<!DOCTYPE html><html>", "a web page", "log in"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_files_of_other_programs(
    tmp_path: Path, content: bytes, what: str, instead: str, packed: bool
) -> None:
    """Also compressed, and whatever their name."""
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(content) if packed else content)
    told = message(path)
    assert told.startswith(f"{path} is ")
    assert what in told
    assert instead in told


def test_reports_of_nsight_systems_are_known_by_their_name(tmp_path: Path) -> None:
    (tmp_path / "a.nsys-rep").write_bytes(bytes(range(256)))
    assert "a report of Nsight Systems" in message(tmp_path / "a.nsys-rep")
    (tmp_path / "b.nsys-rep").write_bytes(TRACE)
    assert len(open_trace(str(tmp_path / "b.nsys-rep")))


@pytest.mark.parametrize(
    "content", [TRACE, b"hello", b"", b"\x0a", b"\x0a\xff", b"\n\n[]", b"\x80"]
)
def test_nothing_else_is_taken_for_one(content: bytes) -> None:
    assert foreign("trace.json", content) is None


EVENTS = 20_000
MANY = b'{"traceEvents":[%s]}' % b",".join(
    b'{"ph":"X","name":"n","pid":1,"tid":1,"ts":%d,"dur":%d}' % (3 * at, at * 7919 % 3)
    for at in range(EVENTS)
)


def zipped(path: Path, *names: str, content: bytes = TRACE) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("name", ["trace.json", "folder/trace.json"])
def test_a_zip_with_one_trace_opens(tmp_path: Path, name: str) -> None:
    trace = open_trace(str(zipped(tmp_path / "a.zip", "notes.txt", "__MACOSX/x.json", name)))
    plain = open_trace(str(LESSON))
    assert (trace.start == plain.start).all()
    row = int(plain.gpu_rows[0])
    assert trace.args_of(row) == plain.args_of(row)


def test_a_zip_with_a_compressed_trace(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", "a.json.gz", content=LESSON.read_bytes())
    assert len(open_trace(str(path))) == len(open_trace(str(LESSON)))


def test_a_large_zip_is_not_kept_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its args would be looked for in the zip itself."""
    monkeypatch.setattr("fusetui.trace.cache.entry.SMALLEST", 1)
    path = zipped(tmp_path / "a.zip", "a.json")
    for _ in range(2):
        trace = open_trace(str(path))
        assert trace.args_of(int(trace.gpu_rows[0]))


def test_other_zips(tmp_path: Path) -> None:
    assert "2 traces (a.json, b.json)" in message(zipped(tmp_path / "a.zip", "a.json", "b.json"))
    assert "torch.save" in message(zipped(tmp_path / "b.zip", "archive/data.pkl"))
    assert "without a trace" in message(zipped(tmp_path / "c.zip", "a.txt"))
    assert "without a trace" in message(zipped(tmp_path / "d.zip"))


def test_a_zip_that_ends_early_gives_what_is_there(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", "a.json")
    path.write_bytes(path.read_bytes()[:-2000])
    trace = open_trace(str(path))
    assert 0 < trace.report.events < len(open_trace(str(LESSON)))
    assert trace.report.cut == "the zip file ends early"


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


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_a_wrong_byte_in_a_zip_is_never_a_bug(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.json", b'{"traceEvents":[{"ph":"X","name":"n","ts":1,"dur":2}]}')
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with suppress(TraceError):
            open_trace(str(path))


def test_a_zip_that_unpacks_to_far_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSETUI_UNPACK_LIMIT", "0.000001")
    assert "too much for a trace" in message(zipped(tmp_path / "a.zip", "a.json"))
