"""Memory is allocated and freed in the middle of the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask

Make = Callable[..., Any]


def steps(event: Make) -> list[dict[str, Any]]:
    return [event(f"ProfilerStep#{n}", n * 100, 100, cat="user_annotation") for n in range(2)]


def freeing(event: Make, ts: int) -> dict[str, Any]:
    found: dict[str, Any] = event("cudaFree", ts, 60, cat="cuda_runtime")
    return found


def test_it_speaks(found: Ask, event: Make, launched: Make) -> None:
    work = [*launched(1, 100, 105), freeing(event, 120), *launched(2, 190, 195)]
    (finding,) = found("allocation", [*steps(event), *work])
    assert finding.at_stake_ns == 60_000
    assert "mostly in 1 x cudaFree" in finding.text


def test_the_first_step_may_allocate(found: Ask, event: Make, launched: Make) -> None:
    work = [*launched(1, 0, 5), freeing(event, 20), *launched(2, 90, 95)]
    assert found("allocation", [*steps(event), *work]) == []


def test_many_calls_are_no_work_of_a_caching_allocator(
    found: Ask, event: Make, launched: Make
) -> None:
    """Of twenty GPU events: two frees are too many for it, one is not, nor are two allocations."""
    work = [*launched(1, 100, 105), *launched(2, 190, 195)]
    work += [one for n in range(18) for one in launched(10 + n, 0, 5 + n)]
    kept = "Let the caching allocator"
    for name, calls, first in (
        ("cudaFree", 2, "So many frees mean"),
        ("cudaFree", 1, kept),
        ("cudaMalloc", 2, kept),
    ):
        more = [{**freeing(event, 120 - n), "name": name} for n in range(calls)]
        (finding,) = found("allocation", [*steps(event), *work, *more])
        assert finding.try_ is not None
        assert finding.try_.startswith(first)
