"""Offsets of clocks: what synchronous collectives leave of them."""

from __future__ import annotations

import pytest
from tests.trace.ranks.made import US, rank

from fusetui.trace.questions.process_groups import Group
from fusetui.trace.ranks.clocks import clocks_of
from fusetui.trace.ranks.matching import match
from fusetui.trace.ranks.model import RankSummary


def test_an_offset_is_the_middle_of_what_is_feasible() -> None:
    """Rank 1 is 500 us ahead. It starts at 10 where rank 0 starts at 0, and both end at 30:
    o1 - o0 <= 530 - 0 and o1 - o0 >= 510 - 30, so 480 to 530."""
    a, b = rank(0, [(0, 30)]), rank(1, [(10, 30)], clock=500)
    clocks = clocks_of(match([a, b]))
    assert clocks.offset.tolist() == [0, 505 * US]
    assert clocks.half.tolist() == [0, 25 * US]
    assert clocks.feasible


def test_more_collectives_narrow_it() -> None:
    """The second one allows 495 to 520, the first 480 to 530."""
    a, b = rank(0, [(0, 30), (100, 120)]), rank(1, [(10, 30), (115, 120)], clock=500)
    clocks = clocks_of(match([a, b]))
    assert clocks.offset[1] == pytest.approx(507.5 * US)
    assert clocks.half[1] == pytest.approx(12.5 * US)


def test_a_bound_passes_through_groups() -> None:
    """Ranks 0 and 2 never meet: both meet rank 1. Each interval is 40 us wide."""
    first, second = Group("a", (0, 1), 2), Group("b", (1, 2), 2)
    a = rank(0, [(0, 20)], size=3, group=first)
    c = rank(2, [(50, 70)], size=3, group=second, clock=-300)
    b: RankSummary = rank(1, [(0, 20), (50, 70)], size=3, clock=700)
    group = b.collectives.group.copy()
    group[1] = 1
    from msgspec.structs import replace

    b = replace(b, groups=(first, second), collectives=replace(b.collectives, group=group))
    clocks = clocks_of(match([a, b, c]))
    assert clocks.reference == 1
    assert clocks.offset.tolist() == [-700 * US, 0, -1000 * US]
    assert clocks.half.tolist() == [20 * US, 0, 20 * US]


def test_only_synchronous_collectives_count() -> None:
    """A broadcast may end on its root before it starts elsewhere."""
    ranks = [rank(n, [(10 * n, 10 * n + 5)], "broadcast") for n in range(2)]
    clocks = clocks_of(match(ranks))
    assert clocks.half.tolist()[1] == float("inf")


def test_a_drift_is_found_from_both_ends() -> None:
    """Rank 1 gains 100 us a second over one second: 40 collectives, each of 10 us."""
    moments = [n * 25_000 for n in range(40)]
    a = rank(0, [(t, t + 10) for t in moments])
    b = rank(1, [(t * 1.0001 + 300, t * 1.0001 + 310) for t in moments])
    clocks = clocks_of(match([a, b]))
    assert clocks.drift[1] == pytest.approx(100 * US, rel=0.05)
    assert clocks.feasible
    on_common = clocks.common(match([a, b]).rank, match([a, b]).start).reshape(-1, 2)
    assert abs(on_common[:, 1] - on_common[:, 0]).max() <= clocks.half[1]


def test_what_no_offset_explains_is_said() -> None:
    """Rank 1 ends before rank 0 starts, once in either direction."""
    a, b = rank(0, [(0, 10), (200, 210)]), rank(1, [(100, 110), (100, 110)])
    assert not clocks_of(match([a, b])).feasible


def test_ranks_of_one_host_share_a_clock() -> None:
    """Then the order of starts is known, however long the collectives are."""
    a, b = rank(0, [(0, 900)], host="node1"), rank(1, [(400, 901)], host="node1")
    clocks = clocks_of(match([a, b]))
    assert clocks.shared == "all ranks ran on one host"
    assert clocks.used.tolist() == [0, 0]
    assert clocks.resolution == 1 * US  # the ends are 1 us apart


def test_one_host_whose_times_contradict_that_has_no_common_clock() -> None:
    a, b = rank(0, [(0, 30)], host="node1"), rank(1, [(0, 30)], host="node1", clock=500)
    clocks = clocks_of(match([a, b]))
    assert (clocks.shared, clocks.offset[1]) == ("", 500 * US)


def test_a_machine_that_lists_as_many_devices_as_there_are_ranks() -> None:
    ranks = [rank(n, [(n, 20)], devices=2, device=n) for n in range(2)]
    assert clocks_of(match(ranks)).shared
    other = [rank(n, [(n, 20)], devices=2, device=0) for n in range(2)]
    assert not clocks_of(match(other)).shared
