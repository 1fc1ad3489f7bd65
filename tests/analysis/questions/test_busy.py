"""Each definition of busy and idle, on one trace that distinguishes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.questions.busy import (
    measure_any_busy_ns,
    measure_gpu_times,
    measure_window_busy_ns,
    measure_work_busy_ns,
    summarize_window,
)
from fusetui.trace import Trace
from fusetui.trace.layout.steps import launched_in_steps

Event = dict[str, Any]


@pytest.fixture
def late(
    trace_of: Callable[..., Trace],
    event: Callable[..., Event],
    launched: Callable[..., list[Event]],
) -> Trace:
    """A step of 100 us; of the two kernels that it launches one ends 30 us after it.

    A second GPU works on its own from 60 to 70 us.
    """
    step = event("ProfilerStep#1", 0, 100, cat="user_annotation")
    kernels = [*launched(1, 5, 20, 10), *launched(2, 8, 90, 40)]
    other = event("k", 60, 10, cat="kernel", pid=1, tid=7)
    return trace_of([step, *kernels, other])


def test_busy_and_idle_of_each_gpu_are_over_its_own_span(late: Trace) -> None:
    """GPU 0 from 20 to 130 us, GPU 1 from 60 to 70 us."""
    times = measure_gpu_times(late)
    assert (times.busy_ns, times.idle_ns) == (50_000 + 10_000, 60_000)


def test_idle_time_of_a_window_counts_the_window_for_each_gpu(late: Trace) -> None:
    """Each GPU has the window for its own."""
    assert measure_window_busy_ns(late, late.gpu_rows, 0, 100_000) == 20_000 + 10_000
    figures = summarize_window(late, 0, 100_000)
    assert (figures.busy_ns, figures.idle_ns) == (30_000, 200_000 - 30_000)


def test_with_the_work_of_a_step(late: Trace) -> None:
    """All of the step's work, including what runs after it; the other GPU's was not
    launched by it."""
    (launched,) = launched_in_steps(late)
    assert measure_work_busy_ns(late, launched) == 50_000


def test_busy_time_of_a_step_is_that_of_any_device(late: Trace) -> None:
    begins, ends = np.array([0, 60_000]), np.array([100_000, 65_000])
    assert measure_any_busy_ns(late, late.gpu_rows, begins, ends).tolist() == [
        30_000,
        5_000,
    ]
    found = diff(late, late).side_a
    assert (found.busy_ns, found.idle_ns) == (30_000, 70_000)
