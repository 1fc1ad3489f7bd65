"""What counts as a step if there is no ProfilerStep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.trace import Trace
from fusetui.trace.layout.step_spans import step_spans

Make = Callable[..., Any]


def note(event: Make, name: str, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = event(name, ts, dur, cat="user_annotation", **more)
    return made


def spans(trace: Trace, pattern: str | None = None) -> list[tuple[int, int]]:
    found = step_spans(trace, pattern)
    return [(int(a) // 1000, int(b) // 1000) for a, b in zip(found.start, found.end, strict=True)]


@pytest.fixture
def work(launched: Make) -> list[dict[str, Any]]:
    """Launches at 10, 110, 210, 310 us."""
    return [one for n in range(4) for one in launched(n + 1, 100 * n + 10, 100 * n + 20)]


def test_profiler_steps_first(trace_of: Make, event: Make, work: list[Any]) -> None:
    notes = [note(event, "ProfilerStep#3", 0, 50), note(event, "whole 1", 0, 200)]
    found = step_spans(trace_of([*work, *notes, note(event, "whole 2", 200, 200)]))
    assert (found.names, found.by) == (("ProfilerStep#3",), "ProfilerStep")


def test_annotations_that_recur_around_the_work(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    """Names but for their numbers; what holds less of the work is not asked."""
    notes = [note(event, f"batch {n}", 100 * n, 90) for n in range(4)]
    parts = [note(event, f"part {n}", 100 * n + 95, 4) for n in range(4)]
    assert spans(trace_of([*parts, *work, *notes])) == [(0, 90), (100, 190), (200, 290), (300, 390)]


def test_around_little_of_the_work(trace_of: Make, event: Make, work: list[Any]) -> None:
    notes = [note(event, "batch", 100 * n, 90) for n in range(3)]
    assert spans(trace_of([*work, *notes])) == []


@pytest.mark.parametrize("name", ["execute_context_1(8)_generation_0(0)", "step[DECODE bs=16]"])
def test_a_single_step_of_a_server(trace_of: Make, event: Make, work: list[Any], name: str) -> None:
    assert spans(trace_of([*work, note(event, name, 5, 380)])) == [(5, 385)]


def test_a_single_annotation_is_no_step(trace_of: Make, event: Make, work: list[Any]) -> None:
    assert spans(trace_of([*work, note(event, "all", 0, 400)])) == []


def test_optimizer_steps_end_steps(trace_of: Make, event: Make, work: list[Any]) -> None:
    """The first one begins with what was recorded of the thread."""
    ends = [note(event, "Optimizer.step#SGD.step", 100 * n + 80, 10) for n in range(3)]
    found = trace_of([event(ts=3, dur=1), *work, *ends])
    assert spans(found) == [(3, 90), (90, 190), (190, 290)]
    assert step_spans(found).by == "up to the end of Optimizer.step#SGD.step"


@pytest.mark.parametrize("pattern", ["my_step", "my_.*p$", "my_step["])
def test_by_pattern(trace_of: Make, event: Make, work: list[Any], pattern: str) -> None:
    """A match inside another one is part of it; an invalid regular expression is taken
    literally."""
    names = ["my_step[" if pattern.endswith("[") else "my_step", "ProfilerStep#1"]
    notes = [note(event, name, 100 * n, 90) for n in range(2) for name in names]
    inner = note(event, names[0], 10, 20)
    other = note(event, names[0], 0, 300, tid=9)
    assert spans(trace_of([*notes, inner, other, *work]), pattern) == [(0, 90), (100, 190)]


def test_no_such_pattern(trace_of: Make, work: list[Any]) -> None:
    assert len(step_spans(trace_of(work), "nothing")) == 0
