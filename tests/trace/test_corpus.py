"""What holds for any trace: times, nesting and streams, against Python's own reader."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from fusetui.analysis.questions.busy import measure_gpu_times
from fusetui.analysis.questions.totals import measure_self_ns
from fusetui.trace import Trace, open_trace
from fusetui.trace.layout.counters import counters
from fusetui.trace.model.categories import Layer

SMALL = 3_000_000  # bytes of JSON that a slow reader reads soon enough


@pytest.fixture(scope="module")
def trace(any_trace: Path) -> Trace:
    return open_trace(str(any_trace))


def small_document(path: Path) -> bytes:
    """The JSON of a trace. The test is skipped for a large one."""
    text = gzip.decompress(path.read_bytes())
    if len(text) > SMALL:
        pytest.skip("too large to read slowly")
    return text


def test_busy_and_idle_make_the_span(trace: Trace) -> None:
    pid = np.array([str(track.pid) for track in trace.tracks] or [""])[
        trace.track[trace.gpu_rows]
    ]
    for device in np.unique(pid):
        times = measure_gpu_times(trace, trace.gpu_rows[pid == device])
        assert times.busy_ns + times.idle_ns == times.span_ns


def test_children_of_traces_lie_within_their_parents(trace: Trace) -> None:
    inside = np.flatnonzero(trace.parent >= 0)
    parent = trace.parent[inside]
    assert (trace.track[inside] == trace.track[parent]).all()
    assert (trace.start[parent] <= trace.start[inside]).all()
    assert (trace.end[parent] >= trace.end[inside]).all()
    assert ((parent < inside) & (inside < trace.end_row[parent])).all()
    assert (trace.depth[inside] == trace.depth[parent] + 1).all()
    assert (measure_self_ns(trace) >= 0).all()


def test_streams_are_flat(trace: Trace) -> None:
    for track in trace.tracks:
        if track.layer is Layer.STREAM:
            ends, starts = trace.end[track.rows], trace.start[track.rows]
            assert (starts[1:] >= ends[:-1]).all()


def test_elements_of_traces_are_those_of_their_rows(trace: Trace) -> None:
    for row in np.linspace(0, len(trace) - 1, 12).astype(int).tolist():
        element = trace.elements.element(int(trace.order[row]))
        assert element.get("name") == trace.name_of(row)
        assert element.get("cat", "") == trace.category_of(row)


def test_memory_totals_of_traces_equal_a_slow_reader(
    any_trace: Path, trace: Trace
) -> None:
    """Every total of a GPU that is in the file, with its time."""
    text = small_document(any_trace)
    wanted = [
        (int(Decimal(event["ts"]) * 1000), float(event["args"]["Total Allocated"]))
        for event in json.loads(text, parse_float=Decimal)["traceEvents"]
        if event.get("name") == "[memory]" and event["args"]["Device Type"] != 0
    ]
    found = [c for c in counters(trace) if c.label == "GPU 0 allocated"]
    pairs = [
        p for c in found for p in zip(c.time.tolist(), c.value.tolist(), strict=True)
    ]
    assert pairs == sorted(wanted, key=lambda pair: pair[0])


def test_every_time_is_exact(any_trace: Path, trace: Trace) -> None:
    """Against Python's own JSON reader with decimals."""
    text = small_document(any_trace)
    slices = {
        place: (
            int(Decimal(event["ts"]) * 1000),
            int(Decimal(event.get("dur", 0)) * 1000),
        )
        for place, event in enumerate(
            json.loads(text, parse_float=Decimal)["traceEvents"]
        )
        if event["ph"] == "X"
    }
    assert slices == {
        int(order): (int(start), int(dur))
        for order, start, dur in zip(trace.order, trace.start, trace.dur, strict=True)
    }
