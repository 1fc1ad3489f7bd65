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
    assert (
        "1 time while the CPU waits for the GPU in cudaStreamSynchronize (aten::item)"
        in (finding.text)
    )
    assert finding.part_of == "host-bound"


def test_no_more_is_lost_than_was_waited(
    found: Ask, event: Make, launched: Make
) -> None:
    """The gap 105-205 us begins in a wait of 20 us; a program as slow would lose 80 us
    anyway."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("cudaStreamSynchronize", 87, 20, cat="cuda_runtime"),
        *launched(2, 200, 205),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == 20_000
    assert "the GPU then waits 93 us for launches" in finding.text


def test_what_one_wait_does_not_need_is_left_for_the_next(
    found: Ask, event: Make, launched: Make
) -> None:
    """The first wait, of 97 us, loses 20 us; the second one, of 20 us, loses 93 us.
    Without both, the CPU is 117 us ahead, and the GPU waits for neither: whichever of
    them waits longer."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("cudaStreamSynchronize", 10, 97, cat="cuda_runtime"),
        *launched(2, 127, 132, dur=100),
        event("cudaStreamSynchronize", 214, 20, cat="cuda_runtime"),
        *launched(3, 327, 332),
    ]
    (finding,) = found("drained-by-sync", events)
    assert "2 times" in finding.text
    assert "the GPU then waits 113 us for launches" in finding.text
    assert finding.at_stake_ns == 20_000 + 93_000


def test_a_wait_is_left_for_no_loss_before_it(
    found: Ask, event: Make, launched: Make
) -> None:
    """The same the other way round: of the 93 us after the wait of 20 us, 73 us
    stay."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("cudaStreamSynchronize", 87, 20, cat="cuda_runtime"),
        *launched(2, 200, 205, dur=100),
        event("cudaStreamSynchronize", 210, 97, cat="cuda_runtime"),
        *launched(3, 327, 332),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == 20_000 + 20_000


def test_a_wait_counts_once_for_all_nodes_of_a_graph(
    found: Ask, event: Make, launched: Make
) -> None:
    """Gaps between the nodes of a graph begin while the CPU waits for the last of them:
    they are no waits before launches, and the 51 us count once."""
    nodes = [
        event("k", ts, 10, cat="kernel", pid=0, tid=7, args={"correlation": 2})
        for ts in (205, 225, 245)
    ]
    events = [
        *launched(1, 0, 5, dur=100),
        event("cudaStreamSynchronize", 87, 20, cat="cuda_runtime"),
        event("cudaGraphLaunch", 200, 2, cat="cuda_runtime", args={"correlation": 2}),
        *nodes,
        event("cudaStreamSynchronize", 206, 51, cat="cuda_runtime"),
        *launched(3, 327, 332),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == 20_000 + 51_000  # of 93 and 70


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


def test_a_lead_that_is_there_again_ends_it(
    found: Ask, event: Make, launched: Make
) -> None:
    """Four launches at 120 us and on: three wait in the queue when the first of them
    starts."""
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


def test_the_call_before_most_of_the_loss_is_named_too(
    found: Ask, event: Make, launched: Make
) -> None:
    """The first wait, of 20 us, loses 93 us; the second one, of 97 us, loses 43 us."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("cudaDeviceSynchronize", 87, 20, cat="cuda_runtime"),
        *launched(2, 200, 205, dur=100),
        event("cudaStreamSynchronize", 210, 97, cat="cuda_runtime"),
        *launched(3, 350, 355),
    ]
    (finding,) = found("drained-by-sync", events)
    assert (
        "in cudaDeviceSynchronize and cudaStreamSynchronize, and the GPU then"
        in finding.text
    )
