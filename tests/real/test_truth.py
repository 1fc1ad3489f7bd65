"""Counts and times of all real traces are known: INDEX.tsv has the counts, truth.json the
times."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.real.traces import TRACES, each_of, listed
from tests.trace.test_corpus import (
    test_busy_and_idle_make_the_span,
    test_children_of_traces_lie_within_their_parents,
    test_elements_of_traces_are_those_of_their_rows,
    test_every_time_is_exact,
    test_memory_totals_of_traces_equal_a_slow_reader,
    test_streams_are_flat,
    trace,
)

from fusetui.analysis.questions.busy import measure_gpu_times
from fusetui.analysis.questions.summary import summary
from fusetui.analysis.questions.totals import sum_kernels_by_name
from fusetui.trace import Trace

COUNTS = {
    "events": "events",
    "slices": "slices",
    "kernels": "kernels",
    "gpu_events": "gpu_events",
    "gpu_events_linked": "linked",
}
any_trace = each_of([*listed(), *listed(TRACES / "dlrm_ranks")])


@cache
def rows() -> dict[str, dict[str, str]]:
    """Of INDEX.tsv, by the file."""
    with (TRACES / "INDEX.tsv").open() as file:
        return {row["file"]: row for row in csv.DictReader(file, delimiter="\t")}


@cache
def truth() -> dict[str, Any]:
    """Of truth.json, by the file."""
    found: dict[str, Any] = json.loads((TRACES / "truth.json").read_text())
    return found


def name_of(path: Path) -> str:
    return path.relative_to(TRACES).as_posix()


def test_all_files_are_listed() -> None:
    paths = [path for path in listed(pattern="**/*") if "json.gz" in path.name]
    assert {name_of(path) for path in paths} == {*rows()}


def test_real_trace_has_its_known_counts(any_trace: Path, trace: Trace) -> None:
    row = rows()[name_of(any_trace)]
    figures = summary(trace)
    assert {key: getattr(figures, key) for key in COUNTS} == {
        key: int(row[column]) for key, column in COUNTS.items()
    }
    assert figures.complete
    assert figures.events_skipped == 0
    assert sum(track.slices for track in figures.tracks) == figures.slices


def test_real_trace_has_its_known_gpu_times(any_trace: Path, trace: Trace) -> None:
    known = truth()[name_of(any_trace)]
    times = measure_gpu_times(trace)
    assert {
        "gpu_span_ns": times.span_ns,
        "gpu_busy_ns": times.busy_ns,
        "gpu_sum_ns": times.sum_ns,
    } == {key: known[key] for key in ("gpu_span_ns", "gpu_busy_ns", "gpu_sum_ns")}


def test_real_trace_has_its_known_heaviest_kernels(
    any_trace: Path, trace: Trace
) -> None:
    expected = truth()[name_of(any_trace)]["top_kernels"]
    found = [
        {"name": total.name, "count": total.count, "total_ns": total.total_ns}
        for total in sum_kernels_by_name(trace)
    ]
    assert found[: len(expected)] == expected
