"""The queue runs dry behind a synchronization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask

Make = Callable[..., Any]


def test_it_speaks(found: Ask, event: Make, launched: Make) -> None:
    """The gap 105-155 us begins while the program waits; its launch comes at 150 us."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("aten::item", 10, 100),
        event("cudaStreamSynchronize", 11, 96, cat="cuda_runtime"),
        *launched(2, 150, 155, dur=100),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == 45_000 - 2_000  # less the end of the wait itself
    assert "1 time while the CPU waits for the GPU in cudaStreamSynchronize (aten::item)" in (
        finding.text
    )
    assert finding.part_of == "host-bound"


def test_no_more_is_lost_than_was_waited(found: Ask, event: Make, launched: Make) -> None:
    """The gap 105-205 us begins in a wait of 20 us; a program as slow would lose 80 us anyway."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("cudaStreamSynchronize", 87, 20, cat="cuda_runtime"),
        *launched(2, 200, 205),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == 20_000
    assert "the GPU then waits 93 us for launches" in finding.text


def test_the_lost_lead_counts_until_three_launches_are_queued(
    found: Ask, event: Make, launched: Make
) -> None:
    """Gaps 105-125 us after a wait, then 135-155 us: nothing was queued meanwhile."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("cudaDeviceSynchronize", 8, 99, cat="cuda_runtime"),
        *launched(2, 120, 125),
        *launched(3, 150, 155),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == (120 - 107) * 1_000 + (150 - 135) * 1_000


def test_a_lead_that_is_there_again_ends_it(found: Ask, event: Make, launched: Make) -> None:
    """Four launches at 120 us and on: three wait in the queue when the first of them starts."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("cudaDeviceSynchronize", 8, 99, cat="cuda_runtime"),
        *(part for n in range(4) for part in launched(2 + n, 120 + n, 125 + 10 * n)),
        *launched(9, 290, 295),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == (120 - 107) * 1_000


def test_a_gap_without_a_wait_is_silent(found: Ask, launched: Make) -> None:
    assert found("drained-by-sync", [*launched(1, 0, 5), *launched(2, 90, 95)]) == []
