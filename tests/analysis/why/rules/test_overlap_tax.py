"""Kernels that are slower while communication runs beside them."""

from __future__ import annotations

from .conftest import Ask
from .work import A100, ADD, ALL_REDUCE, ROWS, Event, work


def kernels(alone: int, beside: int, each: int = 5) -> list[Event]:
    """So many alone and then as many beside an all-reduce on another stream; durations
    in us."""
    durations = [alone] * each + [beside] * each
    events = work(*(("aten::add", ADD, dur) for dur in durations), args=ROWS)
    start = 1_000 + alone * each
    reduce = {"ph": "X", "cat": "kernel", "name": ALL_REDUCE, "pid": 0, "tid": 9}
    return [*events, reduce | {"ts": start, "dur": beside * each}]


def test_overlap_tax_reports_kernels_slower_beside_communication(found: Ask) -> None:
    """Five of 20 us alone, five of 31 us beside it."""
    (finding,) = found("overlap-tax", kernels(20, 31), **A100)
    assert finding.at_stake_ns == 5 * 11_000
    assert "5 kernels that overlap communication take 55 us" in finding.text
    assert finding.text.endswith("(55 % more) than the same kernels alone.")


def test_kernels_that_are_as_fast_are_silent(found: Ask) -> None:
    assert found("overlap-tax", kernels(20, 20), **A100) == []


def test_four_of_each_are_too_few(found: Ask) -> None:
    assert found("overlap-tax", kernels(20, 31, each=4), **A100) == []
