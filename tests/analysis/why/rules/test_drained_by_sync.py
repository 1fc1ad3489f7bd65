"""The queue runs dry behind a synchronization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Ask

Make = Callable[..., Any]


def test_drained_by_sync_reports_the_gap_behind_a_synchronization(
    found: Ask, event: Make, launched: Make
) -> None:
    """The gap 105-155 us begins while the program waits; its launch comes at 150 us."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("aten::item", 10, 100),
        event("cudaStreamSynchronize", 11, 96, cat="cuda_runtime"),
        *launched(2, 150, 155, dur=100),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == 45_000 - 2_000  # less the end of the wait itself
    assert "Waits in cudaStreamSynchronize (aten::item) drain the launch queue 1" in (
        finding.text
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
    assert "the GPU then sits idle for 93 us. Launching" in finding.text


def test_cpu_lead_that_one_wait_does_not_need_is_left_for_the_next(
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
    assert "the GPU then sits idle for 113 us. Launching" in finding.text
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
        "in cudaDeviceSynchronize and cudaStreamSynchronize drain the" in finding.text
    )


ENGINE = 2
"""The thread of autograd's engine."""


def of_engine(work: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**work[0], "tid": ENGINE}, *work[1:]]


@pytest.mark.parametrize("engines", [1, 2])
def test_the_lead_of_a_thread_is_that_of_the_engine_that_it_asks(
    found: Ask, event: Make, launched: Make, engines: int
) -> None:
    """Thread 1 waits for 97 us and loses 20 us; the engine, asked at 240 us, waits for
    18 us and loses 96 us. Without both waits it is asked 77 us earlier, and so has 95 us
    of lead; whether there is another engine beside it or not."""
    node = "autograd::engine::evaluate_function: MulBackward0"
    events = [
        event("aten::forward", 0, 230),
        *launched(1, 0, 5, dur=100),
        event("cudaStreamSynchronize", 10, 97, cat="cuda_runtime"),
        *launched(2, 127, 132, dur=130),
        *(event(node, 245, 155, tid=ENGINE + number) for number in range(engines)),
        event("cudaStreamSynchronize", 246, 18, cat="cuda_runtime", tid=ENGINE),
        *of_engine(launched(3, 360, 365)),
    ]
    (finding,) = found("drained-by-sync", events)
    assert "2 times" in finding.text
    assert "the GPU then sits idle for 116 us. Launching" in finding.text
    assert finding.at_stake_ns == 20_000 + 77_000 + 18_000


def test_the_lead_of_a_thread_is_not_that_of_another_one(
    found: Ask, event: Make, launched: Make
) -> None:
    """The same waits, but thread 2 runs no backward."""
    events = [
        event("aten::forward", 0, 230),
        *launched(1, 0, 5, dur=100),
        event("cudaStreamSynchronize", 10, 97, cat="cuda_runtime"),
        *launched(2, 127, 132, dur=130),
        event("aten::other", 245, 155, tid=ENGINE),
        event("cudaStreamSynchronize", 246, 18, cat="cuda_runtime", tid=ENGINE),
        *of_engine(launched(3, 360, 365)),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == 20_000 + 18_000


def test_a_wait_before_backward_is_asked_for_drains_the_queue(
    found: Ask, event: Make, launched: Make
) -> None:
    """Thread 1 reads a value while the kernel runs, and the engine launches the next
    one, 70 us after the kernel has ended."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("aten::item", 10, 100),
        event("cudaStreamSynchronize", 11, 96, cat="cuda_runtime"),
        event("autograd::engine::evaluate_function: MulBackward0", 130, 60, tid=ENGINE),
        *of_engine(launched(2, 175, 180)),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == (175 - 107) * 1_000
    assert "cudaStreamSynchronize (aten::item)" in finding.text


def test_a_wait_in_backward_drains_the_queue_of_the_optimizer(
    found: Ask, event: Make, launched: Make
) -> None:
    """The other way round: the engine waits, and thread 1 launches next."""
    events = [
        event("aten::forward", 0, 20),
        *of_engine(launched(1, 30, 35, dur=100)),
        event("autograd::engine::evaluate_function: MulBackward0", 25, 120, tid=ENGINE),
        event("cudaStreamSynchronize", 40, 97, cat="cuda_runtime", tid=ENGINE),
        event("aten::step", 150, 60),
        *launched(2, 190, 195),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == (190 - 137) * 1_000


def test_time_before_the_first_kernel_is_set_up(
    found: Ask, event: Make, launched: Make
) -> None:
    """Weights are copied, each copy is waited for, and the next one launched 60 us
    later; after the first kernel, at 205 us, likewise."""
    copies = [
        *launched(1, 0, 5, dur=20),
        event("cudaStreamSynchronize", 3, 24, cat="cuda_runtime"),
        *launched(2, 87, 92, dur=20),
        event("cudaStreamSynchronize", 90, 24, cat="cuda_runtime"),
    ]
    for copy in (copies[1], copies[4]):
        copy |= {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)"}
    first = launched(3, 200, 205, dur=20)
    assert found("drained-by-sync", [*copies, *first]) == []
    step = event("ProfilerStep#1", 0, 250, cat="user_annotation")
    assert len(found("drained-by-sync", [step, *copies, *first])) == 1
    later = [
        event("cudaStreamSynchronize", 203, 24, cat="cuda_runtime"),
        *launched(4, 287, 292),
    ]
    (finding,) = found("drained-by-sync", [*copies, *first, *later])
    assert finding.at_stake_ns == 24_000


def test_the_lead_of_set_up_is_no_lead_of_the_work(
    found: Ask, event: Make, launched: Make
) -> None:
    """A copy is waited for for 200 us before the first kernel; after that the CPU waits
    for 22 us, and loses 93 us."""
    copy = launched(1, 0, 5, dur=200)
    copy[1] |= {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)"}
    events = [
        *copy,
        event("cudaStreamSynchronize", 3, 205, cat="cuda_runtime"),
        *launched(2, 210, 215, dur=100),
        event("cudaStreamSynchronize", 295, 22, cat="cuda_runtime"),
        *launched(3, 410, 415),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == 22_000


def test_another_wait_while_the_queue_is_empty_begins_a_new_run(
    found: Ask, event: Make, launched: Make
) -> None:
    """The CPU waits for 97 us, and loses 13 us; in the next gap, from 135 us on, it
    waits again, for 2 us, and launches 28 us after that."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("cudaDeviceSynchronize", 10, 97, cat="cuda_runtime"),
        *launched(2, 120, 125),
        event("aten::item", 139, 4),
        event("cudaStreamSynchronize", 140, 2, cat="cuda_runtime"),
        *launched(3, 170, 175),
    ]
    (finding,) = found("drained-by-sync", events)
    assert "2 times" in finding.text
    assert "cudaStreamSynchronize (aten::item)" in finding.text


def test_a_wait_that_drains_nothing_ends_the_run(
    found: Ask, event: Make, launched: Make
) -> None:
    """After the wait that drained the queue, the CPU waits for an event of the kernel
    at 125 us while another one runs: what it loses after that is no loss of the first
    wait, as that wait would last longer."""
    events = [
        *launched(1, 0, 5, dur=100),
        event("cudaDeviceSynchronize", 10, 97, cat="cuda_runtime"),
        *launched(2, 120, 125, dur=60),
        event("cudaEventSynchronize", 130, 40, cat="cuda_runtime"),
        *launched(3, 260, 265),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.at_stake_ns == (120 - 107) * 1_000
    without = [one for one in events if one["name"] != "cudaEventSynchronize"]
    (finding,) = found("drained-by-sync", without)
    assert finding.at_stake_ns == (120 - 107) * 1_000 + (260 - 185) * 1_000
