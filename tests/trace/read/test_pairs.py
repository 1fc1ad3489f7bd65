"""Slices that are written as a begin and an end event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.analysis.questions.summary import summary
from fusetui.trace import Trace

Events = list[dict[str, Any]]
Found = list[tuple[str, int, int]]


def mark(ph: str, name: str = "", ts: float = 0, **more: Any) -> dict[str, Any]:
    return {"ph": ph, "name": name, "ts": ts, "pid": 1, "tid": 1, **more}


CASES: dict[str, tuple[Events, Found]] = {
    "nested": (
        [mark("B", "a", 1), mark("B", "b", 2.5), mark("E", ts=3), mark("E", "a", 9)],
        [("a", 1000, 8000), ("b", 2500, 500)],
    ),
    "not in the order of time": (
        [mark("E", ts=3), mark("B", "a", 1)],
        [("a", 1000, 2000)],
    ),
    "threads apart": (
        [mark("B", "a", 1), mark("B", "b", 2, tid=2), mark("E", ts=3), mark("E", ts=5, tid=2)],
        [("a", 1000, 2000), ("b", 2000, 3000)],
    ),
    "by id": (
        [mark("b", "a", 1, id=1), mark("b", "b", 2, id=2), mark("e", ts=3, id=1),
         mark("n", "x", 3, id=2), mark("e", ts=5, id=2)],
        [("a", 1000, 2000), ("b", 2000, 3000)],
    ),
    "ids of categories apart": (
        [mark("b", "a", 1, id="0x1", cat="p"), mark("b", "b", 2, id="0x1", cat="q"),
         mark("e", ts=3, id="0x1", cat="p"), mark("e", ts=5, id="0x1", cat="q")],
        [("a", 1000, 2000), ("b", 2000, 3000)],
    ),
    "local ids": (
        [mark("b", "a", 1, id2={"local": "1"}), mark("e", ts=3, id2={"local": "1"})],
        [("a", 1000, 2000)],
    ),
    "the old way": (
        [mark("S", "a", 1, id=1), mark("T", "a", 2, id=1), mark("F", "a", 3, id=1)],
        [("a", 1000, 2000)],
    ),
    "absolute times": (
        [mark("B", "a"), mark("E")],
        [("a", 1712195495519689047, 3)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_begin_and_end_events_become_slices(
    trace_of: Callable[..., Trace], case: str
) -> None:
    events, slices = CASES[case]
    trace = trace_of(events)
    if case == "absolute times":
        trace = trace_of(
            '[{"ph":"B","name":"a","ts":1712195495519689.047},{"ph":"E","ts":1712195495519689.050}]'
        )
    found = sorted(
        (trace.name_of(n), int(trace.start[n]), int(trace.dur[n]))
        for n in range(len(trace))
    )
    assert found == slices
    assert summary(trace).slices == len(slices)
    assert summary(trace).slices_unfinished == summary(trace).ends_unmatched == 0


def test_pairs_stand_beside_whole_slices_with_their_args(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    events = [
        event("x", 1, 8, tid=1),
        mark("B", "b", 2, args={"n": 5}),
        mark("E", ts=4),
    ]
    trace = trace_of(events)
    rows = {trace.name_of(n): n for n in range(len(trace))}
    assert set(rows) == {"x", "b"}
    assert trace.args_of(rows["b"]) == {"n": 5}
    assert trace.order[rows["b"]] == 1


def test_begin_and_end_events_without_partner_are_counted(
    trace_of: Callable[..., Trace],
) -> None:
    trace = trace_of(
        [mark("E", ts=1), mark("B", "open", 2), mark("B", "b", 3), mark("E", ts=8)]
    )
    figures = summary(trace)
    assert (figures.slices, figures.slices_unfinished, figures.ends_unmatched) == (
        2,
        1,
        1,
    )
    row = next(n for n in range(2) if trace.name_of(n) == "open")
    assert int(trace.end[row]) == 8000


def test_overlapping_ids_have_lanes_of_their_own(
    trace_of: Callable[..., Trace],
) -> None:
    events = [
        mark("X", "x", 0, dur=20),
        mark("b", "a", 1, id=1, cat="req"),
        mark("b", "b", 2, id=2, cat="req"),
        mark("e", ts=30, id=1, cat="req"),
        mark("e", ts=40, id=2, cat="req"),
    ]
    labels = [(track.label, track.subrow) for track in trace_of(events).tracks]
    assert labels == [("thread 1", 0), ("req (async)", 0), ("req (async)", 1)]


def test_counters_and_instants_are_counted(trace_of: Callable[..., Trace]) -> None:
    events = [
        mark("C", "memory", 1, args={"": 5}),
        mark("i", "now", 2),
        mark("I", "old", 2),
    ]
    figures = summary(trace_of(events))
    assert (figures.counters, figures.instants, figures.slices) == (1, 2, 0)
    assert figures.events == 3
