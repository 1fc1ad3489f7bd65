"""The least time of some work, by what bounds it."""

from __future__ import annotations

from fusetui.gpu.roofline.bounds import Limits


def test_memory_bounds_data_unless_it_may_come_from_the_cache() -> None:
    assert Limits(memory_ns=40, bound="memory").least_ns == 40
    assert Limits(memory_ns=40, bound="memory", cached=True).least_ns is None


def test_the_cache_does_not_lower_a_bound_by_compute() -> None:
    assert Limits(compute_ns=30, bound="compute").least_ns == 30
    assert Limits(compute_ns=30, bound="compute", cached=True).least_ns == 30
