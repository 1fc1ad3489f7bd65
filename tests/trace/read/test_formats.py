"""Compressed files, pipes, and traces of programs other than PyTorch."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fusetui.analysis.questions.summary import summary
from fusetui.trace import CannotReadError, NotATraceError, Trace, open_trace

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

EVENT = (
    '{"ph":"X","cat":"cpu_op","name":"aten::a","pid":1,"tid":1,"ts":10.000,"dur":5.000}'
)
MANY = json.dumps(
    [{**json.loads(EVENT), "name": f"op{n * 7919 % 10007}"} for n in range(9000)]
)

# As the profiler of JAX writes it: no cat, lanes by metadata, an empty object at the
# end.
JAX = """{"displayTimeUnit":"ns","metadata":{"highres-ticks":true}, "traceEvents":[
{"args":{"name":"/device:GPU:0"}, "name":"process_name", "ph":"M", "pid":1},
{"args":{"name":"Stream #13(Compute)"}, "name":"thread_name", "ph":"M", "pid":1, "tid":13},
{"args":{"sort_index":13}, "name":"thread_sort_index", "ph":"M", "pid":1, "tid":13},
{"args":{"hlo_op":"fusion.2"},"dur":4.096,"name":"fusion.2","ph":"X","pid":1,"tid":13,"ts":9.5},
{"dur":1.25,"name":"PjitFunction(f)","ph":"X","pid":701,"tid":4294967295,"ts":1.0},{}]}"""

# As VizTracer writes it: on one line, metadata first, times with a fraction of any
# length.
VIZTRACER = """{"traceEvents": [{"ph": "M", "pid": 9, "tid": 9, "name": "process_name", \
"args": {"name": "MainProcess"}}, {"ph": "M", "pid": 9, "tid": 9, "name": "thread_name", \
"args": {"name": "MainThread"}}, {"pid": 9, "tid": 9, "ts": 212123.4567, "ph": "X", \
"name": "f (/a.py:1)", "dur": 10.25, "cat": "FEE"}, {"pid": 9, "tid": 9, "ts": 212124.5, \
"ph": "X", "name": "g", "dur": 1, "cat": "FEE"}], "viztracer_metadata": {"version": "1.0.0"}, \
"file_info": {"files": {}, "functions": {}}}"""


def write(folder: Path, data: bytes) -> str:
    path = folder / "trace.json"
    path.write_bytes(data)
    return str(path)


def test_zstd_file_is_read_whole(tmp_path: Path) -> None:
    path = write(tmp_path, zstd.compress(MANY.encode()))
    trace = open_trace(path)
    assert len(trace) == 9000
    assert trace.report.complete
    assert trace.report.bytes == Path(path).stat().st_size
    assert trace.args_of(5) == {}


def test_zstd_of_several_frames_is_read_whole(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"abcd"
    half = len(MANY) // 2
    frames = [zstd.compress(part.encode()) for part in (MANY[:half], MANY[half:])]
    assert (
        len(open_trace(write(tmp_path, skippable + frames[0] + skippable + frames[1])))
        == 9000
    )


def test_zstd_cut_short(tmp_path: Path) -> None:
    whole = zstd.compress(MANY.encode(), level=1)
    trace = open_trace(write(tmp_path, whole[:-2]))
    assert str(trace.report.cut).startswith("the zstd data ends early")
    assert not trace.report.complete


def test_damaged_zstd_is_read_up_to_its_damage(tmp_path: Path) -> None:
    events = [
        {**json.loads(EVENT), "name": str(n * 7919 % 10007)} for n in range(20_000)
    ]
    checked = {int(zstd.CompressionParameter.checksum_flag): 1}
    whole = bytearray(zstd.compress(json.dumps(events).encode(), options=checked))
    at = len(whole) // 2
    whole[at : at + 2000] = b"\xff" * 2000
    trace = open_trace(write(tmp_path, bytes(whole)))
    assert "the zstd data is damaged" in str(trace.report.cut)
    assert len(trace) > 3000


def test_gzip_of_many_members_is_read_whole(tmp_path: Path) -> None:
    pieces = [MANY[at : at + 999].encode() for at in range(0, len(MANY), 999)]
    assert (
        len(open_trace(write(tmp_path, b"".join(map(gzip.compress, pieces))))) == 9000
    )


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_compression_bomb_is_refused_at_the_unpack_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    path = write(tmp_path, pack(b"[" + b" " * 30_000_000 + EVENT.encode() + b"]"))
    monkeypatch.setenv("FUSETUI_UNPACK_LIMIT", "0.01")
    with pytest.raises(
        CannotReadError, match=r"unpacks to more than 0.01 GiB.*FUSETUI_UNPACK_LIMIT"
    ):
        open_trace(path)
    monkeypatch.setenv("FUSETUI_UNPACK_LIMIT", "0.1")
    assert len(open_trace(path)) == 1


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress])
def test_standard_input_is_read_plain_and_packed(
    monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack(MANY.encode()))))
    trace = open_trace("-")
    assert len(trace) == 9000
    assert trace.report.path == "standard input"
    assert trace.elements.element(0)["name"] == "op0"


def test_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(MANY.encode(),))
    writer.start()
    assert len(open_trace(str(path))) == 9000
    writer.join()


def test_trace_of_jax_opens_with_its_lanes(trace_of: Callable[..., Trace]) -> None:
    trace = trace_of(JAX)
    assert [track.label for track in trace.tracks] == [
        "thread 4294967295",
        "Stream #13(Compute)",
    ]
    assert (trace.start.tolist(), trace.dur.tolist()) == ([1000, 9500], [1250, 4096])
    figures = summary(trace)
    assert (figures.events, figures.events_skipped, figures.slices) == (6, 0, 2)


def test_trace_of_viztracer_opens_nested(trace_of: Callable[..., Trace]) -> None:
    trace = trace_of(VIZTRACER)
    assert [track.label for track in trace.tracks] == ["MainThread"]
    assert trace.start.tolist() == [212_123_457, 212_124_500]
    assert trace.parent.tolist() == [-1, 0]
    assert trace.keys["file_info"] == {"files": {}, "functions": {}}


def test_list_of_empty_objects_is_not_a_trace(trace_of: Callable[..., Trace]) -> None:
    with pytest.raises(NotATraceError):
        trace_of("[{}, {}]")


def test_gzip_header_longer_than_the_first_piece_is_skipped(tmp_path: Path) -> None:
    """It has extra bytes, a name and a comment, which ISA-L does not skip piece by
    piece."""
    packed = gzip.compress(MANY.encode())
    more = b"\x05\x00extra" + b"n" * 5000 + b"\x00" + b"a comment\x00"
    path = write(tmp_path, packed[:3] + b"\x1c" + packed[4:10] + more + packed[10:])
    assert len(open_trace(path)) == 9000
