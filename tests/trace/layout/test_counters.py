"""Counters (ph C) and torch's memory as series of values over time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui.trace import Trace, open_trace
from fusetui.trace.cache import entry_for
from fusetui.trace.formats import text_of
from fusetui.trace.layout.counters import MAX_SERIES, Counter, counters

Make = Callable[..., Any]


def sample(name: str, ts: object, pid: object = 1, **more: Any) -> dict[str, Any]:
    """A counter; its series are the keywords that are no field of an event."""
    fields: dict[str, Any] = {
        key: more.pop(key) for key in ("id", "args") if key in more
    }
    return {"ph": "C", "name": name, "pid": pid, "ts": ts, "args": more, **fields}


def memory(ts: float, allocated: int, reserved: int, **more: Any) -> dict[str, Any]:
    """An allocation on GPU 0, as Kineto writes it."""
    totals = {"Total Allocated": allocated, "Total Reserved": reserved}
    args = {
        "Device Type": 1,
        "Device Id": 0,
        "Bytes": 512,
        "Addr": 4096,
        **totals,
        **more,
    }
    return {
        "ph": "i",
        "s": "t",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "args": args,
    }


def pairs(counter: Counter) -> list[tuple[int, float]]:
    return list(zip(counter.time.tolist(), counter.value.tolist(), strict=True))


def by_label(trace: Trace) -> dict[str, list[tuple[int, float]]]:
    return {counter.label: pairs(counter) for counter in counters(trace)}


def test_counter_samples_are_sorted_by_time(trace_of: Make) -> None:
    trace = trace_of([sample("queue", 7, depth=2), sample("queue", 5, depth=1.5)])
    (found,) = counters(trace)
    assert (found.group, found.label, found.unit) == ("counters", "queue", "")
    assert pairs(found) == [(5_000, 1.5), (7_000, 2.0)]


def test_each_series_and_each_id_is_a_counter(trace_of: Make) -> None:
    trace = trace_of(
        [sample("heap", 1, used=3, free=4), sample("io", 1, id="0x1", io=5)]
    )
    assert by_label(trace) == {
        "heap used": [(1_000, 3.0)],
        "heap free": [(1_000, 4.0)],
        "io 0x1": [(1_000, 5.0)],
    }


def test_counter_without_a_series_name_has_that_of_the_event(trace_of: Make) -> None:
    """Kineto's hardware counters."""
    trace = trace_of([sample("dram__bytes", 1, "GPU 0 Counters", args={"": 9})])
    assert by_label(trace) == {"dram__bytes": [(1_000, 9.0)]}


def test_counters_of_two_processes_are_told_apart(trace_of: Make) -> None:
    trace = trace_of([sample("cpu", 1, 10, load=1), sample("cpu", 1, 20, load=2)])
    assert list(by_label(trace)) == ["cpu of 10", "cpu of 20"]


@pytest.mark.parametrize(
    ("ts", "time"),
    [
        ("12.345", 12_345),
        ("1623142623460121.125", 1_623_142_623_460_121_125),
        ("2251799813685249", 2_251_799_813_685_249_000),
        ('"7.5"', 7_500),
    ],
)
def test_times_are_exact(trace_of: Make, ts: str, time: int) -> None:
    trace = trace_of(
        f'[{{"ph": "C", "name": "c", "pid": 1, "ts": {ts}, "args": {{"v": 1}}}}]'
    )
    assert by_label(trace) == {"c": [(time, 1.0)]}


@pytest.mark.parametrize(
    "value", ["true", '"3"', "null", "[1]", "1e999", "NaN", "1" * 400]
)
def test_counter_values_that_are_not_finite_are_left_out(
    trace_of: Make, value: str
) -> None:
    trace = trace_of(
        f'[{{"ph": "C", "name": "c", "pid": 1, "ts": 1, "args": {{"v": {value}, "w": 2}}}}]'
    )
    assert by_label(trace) == {"c": [(1_000, 2.0)]}


def test_damage_costs_only_what_is_damaged(trace_of: Make) -> None:
    good = [json.dumps(sample("c", ts, v=ts)) for ts in (1, 2.25, 3)]
    text = ",".join([*good[:2], '{"ph": "C", "na"!!}', good[2]])
    assert by_label(trace_of(f"[{text}]")) == {
        "c": [(1_000, 1.0), (2_250, 2.25), (3_000, 3.0)]
    }


def test_a_time_that_is_none_costs_one_sample(trace_of: Make) -> None:
    trace = trace_of(
        [sample("c", 1, v=1), sample("c", 1e300, v=2), sample("c", 2.5, v=3)]
    )
    assert by_label(trace) == {"c": [(1_000, 1.0), (2_500, 3.0)]}


def test_memory_events_become_allocated_and_reserved_counters(trace_of: Make) -> None:
    trace = trace_of(
        [
            memory(1.5, 8, 0, **{"Device Type": 0, "Device Id": -1}),
            memory(2, 512, 2048),
            memory(3.25, 1024, 2048),
        ]
    )
    found = counters(trace)
    assert {(c.group, c.unit) for c in found} == {("memory", "bytes")}
    assert by_label(trace) == {
        "GPU 0 allocated": [(2_000, 512.0), (3_250, 1024.0)],
        "GPU 0 reserved": [(2_000, 2048.0), (3_250, 2048.0)],
        "CPU allocated": [(1_500, 8.0)],
    }


def test_memory_without_totals_is_no_counter(trace_of: Make) -> None:
    """Traces of 2021 have only the bytes of each allocation, and not what was there
    before."""
    args = {"Device Type": 1, "Device Id": 0, "Bytes": 512}
    assert counters(trace_of([{**memory(1, 0, 0), "args": args}])) == ()


def test_too_many_series_are_counted(trace_of: Make) -> None:
    found = counters(trace_of([sample(f"c{n}", 1, v=1) for n in range(MAX_SERIES + 3)]))
    assert len(found) == MAX_SERIES
    assert found[-1].group == "counters, 3 more not shown"


def test_reading_stops_when_nobody_wants_it(trace_of: Make) -> None:
    assert counters(trace_of([sample("c", 1, v=1)]), lambda: True) == ()


def test_stretches_without_samples_are_not_read(
    trace_of: Make, event: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = trace_of([event("a", 1)])
    monkeypatch.delattr(trace.elements, "text")
    assert counters(trace) == ()


def test_counters_of_a_cached_trace_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSETUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 0)
    path = tmp_path / "t.json"
    path.write_text(json.dumps([sample("c", 1.5, v=2)]))
    first = by_label(open_trace(str(path)))
    entry = entry_for(str(path))
    again = entry.trace(text_of) if entry else None
    assert again is not None
    assert by_label(again) == first == {"c": [(1_500, 2.0)]}
