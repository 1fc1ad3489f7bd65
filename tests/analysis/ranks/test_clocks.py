"""Offsets of clocks: what synchronous collectives leave of them."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.ranks.made import US, answer_of, rank, verdict_of

from fusetui.analysis.questions.process_groups import ProcessGroup
from fusetui.analysis.ranks.answer import explained
from fusetui.analysis.ranks.clocks import estimate_clocks
from fusetui.analysis.ranks.matching import match_collectives
from fusetui.analysis.ranks.model import RankSummary
from fusetui.report.ranks_words import describe_clocks


def test_an_offset_is_the_middle_of_what_is_feasible() -> None:
    """Rank 1 is 500 us ahead. It starts at 10 where rank 0 starts at 0, and both end at
    30: o1 - o0 <= 530 - 0 and o1 - o0 >= 510 - 30, so 480 to 530."""
    a, b = rank(0, [(0, 30)]), rank(1, [(10, 30)], clock=500)
    clocks = estimate_clocks(match_collectives([a, b]))
    assert clocks.offset.tolist() == [0, 505 * US]
    assert clocks.uncertainty.tolist() == [0, 25 * US]
    assert not clocks.refused


def test_further_collectives_narrow_the_clock_offset() -> None:
    """The second one allows 495 to 520, the first 480 to 530."""
    a, b = rank(0, [(0, 30), (100, 120)]), rank(1, [(10, 30), (115, 120)], clock=500)
    clocks = estimate_clocks(match_collectives([a, b]))
    assert clocks.offset[1] == pytest.approx(507.5 * US)
    assert clocks.uncertainty[1] == pytest.approx(12.5 * US)


def test_a_bound_passes_through_groups() -> None:
    """Ranks 0 and 2 never meet: both meet rank 1. Each interval is 40 us wide."""
    first, second = ProcessGroup("a", (0, 1), 2), ProcessGroup("b", (1, 2), 2)
    a = rank(0, [(0, 20)], size=3, group=first)
    c = rank(2, [(50, 70)], size=3, group=second, clock=-300)
    b: RankSummary = rank(1, [(0, 20), (50, 70)], size=3, clock=700)
    group = b.collectives.group.copy()
    group[1] = 1
    b = replace(
        b, groups=(first, second), collectives=replace(b.collectives, group=group)
    )
    clocks = estimate_clocks(match_collectives([a, b, c]))
    assert clocks.reference == 1
    assert clocks.offset.tolist() == [-700 * US, 0, -1000 * US]
    assert clocks.uncertainty.tolist() == [20 * US, 0, 20 * US]


def test_only_synchronous_collectives_count() -> None:
    """A broadcast may end on its root before it starts elsewhere."""
    ranks = [rank(n, [(10 * n, 10 * n + 5)], "broadcast") for n in range(2)]
    clocks = estimate_clocks(match_collectives(ranks))
    assert clocks.uncertainty.tolist()[1] == float("inf")


def test_a_drift_is_found_from_both_ends() -> None:
    """Rank 1 gains 100 us a second over one second: 40 collectives, each of 10 us."""
    moments = [n * 25_000 for n in range(40)]
    a = rank(0, [(t, t + 10) for t in moments])
    b = rank(1, [(t * 1.0001 + 300, t * 1.0001 + 310) for t in moments])
    clocks = estimate_clocks(match_collectives([a, b]))
    assert clocks.drift[1] == pytest.approx(100 * US, rel=0.05)
    assert not clocks.refused
    on_common = clocks.to_common_clock(
        match_collectives([a, b]).rank, match_collectives([a, b]).start
    ).reshape(-1, 2)
    assert abs(on_common[:, 1] - on_common[:, 0]).max() <= clocks.uncertainty[1]


def test_times_that_no_clock_offset_explains_are_reported() -> None:
    """Rank 1 ends before rank 0 starts, once in either direction."""
    a, b = rank(0, [(0, 10), (200, 210)]), rank(1, [(100, 110), (100, 110)])
    refused = estimate_clocks(match_collectives([a, b])).refused
    assert "clocks contradict each other. Neither clock offsets nor drifts" in refused
    assert "drifts of up to 200 us per second" in refused


def test_ranks_of_one_machine_have_one_clock() -> None:
    """Then the order of starts is known, however long the collectives are."""
    a, b = rank(0, [(0, 900)], host="node1"), rank(1, [(400, 901)], host="node1")
    clocks = estimate_clocks(match_collectives([a, b]))
    assert clocks.shared == "all ranks ran on one machine"
    assert clocks.offset.tolist() == [0, 0]
    assert clocks.resolution == 2 * US  # although the ends are 1 us apart


@pytest.mark.parametrize(("later_us", "is_decided"), [(1.9, False), (2.1, True)])
def test_who_is_last_on_one_host_is_decided_above_two_microseconds(
    later_us: float, is_decided: bool
) -> None:
    """However closely the ends of collectives agree: here all end at once."""
    ranks = [rank(n, [(10 + later_us * n, 30)], host="node1") for n in range(2)]
    answer = answer_of(ranks)
    assert answer.clocks.on_one_host_ns == 2 * US
    assert answer.untold == (0 if is_decided else 1)
    assert (
        "Differences of up to 2 us are too small to show which rank arrives last."
    ) in describe_clocks(answer)


def test_times_that_contradict_each_other_a_little_decide_less() -> None:
    """Rank 0 ends a collective 5 us before rank 1 starts it: only 6 us decide."""
    contradiction = ((10, 30), (35, 40))
    for later_us, is_decided in ((4, False), (6, True)):
        ranks = [
            rank(n, [contradiction[n], (100 + later_us * n, 130)], host="node1")
            for n in range(2)
        ]
        answer = answer_of(ranks)
        assert answer.clocks.on_one_host_ns == 5 * US
        last_rank = explained(ranks).facts.waits.last_rank[1]
        assert (last_rank == 1) == is_decided


def test_no_limit_of_one_host_where_each_rank_has_its_own() -> None:
    ranks = [rank(n, [(10 + n, 30)], host=f"node{n}") for n in range(2)]
    answer = answer_of(ranks)
    assert answer.clocks.on_one_host_ns is None
    assert "do not decide" not in describe_clocks(answer)


def test_with_several_hosts_the_limit_is_that_of_one_host() -> None:
    assert (
        "Differences of up to 2 us on one machine are too small to show which rank "
        "arrives last."
    ) in describe_clocks(answer_of(two_hosts(5000)))


def test_times_of_one_host_that_contradict_each_other_are_refused() -> None:
    """Stretching the clocks of one host would name a rank, and most likely a wrong
    one."""
    a, b = rank(0, [(0, 30)], host="node1"), rank(1, [(500, 530)], host="node1")
    answer = answer_of([a, b])
    assert not answer.clocks.feasible
    assert ", both on machine node1. Either collectives are" in answer.clocks.refused
    assert (answer.stragglers, verdict_of(answer)) == ((), ())
    # nothing that compares two ranks
    assert [row.waited_ns for row in answer.ranks] == [0, 0]
    assert describe_clocks(answer).startswith(
        "It is unclear which rank waits for which, because one all_reduce ends"
    )


def two_hosts(
    clock: float, drift: float = 0.0, noise: float = 5.0, every: float = 2000.0
) -> list[RankSummary]:
    """Two ranks on each; host b's clock is ahead, and gains `drift` (us per us). A
    collective `every` so many us lasts 1 ms; ends differ by some us. Rank 2 starts 300
    us later than the others."""
    ends = [(every * n + 1000, every * n + 1000 + noise * (n % 3)) for n in range(40)]
    ranks = []
    for number in range(4):
        times = []
        for here, there in ends:
            start, end = (
                here - 1000 + 300 * (number == 2),
                here if number < 2 else there,
            )
            late = clock + drift * start if number > 1 else 0.0
            times.append((start + late, end + late))
        ranks.append(rank(number, times, size=4, host="ab"[number // 2]))
    return ranks


@pytest.mark.parametrize("clock", [0, 200, -1000, 5000])
def test_ends_tell_the_offset_of_a_host(clock: float) -> None:
    """The bounds alone leave 700 us; the ends of half of the collectives agree to 5
    us."""
    clocks = estimate_clocks(match_collectives(two_hosts(clock)))
    assert clocks.offset_sources == ("reference", "ends")
    assert clocks.offset[2] == clocks.offset[3] == pytest.approx((clock + 5) * US)
    assert clocks.uncertainty.tolist()[:2] == [0, 0]
    assert clocks.uncertainty[2] == pytest.approx(1.4826 * 5 * US)


def test_with_two_hosts_the_straggler_has_a_name() -> None:
    """300 us in each of 40 collectives, less what the clock is off by; the wait for it
    on its own host is exact."""
    answer = answer_of(two_hosts(5000))
    assert [one.rank for one in answer.stragglers] == [2]
    assert answer.stragglers[0].caused_ns == pytest.approx(40 * 300 * US, rel=0.02)
    assert (
        "The clocks of 2 machines are aligned, by the ends of collectives,"
        in describe_clocks(answer)
    )
    assert answer.kinds[0].bus_bytes_per_s is not None


def test_the_drift_of_a_host_is_a_robust_line() -> None:
    """100 us a second over 20 s are more than the 1,700 us that the bounds leave; two
    wild ends of forty do not move the line."""
    ranks = two_hosts(1000, drift=100e-6, every=500_000)
    end = ranks[2].collectives.end.copy()
    end[[3, 30]] += 5000 * US
    ranks[2] = replace(ranks[2], collectives=replace(ranks[2].collectives, end=end))
    answer = answer_of(ranks)
    assert answer.clocks.hosts[1].drift_ns_per_s == pytest.approx(100 * US, rel=0.05)
    assert (
        "are corrected for clock drift on b, by 99.49 us per second: no "
        "constant offset explains all collectives. Differences"
    ) in describe_clocks(answer)


def test_constant_offset_that_satisfies_every_bound_means_no_drift() -> None:
    """The ends of host b are 312 us later at the end of the recording than at its
    begin, as noise of the network may do: within what the bounds leave."""
    ranks = two_hosts(0, noise=0)
    later = (8 * US * (np.arange(40) - 19.5)).astype(np.int64)
    for number in (2, 3):
        columns = ranks[number].collectives
        ranks[number] = replace(
            ranks[number], collectives=replace(columns, end=columns.end + later)
        )
    answer = answer_of(ranks)
    clocks = estimate_clocks(match_collectives(ranks))
    assert not clocks.drift.any()
    assert abs(clocks.offset[2]) <= clocks.uncertainty[2]  # the true offset is 0
    assert "drift" not in describe_clocks(answer)


def test_a_drift_that_no_clock_has_is_a_contradiction() -> None:
    """40,000 us a second explain all collectives, but clocks are not that bad."""
    answer = answer_of(two_hosts(1000, drift=0.04))
    assert "the clocks contradict each other" in answer.clocks.refused
    assert not answer.clocks.feasible
    assert answer.stragglers == ()


def test_ends_outside_the_bounds_are_not_believed() -> None:
    """On host b every end is recorded 900 us late, and one short collective bounds the
    clock to 20 us: then the bounds alone count, and that is said."""
    a = [(2000 * n, 2000 * n + 1000) for n in range(9)]
    b = [(start, end + 900) for start, end in a]
    short = (20_000, 20_020)
    ranks = [rank(0, [*a, short], host="a"), rank(1, [*b, short], host="b")]
    answer = answer_of(ranks)
    assert [one.contradicted for one in answer.clocks.hosts] == [False, True]
    assert answer.clocks.uncertainty_ns == 20 * US
    assert "Collective end times on b contradict the bounds" in describe_clocks(answer)


def test_hosts_are_guessed_from_the_devices_of_a_machine() -> None:
    """Four ranks on machines of two devices each; said, and dropped where times
    contradict it."""
    ranks = [rank(n, [(0, 30)], size=4, devices=2, device=n % 2) for n in range(4)]
    answer = answer_of(ranks)
    assert [one.ranks for one in answer.clocks.hosts] == [2, 2]
    assert "each machine has 2 devices" in describe_clocks(answer)
    moved = rank(1, [(500, 530)], size=4, devices=2, device=1)
    answer = answer_of([ranks[0], moved, *ranks[2:]])
    assert ([one.ranks for one in answer.clocks.hosts], answer.clocks.refused) == (
        [1] * 4,
        "",
    )


def test_a_machine_that_lists_as_many_devices_as_there_are_ranks() -> None:
    ranks = [rank(n, [(n, 20)], devices=2, device=n) for n in range(2)]
    assert estimate_clocks(match_collectives(ranks)).shared
    other = [rank(n, [(n, 20)], devices=2, device=0) for n in range(2)]
    assert not estimate_clocks(match_collectives(other)).shared
