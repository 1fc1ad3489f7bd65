"""Whatever the bytes, reading ends with a trace or with one sentence."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import numpy as np
import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins
from tests.places import ROOT

from fusetui.analysis.questions.summary import summary
from fusetui.trace import TraceError, open_trace
from fusetui.trace.layout.counters import counters

VALID = b"""{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A"}], "traceEvents": [
{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "thread 1 (main)"}},
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10.000, "dur": 5.125},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
 "ts": 1712195495519689.047, "dur": 1, "args": {"correlation": 7, "External id": 3}},
{"ph": "C", "name": "queue", "pid": 1, "id": 2, "ts": 11.5, "args": {"depth": 3, "wait": 0.25}},
{"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 12,
 "args": {"Device Type": 1, "Device Id": 0, "Total Allocated": 512, "Total Reserved": 2048}},
{"ph": "X", "cat": "kernel", "name": "k\\u00e9", "pid": 0, "tid": 7, "ts": 20, "dur": 4,
 "args": {"correlation": 7, "grid": [1, 2, 3], "x": {"deep": [1.5e3, null, true, "\\""]}}}
], "traceName": "a.json"}
"""

edit = st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=3))
digits = st.sampled_from(
    [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"-", b"9" * 30, b"e9"]
)


def survives(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(data)
        try:
            trace = open_trace(str(path))
        except TraceError:
            return
        figures = summary(trace)
        assert orjson.dumps(to_builtins(figures))
        assert figures.slices + figures.events_skipped <= figures.events
        for row in range(len(trace)):
            trace.args_of(row)
        for counter in counters(trace):
            assert len(counter.time) == len(counter.value) > 0
            assert np.isfinite(counter.value).all()


@given(st.binary(max_size=40))
def test_any_bytes_give_a_trace_or_one_sentence(data: bytes) -> None:
    survives(data)
    survives(b"[" + data)
    survives(b'{"traceEvents": [' + data)


@given(st.lists(edit, min_size=1, max_size=4))
def test_trace_with_edited_bytes_gives_a_trace_or_one_sentence(
    edits: list[tuple[float, int, bytes]],
) -> None:
    survives(edited(VALID, edits))


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 1), digits), min_size=1, max_size=3
    )
)
def test_trace_with_edited_syntax_gives_a_trace_or_one_sentence(
    edits: list[tuple[float, int, bytes]],
) -> None:
    survives(edited(VALID, edits))


@given(st.lists(edit, min_size=1, max_size=2))
def test_gzip_with_edited_bytes_gives_a_trace_or_one_sentence(
    edits: list[tuple[float, int, bytes]],
) -> None:
    survives(edited(gzip.compress(VALID, mtime=0), edits))


REAL = gzip.decompress((ROOT / "sample_traces" / "linear-eager.json.gz").read_bytes())


@settings(max_examples=25)
@given(st.lists(edit, min_size=1, max_size=20))
def test_real_trace_with_edited_bytes_gives_a_trace_or_one_sentence(
    edits: list[tuple[float, int, bytes]],
) -> None:
    survives(edited(REAL, edits))


@settings(max_examples=25)
@given(st.floats(0, 1))
def test_a_real_trace_cut_anywhere(share: float) -> None:
    survives(REAL[: int(share * len(REAL))])


def edited(data: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    """Replaces some bytes at each place (a share of the length) by others."""
    for share, removed, put in edits:
        at = int(share * len(data))
        data = data[:at] + put + data[at + removed :]
    return data
