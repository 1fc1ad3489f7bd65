"""The three lengths of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.times import measure_lengths
from fusetui.analysis.serving.passes import find_passes
from fusetui.trace import Trace
from fusetui.trace.layout.steps import (
    StepLength,
    launched_bounds,
    launched_bounds_of_job,
    model_pass,
    step_launched,
    step_wall,
    step_wall_of_job,
    steps_of,
)

Event = dict[str, Any]
US = 1000


def annotated(name: str, begin_us: int, dur_us: int) -> Event:
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": begin_us,
        "dur": dur_us,
    }


def wall(trace: Trace) -> list[int]:
    steps = steps_of(trace)
    return [ns // US for ns in step_wall(steps.start, steps.end).tolist()]


def launched_lengths(trace: Trace) -> list[int]:
    graph = build_graph(trace)
    lengths = measure_lengths(trace, graph, graph.recorded)
    return [ns // US for ns in lengths.tolist()]


def test_the_wall_time_is_that_of_the_annotation(
    trace_of: Callable[..., Trace], launched: Callable[..., list[Event]]
) -> None:
    """Whenever the work runs, and however long the thread does nothing between."""
    events = [
        annotated("ProfilerStep#1", 0, 100),
        annotated("ProfilerStep#2", 250, 120),
        *launched(1, 10, 400, 50),
        *launched(2, 260, 450, 50),
    ]
    assert wall(trace_of(events)) == [100, 120]


def test_the_wall_time_of_an_iteration_begins_with_the_end_of_the_one_before(
    trace_of: Callable[..., Trace],
) -> None:
    """The optimizer ends its steps at 300, 400 and 520."""
    ends_us = (300, 400, 520)
    optimizer = [annotated("Optimizer.step#SGD.step", end - 10, 10) for end in ends_us]
    first_op = {**annotated("aten::mm", 0, 5), "cat": "cpu_op"}
    assert wall(trace_of([first_op, *optimizer])) == [300, 100, 120]


def test_a_launched_step_lasts_from_the_end_of_the_one_before(
    trace_of: Callable[..., Trace], launched: Callable[..., list[Event]]
) -> None:
    """Work ends at 90, within the first step, and at 400, 30 after the second, which
    begins 150 after the first has ended."""
    events = [
        annotated("ProfilerStep#1", 0, 100),
        annotated("ProfilerStep#2", 250, 120),
        *launched(1, 10, 40, 50),
        *launched(2, 260, 300, 100),
    ]
    trace = trace_of(events)
    assert wall(trace) == [100, 120]
    assert launched_lengths(trace) == [100, 300]


def test_launched_bounds_are_the_latest_of_three_times() -> None:
    """The thread ends step 0; its work ends step 1; step 2 has none and ends within
    that, so it ends when step 1 does."""
    bounds = launched_bounds(
        wall_bounds=np.array([5, 100, 200, 300]),
        work_end=np.array([90, 80, 350, 320]),
        step_of_work=np.array([0, 0, 1, 1]),
    )
    assert bounds.tolist() == [5, 100, 350, 350]
    assert step_launched(bounds).tolist() == [95, 250, 0]


def test_a_step_of_a_job_ends_with_its_last_rank() -> None:
    of_ranks = [np.array([10, 100, 230]), np.array([0, 120, 200])]
    bounds = launched_bounds_of_job(of_ranks)
    assert bounds.tolist() == [0, 120, 230]
    assert step_launched(bounds).tolist() == [120, 110]


def test_a_model_pass_is_from_the_first_start_to_the_last_end(
    trace_of: Callable[..., Trace], launched: Callable[..., list[Event]]
) -> None:
    """Of two streams; the one that starts first ends last."""
    call, kernel = launched(2, 5, 50, 20)
    trace = trace_of([*launched(1, 0, 10, 100), call, {**kernel, "tid": 8}])
    found = model_pass(trace, trace.gpu_rows)
    assert found.span_ns == 100 * US
    assert model_pass(trace, trace.gpu_rows[:0]).span_ns == 0


def test_the_three_lengths_of_steps_that_only_enqueue_differ(
    trace_of: Callable[..., Trace], launched: Callable[..., list[Event]]
) -> None:
    """Each step of a server copies its inputs, runs its model for 200 us, and is 40 us
    long on its thread; the GPU is behind."""
    gemm = "ampere_sgemm_128x64_tn"
    copy = "Memcpy HtoD (Pageable -> Device)"
    events = []
    for step in range(3):
        called, runs = 50 * step, 100 + 250 * step
        name = f"execute_context_0(0)_generation_{step + 1}({step + 1})"
        call, inputs = launched(2 * step + 1, called + 5, runs, 30, copy)
        events += [
            annotated(name, called, 40),
            call,
            {**inputs, "cat": "gpu_memcpy"},
            *launched(2 * step + 2, called + 15, runs + 40, 200, gemm),
        ]
    trace = trace_of(events)
    assert wall(trace) == [40, 40, 40]
    assert launched_lengths(trace) == [340, 250, 250]
    spans_us = [
        model_pass(trace, step.model_rows).span_ns // US for step in find_passes(trace)
    ]
    assert spans_us == [200, 200, 200]


def test_each_length_of_a_step_has_its_words() -> None:
    assert [length.step for length in StepLength] == [
        "step (wall)",
        "step (launched)",
        "model pass",
        "span",
    ]
    assert StepLength.SPAN.a_step == "the span"
    assert StepLength.MODEL_PASS.a_step == "a model pass"


def test_a_rank_that_begins_late_does_not_shorten_a_step_of_the_job() -> None:
    start = np.array([0, 40])
    end = np.array([100, 100])
    assert step_wall(start, end).tolist() == [100, 60]
    assert step_wall_of_job(start, end) == 100
