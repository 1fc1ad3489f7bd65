"""The queue runs dry behind a synchronisation."""

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


def test_the_lost_lead_counts_until_three_launches_are_queued(
    found: Ask, event: Make, launched: Make
) -> None:
    """Gaps 5-100 us after a wait, then 110-195 us: nothing was queued meanwhile."""
    events = [
        *launched(1, 0, 2, dur=3),
        event("cudaDeviceSynchronize", 3, 5, cat="cuda_runtime"),
        *launched(2, 95, 100),
        *launched(3, 190, 195),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == (95 - 8) * 1_000 + (190 - 110) * 1_000


def test_a_lead_that_is_there_again_ends_it(found: Ask, event: Make, launched: Make) -> None:
    """Four launches at 95 us and on: three of them wait in the queue when the first one starts."""
    events = [
        *launched(1, 0, 2, dur=3),
        event("cudaDeviceSynchronize", 3, 5, cat="cuda_runtime"),
        *(part for n in range(4) for part in launched(2 + n, 95 + n, 100 + 10 * n)),
        *launched(9, 290, 295),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == (95 - 8) * 1_000


def test_a_gap_without_a_wait_is_silent(found: Ask, launched: Make) -> None:
    assert found("drained-by-sync", [*launched(1, 0, 5), *launched(2, 90, 95)]) == []
