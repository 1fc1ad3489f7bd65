"""What makes the trace itself misleading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask

Make = Callable[..., Any]


def steps(event: Make, *durations: int) -> list[dict[str, Any]]:
    starts = [sum(durations[:n]) for n in range(len(durations))]
    return [
        event(f"ProfilerStep#{n}", ts, dur, cat="user_annotation")
        for n, (ts, dur) in enumerate(zip(starts, durations, strict=True))
    ]


def test_slow_first_step_is_reported_with_its_ratio(found: Ask, event: Make) -> None:
    (finding,) = found("recording", steps(event, 300, 100, 120))
    assert finding.text == (
        "The first step (wall) takes 300 us, 2.7 times as long as the median of the others (110 us)."
    )
    assert finding.at_stake_ns is None


def test_slow_first_step_beside_a_slower_one_counts_both(
    found: Ask, event: Make
) -> None:
    """Four times as long as the first one: that is what takes long here."""
    (finding,) = found("recording", steps(event, 300, 100, 1_200, 110, 90, 100))
    assert finding.text == (
        "2 of 6 steps (wall) take at least 1.5 times the median of the later steps "
        "(100 us): ProfilerStep#2 (1.2 ms), ProfilerStep#0 (300 us, the first step)."
    )
    assert finding.evidence == (2, 0)


def test_slow_first_step_before_other_slow_ones_mentions_them(
    found: Ask, event: Make
) -> None:
    (finding,) = found("recording", steps(event, 900, 100, 200, 110, 300, 100, 90, 80))
    assert finding.text == (
        "The first step (wall) takes 900 us, 9 times as long as the median of the "
        "others (100 us); 2 later steps take at least 1.5 times that median, up to 300 us (ProfilerStep#4)."
    )


def test_slow_steps_after_an_ordinary_first_one_are_no_matter_of_the_recording(
    found: Ask, event: Make
) -> None:
    assert found("recording", steps(event, 100, 100, 1_200, 110)) == []


def test_an_ordinary_first_step_is_silent(found: Ask, event: Make) -> None:
    assert found("recording", steps(event, 150, 110, 120)) == []


def enqueued(
    event: Make, launched: Make, *works: int, first: int = 20
) -> list[dict[str, Any]]:
    """Steps that only enqueue work for the GPU: the first takes `first` us, all others
    10. Their kernels take `works` us and run one after the other from 100 us on."""
    events = steps(event, first, *[10] * (len(works) - 1))
    starts = [100 + sum(works[:n]) for n in range(len(works))]
    for n, (ts, dur) in enumerate(zip(starts, works, strict=True)):
        call = 1 if n == 0 else first + 10 * (n - 1) + 1
        events += launched(n + 1, call, ts, dur)
    return events


def test_steps_that_only_enqueue_are_compared_by_their_work(
    found: Ask, event: Make, launched: Make
) -> None:
    """Annotations of 20 and 10 us; work of 220 us, then of 300 us each."""
    assert found("recording", enqueued(event, launched, 220, 300, 300, 300)) == []


def test_a_slow_first_step_by_its_work(found: Ask, event: Make, launched: Make) -> None:
    """900 us of work, which begins 100 us after the step; then 300 us each."""
    (finding,) = found(
        "recording", enqueued(event, launched, 900, 300, 300, 300, first=10)
    )
    assert finding.text == (
        "The first step (launched) takes 900 us, 3 times as long as the median of the others "
        "(300 us)."
    )


def test_a_first_step_without_a_known_launch_call_is_not_told_as_short(
    found: Ask, event: Make, launched: Make
) -> None:
    """The launch call of the first step is not known."""
    events = enqueued(event, launched, 220, 300, 300, 300)
    lost = [
        one for one in events if not (one["cat"] == "cuda_runtime" and one["ts"] == 1)
    ]
    assert not any("first step" in one.text for one in found("recording", lost))


def test_slow_first_step_ended_by_an_optimizer_is_reported(
    found: Ask, event: Make
) -> None:
    """The steps end with the optimizer: 300, 100 and 120 us."""
    ends = [300, 400, 520]
    optimizer = [
        event("Optimizer.step#S.step", t - 10, 10, cat="user_annotation") for t in ends
    ]
    (finding,) = found("recording", [event("aten::mm", 0, 5), *optimizer])
    assert finding.text.startswith(
        "The first step (wall) takes 300 us, 2.7 times as long"
    )


def test_steps_of_a_server_differ(found: Ask, event: Make, launched: Make) -> None:
    events = [*launched(1, 5, 10), *launched(2, 310, 320), *launched(3, 410, 420)]
    for n, (ts, dur) in enumerate([(0, 300), (300, 100), (400, 100)]):
        name = f"execute_context_{n}(5)_generation_0(0)"
        events.append(event(name, ts, dur, cat="user_annotation"))
    assert found("recording", events) == []


def test_fewer_than_three_steps_are_reported_as_few(found: Ask, event: Make) -> None:
    (finding,) = found("recording", steps(event, 110, 120))
    assert finding.text == (
        "Only 2 steps were recorded, so other steps may take more or less time."
    )


def test_a_step_in_which_a_graph_is_captured(found: Ask, event: Make) -> None:
    """From 20 to 90 of 100 us; other steps would not be like it."""
    begin = event("cudaStreamBeginCapture", 20, 5, cat="cuda_runtime")
    end = event("cudaStreamEndCapture", 85, 5, cat="cuda_runtime")
    (finding,) = found("recording", [*steps(event, 100), begin, end])
    assert finding.text == (
        "Graph capture takes 70 us of 1 step (70 %). Work launched during capture "
        "becomes part of the graph and does not run."
    )


def test_a_short_capture_is_silent(found: Ask, event: Make) -> None:
    begin = event("cudaStreamBeginCapture", 20, 5, cat="cuda_runtime")
    end = event("cudaStreamEndCapture", 45, 5, cat="cuda_runtime")
    assert found("recording", [*steps(event, 100, 110, 120), begin, end]) == []


def test_few_steps_ended_by_an_optimizer_are_reported(found: Ask, event: Make) -> None:
    ends = [
        event("Optimizer.step#S.step", t, 10, cat="user_annotation") for t in (100, 210)
    ]
    (finding,) = found("recording", [event("aten::mm", 0, 5), *ends])
    assert finding.text == (
        "Only 2 steps were recorded, so other steps may take more or less time."
    )
    assert (finding.try_, len(finding.evidence)) == ("Record at least 3 steps.", 2)


def test_one_step_of_a_server_is_not_few(
    found: Ask, event: Make, launched: Make
) -> None:
    name = "execute_context_1(512)_generation_0(0)"
    batch = event(name, 0, 50, cat="user_annotation")
    assert found("recording", [batch, *launched(1, 5, 20)]) == []


def test_three_steps_are_not_few(found: Ask, event: Make) -> None:
    assert found("recording", steps(event, 110, 120, 110)) == []


def launches_alone(event: Make, calls: int) -> list[dict[str, Any]]:
    return [
        event(
            "cudaLaunchKernel",
            10 * n,
            5,
            cat="cuda_runtime",
            args={"correlation": n + 1},
        )
        for n in range(calls)
    ]


def test_launches_without_any_gpu_event(found: Ask, event: Make) -> None:
    """The activity of CUDA was on: what is missing is what CUPTI delivers."""
    (finding,) = found(
        "recording", [*launches_alone(event, 3), event("aten::mm", 0, 30)]
    )
    assert finding.text.startswith(
        "3 launch calls (cudaLaunchKernel) were recorded, but no GPU "
    )
    assert finding.try_ is not None
    assert "cuda-gdb), because only one can trace the GPU at a time" in finding.try_
    assert "ProfilerActivity" not in finding.try_
    assert len(finding.evidence) == 3


def test_ranges_of_counters_take_the_place_of_kernels(found: Ask, event: Make) -> None:
    ranges = event("gemm", 0, 5, cat="cuda_profiler_range", pid=0, tid=0)
    (finding,) = found("recording", [*launches_alone(event, 1), ranges])
    assert finding.text.startswith(
        "1 launch call (cudaLaunchKernel) was recorded, but no GPU "
    )
    assert "received only counter ranges from the GPU." in finding.text
    assert finding.text.endswith(
        "the counters, which takes much longer than launching."
    )
    assert finding.try_ is not None
    assert finding.try_.startswith("Record without profiler_metrics")


def test_launches_with_gpu_events_are_not_alone(
    found: Ask, event: Make, launched: Make
) -> None:
    assert found("recording", [*launches_alone(event, 3), *launched(9, 50, 60)]) == []


def test_calls_that_launch_nothing_need_no_gpu_event(found: Ask, event: Make) -> None:
    """As in a run on the CPU of a program that looks for a GPU."""
    assert (
        found("recording", [event("cudaGetDeviceCount", 0, 5, cat="cuda_runtime")])
        == []
    )


def test_a_launch_while_a_graph_is_captured_is_not_missing_its_kernel(
    found: Ask, event: Make
) -> None:
    begin = event("cudaStreamBeginCapture", 0, 5, cat="cuda_runtime")
    end = event("cudaStreamEndCapture", 90, 5, cat="cuda_runtime")
    launch = event(
        "cudaLaunchKernel", 20, 5, cat="cuda_runtime", args={"correlation": 1}
    )
    assert found("recording", [begin, launch, end]) == []


def test_stacks_beside_a_gpu_that_waits(
    found: Ask, event: Make, launched: Make
) -> None:
    frame = event("/a.py(1): f", 20, 60, cat="python_function")
    (finding,) = found("recording", [*launched(1, 0, 5), frame, *launched(2, 90, 95)])
    assert finding.text.startswith("CPU times include profiling")


def test_stacks_beside_a_busy_gpu_are_silent(
    found: Ask, event: Make, launched: Make
) -> None:
    frame = event("/a.py(1): f", 20, 60, cat="python_function")
    assert (
        found("recording", [*launched(1, 0, 5, dur=85), frame, *launched(2, 10, 91)])
        == []
    )


def test_gpu_events_without_a_launch_are_reported_with_their_share(
    found: Ask, event: Make, launched: Make
) -> None:
    lost = event("k", 20, 10, cat="kernel", pid=0, tid=7, args={"correlation": 77})
    (finding,) = found("recording", [*launched(1, 0, 5), lost])
    assert finding.text.startswith(
        "The launch calls of 1 GPU event (50 % of GPU time) are"
    )
    assert finding.try_ is not None
    assert "torch.cuda.synchronize() right before" in finding.try_


def test_all_notes_about_the_recording_are_one_finding(
    found: Ask, event: Make, launched: Make
) -> None:
    frame = event("/a.py(1): f", 20, 60, cat="python_function")
    lost = event("k", 20, 10, cat="kernel", pid=0, tid=7, args={"correlation": 77})
    (finding,) = found(
        "recording", [*launched(1, 0, 5), frame, lost, *launched(2, 90, 95)]
    )
    assert finding.text.startswith("The launch calls of 1 GPU event")
    assert "CPU times include profiling" in finding.text


def test_a_graph_launch_that_keeps_the_gpu_waiting(found: Ask, event: Make) -> None:
    """The GPU is idle from 20 to 620 us, of which the launch of the graph takes 510;
    when it has work until 600, it waits for 10 of 1,000 us."""
    link = {"args": {"correlation": 2}}
    graph = event("cudaGraphLaunch", 100, 510, cat="cuda_runtime", **link)
    nodes = [
        event("k", ts, 190, cat="kernel", pid=0, tid=7, **link) for ts in (620, 820)
    ]
    first = event("k", 10, 10, cat="kernel", pid=0, tid=7)
    (finding,) = found("recording", [first, graph, *nodes])
    assert finding.text.endswith(
        "The GPU waits 510 us (51.0 % of the span) inside cudaGraphLaunch. Recording "
        "graph nodes slows down this call."
    )
    (finding,) = found("recording", [first | {"dur": 590}, graph, *nodes])
    assert "cudaGraphLaunch" not in finding.text
