"""Launch calls of more than 100 us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask

Make = Callable[..., Any]


def launch(
    event: Make, name: str, ts: int, dur: int, kernel_ts: int
) -> list[dict[str, Any]]:
    args = {"correlation": ts}
    return [
        event(name, ts, dur, cat="cuda_runtime", args=args),
        event("k", kernel_ts, 10, cat="kernel", pid=0, tid=7, args=args),
    ]


def test_slow_launches_reports_the_gap_during_a_launch_call(
    found: Ask, event: Make, launched: Make
) -> None:
    """The call of 400 us runs from 20 us on, its kernel starts at 415 us: 395 us of the
    gap."""
    slow = launch(event, "cudaLaunchKernel", 20, 400, 415)
    (finding,) = found("slow-launches", [*launched(1, 0, 5), *slow])
    assert finding.at_stake_ns == 395_000
    assert "inside one launch call of 400 us, cudaLaunchKernel." in finding.text


def test_a_graph_launch_is_silent(found: Ask, event: Make, launched: Make) -> None:
    slow = launch(event, "cudaGraphLaunch", 20, 400, 415)
    assert found("slow-launches", [*launched(1, 0, 5), *slow]) == []


def test_a_quick_launch_is_silent(found: Ask, event: Make, launched: Make) -> None:
    quick = launch(event, "cudaLaunchKernel", 20, 90, 110)
    assert found("slow-launches", [*launched(1, 0, 5), *quick]) == []
