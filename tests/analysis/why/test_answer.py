"""All answers about a part of a trace are about that part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.analysis.why.rules.work import ADD, ALL_REDUCE, work

from fusetui.analysis.why.answer import why
from fusetui.analysis.why.selection import Selection
from fusetui.report.why_answer import (
    account_lines,
    answer,
    format_account_line,
    format_brief_answer,
)
from fusetui.trace import Trace

US = 1_000


def test_a_kernel_across_the_edge_of_a_window_counts_with_its_part_inside(
    trace_of: Callable[..., Trace],
) -> None:
    """An all-reduce of 100 us, then kernels up to 1,200 us; the window is 950 to 1,150
    us."""
    reduce: dict[str, Any] = {
        "ph": "X",
        "cat": "kernel",
        "name": ALL_REDUCE,
        "pid": 0,
        "tid": 20,
    }
    events = [*work(("aten::add", ADD, 200)), reduce | {"ts": 900, "dur": 100}]
    found = why(trace_of(events), Selection(from_ns=950 * US, to_ns=1_150 * US))
    (device,) = found.devices
    assert (device.exposed_comm_ns, device.compute_ns) == (50 * US, 150 * US)
    (finding,) = (one for one in found.findings if one.rule == "exposed-communication")
    assert finding.at_stake_ns == device.exposed_comm_ns
    assert found.ceiling
    assert found.ceiling.unknown_ns == device.exposed_comm_ns + device.compute_ns


def test_the_time_before_the_first_event_counts_in_a_step(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    """The loader runs for 300 us before the only kernel, and the step lasts for
    1,000."""
    link = {"args": {"correlation": 1}}
    events = [
        event("ProfilerStep#1", 0, 1000, cat="user_annotation"),
        event("enumerate(DataLoader)#_Iter.__next__", 10, 300, cat="user_annotation"),
        event("cudaLaunchKernel", 320, 10, cat="cuda_runtime", **link),
        event("k", 340, 600, cat="kernel", pid=0, tid=7, **link),
    ]
    trace = trace_of(events)
    assert [one.rule for one in why(trace).findings] == ["recording"]  # few steps
    (found,) = why(trace, Selection(step=1)).findings[:1]
    assert (found.rule, found.at_stake_ns, found.share) == (
        "data-loading",
        300 * US,
        0.3,
    )
    assert "300 us (30.0 % of the time)" in found.text


def test_a_window_without_a_first_moment_begins_with_the_trace(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    """The first kernel runs in the first microsecond."""
    found = why(trace_of(stepping(event, 10)), Selection(to_ns=US))
    (device,) = found.devices
    assert device.compute_ns == US


def stepping(event: Callable[..., Any], *idle: int) -> list[Any]:
    """Steps in which the GPU is busy for 100 us, after it was idle for so long."""
    events, ts = [event("k", 0, 1, cat="kernel", pid=0, tid=7)], 1
    for n, wait in enumerate(idle):
        events.append(event(f"ProfilerStep#{n}", ts, wait + 100, cat="user_annotation"))
        events.append(event("k", ts + wait, 100, cat="kernel", pid=0, tid=7))
        ts += wait + 100
    return events


def test_a_step_that_is_another_story_than_the_span(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    """Steps of 1,100, 100, 101 and 102 us, all but the first of them busy."""
    found = why(trace_of(stepping(event, 1000, 0, 1, 2)))
    assert answer(found).endswith(
        "Its whole span of 1.404 ms is 71 % idle: ProfilerStep#0 alone is "
        "idle for 1 ms."
    )
    assert format_brief_answer(found).endswith("; 71 % of the span is idle.")


def test_work_between_steps_is_another_story(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    """Two busy steps of 100 us, 800 us apart."""
    apart = [
        *stepping(event, 0),
        event("ProfilerStep#1", 901, 100, cat="user_annotation"),
        event("k", 901, 100, cat="kernel", pid=0, tid=7),
    ]
    assert answer(why(trace_of(apart))).endswith(
        "Its whole span of 1.001 ms is 80 % idle: the 2 steps take only 200 us."
    )


def test_equal_steps_are_the_same_story(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    assert "though" not in answer(why(trace_of(stepping(event, 100, 120, 110))))


def test_figures_of_several_gpus_are_sums_and_say_so(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    """Each of two GPUs is busy for 20 us of its 100, and waits for a launch for 80."""
    events = []
    for gpu in (0, 1):
        for ts in (0, 90):
            link = {"args": {"correlation": 1 + gpu + ts}}
            events += [
                event("cudaLaunchKernel", ts, 0, cat="cuda_runtime", **link),
                event("k", ts, 10, cat="kernel", pid=f"GPU {gpu}", tid=7, **link),
            ]
    found = why(trace_of(events))
    assert answer(found) == (
        "The GPUs' spans add up to 200 us. The 2 GPUs are busy for 20 % of the "
        "spans. Total idle time: 160 us, all of it while nothing was recorded on the "
        "launching thread."
    )
    (finding,) = (one for one in found.findings if one.rule == "host-bound")
    assert "160 us (80.0 % of the spans of 2 GPUs)" in finding.text


@pytest.mark.parametrize(
    ("most", "seen"),
    [
        (200, "compute comm copies idle"),
        (105, "compute comm copies idle"),
        (60, "compute idle"),
    ],
)
def test_no_class_of_the_account_is_left_out_for_a_reason(
    trace_of: Callable[..., Trace], most: int, seen: str
) -> None:
    """Where not even the classes fit, the idle time comes before what is exposed."""
    reduce: dict[str, Any] = {
        "ph": "X",
        "cat": "kernel",
        "name": ALL_REDUCE,
        "pid": 0,
        "tid": 20,
    }
    copy: dict[str, Any] = {
        "ph": "X",
        "cat": "gpu_memcpy",
        "name": "Memcpy",
        "pid": 0,
        "tid": 7,
    }
    others = [reduce | {"ts": 9000, "dur": 100}, copy | {"ts": 9500, "dur": 50}]
    found = why(trace_of([*work(("aten::add", ADD, 200)), *others]))
    line = format_account_line(found, most)
    assert len(line) <= most
    assert [
        name for name in ("compute", "comm", "copies", "idle") if name in line
    ] == seen.split()


def test_a_reason_that_only_the_span_has_is_told(
    trace_of: Callable[..., Trace],
    event: Callable[..., Any],
    launched: Callable[..., Any],
) -> None:
    """Between the steps the GPU waits for a launch, in them it never does."""
    notes = [
        event(f"ProfilerStep#{n}", 100 * n, 20, cat="user_annotation") for n in (0, 1)
    ]
    kernels = [one for n in (0, 1) for one in launched(n + 1, 90 * n, 100 * n, dur=20)]
    lines = account_lines(why(trace_of([*notes, *kernels])), 80)
    (told,) = (line for line in lines if "nothing was recorded" in line)
    assert told.endswith("     70.0   58 %")


@pytest.mark.parametrize(
    ("steps", "at_work", "said"),
    [
        ((90, 50), (0, 1), "A step takes 50 us (wall; shorter of 2)."),
        (
            (90, 50),
            (0,),
            ("A step takes 90 us (wall; the only one of 2 in which a GPU ran)."),
        ),
        ((90, 50, 70), (0, 1, 2), "A step takes 70 us (wall; median of 3)."),
        (
            (90, 50, 70, 80),
            (0, 2, 3),
            ("A step takes 80 us (wall; median of the 3 of 4 in which a GPU ran)."),
        ),
    ],
)
def test_a_step_in_which_no_gpu_ran_is_not_the_median(
    trace_of: Callable[..., Trace],
    event: Callable[..., Any],
    launched: Callable[..., Any],
    steps: tuple[int, ...],
    at_work: tuple[int, ...],
    said: str,
) -> None:
    """Recording often ends early in a step."""
    notes = [
        event(f"ProfilerStep#{n}", 100 * n, dur, cat="user_annotation")
        for n, dur in enumerate(steps)
    ]
    kernels = [
        one for n in at_work for one in launched(n + 1, 100 * n + 5, 100 * n + 10)
    ]
    assert answer(why(trace_of([*notes, *kernels]))).startswith(said)
