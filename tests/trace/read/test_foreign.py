"""Files of other programs are named, with what to do instead; a zip with one trace in
it opens."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import sqlite3
import struct
import tarfile
from pathlib import Path

import pytest

from fusetui.sample_traces import lessons
from fusetui.trace import CannotReadError, NotATraceError, open_trace
from fusetui.trace.read.foreign import explain_foreign

LESSON = lessons.path("mlp-eager")
TRACE = gzip.decompress(LESSON.read_bytes())
EVENT = (
    struct.pack("<QI", 24, 0) + b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2" + bytes(4)
)
PLANE = b"\x0a\x80\x04\x08\x01\x12\x0d/device:GPU:0" + bytes(500)
PACKET = b"\x0a\x04\x18\x01\x40\x02"


def tar_file() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("trace.json")
        entry.size = len(TRACE)
        archive.addfile(entry, io.BytesIO(TRACE))
    return buffer.getvalue()


def message(path: Path) -> str:
    with pytest.raises((NotATraceError, CannotReadError)) as found:
        open_trace(str(path), cached=False)
    return str(found.value)


def database(path: Path, table: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"create table {table} (id integer)")
    connection.close()


@pytest.mark.parametrize(
    ("table", "what", "instead"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "Nsight Systems", "nsys export"),
        ("rocpd_kernel_dispatch", "rocprofv3", "torch.profiler"),
        ("rocpd_api", "RPD", "torch.profiler"),
        ("people", "a SQLite database", "torch.profiler"),
    ],
)
def test_databases_are_named_by_their_tables(
    tmp_path: Path, table: str, what: str, instead: str
) -> None:
    database(tmp_path / "report.db", table)
    told = message(tmp_path / "report.db")
    assert what in told
    assert instead in told


@pytest.mark.parametrize(
    ("content", "what", "instead"),
    [
        (b"QDSTRM\0\0", "Nsight Systems", "nsys export"),
        (b"NVR\0" + bytes(99), "Nsight Compute", "torch.profiler"),
        (
            pickle.dumps({"segments": [], "device_traces": [[]]}),
            "memory snapshot",
            "fusetui memory",
        ),
        (pickle.dumps({"a": 1}), "a pickle file", "torch.profiler"),
        (EVENT, "TensorBoard", ".pt.trace.json"),
        (PLANE, "XPlane", "xprof --logdir"),
        (PACKET * 9, "Perfetto", "trace_processor convert json"),
        (PACKET, "Perfetto", "trace_processor convert json"),
        (b'{"rocprofiler-sdk-tool": []}', "rocprofv3 JSON", "torch.profiler"),
        (b'"Kind","Agent_Id","Queue_Id"\n', "rocprof table", "torch.profiler"),
        (b"Index,KernelName,gpu-id\n", "rocprof table", "torch.profiler"),
        (tar_file(), "a tar archive", "tar -xf"),
        (bz2.compress(TRACE), "bzip2", "bunzip2"),
        (lzma.compress(TRACE), "xz", "xz -d"),
        (TRACE.decode().encode("utf-16"), "UTF-16", "iconv -f UTF-16 "),
        (TRACE.decode().encode("utf-16-le"), "UTF-16", "iconv -f UTF-16LE "),
        (b"\0\n" + TRACE.decode().encode("utf-16-be"), "UTF-16", "iconv -f UTF-16BE "),
        (
            pickle.dumps(
                {"version": "2.10", "pg_config": {}, "entries": []}, protocol=2
            ),
            "flight-recorder",
            "fusetui hang FILE",
        ),
        (
            b"V1128 16:45:29.098000 22614 torch/_dynamo/utils.py:2350] {}\n",
            "compile",
            "tlparse",
        ),
        (
            b"run_forward;aten::mm;cudaLaunchKernel 120\nmain 4\n",
            "stacks",
            "torch.profiler",
        ),
        (
            b"<frozen_runpy>(1):_main 4\n<frozen_runpy>(1):_main;nn.Module:_A[0] 12\n",
            "stacks",
            "torch.profiler",
        ),
        (
            b"[[1790857026, 1790857027], [[0, 8], [0, 16]]]",
            "memory timeline",
            "fusetui memory",
        ),
        (
            b'<html>\n<head><meta charset="utf-8" /><title>GPU Memory Timeline HTML</title></head>',
            "memory timeline",
            "fusetui memory",
        ),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "git lfs pull"),
        (b"\n<!DOCTYPE html><html>", "a web page", "login"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_files_of_other_programs_are_named_with_what_to_do_instead(
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
    assert "an Nsight Systems report" in message(tmp_path / "a.nsys-rep")
    (tmp_path / "b.nsys-rep").write_bytes(TRACE)
    assert len(open_trace(str(tmp_path / "b.nsys-rep")))


@pytest.mark.parametrize(
    "content",
    [
        *(TRACE, b"hello", b"", b"\x0a", b"\x0a\xff", b"\n\n[]", b"\x80"),
        *(
            b"[[]]",
            b"a; b",
            b"BZh9",
            b"a 1\nb 2\n",
            b"a;b 1\nno sum\n",
            b"V1128 no time",
            b'[{"ph": "X", "name": "a;b 1"}]',
        ),
        b'[[1,[2,{}]],{"ph":"E"}]',  # a damaged event, no list of numbers
    ],
)
def test_ordinary_files_are_not_taken_for_foreign_formats(content: bytes) -> None:
    assert explain_foreign("trace.json", content) is None


XPROF = """{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},
"traceEvents":[
{"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:GPU:0"}},
{"ph":"M","pid":1,"tid":13,"name":"thread_name","args":{"name":"Stream #13(Kernel)"}},
{"ph":"X","pid":1,"tid":13,"ts":1.5,"dur":3.25,"name":"loop_add_fusion"},{}]}"""
"""As tsl's trace_events_to_json writes it."""


def test_a_trace_of_jax_opens_and_names_what_analyzes_it(tmp_path: Path) -> None:
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(XPROF.encode()))
    trace = open_trace(str(path), cached=False)
    assert len(trace) == 1
    (remark,) = trace.report.remarks
    assert "JAX or TensorFlow" in remark
    assert "xprof --logdir" in remark


@pytest.mark.parametrize(
    ("before", "after"), [("highres-ticks", "ticks"), ("/device:GPU:0", "python")]
)
def test_neither_ticks_nor_names_alone_make_a_trace_of_jax(
    tmp_path: Path, before: str, after: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(XPROF.replace(before, after))
    assert open_trace(str(path), cached=False).report.remarks == ()
