"""What happens once, and no advice about the steady state rests on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from .conftest import Ask

Make = Callable[..., Any]
Events = list[dict[str, Any]]


def launch(event: Make, ts: int, dur: int, kernel: str = "k") -> Events:
    """A call at `ts` us, and its kernel of 10 us when it returns."""
    args = {"correlation": ts + 1}
    return [
        event("cudaLaunchKernel", ts, dur, cat="cuda_runtime", args=args),
        event(kernel, ts + dur, 10, cat="kernel", pid=0, tid=7, args=args),
    ]


def test_slow_first_launch_of_a_kernel_is_warm_up(found: Ask, event: Make) -> None:
    """The call from 100 to 1,100 us loads the kernel; later ones take 5 us."""
    first = [*launch(event, 0, 5, "before"), *launch(event, 100, 1000)]
    events = [*first, *launch(event, 1200, 5), *launch(event, 1300, 5)]
    (finding,) = found("warm-up", events)
    assert finding.at_stake_ns == 1_000_000
    assert (
        "warm-up, all of it in first kernel launches (1 call to cudaLaunchKernel)"
        in finding.text
    )
    assert found("slow-launches", events) == []


def test_warm_up_below_5_percent_is_told_as_a_sum_and_not_named(
    found: Ask, event: Make
) -> None:
    """10 ms in a first launch, and 200 us, less than 5 %, in an allocation."""
    events = [*launch(event, 0, 5, "before"), *launch(event, 100, 10_000)]
    events += [
        event("cudaMalloc", 10_200, 200, cat="cuda_runtime"),
        *launch(event, 10_450, 5),
    ]
    (finding,) = found("warm-up", [*events, *launch(event, 10_500, 5)])
    assert finding.at_stake_ns == 10_200_000
    assert (
        "10 ms in first kernel launches (1 call to cudaLaunchKernel), and 200 us in other "
        "one-time work." in (finding.text)
    )


@pytest.mark.parametrize(("load", "certainty"), [(3_000, "likely"), (300, "certain")])
def test_idle_time_after_a_long_first_launch_is_less_certainly_host_bound(
    found: Ask, event: Make, load: int, certainty: str
) -> None:
    """The GPU waits for 3,000 or 300 us for a first launch, and for 980 before the next
    one."""
    events = [
        *launch(event, 0, 5, "a"),
        *launch(event, 20, load),
        event("aten::add", load + 31, 985),
        *launch(event, load + 1_010, 5),
    ]
    (finding,) = found("host-bound", events)
    assert finding.certainty == certainty
    assert finding.try_ is not None
    is_cold = certainty == "likely"
    assert finding.try_.startswith("First, record later steps") is is_cold


def test_calls_of_other_names_are_told(found: Ask, event: Make) -> None:
    """Of 1.2 ms in two allocations, cudaFree takes 1 ms."""
    calls = [
        event("cudaMalloc", 20, 200, cat="cuda_runtime"),
        event("cudaFree", 220, 1000, cat="cuda_runtime"),
    ]
    events = [
        *launch(event, 0, 5),
        *calls,
        *launch(event, 1300, 5),
        *launch(event, 1400, 5),
    ]
    (finding,) = found("warm-up", events)
    assert (
        "warm-up, all of it in allocations (mostly in 1 call to cudaFree)"
        in finding.text
    )


def test_a_launch_that_is_slow_again_is_no_warm_up(found: Ask, event: Make) -> None:
    first = [*launch(event, 0, 5, "before"), *launch(event, 100, 1000)]
    events = [*first, *launch(event, 1200, 500)]
    assert found("warm-up", events) == []
    (finding,) = found("slow-launches", events)
    assert finding.at_stake_ns == 1_000_000 + 500_000


def test_slow_first_call_of_an_op_is_warm_up(found: Ask, event: Make) -> None:
    """aten::conv2d searches for 2 ms, then takes 50 us; 80 us before the last launch
    remain."""
    ops = [event("aten::conv2d", 100, 2000), event("aten::conv2d", 2200, 50)]
    launches = [
        *launch(event, 0, 5, "a"),
        *launch(event, 2090, 5),
        *launch(event, 2245, 5),
    ]
    (finding,) = found("warm-up", [*ops, *launches])
    assert finding.at_stake_ns == 1_990_000 + 5_000
    assert "first op calls (1 call to aten::conv2d)" in finding.text


@pytest.mark.parametrize(("later", "speaks"), [(50, True), (250, False)])
def test_an_op_that_is_slow_again_is_no_warm_up(
    found: Ask, event: Make, later: int, speaks: bool
) -> None:
    """Of 2 ms: a tenth, or an eighth."""
    ops = [event("aten::conv2d", 100, 2000), event("aten::conv2d", 2200, later)]
    launches = [
        *launch(event, 0, 5, "a"),
        *launch(event, 2090, 5),
        *launch(event, 2240, 5),
    ]
    assert bool(found("warm-up", [*ops, *launches])) is speaks


def in_steps(event: Make, *calls: int, call: str) -> Events:
    """Steps of 1 ms with a launch at the end, and such calls of 300 us before it."""
    events = launch(event, 0, 5)
    for n, number in enumerate(calls):
        events.append(event(f"ProfilerStep#{n}", 1000 * n, 1000, cat="user_annotation"))
        times = (1000 * n + 100 + 350 * place for place in range(number))
        events += [event(call, ts, 300, cat="cuda_runtime") for ts in times]
        events += launch(event, 1000 * n + 900, 5)
    return events


@pytest.mark.parametrize("call", ["cudaStreamCreateWithPriority", "cudaFree"])
def test_setup_calls_in_the_first_step_are_warm_up_and_no_allocation(
    found: Ask, event: Make, call: str
) -> None:
    (finding,) = found("warm-up", in_steps(event, 2, 0, 0, call=call))
    assert finding.at_stake_ns == 600_000
    assert f"(2 calls to {call})" in finding.text
    assert found("allocation", in_steps(event, 2, 0, 0, call=call)) == []


@pytest.mark.parametrize(
    ("name", "first", "certainty"),
    [
        ("ProfilerStep#", 0, "certain"),
        ("ProfilerStep#", 2, "likely"),
        ("my step ", 0, "certain"),
        ("my step ", 1, "certain"),
        ("my step ", 7, "likely"),
    ],
)
def test_certainty_of_a_warm_up_depends_on_the_number_of_the_first_step(
    found: Ask, event: Make, name: str, first: int, certainty: str
) -> None:
    """Two calls in the first recorded step, and none later."""
    events = in_steps(event, 2, 0, 0, call="cudaFree")
    for one in events:
        if one["name"].startswith("ProfilerStep#"):
            one["name"] = (
                f"{name}{first + int(one['name'].removeprefix('ProfilerStep#'))}"
            )
    (finding,) = found("warm-up", events)
    assert finding.certainty == certainty
    doubt = (
        "Earlier steps may have done the same work, because the recording begins with "
        f"{name}{first}."
    )
    assert finding.why_likely == (doubt if certainty == "likely" else None)


def test_a_first_step_that_only_enqueues_longer_is_no_warm_up(
    found: Ask, event: Make
) -> None:
    """Annotations of 300, 100, 100 and 100 us, whose work takes 5 ms each and never
    waits."""
    events, begin = [], 0
    for n, dur in enumerate((300, 100, 100, 100)):
        args = {"correlation": n + 1}
        events += [
            event(f"ProfilerStep#{n}", begin, dur, cat="user_annotation"),
            event("cudaLaunchKernel", begin + 5, 5, cat="cuda_runtime", args=args),
            event("k", 10 + 5000 * n, 5000, cat="kernel", pid=0, tid=7, args=args),
        ]
        begin += dur
    assert found("warm-up", events) == []
    assert found("recording", events) == []


@pytest.mark.parametrize("call", ["cudaStreamCreateWithPriority", "cudaFree"])
def test_calls_that_recur_are_no_warm_up(found: Ask, event: Make, call: str) -> None:
    assert found("warm-up", in_steps(event, 2, 1, 1, call=call)) == []


def test_first_step_of_more_than_twice_the_others_is_warm_up(
    found: Ask, event: Make
) -> None:
    """Steps of 5, 1, 1 and 1 ms with one launch each in the middle: the first gap ends
    at 2.5 ms, and the next one spends 2.5 ms in the first step."""
    begins, ends = [0, 5000, 6000, 7000], [5000, 6000, 7000, 8000]
    events = launch(event, 0, 5)
    for n, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        events.append(
            event(f"ProfilerStep#{n}", begin, end - begin, cat="user_annotation")
        )
        events += launch(event, (begin + end) // 2, 5)
    (finding,) = found("warm-up", events)
    assert finding.at_stake_ns == 1000 * (2500 + 5 - 15 + 2500 - 15)
    assert finding.text.endswith(
        "for warm-up, all of it in the first step. Other findings exclude this time."
    )
    (late,) = found("host-bound", events)
    assert late.at_stake_ns == 1000 * (500 + 2 * (1000 - 15))
    assert "excluding the warm-up" in late.text


@pytest.mark.parametrize("name", ["cudaStreamBeginCapture", "hipStreamBeginCapture"])
def test_the_capture_of_a_graph_is_no_advice_to_capture_graphs(
    found: Ask, event: Make, name: str
) -> None:
    """From 100 to 900 us a graph is captured."""
    capture = [
        event(name, 100, 5, cat="cuda_runtime"),
        event("capture_model", 110, 700),
        event(name.replace("Begin", "End"), 890, 10, cat="cuda_runtime"),
    ]
    events = [*launch(event, 0, 5), *capture, *launch(event, 910, 5)]
    (finding,) = found("warm-up", events)
    assert finding.at_stake_ns == 800_000
    assert "graph capture" in finding.text
    (late,) = found("host-bound", events)
    assert late.at_stake_ns == 85_000 + 10_000
    without = [*launch(event, 0, 5), capture[1], *launch(event, 910, 5)]
    assert found("host-bound", without)[0].at_stake_ns == 895_000


def test_a_steady_program_has_none(found: Ask, event: Make) -> None:
    events = [one for n in range(10) for one in launch(event, 100 * n, 5)]
    assert found("warm-up", [*events, event("aten::mm", 0, 900)]) == []


TRIES = ("implicit_gemm", "winograd", "fft")


def searched(
    event: Make, launched: Make, begin: int, names: Sequence[str]
) -> list[Any]:
    """A convolution that launches each of these kernels, and waits for an event after
    it."""
    events = [event("aten::cudnn_convolution", begin, 60 * len(names))]
    for number, name in enumerate(names):
        ts = begin + 60 * number
        events += launched(1_000 + ts, ts + 5, ts + 10, dur=5, name=name)
        events.append(event("cudaEventSynchronize", ts + 8, 12, cat="cuda_runtime"))
    return events


def test_a_search_for_algorithms_is_warm_up(
    found: Ask, event: Make, launched: Make
) -> None:
    """The GPU runs 5 of each 60 us; the waits belong to the search, and drain no queue
    of the program."""
    events = [
        *launched(1, 0, 5),
        *searched(event, launched, 100, TRIES),
        *launched(2, 300, 305),
    ]
    (finding,) = found("warm-up", events)
    assert "convolution algorithm search" in finding.text
    assert found("drained-by-sync", events) == []


@pytest.mark.parametrize(
    "names",
    [("implicit_gemm",) * 3, ("implicit_gemm", "winograd")],
)
def test_waits_of_a_convolution_that_measures_nothing_are_no_search(
    found: Ask, event: Make, launched: Make, names: Sequence[str]
) -> None:
    """One algorithm several times, and fewer than three."""
    events = [
        *launched(1, 0, 5),
        *searched(event, launched, 100, names),
        *launched(2, 300, 305),
    ]
    assert not any("search for" in one.text for one in found("warm-up", events))


def test_a_search_in_a_later_step_recurs(
    found: Ask, event: Make, launched: Make
) -> None:
    steps = [
        event(f"ProfilerStep#{n}", 500 * n, 500, cat="user_annotation")
        for n in range(2)
    ]
    again = searched(event, launched, 600, TRIES)
    events = [*steps, *launched(1, 0, 5), *again, *launched(2, 900, 905)]
    assert not any("search for" in one.text for one in found("warm-up", events))


def test_a_first_op_is_named_for_what_its_launches_leave(
    found: Ask, event: Make
) -> None:
    """The first aten::mul takes 30 ms, of which 29 ms are a first launch; the first
    aten::add takes 5 ms, with an ordinary launch. Later ones take 20 us."""
    events = [*launch(event, 0, 5, "before")]
    events += [event("aten::mul", 100, 30_000), *launch(event, 200, 29_000, "mul")]
    events += [event("aten::add", 40_000, 5_000), *launch(event, 44_900, 5, "add")]
    for ts, name in ((46_000, "mul"), (47_000, "add")):
        events += [event(f"aten::{name}", ts, 20), *launch(event, ts + 5, 5, name)]
    (finding,) = found("warm-up", events)
    assert "in first op calls (mostly in 1 call to aten::add)" in finding.text


def test_an_op_inside_a_first_op_is_named(found: Ask, event: Make) -> None:
    """Of the 30 ms of aten::outer, aten::inner takes 28 ms; later both take less than
    50 us."""
    events = [
        *launch(event, 0, 5, "before"),
        *launch(event, 50_000, 5),
        *launch(event, 51_000, 5),
    ]
    for ts, outer, inner in ((20_005, 29_996, 28_000), (50_990, 40, 20)):
        events += [event("aten::outer", ts, outer), event("aten::inner", ts + 1, inner)]
    events += [launch_ for ts in (30_000, 51_000) for launch_ in launch(event, ts, 5)]
    (finding,) = found("warm-up", events)
    assert (
        "warm-up, all of it in first op calls (mostly in 1 call to aten::inner)"
        in finding.text
    )


def test_an_op_that_launches_nothing_is_named_with_the_first_op_around_it(
    found: Ask, event: Make
) -> None:
    """Of the 30 ms of the first aten::repeat, aten::arange takes 28 ms."""
    events = [
        *launch(event, 0, 5, "before"),
        *launch(event, 50_000, 5),
        *launch(event, 51_000, 5),
        event("aten::repeat", 20_005, 30_010),
        event("aten::arange", 21_000, 28_000),
        event("aten::repeat", 50_990, 40),
    ]
    (finding,) = found("warm-up", events)
    assert (
        "warm-up, all of it in first op calls (mostly in 1 call to aten::arange, in aten::repeat)"
        in finding.text
    )


@pytest.mark.parametrize(
    "call", ["cudaGetSymbolAddress", "cudaGetDeviceCount", "cudaGetFuncBySymbol"]
)
def test_the_first_use_of_a_symbol_or_device_is_warm_up(
    found: Ask, event: Make, call: str
) -> None:
    """6 ms, once, after most of the GPU events."""
    events = [one for n in range(10) for one in launch(event, 100 * n, 5)]
    events += [event(call, 1_000, 6_000, cat="cuda_runtime"), *launch(event, 7_100, 5)]
    (finding,) = found("warm-up", events)
    assert f"warm-up, all of it in setup calls (1 call to {call})" in finding.text


def test_calls_of_the_second_half_of_the_gpu_events_are_no_warm_up(
    found: Ask, event: Make
) -> None:
    """Without steps: of two cudaMalloc, one among the first and one among the last of
    forty events; cudaHostAlloc is called there once."""
    events = [one for n in range(40) for one in launch(event, 1_000 * n, 5)]
    for name, ts in (
        ("cudaMalloc", 1_100),
        ("cudaMalloc", 30_100),
        ("cudaHostAlloc", 31_100),
    ):
        events.append(event(name, ts, 800, cat="cuda_runtime"))
    (finding,) = found("warm-up", events)
    assert finding.at_stake_ns == 1_600_000
