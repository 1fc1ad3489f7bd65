"""Real traces, where they are at hand: counts and times must be exact.

FUSETUI_TRACES names the folder; INDEX.tsv in it has the counts, truth.json the times.
"""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from tests.places import TRACES

from fusetui.analysis.questions.busy import gpu_times
from fusetui.analysis.questions.summary import summary
from fusetui.analysis.questions.totals import kernel_totals, self_ns
from fusetui.trace import Trace, open_trace
from fusetui.trace.layout.counters import counters
from fusetui.trace.model.categories import Layer

COUNTS = {
    "events": "events",
    "slices": "slices",
    "kernels": "kernels",
    "gpu_events": "gpu_events",
    "gpu_events_linked": "linked",
}
SMALL = 3_000_000  # bytes of JSON that a slow reader reads soon enough


@dataclass(frozen=True, eq=False)
class Case:
    index: dict[str, str]
    truth: dict[str, Any]
    trace: Trace


def index() -> list[dict[str, str]]:
    if not (TRACES / "INDEX.tsv").is_file():
        return []
    with (TRACES / "INDEX.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


ROWS: list[Any] = list(index()) or [
    pytest.param(
        {"file": "none"},
        marks=pytest.mark.skip(reason=f"there are no traces in {TRACES}"),
    )
]


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row["file"])
def case(request: pytest.FixtureRequest) -> Case:
    row = request.param
    truth = json.loads((TRACES / "truth.json").read_text())
    return Case(row, truth[row["file"]], open_trace(str(TRACES / row["file"])))


def test_real_trace_has_its_known_counts(case: Case) -> None:
    figures = summary(case.trace)
    assert {key: getattr(figures, key) for key in COUNTS} == {
        key: int(case.index[column]) for key, column in COUNTS.items()
    }
    assert figures.complete
    assert figures.events_skipped == 0
    assert sum(track.slices for track in figures.tracks) == figures.slices


def test_real_trace_has_its_known_gpu_times(case: Case) -> None:
    times = gpu_times(case.trace)
    assert {
        "gpu_span_ns": times.span_ns,
        "gpu_busy_ns": times.busy_ns,
        "gpu_sum_ns": times.sum_ns,
    } == {key: case.truth[key] for key in ("gpu_span_ns", "gpu_busy_ns", "gpu_sum_ns")}


def test_real_trace_has_its_known_heaviest_kernels(case: Case) -> None:
    expected = case.truth["top_kernels"]
    found = [
        {"name": total.name, "count": total.count, "total_ns": total.total_ns}
        for total in kernel_totals(case.trace)
    ]
    assert found[: len(expected)] == expected


def test_busy_and_idle_make_the_span(case: Case) -> None:
    trace = case.trace
    pid = np.array([str(track.pid) for track in trace.tracks] or [""])[
        trace.track[trace.gpu_rows]
    ]
    for device in np.unique(pid):
        times = gpu_times(trace, trace.gpu_rows[pid == device])
        assert times.busy_ns + times.idle_ns == times.span_ns


def test_children_of_real_traces_lie_within_their_parents(case: Case) -> None:
    trace = case.trace
    inside = np.flatnonzero(trace.parent >= 0)
    parent = trace.parent[inside]
    assert (trace.track[inside] == trace.track[parent]).all()
    assert (trace.start[parent] <= trace.start[inside]).all()
    assert (trace.end[parent] >= trace.end[inside]).all()
    assert ((parent < inside) & (inside < trace.end_row[parent])).all()
    assert (trace.depth[inside] == trace.depth[parent] + 1).all()
    assert (self_ns(trace) >= 0).all()


def test_streams_are_flat(case: Case) -> None:
    for track in case.trace.tracks:
        if track.layer is Layer.STREAM:
            ends, starts = case.trace.end[track.rows], case.trace.start[track.rows]
            assert (starts[1:] >= ends[:-1]).all()


def test_elements_of_real_traces_are_those_of_their_rows(case: Case) -> None:
    trace = case.trace
    for row in np.linspace(0, len(trace) - 1, 12).astype(int).tolist():
        element = trace.elements.element(int(trace.order[row]))
        assert element.get("name") == trace.name_of(row)
        assert element.get("cat", "") == trace.category_of(row)


def test_memory_totals_of_real_traces_equal_a_slow_reader(case: Case) -> None:
    """Every total of a GPU that is in the file, with its time."""
    if int(case.index["bytes_json"]) > SMALL:
        pytest.skip("too large to read slowly")
    text = gzip.decompress((TRACES / case.index["file"]).read_bytes())
    wanted = [
        (int(Decimal(event["ts"]) * 1000), float(event["args"]["Total Allocated"]))
        for event in json.loads(text, parse_float=Decimal)["traceEvents"]
        if event.get("name") == "[memory]" and event["args"]["Device Type"] != 0
    ]
    found = [c for c in counters(case.trace) if c.label == "GPU 0 allocated"]
    pairs = [
        p for c in found for p in zip(c.time.tolist(), c.value.tolist(), strict=True)
    ]
    assert pairs == sorted(wanted, key=lambda pair: pair[0])


def test_every_time_is_exact(case: Case) -> None:
    """Against Python's own JSON reader with decimals."""
    if int(case.index["bytes_json"]) > SMALL:
        pytest.skip("too large to read slowly")
    text = gzip.decompress((TRACES / case.index["file"]).read_bytes())
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
    trace = case.trace
    assert slices == {
        int(order): (int(start), int(dur))
        for order, start, dur in zip(trace.order, trace.start, trace.dur, strict=True)
    }
