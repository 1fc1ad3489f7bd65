"""Which collective is which: by number, by sequence, from the end of the step inwards,
by peer."""

from __future__ import annotations

import itertools

import numpy as np
from msgspec.structs import replace
from tests.analysis.ranks.made import rank

from fusetui.analysis.questions.process_groups import ProcessGroup
from fusetui.analysis.ranks.matching import Matched, match_collectives
from fusetui.analysis.ranks.model import RankSummary


def together(matched: Matched) -> list[dict[int, int]]:
    """Of each collective: rank -> number of the collective there."""
    bounds = matched.first.tolist()
    return [
        dict(zip(matched.rank[a:b].tolist(), matched.row[a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(bounds)
    ]


def with_sequence(one: RankSummary, numbers: list[int]) -> RankSummary:
    return replace(
        one, collectives=replace(one.collectives, sequence=np.array(numbers))
    )


def test_the_nth_of_a_name_is_the_same_on_all_ranks() -> None:
    names = ["all_reduce", "all_gather", "all_reduce"]
    times = [(0, 5), (10, 15), (20, 25)]
    found = match_collectives([rank(0, times, names), rank(1, times, names)])
    assert together(found) == [{0: 0, 1: 0}, {0: 1, 1: 1}, {0: 2, 1: 2}]
    assert found.names == ("all_reduce", "all_gather", "all_reduce")
    assert found.unmatched.tolist() == [0, 0]


def test_groups_are_kept_apart() -> None:
    """Ranks 0 and 1 are one group, 2 and 3 another of the same name."""
    pair, other = ProcessGroup("tp", (0, 1), 2), ProcessGroup("tp", (2, 3), 2)
    ranks = [
        rank(n, [(0, 5)], size=4, group=pair if n < 2 else other) for n in range(4)
    ]
    assert together(match_collectives(ranks)) == [{0: 0, 1: 0}, {2: 0, 3: 0}]


def test_counts_that_disagree_are_matched_from_the_end_of_each_step() -> None:
    """Rank 1 recorded two of the three collectives of step 0, and one of one of step
    1."""
    steps = [(0, 100), (100, 200)]
    a = rank(0, [(10, 15), (20, 25), (30, 35), (110, 115)], steps=steps)
    b = rank(1, [(20, 25), (30, 35), (110, 115)], steps=steps)
    found = match_collectives([a, b])
    assert together(found) == [{0: 1, 1: 0}, {0: 2, 1: 1}, {0: 3, 1: 2}]
    assert found.unmatched.tolist() == [1, 0]


def test_behind_the_last_step_collectives_are_matched_from_its_end_on() -> None:
    """The recording of rank 1 ended earlier, within a step that has no end in the
    trace."""
    steps = [(0, 100)]
    a = rank(0, [(10, 15), (110, 115), (120, 125), (130, 135)], steps=steps)
    b = rank(1, [(10, 15), (110, 115), (120, 125)], steps=steps)
    found = match_collectives([a, b])
    assert together(found) == [{0: 0, 1: 0}, {0: 1, 1: 1}, {0: 2, 1: 2}]
    assert found.unmatched.tolist() == [1, 0]


def test_recorded_sequence_numbers_decide_where_counts_disagree() -> None:
    """By the end of the step, 5 would be matched with 4."""
    a = with_sequence(rank(0, [(10, 15), (20, 25), (30, 35)]), [3, 4, 5])
    b = with_sequence(rank(1, [(10, 15), (20, 25)]), [3, 4])
    found = match_collectives([a, b])
    assert together(found) == [{0: 0, 1: 0}, {0: 1, 1: 1}]
    assert found.unmatched.tolist() == [1, 0]


def test_a_damaged_rank_with_another_count_is_not_matched() -> None:
    """What is missing of it may be missing anywhere."""
    whole = [rank(n, [(10, 15), (20, 25)], size=3) for n in range(2)]
    cut = rank(2, [(20, 25)], size=3, damage=("the file is truncated",))
    found = match_collectives([*whole, cut])
    assert together(found) == [{0: 0, 1: 0}, {0: 1, 1: 1}]
    assert found.unmatched.tolist() == [0, 0, 1]


def test_sends_and_receives_are_matched_by_peer_and_order() -> None:
    """Rank 0 sends to 1 and to 2; each receives one."""
    sender = rank(0, [(0, 5), (10, 15)], "send", size=3)
    sender = replace(
        sender, collectives=replace(sender.collectives, peer=np.array([2, 1]))
    )
    receivers = [rank(n, [(0, 20)], "recv", size=3) for n in (1, 2)]
    receivers = [
        replace(one, collectives=replace(one.collectives, peer=np.array([0])))
        for one in receivers
    ]
    found = match_collectives([sender, *receivers])
    assert {frozenset(one.items()) for one in together(found)} == {
        frozenset({(0, 0), (2, 0)}),
        frozenset({(0, 1), (1, 0)}),
    }


def test_group_of_one_rank_matches_nothing() -> None:
    alone = ProcessGroup("dp", (0,), 1)
    found = match_collectives([rank(0, [(0, 5)], group=alone), rank(1)])
    assert len(found) == 0
    assert found.unmatched.tolist() == [0, 0]
