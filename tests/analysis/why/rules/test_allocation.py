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


def test_it_speaks(found: Ask, event: Make, launched: Make) -> None:
    (finding,) = found("allocation", [*steps(event), *frees(event, launched, 120, 220)])
    assert finding.at_stake_ns == 120_000
    assert "mostly in 2 x cudaFree" in finding.text


def test_one_step_may_allocate(found: Ask, event: Make, launched: Make) -> None:
    """Two of three steps do so regularly; one does it once, however often."""
    assert found("allocation", [*steps(event), *frees(event, launched, 120, 130)]) == []


def test_the_first_step_may_allocate(found: Ask, event: Make, launched: Make) -> None:
    work = [*launched(1, 0, 5), freeing(event, 20), *launched(2, 390, 395)]
    assert found("allocation", [*steps(event), *work]) == []


def test_each_call_must_recur_by_itself(
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
    allocations."""
    work = frees(event, launched)
    work += [one for n in range(28) for one in launched(10 + n, 0, 5 + n)]
    kept = "Let the caching allocator"
    for name, calls, first in (
        ("cudaFree", 4, "So many frees mean"),
        ("cudaFree", 2, kept),
        ("cudaMalloc", 4, kept),
    ):
        more = [
            {**freeing(event, 120 + 100 * (n % 2)), "name": name} for n in range(calls)
        ]
        (finding,) = found("allocation", [*steps(event), *work, *more])
        assert finding.try_ is not None
        assert finding.try_.startswith(first)
