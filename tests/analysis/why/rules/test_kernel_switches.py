"""Short gaps before work that was queued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask

Make = Callable[..., Any]


def queued(launched: Make, gap: int) -> list[dict[str, Any]]:
    """30 kernels of 10 us that are all launched before the first one ends."""
    return [
        event
        for n in range(30)
        for event in launched(n, n // 10, 100 + n * (10 + gap), dur=10)
    ]


def test_kernel_switches_reports_short_gaps_before_queued_work(
    found: Ask, launched: Make
) -> None:
    """29 gaps of 2 us; no launch came into a gap, so nothing of them is launch
    latency."""
    (finding,) = found("kernel-switches", queued(launched, 2))
    assert finding.at_stake_ns == 29 * 2_000
    assert (
        "29 gaps of at most 10 us before queued work, 2 us on average." in finding.text
    )


def test_longer_gaps_are_something_else(found: Ask, launched: Make) -> None:
    assert found("kernel-switches", queued(launched, 12)) == []


def test_the_rest_of_a_wait_for_a_launch_is_no_switch(
    found: Ask, launched: Make
) -> None:
    """All is launched within gaps of 9 us: 4 us before it starts, which is usual, or
    8."""
    work = [
        event
        for n in range(30)
        for event in launched(n, 100 + n * 19 - (4 if n % 5 else 8), 100 + n * 19)
    ]
    assert found("kernel-switches", work) == []
