"""Who waits for whom, what collectives cost, and who stands out: sums by hand."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.ranks.made import US, answer_of, rank

from fusetui.analysis.questions.collectives import bus_factor
from fusetui.analysis.ranks.answer import explained, make_strip
from fusetui.analysis.ranks.clocks import Clocks, estimate_clocks
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.model import JobAnswer, RankRow, RankSummary
from fusetui.analysis.ranks.pipeline import mark_outliers, measure_balance
from fusetui.report.ranks_words import describe_longest_wait


def row(answer: JobAnswer, number: int) -> RankRow:
    return next(one for one in answer.ranks if one.rank == number)


def three() -> list[RankSummary]:
    """Rank 2 starts 60 us after rank 0 and 50 after rank 1, then 20 before both."""
    return [
        rank(0, [(0, 80), (120, 180)], size=3, host="h"),
        rank(1, [(10, 80), (120, 180)], size=3, host="h"),
        rank(2, [(60, 80), (100, 180)], size=3, host="h"),
    ]


def test_the_rank_that_starts_last_is_waited_for() -> None:
    """Rank 0 waits 60, rank 1 50: (60 + 50) / 2 = 55. In the second, ranks 0 and 1
    start together: which of them was last is not told, and rank 2 waits 20."""
    answer = answer_of(three())
    assert (row(answer, 2).last_count, row(answer, 2).caused_ns) == (1, 55 * US)
    assert [row(answer, n).waited_ns for n in range(3)] == [60 * US, 50 * US, 20 * US]
    assert answer.untold == 1
    assert answer.ranks[0].rank == 2  # sorted by what it causes


def test_the_longest_wait_of_a_rank() -> None:
    worst = row(answer_of(three()), 1).worst_wait
    assert worst is not None
    assert (worst.name, worst.start_ns, worst.wait_ns, worst.for_rank) == (
        *("all_reduce", 10 * US, 50 * US),
        2,
    )


def test_a_drift_that_rounds_to_nothing_has_no_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drifting(matched: Matched) -> Clocks:
        return replace(
            estimate_clocks(matched), drift=np.full(len(matched.ranks), -1e-6)
        )

    monkeypatch.setattr("fusetui.analysis.ranks.answer.estimate_clocks", drifting)
    assert {str(one.drift_ns_per_s) for one in answer_of(three()).ranks} == {"0.0"}


def test_a_rank_that_never_waits_has_no_longest_wait() -> None:
    """In both collectives rank 1 starts last."""
    ranks = [
        rank(0, [(0, 80), (120, 180)], host="h"),
        rank(1, [(50, 80), (150, 180)], host="h"),
    ]
    answer = answer_of(ranks)
    assert row(answer, 1).worst_wait is None
    assert not list(describe_longest_wait(row(answer, 1)))
    assert row(answer, 0).worst_wait is not None


def test_a_wait_is_no_longer_than_its_collective() -> None:
    """The root of a broadcast is done before rank 1 starts."""
    ranks = [
        rank(0, [(0, 5)], "broadcast", host="h"),
        rank(1, [(40, 50)], "broadcast", host="h"),
    ]
    assert row(answer_of(ranks), 0).waited_ns == 5 * US


def test_a_rank_that_has_nothing_to_compute_waits_no_longer_than_the_last_one_is_late() -> (
    None
):
    """Rank 2 starts 20 us after the others and computes through the collective, as rank
    1 does. Rank 0 pauses meanwhile: it waits 20 us for rank 2, and not the 480 us of
    the transfer."""
    ranks = []
    for number in range(3):
        late = 20 * (number == 2)
        one = rank(number, [(late, 500)], size=3, host="h")
        computed_ns = np.array([0 if number == 0 else (500 - late) * US])
        columns = replace(
            one.collectives,
            covered=computed_ns,
            stalled=one.collectives.stalled - computed_ns,
        )
        ranks.append(replace(one, collectives=columns))
    answer = answer_of(ranks)
    assert [row(answer, number).waited_ns for number in range(3)] == [20 * US, 0, 0]


def test_clocks_that_are_known_too_badly_do_not_tell_who_was_last() -> None:
    """Rank 1 starts 10 us later, but its clock is known to 45 us only."""
    ranks = [rank(0, [(0, 50)]), rank(1, [(10, 50)])]
    answer = answer_of(ranks)
    assert (answer.untold, answer.stragglers) == (1, ())
    assert row(answer, 1).uncertainty_ns == 45 * US


def test_bus_bandwidth_is_defined_as_in_nccl_tests() -> None:
    """1 MB in 20 us (from the last start, at 60, to the end) is 50 GB/s; all_reduce on
    3 ranks moves 2 * 2 / 3 of it over each link."""
    (kind,) = answer_of(
        [rank(n, [(20 * n, 60)], size=3, host="h") for n in range(3)]
    ).kinds
    assert kind.transfer_ns == 20 * US
    assert kind.algorithm_bytes_per_s == pytest.approx(50e9)
    assert kind.bus_bytes_per_s == pytest.approx(50e9 * 4 / 3)


def test_no_bandwidth_where_a_rank_is_missing() -> None:
    (kind,) = answer_of(
        [rank(n, [(20 * n, 60)], size=3, host="h") for n in range(2)]
    ).kinds
    assert (kind.transfer_ns, kind.bus_bytes_per_s) == (None, None)


def test_bus_factor_depends_on_collective_and_ranks() -> None:
    assert [
        bus_factor(name, 4) for name in ("all_reduce", "all_gather", "broadcast")
    ] == [*(1.5, 0.75, 1.0)]
    assert bus_factor("barrier", 4) is None


def test_outlier_is_beyond_three_scaled_deviations_and_a_percent() -> None:
    """Median 100, deviations 0 1 1 2 2 and 30: MAD 1.5, limit 3 * 1.4826 * 1.5 =
    6.67."""
    found = mark_outliers(np.array([100.0, 101, 99, 102, 98, 130, float("nan")]), 100)
    assert found.tolist() == [False] * 5 + [True, False]
    # less than a percent of a step
    assert not mark_outliers(np.array([1.0, 1, 1, 1.9]), 100).any()
    # three ranks have no usual figure
    assert not mark_outliers(np.array([1.0, 1, 9]), 100).any()


def test_balance_is_the_mean_over_the_largest() -> None:
    ranks = [
        rank(n, steps=[(0, 100)], step_compute=[compute], device=n)
        for n, compute in enumerate((50, 100))
    ]
    assert answer_of(ranks).balance == 0.75
    assert measure_balance(np.array([float("nan"), 1.0])) is None


def test_waits_of_each_step() -> None:
    """Rank 0 waits 30 us in the first step and 20 in the second."""
    steps = [(0, 100), (100, 200)]
    ranks = [
        rank(0, [(10, 50), (110, 150)], steps=steps, host="h"),
        rank(1, [(40, 50), (130, 150)], steps=steps, host="h"),
    ]
    strip = make_strip(explained(ranks))
    assert strip.steps == ("ProfilerStep#0", "ProfilerStep#1")
    assert strip.waited.tolist() == [[30 * US, 20 * US], [0, 0]]
    assert strip.measure_shares(0, 80) == pytest.approx((1.0, 2 / 3))
    assert strip.measure_shares(0, 1) == (1.0,)
