"""Long kernels that leave multiprocessors without a block."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Ask, Lack
from .work import A100, ADD, ROWS, SGEMM, Event, search, tried, work

NORM = "void at::native::batch_norm_backward_kernel<float, float, float, int>()"


def kernel(blocks: int, dur: int, **more: Any) -> list[Event]:
    """One kernel with so many blocks."""
    events = work(("aten::batch_norm_backward", NORM, dur))
    events[-1]["args"] |= {"grid": [blocks, 1, 1], "block": [512, 1, 1]}
    return [*events, *more.get("others", ())]


def test_few_blocks_reports_half_of_the_multiprocessors_as_unused(found: Ask) -> None:
    """54 blocks on 108 multiprocessors: half of them have none."""
    (finding,) = found("few-blocks", kernel(54, 100), **A100)
    assert finding.at_stake_ns == 50_000
    assert "54 blocks on 108 multiprocessors in" in finding.text


def test_the_kernel_with_the_most_time_is_named(found: Ask) -> None:
    """Two norms of 60 us, with 54 and 27 blocks, before a longer kernel of 100 us."""
    events = work(*[("op", NORM, 60)] * 2, ("op", "void mine::slow<int, 4>(int*)", 100))
    for place, blocks in ((2, 54), (5, 27), (8, 54)):
        events[place]["args"] |= {"grid": [blocks, 1, 1], "block": [512, 1, 1]}
    (finding,) = found("few-blocks", events, **A100)
    assert finding.at_stake_ns == 30_000 + 45_000 + 50_000
    assert (
        "27 to 54 blocks on 108 multiprocessors in 2 x batch_norm_backward"
    ) in finding.text


def test_a_kernel_that_no_grammar_reads_is_named_too(found: Ask) -> None:
    events = kernel(54, 100)
    events[-1]["name"] = "void mine::slow_kernel<int, 4>(int*)"
    (finding,) = found("few-blocks", events, **A100)
    assert "54 blocks on 108 multiprocessors in mine::slow_kernel." in finding.text


def test_the_remedy_is_for_the_work(found: Ask) -> None:
    """Split-K is for products, channels_last for batch norms."""
    for name, part in (
        (NORM, "channels_last"),
        (SGEMM, "split-K"),
        ("mine", "another"),
    ):
        events = kernel(54, 100)
        events[-1]["name"] = name
        (finding,) = found("few-blocks", events, **A100)
        assert finding.try_ is not None
        assert [
            one
            for one in ("channels_last", "split-K", "this op")
            if one in finding.try_
        ] == [part.replace("another", "this op")]


def test_hip_may_record_the_grid_in_threads(found: Ask) -> None:
    """54 blocks of 512 threads."""
    events = kernel(54 * 512, 100)
    events[1]["name"] = "hipExtModuleLaunchKernel"
    (finding,) = found("few-blocks", events, **A100)
    assert finding.at_stake_ns == 50_000


def test_enough_blocks_are_silent(found: Ask) -> None:
    assert found("few-blocks", kernel(108, 100), **A100) == []
    assert found("few-blocks", kernel(100, 100), **A100) == []


def test_a_short_kernel_is_silent(found: Ask) -> None:
    assert found("few-blocks", kernel(54, 19), **A100) == []


def test_a_kernel_beside_another_is_silent(found: Ask) -> None:
    other = {
        "ph": "X",
        "cat": "kernel",
        "name": ADD,
        "pid": 0,
        "tid": 9,
        "ts": 1_000,
        "dur": 9,
    }
    assert found("few-blocks", kernel(54, 100, others=[other]), **A100) == []


def test_few_blocks_is_silent_for_memory_bound_kernels(found: Ask) -> None:
    """Adding two tensors of 420 MB takes more than 600 us at 2 TB/s."""
    large = ROWS | {"Input Dims": [[10_240, 10_240]] * 2}
    events = work(("aten::add", ADD, 1_000), args=large)
    events[-1]["args"] |= {"grid": [54, 1, 1], "block": [512, 1, 1]}
    assert found("few-blocks", events, **A100) == []


def test_few_blocks_counts_no_more_than_the_bandwidth_allows(found: Ask) -> None:
    """Adding tensors of 420 MB takes 617.1 us at 2,039 GB/s; a quarter of 1.4 ms is
    less."""
    large = ROWS | {"Input Dims": [[10_240, 10_240]] * 2}
    events = work(("aten::add", ADD, 1_400), args=large)
    events[-1]["args"] |= {"grid": [27, 1, 1], "block": [512, 1, 1]}
    (finding,) = found("few-blocks", events, **A100)
    assert finding.at_stake_ns == pytest.approx(
        1_400_000 - 3 * 4 * 10_240**2 / 2_039, abs=1
    )
    assert "would save at most 782.9 us" in finding.text


def test_an_unknown_device_is_told(found: Ask, lacking: Lack) -> None:
    assert found("few-blocks", kernel(54, 100)) == []
    (lack,) = lacking("few-blocks", kernel(54, 100))
    assert lack.missing == "the number of multiprocessors"


def test_few_blocks_ignores_kernels_of_an_algorithm_search(
    found: Ask,
) -> None:
    """Three kernels on half of the multiprocessors are measured, and one of them then
    runs: it alone counts."""
    names = ("mine_a", "mine_b", "mine_c")
    tries = tried(names, 80, grid=[54, 1, 1], block=[512, 1, 1])
    (finding,) = found("few-blocks", search(0, tries, tries[:1]), **A100)
    assert finding.at_stake_ns == 40_000
    assert found("few-blocks", search(0, tries, []), **A100) == []
