"""The most memory that torch used of each GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.corpus.files import WITH_MODULES
from tests.corpus.fixtures import any_of

from fusetui.analysis.questions import memory
from fusetui.analysis.questions.memory import MemoryPeak, MemoryPeaks, find_memory_peaks
from fusetui.trace import open_trace

Make = Callable[..., Any]


def event(
    device: int, allocated: object, reserved: object, kind: int = 1, **more: Any
) -> Any:
    totals = {"Total Allocated": allocated, "Total Reserved": reserved}
    args = {"Device Type": kind, "Device Id": device, "Bytes": 1, **totals}
    return {
        "ph": "i",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": 5,
        "s": "t",
        "args": args,
    } | more


def peaks(found: MemoryPeaks) -> list[tuple[int, int, int]]:
    return [(peak.device, peak.allocated, peak.reserved) for peak in found.peaks]


def test_memory_peaks_are_the_largest_totals_of_each_gpu(trace_of: Make) -> None:
    found = find_memory_peaks(
        trace_of(
            [
                event(1, 10, 40),
                event(0, 7, 9),
                event(1, 30, 20),
                event(-1, 90, 90, kind=0),
            ]
        )
    )
    assert sorted(peaks(found)) == [(0, 7, 9), (1, 30, 40)]
    assert found.is_recorded


def test_events_of_2021_have_no_totals(trace_of: Make) -> None:
    found = find_memory_peaks(trace_of([event(0, None, None)]))
    assert found == MemoryPeaks((), is_recorded=True)


def test_trace_without_memory_events_has_no_peaks(trace_of: Make) -> None:
    assert find_memory_peaks(trace_of([event(0, 1, 1, name="other")])) == MemoryPeaks(
        (), False
    )


def test_impossible_totals_are_ignored(trace_of: Make) -> None:
    assert peaks(find_memory_peaks(trace_of([event(0, 1e20, 5), event(0, 7, 9)]))) == [
        (0, 7, 9)
    ]


@pytest.mark.parametrize(
    "odd", [{"ts": "5"}, {"ph": "C"}, {"args": 3}, {"args": {"Device Id": 1.5}}]
)
def test_an_odd_event_costs_the_others_nothing(
    trace_of: Make, odd: dict[str, Any]
) -> None:
    found = find_memory_peaks(
        trace_of([event(0, 7, 9), event(0, 0, 0, **odd), event(0, 8, 8.0)])
    )
    assert peaks(found) == [(0, 8, 9)]


any_trace = any_of(*WITH_MODULES, "threads")


def test_memory_peaks_by_the_scanner_equal_each_event_alone(
    any_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_memory_peaks(open_trace(str(any_trace), cached=False))
    monkeypatch.setattr(memory, "read_totals", lambda *_: None)
    assert found == find_memory_peaks(open_trace(str(any_trace), cached=False))


def test_a_peak_is_in_bytes(trace_of: Make) -> None:
    assert find_memory_peaks(trace_of([event(2, 2**40, 2**41)])).peaks == (
        MemoryPeak(2, 2**40, 2**41),
    )
