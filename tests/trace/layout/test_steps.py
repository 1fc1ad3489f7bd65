"""What counts as a step, its number, and the work that it launched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.trace import Trace
from fusetui.trace.layout.steps import (
    by_launch_time,
    labels_of,
    launched_in_steps,
    steps_of,
)

Make = Callable[..., Any]


def note(event: Make, name: str, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = event(name, ts, dur, cat="user_annotation", **more)
    return made


def spans(trace: Trace, pattern: str | None = None) -> list[tuple[int, int]]:
    found = steps_of(trace, pattern)
    return [
        (int(a) // 1000, int(b) // 1000)
        for a, b in zip(found.start, found.end, strict=True)
    ]


@pytest.fixture
def work(launched: Make) -> list[dict[str, Any]]:
    """Launches at 10, 110, 210, 310 us."""
    return [
        one for n in range(4) for one in launched(n + 1, 100 * n + 10, 100 * n + 20)
    ]


def test_profiler_steps_come_before_other_repeated_annotations(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    notes = [note(event, "ProfilerStep#3", 0, 50), note(event, "whole 1", 0, 200)]
    found = steps_of(trace_of([*work, *notes, note(event, "whole 2", 200, 200)]))
    assert (found.names, found.by) == (("ProfilerStep#3",), "ProfilerStep")


def test_annotations_that_recur_around_the_work(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    """Names but for their numbers; what holds less of the work is not asked."""
    notes = [note(event, f"batch {n}", 100 * n, 90) for n in range(4)]
    parts = [note(event, f"part {n}", 100 * n + 95, 4) for n in range(4)]
    assert spans(trace_of([*parts, *work, *notes])) == [
        (0, 90),
        (100, 190),
        (200, 290),
        (300, 390),
    ]


def test_around_little_of_the_work(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    notes = [note(event, "batch", 100 * n, 90) for n in range(3)]
    assert spans(trace_of([*work, *notes])) == []


@pytest.mark.parametrize(
    "name", ["execute_context_1(8)_generation_0(0)", "step[DECODE bs=16]"]
)
def test_single_annotation_of_a_server_is_a_step(
    trace_of: Make, event: Make, work: list[Any], name: str
) -> None:
    assert spans(trace_of([*work, note(event, name, 5, 380)])) == [(5, 385)]


def test_a_single_annotation_is_no_step(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    assert spans(trace_of([*work, note(event, "all", 0, 400)])) == []


def test_optimizer_steps_end_steps(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    """The first one begins with what was recorded of the thread."""
    ends = [note(event, "Optimizer.step#SGD.step", 100 * n + 80, 10) for n in range(3)]
    found = trace_of([event(ts=3, dur=1), *work, *ends])
    assert spans(found) == [(3, 90), (90, 190), (190, 290)]
    assert steps_of(found).by == "up to the end of Optimizer.step#SGD.step"


@pytest.mark.parametrize("pattern", ["my_step", "my_.*p$", "my_step["])
def test_steps_by_a_pattern_are_the_outermost_matches(
    trace_of: Make, event: Make, work: list[Any], pattern: str
) -> None:
    """A match inside another one is part of it; an invalid regular expression is taken
    literally."""
    names = ["my_step[" if pattern.endswith("[") else "my_step", "ProfilerStep#1"]
    notes = [note(event, name, 100 * n, 90) for n in range(2) for name in names]
    inner = note(event, names[0], 10, 20)
    other = note(event, names[0], 0, 300, tid=9)
    assert spans(trace_of([*notes, inner, other, *work]), pattern) == [
        (0, 90),
        (100, 190),
    ]


def test_pattern_without_a_match_gives_no_steps(
    trace_of: Make, work: list[Any]
) -> None:
    assert len(steps_of(trace_of(work), "nothing")) == 0


def test_annotation_inside_a_step_is_no_step(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    """However much of the work an optimizer launches."""
    parts = [
        note(event, "Optimizer.zero_grad#SGD.zero_grad", 100 * n, 90) for n in range(4)
    ]
    assert spans(trace_of([*work, *parts])) == []


def test_tasks_of_several_threads_are_no_steps(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    tasks = [note(event, "task", 100 * n, 90) for n in range(4)]
    others = [note(event, "task", 100 * n + 50, 90, tid=9) for n in range(2)]
    assert spans(trace_of([*work, *tasks, *others])) == []


def test_operations_alone_have_no_steps(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    """The same op again and again may be one layer after the other."""
    ops = [event("aten::linear", 100 * n, 90, cat="cpu_op") for n in range(4)]
    assert spans(trace_of([*work, *ops])) == []


def test_one_optimizer_step_repeats_nothing(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    assert (
        spans(trace_of([*work, note(event, "Optimizer.step#SGD.step", 380, 10)])) == []
    )


def test_of_two_optimizers_the_last_ends_a_step(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    first = [note(event, "Optimizer.step#SGD.step", 200 * n + 40, 10) for n in range(2)]
    last = [
        note(event, "Optimizer.step#Adam.step", 200 * n + 180, 10) for n in range(2)
    ]
    assert spans(trace_of([*work, *first, *last])) == [(10, 190), (190, 390)]


def test_prefill_and_decode_are_steps_of_one_server(
    trace_of: Make, event: Make, work: list[Any]
) -> None:
    names = ("step[EXTEND bs=1 toks=99]", "step[DECODE bs=1]")
    notes = [note(event, names[n > 0], 100 * n, 90) for n in range(4)]
    found = steps_of(trace_of([*work, *notes]))
    assert (len(found), found.are_of_server) == (4, True)


@pytest.mark.parametrize("category", ["Operator", "cpu_op", "user_annotation"])
def test_profiler_steps_are_found_in_any_category(
    trace_of: Make, event: Make, work: list[Any], category: str
) -> None:
    steps = [event(f"ProfilerStep#{n}", 100 * n, 90, cat=category) for n in (0, 1)]
    assert steps_of(trace_of([*work, *steps])).numbers == (0, 1)


@pytest.mark.parametrize(
    ("names", "numbers", "labels"),
    [
        (("ProfilerStep#6",), (6,), ("ProfilerStep#6",)),
        (
            ("epoch 1 batch 8", "epoch 1 batch 9"),
            (8, 9),
            ("epoch 1 batch 8", "epoch 1 batch 9"),
        ),
        (("batch", "batch"), (1, 2), ("#1 batch", "#2 batch")),
        (("bs_64", "bs_64"), (1, 2), ("#1 bs_64", "#2 bs_64")),
        (("execute_new_1_cached_4", "execute_new_1_cached_5"), (1, 2), None),
        (("ProfilerStep#1" + "0" * 30,), (1,), None),
    ],
)
def test_the_number_is_the_one_that_the_trace_prints(
    trace_of: Make, event: Make, work: list[Any], names: Any, numbers: Any, labels: Any
) -> None:
    length = 400 // len(names)
    notes = [note(event, name, length * n, length) for n, name in enumerate(names)]
    found = steps_of(trace_of([*work, *notes]))
    assert found.numbers == numbers
    unnumbered = [f"#{n + 1} {name}" for n, name in enumerate(names)]
    assert list(labels_of(found.names)) == list(labels or unnumbered)


def test_iterations_have_no_names(trace_of: Make, event: Make, work: list[Any]) -> None:
    ends = [note(event, "Optimizer.step#SGD.step", 100 * n + 80, 10) for n in range(3)]
    found = steps_of(trace_of([*work, *ends]))
    assert found.names == labels_of(found.names) == ("#1", "#2", "#3")
    assert [found.place(number) for number in (0, 1, 3)] == [-1, 0, 2]


def step(event: Make, number: int, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    return note(event, f"ProfilerStep#{number}", ts, dur, **more)


def test_trace_without_steps_has_none(trace_of: Make, event: Make) -> None:
    assert len(steps_of(trace_of([event("note", cat="user_annotation")]))) == 0


def test_kernels_belong_to_the_step_that_launched_them(
    trace_of: Make, event: Make, launched: Make
) -> None:
    trace = trace_of(
        [
            step(event, 4, 100, 100),
            step(event, 3, 0, 100),
            *launched(1, 50, 150),  # runs during the next step
            *launched(2, 99, 170),
            *launched(3, 100, 190),  # the first moment of step 4
            *launched(4, 250, 260),  # after the last
        ]
    )
    assert steps_of(trace).names == ("ProfilerStep#3", "ProfilerStep#4")
    assert spans(trace) == [(0, 100), (100, 200)]
    assert [
        [int(trace.start[row]) for row in rows] for rows in launched_in_steps(trace)
    ] == [
        [150_000, 170_000],
        [190_000],
    ]


def test_steps_are_those_of_the_thread_with_most(trace_of: Make, event: Make) -> None:
    twin = step(event, 1, 0, 10, tid=99)
    on_gpu = event("ProfilerStep#1", 0, 10, cat="gpu_user_annotation", pid=0, tid=7)
    trace = trace_of([twin, on_gpu, step(event, 1, 0, 10), step(event, 2, 10, 10)])
    assert steps_of(trace).names == ("ProfilerStep#1", "ProfilerStep#2")


def test_kernels_are_sorted_by_launch_time(trace_of: Make, launched: Make) -> None:
    trace = trace_of([*launched(1, 20, 30), *launched(2, 5, 60)])
    rows, called = by_launch_time(trace)
    assert trace.start[rows].tolist() == [60_000, 30_000]
    assert called.tolist() == [5000, 20_000]


@pytest.mark.parametrize(
    ("overlap_us", "count"), [(0.0, 3), (0.001, 3), (1.0, 3), (5.0, 2)]
)
def test_steps_that_overlap_by_rounding_are_steps(
    trace_of: Make, event: Make, overlap_us: float, count: int
) -> None:
    """The second one begins before the first one ends. Beyond rounding, it is a part of
    it."""
    begins = (0.0, 100.0 - overlap_us, 200.0)
    events = [
        event(f"ProfilerStep#{number}", begin, 100.0, cat="user_annotation")
        for number, begin in enumerate(begins)
    ]
    steps = steps_of(trace_of(events))
    assert len(steps) == count
    assert (steps.start[1:] >= steps.end[:-1]).all()
