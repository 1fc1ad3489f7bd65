"""Memory is allocated and freed in the middle of the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask

Make = Callable[..., Any]


def steps(event: Make) -> list[dict[str, Any]]:
    return [
        event(f"ProfilerStep#{n}", n * 100, 100, cat="user_annotation")
        for n in range(4)
    ]


def freeing(event: Make, ts: int) -> dict[str, Any]:
    found: dict[str, Any] = event("cudaFree", ts, 60, cat="cuda_runtime")
    return found


def frees(event: Make, launched: Make, *starts: int) -> list[dict[str, Any]]:
    """Work in the second and the last step, and frees between it while the GPU
    waits."""
    work = [*launched(1, 100, 105), *launched(2, 390, 395)]
    return [*work, *(freeing(event, ts) for ts in starts)]


def test_allocation_reports_gaps_that_wait_for_cuda_free(
    found: Ask, event: Make, launched: Make
) -> None:
    (finding,) = found("allocation", [*steps(event), *frees(event, launched, 120, 220)])
    assert finding.at_stake_ns == 120_000
    assert "mostly in 2 calls to cudaFree" in finding.text


def test_frees_in_one_of_three_steps_are_no_finding(
    found: Ask, event: Make, launched: Make
) -> None:
    """Two of three steps do so regularly; one does it once, however often."""
    assert found("allocation", [*steps(event), *frees(event, launched, 120, 130)]) == []


def test_the_first_step_may_allocate(found: Ask, event: Make, launched: Make) -> None:
    work = [*launched(1, 0, 5), freeing(event, 20), *launched(2, 390, 395)]
    assert found("allocation", [*steps(event), *work]) == []


def test_a_call_that_allocates_in_one_step_alone_does_not_count(
    found: Ask, event: Make, launched: Make
) -> None:
    """Of two calls per step, one name is called in one step only."""
    once = {**freeing(event, 320), "name": "cudaHostAlloc"}
    events = [*steps(event), *frees(event, launched, 120, 220), once]
    (finding,) = found("allocation", events)
    assert finding.at_stake_ns == 120_000


def test_many_calls_are_no_work_of_a_caching_allocator(
    found: Ask, event: Make, launched: Make
) -> None:
    """Of thirty GPU events: four frees are too many for it, two are not, nor are
    allocations, which only let it grow."""
    work = frees(event, launched)
    work += [one for n in range(28) for one in launched(10 + n, 0, 5 + n)]
    kept = "Let the caching allocator"
    for name, calls, first in (
        ("cudaFree", 4, "Look for PYTORCH_NO_CUDA_MEMORY_CACHING in"),
        ("cudaFree", 2, kept),
        ("cudaMalloc", 4, "Run each shape on each stream before recording"),
    ):
        more = [
            {**freeing(event, 120 + 100 * (n % 2)), "name": name} for n in range(calls)
        ]
        (finding,) = found("allocation", [*steps(event), *work, *more])
        assert finding.try_ is not None
        assert finding.try_.startswith(first)


def evenly(
    event: Make, launched: Make, names: list[str], kernels: int = 10
) -> list[dict[str, Any]]:
    """No steps: a kernel each 100 us, and calls of 60 us between them, so that the GPU
    waits for each but the first one."""
    work = [
        one for n in range(kernels) for one in launched(1 + n, 100 * n, 100 * n + 5)
    ]
    apart = kernels // len(names)
    return work + [
        {**freeing(event, 100 * apart * n + 30), "name": name}
        for n, name in enumerate(names)
    ]


def test_an_allocation_in_the_second_half_of_the_gpu_events_is_no_warm_up(
    found: Ask, event: Make, launched: Make
) -> None:
    """Of two calls, one lies in the second half of ten GPU events, which have no
    steps."""
    events = evenly(event, launched, ["cudaMalloc", "cudaMalloc"])
    (finding,) = found("allocation", events)
    assert finding.at_stake_ns == 120_000
    assert "mostly in 2 calls to cudaMalloc" in finding.text
    assert finding.why_likely is not None
    assert found("warm-up", events) == []


def test_allocations_that_end_in_the_first_half_of_the_gpu_events_are_no_finding(
    found: Ask, event: Make, launched: Make
) -> None:
    events = evenly(event, launched, ["cudaMalloc", "cudaFree"])
    assert found("allocation", events) == []


def test_few_calls_among_many_gpu_events_do_not_go_on(
    found: Ask, event: Make, launched: Make
) -> None:
    """One call for the twenty GPU events of the second half."""
    events = evenly(event, launched, ["cudaMalloc", "cudaMalloc"], kernels=40)
    assert found("allocation", events) == []


def test_calls_that_no_gap_waits_for_are_not_counted(
    found: Ask, event: Make, launched: Make
) -> None:
    """A third call, before the first GPU event."""
    events = evenly(event, launched, ["cudaMalloc", "cudaMalloc"])
    before = {**freeing(event, -100), "name": "cudaMalloc"}
    (finding,) = found("allocation", [*events, before])
    assert "mostly in 2 calls to cudaMalloc" in finding.text
