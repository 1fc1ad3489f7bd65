"""Random traces: what is written is read back, and a cut loses nothing before it."""

from __future__ import annotations

import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from fusetui.analysis.questions.summary import summary
from fusetui.analysis.questions.totals import (
    measure_self_ns,
    sum_kernels_by_name,
    sum_ops_by_name,
)
from fusetui.trace import Trace, TraceError, open_trace

CATEGORIES = [
    "cpu_op",
    "user_annotation",
    "python_function",
    "cuda_runtime",
    "kernel",
    "",
    "x",
]


class Row(NamedTuple):
    name: str
    cat: str
    pid: int | str | None
    tid: int | str | None
    start: int  # ns
    dur: int  # ns
    args: dict[str, Any]


identity = st.one_of(
    st.integers(-5, 9), st.sampled_from(["", "Spans", "stream 7"]), st.none()
)
times = st.one_of(
    st.integers(0, 40_000), st.integers(1712195495519689047, 1712195495519789047)
)
arguments = st.dictionaries(
    st.sampled_from(["correlation", "External id", "x"]), st.integers(-1, 5), max_size=3
)
rows = st.lists(
    st.builds(
        Row,
        st.text(max_size=8),
        st.sampled_from(CATEGORIES),
        identity,
        identity,
        times,
        st.integers(0, 30_000),
        arguments,
    ),
    max_size=20,
)


def text_of(row: Row, ascii_only: bool) -> str:
    """An event as Kineto writes it, with three digits after the point."""
    times = f'"ts": {Decimal(row.start).scaleb(-3):f}, "dur": {Decimal(row.dur).scaleb(-3):f}'
    fields = {
        "cat": row.cat,
        "name": row.name,
        "pid": row.pid,
        "tid": row.tid,
        "args": row.args,
    }
    return f'{{"ph": "X", {times}, {json.dumps(fields, ensure_ascii=ascii_only)[1:]}'


def opened(text: bytes) -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(text)
        return open_trace(str(path))


def read_back(trace: Trace) -> list[Row]:
    """The slices in file order."""
    found = []
    for row in sorted(range(len(trace)), key=lambda r: int(trace.order[r])):
        track = trace.track_of(row)
        times = int(trace.start[row]), int(trace.dur[row])
        name, category = trace.name_of(row), trace.category_of(row)
        found.append(
            Row(name, category, track.pid, track.tid, *times, trace.args_of(row))
        )
    return found


@given(rows, st.booleans())
def test_written_events_are_read_back_unchanged(
    written: list[Row], ascii_only: bool
) -> None:
    text = ",\n".join(text_of(row, ascii_only) for row in written)
    trace = opened(f'{{"traceEvents": [{text}], "end": 1}}'.encode())
    assert read_back(trace) == written
    assert trace.report.complete
    assert trace.keys == {"end": 1}


def all_of(trace: Trace) -> range:
    return range(len(trace))


@given(rows)
def test_sums_and_counts_of_random_traces_agree(written: list[Row]) -> None:
    text = ",\n".join(text_of(row, True) for row in written)
    trace = opened(f'{{"traceEvents": [{text}]}}'.encode())
    figures = summary(trace)
    assert figures.slices == len(written) == sum(t.slices for t in figures.tracks)
    assert (measure_self_ns(trace) >= 0).all()
    assert figures.gpu_busy_ns <= figures.gpu_sum_ns
    assert sum(total.count for total in sum_kernels_by_name(trace)) == figures.kernels
    assert sum(op.count for op in sum_ops_by_name(trace)) == sum(
        r.cat == "cpu_op" for r in written
    )
    places = [
        (int(trace.track[n]), int(trace.start[n]), -int(trace.dur[n]))
        for n in all_of(trace)
    ]
    assert places == sorted(places)
    for row in all_of(trace):
        parent = int(trace.parent[row])
        if parent >= 0:
            assert parent < row < trace.end_row[parent]
            assert trace.start[parent] <= trace.start[row]
            assert trace.end[parent] >= trace.end[row]


@given(rows, st.floats(0, 1), st.booleans())
def test_truncated_trace_keeps_every_event_before_the_cut(
    written: list[Row], share: float, bare: bool
) -> None:
    head = "[" if bare else '{"schemaVersion": 1, "traceEvents": ['
    whole, ends = head.encode(), []
    for number, row in enumerate(written):
        whole += (b",\n" if number else b"") + text_of(row, False).encode()
        ends.append(len(whole))
    cut = int(len(whole) * share)
    before = written[: sum(end <= cut for end in ends)]
    try:
        trace = opened(whole[:cut])
    except TraceError:
        assert not before
        return
    assert read_back(trace)[: len(before)] == before
    assert len(trace) == len(before)
    assert bare or not trace.report.complete
