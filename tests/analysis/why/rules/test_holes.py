"""GPU work that was not recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask

Make = Callable[..., Any]
Events = list[dict[str, Any]]


def lost(
    event: Make, ts: int, dur: int = 130, name: str = "cudaLaunchKernel"
) -> Events:
    """A launch call whose kernel was not recorded."""
    return [event(name, ts, dur, cat="cuda_runtime", args={"correlation": 1_000 + ts})]


def test_holes_reports_launch_calls_without_gpu_events(
    found: Ask, event: Make, launched: Make
) -> None:
    """Kernels at 10-20 and 500-510 us, and between their launches calls at 15, before
    that kernel has ended, and at 200 us: what they launched may have run from 20 us
    on."""
    calls = [*lost(event, 15, 124), *lost(event, 200, 133)]
    (finding,) = found("holes", [*launched(1, 0, 10), *calls, *launched(2, 400, 500)])
    assert finding.at_stake_ns == 480_000
    assert finding.text.startswith(
        "2 of 4 launch calls (cudaLaunchKernel, of 124 us to 133 us) have no GPU event"
    )


def test_calls_of_another_thread_or_beyond_the_events_are_silent(
    found: Ask, event: Make, launched: Make
) -> None:
    """The recording of the GPU may begin later than that of the CPU, and end before
    it."""
    work = [*launched(1, 300, 310), *launched(2, 400, 900)]
    other = [one | {"tid": 2} for one in lost(event, 350)]
    assert found("holes", [*lost(event, 0), *work, *lost(event, 950), *other]) == []


def test_a_graph_that_is_captured_is_silent(
    found: Ask, event: Make, launched: Make
) -> None:
    begin = event("cudaStreamBeginCapture_v10000", 20, 2, cat="cuda_runtime")
    end = event("cudaStreamEndCapture_v10000", 380, 2, cat="cuda_runtime")
    captured = [begin, *lost(event, 30), end]
    assert (
        found("holes", [*launched(1, 0, 10), *captured, *launched(2, 400, 500)]) == []
    )


def test_sets_of_no_length_and_calls_inside_of_calls_are_silent(
    found: Ask, event: Make, launched: Make
) -> None:
    """The runtime's launch has a correlation of its own; the event belongs to the
    driver's."""
    outer = event(
        "cudaLaunchKernel", 390, 30, cat="cuda_runtime", args={"correlation": 77}
    )
    empty = lost(event, 100, 1, "cudaMemsetAsync")
    assert (
        found("holes", [*launched(1, 0, 10), *empty, outer, *launched(2, 400, 500)])
        == []
    )


def test_events_without_a_call_may_be_theirs(
    found: Ask, event: Make, launched: Make
) -> None:
    stray = event("k", 450, 10, cat="kernel", pid=0, tid=7)
    assert (
        found("holes", [*launched(1, 0, 10), *lost(event, 50), *launched(2, 400, 500)])
        != []
    )
    assert not found(
        "holes", [*launched(1, 0, 10), *lost(event, 50), *launched(2, 400, 500), stray]
    )


def graph(event: Make, *starts: int) -> Events:
    """Nodes of 10 us of one replay."""
    args = {"correlation": 5}
    nodes = [event("k", ts, 10, cat="kernel", pid=0, tid=7, args=args) for ts in starts]
    return [event("cudaGraphLaunch", 0, 5, cat="cuda_runtime", args=args), *nodes]


def test_holes_reports_a_long_gap_between_nodes_of_a_graph(
    found: Ask, event: Make
) -> None:
    """2 ms between the first and the second."""
    (finding,) = found("holes", graph(event, 10, 2_020, 2_030, 2_900))
    assert finding.at_stake_ns == 2_000_000
    assert finding.certainty == "likely"


def test_a_long_gap_between_replays_is_silent(
    found: Ask, event: Make, launched: Make
) -> None:
    assert found("holes", [*graph(event, 10, 30), *launched(1, 40, 5_000)]) == []
