"""Which stretches of a trace are compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.dispatch import collect_dispatch
from fusetui.analysis.diff.items import Vocabulary, make_items
from fusetui.analysis.diff.windows import NoStepsError, find_steps
from fusetui.analysis.diff.work import collect_work
from fusetui.trace import Trace, open_trace

Build = Callable[..., Trace]
ADD = [("aten::add", "add_kernel", 5.0)]


def test_a_cold_first_step_is_left_out_and_said_so(build: Build) -> None:
    found = diff(
        build(ADD, factors=(9.0, 1.0, 1.0, 1.0)), build(ADD, factors=(1.0,) * 4)
    )
    assert (found.side_a.steps, found.side_b.steps) == (3, 3)
    assert any("first step excluded as warm-up" in note for note in found.notes)
    assert any(
        "1 step excluded to match the other trace" in note for note in found.notes
    )


def test_several_cold_steps_are_told_in_one_sentence(build: Build) -> None:
    found = diff(
        build(ADD, factors=(9.0, 4.0, 1.0, 1.0, 1.0)), build(ADD, factors=(1.0,) * 5)
    )
    (told,) = (note for note in found.notes if "warm-up" in note)
    assert "first 2 steps excluded as warm-up" in told


def test_of_runs_with_other_numbers_of_steps_each_leaves_out_its_own(
    build: Build,
) -> None:
    found = diff(
        build(ADD, factors=(9.0, 1.0, 1.0, 1.0)), build(ADD, factors=(1.0,) * 5)
    )
    assert (found.side_a.steps, found.side_b.steps) == (3, 5)


def test_a_first_step_is_cold_beside_others_without_a_duration(
    trace_of: Callable[..., Trace],
) -> None:
    plain = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1}
    steps = [
        {**plain, "name": f"ProfilerStep#{n}", "ts": 9 * n, "dur": 9 * (n == 0)}
        for n in range(4)
    ]
    found = diff(trace_of(steps), trace_of(steps))
    assert any("the median of the others is 0" in note for note in found.notes)


def test_of_two_steps_none_is_called_cold(build: Build) -> None:
    trace = build(ADD, factors=(9.0, 1.0))
    assert diff(trace, trace).side_a.steps == 2


def test_without_steps_the_whole_trace_is_one(build: Build) -> None:
    trace = build(ADD, factors=(1.0, 1.0), named=False)
    found = diff(trace, trace)
    assert (found.side_a.steps, found.side_a.items) == (1, 2)
    assert any("no steps found" in note for note in found.notes)


def test_an_annotation_that_repeats_around_the_work_stands_for_steps(
    build: Build, tmp_path: Path
) -> None:
    events = json.loads(Path(build(ADD).report.path).read_text())["traceEvents"]
    for event in events:
        event["name"] = event["name"].replace("ProfilerStep#", "decode batch ")
    path = tmp_path / "annotated.json"
    path.write_text(json.dumps({"traceEvents": events}))
    found = find_steps(open_trace(str(path)), "a")
    assert (len(found), found.is_whole_trace) == (5, False)


def test_annotations_that_match_are_the_steps(build: Build) -> None:
    found = diff(build(ADD), build(ADD), step_by="Step#[24]$")
    assert (found.side_a.steps, found.side_b.steps) == (2, 2)


def test_step_pattern_that_one_side_lacks_is_refused(build: Build) -> None:
    with pytest.raises(NoStepsError, match="has no annotation that matches decode"):
        diff(build(ADD), build(ADD), step_by="decode")


def test_a_step_cut_off_by_the_end_of_the_profile_is_left_out(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    def step(number: int, ts: int) -> dict[str, Any]:
        name = f"ProfilerStep#{number}"
        plain = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1}
        return {**plain, "name": name, "ts": ts, "dur": 90}

    calls = [
        launched(n, ts, ts + 5) for n, ts in ((1, 110), (2, 130), (3, 210), (4, 230))
    ]
    trace = trace_of(
        [step(1, 100), step(2, 200), step(3, 300), *(e for c in calls for e in c)]
    )
    found = diff(trace, trace)
    assert found.side_a.steps == 2
    assert any("less than half of the usual work" in note for note in found.notes)


def test_times_of_rows_are_medians_over_steps(build: Build) -> None:
    a = build(ADD, factors=(1.0, 1.2, 3.0))
    assert diff(a, a).rows[0].a_ns == 6000


def test_work_launched_before_the_profile_belongs_to_no_step(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    call, kernel = launched(1, 110, 115)
    backlog = {**kernel, "name": "old", "ts": 101, "args": {"correlation": 99}}
    step = {
        **call,
        "name": "ProfilerStep#1",
        "cat": "user_annotation",
        "ts": 100,
        "dur": 90,
    }
    trace = trace_of([{**step, "args": {}}, call, kernel, backlog])
    found = diff(trace, trace)
    assert found.side_a.items == 1
    assert any("1 of 2 GPU events is in no step" in note for note in found.notes)


def test_a_trace_without_any_work(trace_of: Callable[..., Trace], build: Build) -> None:
    empty = trace_of([])
    found = diff(empty, build(ADD))
    assert (found.step.a_ns, found.step.ratio) == (None, None)
    assert [row.kind for row in found.rows][:1] == ["added"]


CALLS_US, RUNS_US = 100, 400


def enqueued(
    trace_of: Callable[..., Trace],
    launched: Callable[..., list[dict[str, Any]]],
    *,
    slower: float = 1.0,
    steps: int = 6,
    every_us: int = CALLS_US,
) -> Trace:
    """Steps that launch four kernels in 100 us, which take 400: all but the first step
    end before the GPU begins what they launched. `every_us`: from step to step."""
    events: list[dict[str, Any]] = []
    runs = 0
    for step in range(steps):
        begin = step * every_us
        plain = {"ph": "X", "pid": 1, "tid": 1, "ts": begin, "dur": every_us}
        name = f"ProfilerStep#{step}"
        events.append({**plain, "cat": "user_annotation", "name": name})
        runs = max(runs, begin + 20)
        for nth in range(4):
            us = round(RUNS_US // 4 * slower)
            number, called = 4 * step + nth + 1, begin + 4 * nth
            events += launched(number, called, runs, us, f"kernel_{nth}")
            runs += us
    return trace_of(events)


def test_steps_that_only_enqueue_are_those_of_the_gpu(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    a = enqueued(trace_of, launched)
    b = enqueued(trace_of, launched, slower=1.5)
    found = diff(a, b)
    assert (found.step.a_ns, found.step.b_ns) == (400_000, 600_000)
    assert (found.side_a.steps, found.side_b.steps) == (5, 5)
    assert found.accounting.rows_ns == found.accounting.step_ns == 200_000
    assert (found.side_a.later_ns, found.side_a.earlier_ns) == (0, 0)
    assert any("GPU work runs after its step ends" in note for note in found.notes)


def test_launch_calls_of_steps_that_only_enqueue_are_counted_in_these_steps(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    """Although it is over when the GPU begins them."""
    trace = enqueued(trace_of, launched)
    found = collect_dispatch(make_items(collect_work(trace, "A"), Vocabulary()))
    assert found["launch calls"].count.tolist() == [4] * 5


def test_a_single_step_that_only_enqueues_ends_with_its_work(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    """It begins with its thread, at 0: its first event starts at 100 us, its last one
    ends at 500."""
    plain = {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 50}
    step = {**plain, "cat": "user_annotation", "name": "ProfilerStep#1"}
    trace = trace_of(
        [step, *launched(1, 10, 100, 300, "k"), *launched(2, 20, 450, 50, "l")]
    )
    assert diff(trace, trace).step.a_ns == 500_000


def test_steps_in_which_their_own_work_runs_are_those_of_the_cpu(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    """However much of it runs later."""
    trace = enqueued(trace_of, launched, every_us=RUNS_US + 10)
    found = diff(trace, trace)
    assert found.step.a_ns == 1000 * (RUNS_US + 10)
    assert found.side_a.later_ns > 0
    assert not any("GPU work runs after its step ends" in note for note in found.notes)
