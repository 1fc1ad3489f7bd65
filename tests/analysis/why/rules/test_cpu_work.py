"""The CPU does something else than launching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask, Lack

Make = Callable[..., Any]


def test_one_long_gap_is_not_for_want_of_graphs(found: Ask, event: Make, launched: Make) -> None:
    """Of the gap from 15 to 217,000 us one op, which decodes a video, takes 216 ms."""
    events = [
        *launched(1, 0, 5),
        event("torchcodec::get_frames", 500, 216_000),
        *launched(2, 216_995, 217_000),
    ]
    (finding,) = found("cpu-work", events)
    assert finding.at_stake_ns == 216_980_000
    assert "in 1 gap of more than 5 ms while the CPU launches nothing for it" in finding.text
    assert "216 ms in ops, mostly torchcodec::get_frames (1 x, 216 ms)" in finding.text
    assert finding.try_ is not None
    assert "Graphs do not help" in finding.try_
    assert found("host-bound", events) == []


def test_many_ops_in_a_gap_are_the_way_to_a_launch(found: Ask, event: Make, launched: Make) -> None:
    """100 ops of 100 us each: the CPU is slow, but does nothing else."""
    ops = [event("aten::view", 100 * n, 100) for n in range(100)]
    events = [*launched(1, 0, 5), *ops, *launched(2, 10_000, 10_005)]
    assert found("cpu-work", events) == []
    (finding,) = found("host-bound", events)
    assert "mostly aten::view (100 x, 9.985 ms)" in finding.text


def test_the_wait_after_a_synchronization_is_part_of_it(
    found: Ask, event: Make, launched: Make
) -> None:
    wait = event("cudaStreamSynchronize", 3, 400, cat="cuda_runtime")
    events = [*launched(1, 0, 5), wait, event("work", 500, 9_000), *launched(2, 9_995, 10_000)]
    (finding,) = found("drained-by-sync", events)
    assert finding.part_of == "cpu-work"


def test_without_launches_it_cannot_tell(lacking: Lack, event: Make) -> None:
    kernels = [event("k", ts, 10, cat="kernel", pid=0, tid=7) for ts in (0, 9_000)]
    (lack,) = lacking("cpu-work", kernels)
    assert "launch calls" in lack.missing
