"""Which rank a wait goes back to, who is called a straggler, and when nobody is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.ranks.made import (
    US,
    Meet,
    answer_of,
    played,
    rank,
    texts_of,
    verdict_of,
)

from fusetui.analysis.questions.process_groups import ProcessGroup
from fusetui.analysis.ranks.answer import explained
from fusetui.analysis.ranks.chains import divide_waits
from fusetui.analysis.ranks.model import JobVerdict, RankSummary
from fusetui.report.ranks_words import _describe_changing_ranks, describe_given

TP = [ProcessGroup("tp", pair, 2) for pair in ((0, 1), (2, 3), (4, 5), (6, 7))]
DP = [ProcessGroup("dp", (0, 2, 4, 6), 4), ProcessGroup("dp", (1, 3, 5, 7), 4)]
ALL = ProcessGroup("all", (0, 1, 2, 3), 4)


def tensor_in_data(late: float, culprit: int = 5, layers: int = 6) -> list[RankSummary]:
    """Eight ranks: each layer meets in pairs, each step in two groups of four. One rank
    takes `late` us longer in every layer of 500."""

    def program(number: int) -> list[Meet]:
        own = 500 + late * (number == culprit)
        return [
            *(Meet(own, TP[number // 2]) for _ in range(layers)),
            Meet(100, DP[number % 2]),
        ]

    return played([program(number) for number in range(8)])


def test_blame_goes_back_through_nested_groups() -> None:
    """The pair of rank 5 comes late to its two groups of four: rank 4 is innocent, and
    the 120 us that seven ranks wait in each of four steps are charged to rank 5,
    once."""
    answer = answer_of(tensor_in_data(20))
    (found,) = answer.stragglers
    assert (found.rank, found.caused_ns, found.waiters) == (5, 4 * 120 * US, 7)
    assert answer.ranks[0].rank == 5
    assert [row.caused_ns for row in answer.ranks[1:]] == [0] * 7
    assert found.reason.late_ns == 4 * 120 * US
    assert "the others wait 120 us per step for it." in texts_of(answer)[0]


def test_below_two_percent_of_the_step_nobody_is_a_straggler() -> None:
    """A step takes 3,170 us: 6 times 10 are less than 63.4, 6 times 11 are more."""
    answer = answer_of(tensor_in_data(10))
    assert answer.stragglers == ()
    assert verdict_of(answer) == ("No rank holds up the others by 2.0 % of a step.",)
    assert [one.rank for one in answer_of(tensor_in_data(11)).stragglers] == [5]


def test_a_flip_over_ranks_is_told_with_its_total() -> None:
    """Another rank is 200 us late in each of eight steps of about 1,000."""
    times: list[list[tuple[float, float]]] = [[] for _ in range(4)]
    for step in range(8):
        begin = 1000 * step
        for number, own in enumerate(times):
            late = (200 + 10 * step) * (number == step % 4)
            own.append((begin + 500 + late, begin + 990))
    steps = [(1000 * step, 1000 * step + 1000) for step in range(8)]
    answer = answer_of(
        [rank(n, own, size=4, steps=steps, host="h") for n, own in enumerate(times)]
    )
    assert answer.stragglers == ()
    assert verdict_of(answer) == (
        (
            "No rank stands out: ranks wait 235 us per step (200 us to 270 us), "
            "and the late rank changes: 4 ranks are late in turn."
        ),
    )


def test_a_rank_that_alone_is_late_in_few_steps_has_a_name() -> None:
    """In two of eight steps, but it causes all of the waiting: 50 us of a step of
    1,000."""
    times: list[list[tuple[float, float]]] = [[] for _ in range(4)]
    for step in range(8):
        for number, own in enumerate(times):
            late = 200 * (number == 2 and step in (3, 6))
            own.append((1000 * step + 500 + late, 1000 * step + 990))
    steps = [(1000 * step, 1000 * step + 1000) for step in range(8)]
    answer = answer_of(
        [rank(n, own, size=4, steps=steps, host="h") for n, own in enumerate(times)]
    )
    (found,) = answer.stragglers
    assert (found.rank, found.caused_ns) == (2, 400 * US)
    late_steps = [(step.name, step.caused_ns) for step in found.late_steps]
    assert late_steps == [("ProfilerStep#3", 200 * US), ("ProfilerStep#6", 200 * US)]
    assert found.reason.late_ns == 400 * US
    assert (
        "the others wait 50 us per step for it on average. It is late in only "
        "2 of 8 steps: ProfilerStep#3, ProfilerStep#6 (200 us)."
    ) in texts_of(answer)[0]


def late_in(
    steps_of_rank: dict[int, Sequence[int]], steps: int = 8
) -> list[RankSummary]:
    """Four ranks, of which these are 200 us late in these steps of 1,000 us."""
    times: list[list[tuple[float, float]]] = [[] for _ in range(4)]
    for step in range(steps):
        for number, own in enumerate(times):
            late = 200 * (step in steps_of_rank.get(number, ()))
            own.append((1000 * step + 500 + late, 1000 * step + 990))
    spans = [(1000 * step, 1000 * step + 1000) for step in range(steps)]
    return [rank(n, own, size=4, steps=spans, host="h") for n, own in enumerate(times)]


def test_ranks_that_are_late_in_the_same_few_steps_have_names() -> None:
    """Each of them has half of the waiting in late steps, 200 us in each of two
    steps."""
    answer = answer_of(late_in({1: (3, 6), 2: (3, 6)}))
    assert {one.rank for one in answer.stragglers} == {1, 2}
    for found in answer.stragglers:
        late_steps = [(step.name, step.caused_ns) for step in found.late_steps]
        assert late_steps == [
            ("ProfilerStep#3", 100 * US),
            ("ProfilerStep#6", 100 * US),
        ]


def test_ranks_that_are_late_in_other_steps_are_late_in_turn() -> None:
    answer = answer_of(late_in({1: (0, 2, 4, 6), 2: (1, 3, 5, 7)}))
    assert answer.stragglers == ()
    assert verdict_of(answer) == (
        (
            "No rank stands out: ranks wait 200 us per step (200 us to 200 us), "
            "and the late rank changes: 2 ranks are late in turn."
        ),
    )


def test_a_step_with_less_than_a_tenth_of_the_largest_delay_is_not_a_late_one() -> None:
    """Rank 2 is 400 us late in two of eight steps of 1,000 us, and 30 us in two others:
    more than 2 % of a step, but noise beside the 400 us."""
    delays = {1: 30, 3: 400, 4: 30, 6: 400}
    times: list[list[tuple[float, float]]] = [[] for _ in range(4)]
    for step in range(8):
        for number, own in enumerate(times):
            late = delays.get(step, 0) if number == 2 else 0
            own.append((1000 * step + 500 + late, 1000 * step + 990))
    steps = [(1000 * step, 1000 * step + 1000) for step in range(8)]
    answer = answer_of(
        [rank(n, own, size=4, steps=steps, host="h") for n, own in enumerate(times)]
    )
    (found,) = answer.stragglers
    assert [step.name for step in found.late_steps] == [
        "ProfilerStep#3",
        "ProfilerStep#6",
    ]
    assert found.reason.late_ns == 800 * US


def test_of_a_rank_that_is_late_in_every_step_no_steps_are_named() -> None:
    answer = answer_of(tensor_in_data(20))
    assert len(answer.stragglers[0].late_steps) == 4
    assert "only" not in texts_of(answer)[0]


def test_one_rank_that_is_early_makes_no_other_late() -> None:
    """Rank 0 waits 300 us for three ranks that arrive within 10 us: the last one is 10
    late."""
    starts, steps = (100, 390, 391, 400), [(0, 1000)]
    ranks = [
        rank(n, [(at, 450)], size=4, steps=steps, host="h")
        for n, at in enumerate(starts)
    ]
    answer = answer_of(ranks)
    assert answer.stragglers == ()
    assert answer.ranks[0].caused_ns <= 20 * US


def two_late(first: int, second: int, steps: int = 8) -> list[RankSummary]:
    """Of eight ranks, 2 and 5 are late in every step of 1,000 us: by `first` and
    `second` us in even steps, the other way round in odd ones."""
    times: list[list[tuple[float, float]]] = [[] for _ in range(8)]
    for step in range(steps):
        delays = {2: first, 5: second} if step % 2 == 0 else {2: second, 5: first}
        for number, own in enumerate(times):
            begin = 1000 * step + 300 + delays.get(number, 0)
            own.append((begin, 1000 * step + 990))
    spans = [(1000 * step, 1000 * step + 1000) for step in range(steps)]
    return [rank(n, own, size=8, steps=spans, host="h") for n, own in enumerate(times)]


def test_ranks_that_are_late_at_once_share_the_wait() -> None:
    """Six ranks wait 500 us in each of eight steps: 470 for ranks 2 and 5, the last 30
    for one of them in turn. That one waits 30 us for the other."""
    answer = answer_of(two_late(470, 500))
    assert {one.rank for one in answer.stragglers} == {2, 5}
    for found in answer.stragglers:
        assert len(found.late_steps) == 8
        assert found.caused_ns == pytest.approx(8 * 250 * US, rel=0.01)


def test_ranks_that_arrive_together_are_both_late() -> None:
    """Which of them is the very last does not matter: both are 400 us late."""
    answer = answer_of(two_late(400, 400))
    assert {one.rank for one in answer.stragglers} == {2, 5}
    assert [one.caused_ns for one in answer.stragglers] == [8 * 200 * US] * 2


def test_charged_and_uncharged_waits_add_up() -> None:
    for ranks in (two_late(470, 500), two_late(400, 400), tensor_in_data(20)):
        facts = explained(ranks).facts
        waited_ns = facts.waits.idle_wait_ns.sum()
        charged_ns = facts.charged.ns.sum()
        assert charged_ns + facts.charged.uncharged_ns.sum() == pytest.approx(waited_ns)


def test_the_shares_of_late_ranks() -> None:
    """Of 100 us, 60 are for both ranks and 40 for the last one. A rank that arrives 5
    us late is noise beside one that is 100 late."""
    shares = divide_waits(
        np.array([[100.0, 60.0], [60.0, 100.0], [100.0, 5.0], [0.0, 0.0]])
    )
    assert shares.tolist() == [[0.7, 0.3], [0.3, 0.7], [1.0, 0.0], [0.0, 0.0]]


def test_a_rank_is_late_in_the_step_of_its_own_delay() -> None:
    """Rank 1 is 100 us late for the last collective of the first step. Ranks 0 and 1
    end it so much later than ranks 2 and 3 theirs, and meet these late in the second
    step."""
    pairs = [ProcessGroup("data", (0, 1), 2), ProcessGroup("data", (2, 3), 2)]
    across = [ProcessGroup("tensor", (0, 2), 2), ProcessGroup("tensor", (1, 3), 2)]
    ranks = []
    for number in range(4):
        slow = number < 2
        begin = 700 if number == 1 else 600
        first_end = 720 if slow else 620
        second_begin = 1120 if slow else 1020
        times = [(100, 120), (begin, first_end), (second_begin, 1140), (1600, 1620)]
        data, tensor = pairs[number // 2], across[number % 2]
        one = rank(number, times, size=4, steps=[(0, 1000), (1000, 2000)], host="h")
        groups = np.array([0, 0, 1, 0])
        columns = replace(one.collectives, group=groups)
        ranks.append(replace(one, groups=(data, tensor), collectives=columns))
    answer = answer_of(ranks)
    (found,) = answer.stragglers
    assert (found.rank, found.waiters) == (1, 3)
    assert [step.name for step in found.late_steps] == ["ProfilerStep#0"]


def test_waits_that_compute_covers_cost_nothing() -> None:
    """Rank 1 comes 100 us later to each of two collectives, of which the others compute
    through the first: the delay is charged once."""
    ranks = []
    for number in range(4):
        late = 100 * (number == 1)
        times = [(200 + late, 340), (500 + late, 640)]
        one = rank(number, times, size=4, steps=[(0, 700)], host="h")
        covered = one.collectives.covered.copy()
        covered[0] = (140 - late) * US
        stalled = one.collectives.end - one.collectives.start - covered
        columns = replace(one.collectives, covered=covered, stalled=stalled)
        ranks.append(replace(one, collectives=columns))
    (found,) = answer_of(ranks).stragglers
    assert (found.rank, found.caused_ns, found.reason.late_ns) == (
        1,
        100 * US,
        100 * US,
    )


def test_a_chain_that_leaves_the_given_ranks_names_nobody() -> None:
    """Rank 5 is not given: its pair comes late to the groups of four, and nobody knows
    why."""
    given = [one for one in tensor_in_data(100) if one.rank != 5]
    answer = answer_of(given)
    assert answer.stragglers == ()
    assert "the cause lies in ranks that are not given." in verdict_of(answer)[-1]
    said = list(describe_given(answer))
    assert answer.one_given == 24  # six layers of four steps, on rank 4
    assert (
        "24 collectives could not be matched, because only one rank of each group is given."
        in said
    )
    assert not any("counts disagree" in line for line in said)


@pytest.mark.parametrize("late", [0, 100])
def test_a_delay_that_clocks_do_not_tell_is_not_charged(late: float) -> None:
    """Each rank on a host of its own, all collectives long, too few to compare ends: 50
    us are within the uncertainty."""
    own = [Meet(300 + late * (n == 2), ALL, lasts=400) for n in range(4)]
    ranks = played([[one] for one in own], steps=3)
    apart = [replace(one, host=f"h{one.rank}") for one in ranks]
    answer = answer_of(apart)
    assert answer.stragglers == ()
    assert answer.untold == 3
    assert ("is unclear" in verdict_of(answer)[-1]) is (late > 0)


DATA = [ProcessGroup("dp", (0, 2), 2), ProcessGroup("dp", (1, 3), 2)]
PAUSED, PEER_OF_PAUSED = 3, 2


def gradients_beside_compute(
    reduction_ends: Sequence[float],
    second_starts: Sequence[float],
    reduction_starts: Sequence[float] = (150, 150, 150, 150),
) -> list[RankSummary]:
    """Four ranks in pairs of tensor parallelism: each pair meets at 100 us, reduces
    gradients in the other pairs, and meets again. Rank 3 computes nothing from the
    reduction on; the others compute until they meet again."""
    ranks = []
    for number in range(4):
        pair = TP[number // 2]
        second_end = max(second_starts[one] for one in pair.ranks) + 10
        first, second = (100, 110), (second_starts[number], second_end)
        reduction = (reduction_starts[number], reduction_ends[number])
        one = rank(number, [first, reduction, second], size=4, host="h")
        covered = 0 if number == PAUSED else reduction[1] - reduction[0]
        columns = replace(
            one.collectives,
            group=np.array([0, 1, 0]),
            size=np.array([1_000, 5_000, 1_000]),
            covered=one.collectives.covered + np.array([0, covered * US, 0]),
            stalled=one.collectives.stalled - np.array([0, covered * US, 0]),
        )
        groups = (pair, DATA[number % 2])
        ranks.append(replace(one, groups=groups, collectives=columns))
    return ranks


def test_a_reduction_that_no_rank_waited_for_did_not_hold_up_the_late_rank() -> None:
    """The reduction of gradients ends at 400 us, when ranks 0, 1 and 2 have met at 300
    already. Rank 3 computes nothing meanwhile and meets rank 2 at 900: all 600 us are
    its own, although nothing ran beside its reduction."""
    ranks = gradients_beside_compute([400] * 4, second_starts=(300, 300, 300, 900))
    answer = answer_of(ranks)
    (found,) = answer.stragglers
    assert (found.rank, found.caused_ns) == (PAUSED, 600 * US)
    assert found.reason.late_ns == 600 * US


def test_a_late_reduction_may_have_held_up_the_rank_that_is_late_next() -> None:
    """The reduction of ranks 1 and 3 ends at 800 us because rank 1 comes to it 600 us
    late; that of ranks 0 and 2 is over before they meet. Rank 3 meets rank 2 late, and
    rank 1 is charged."""
    ranks = gradients_beside_compute(
        [200, 800, 200, 800],
        second_starts=(300, 900, 300, 900),
        reduction_starts=(150, 750, 150, 150),
    )
    facts = explained(ranks).facts
    waiting_rank = facts.matched.rank[facts.charged.row]
    charged = facts.charged.culprit[waiting_rank == PEER_OF_PAUSED]
    assert set(charged.tolist()) == {1}


def test_no_rank_is_said_to_be_late_in_turn_where_none_is() -> None:
    verdict = JobVerdict(stages=None, kind="in turn", waits_ns=(20e6, 30e6), in_turn=0)
    assert _describe_changing_ranks(verdict, "a step") == (
        "No rank stands out: ranks wait 25 ms per step (20 ms to 30 ms), but "
        "no single rank causes 2.0 % of a step."
    )


def test_collectives_that_seem_queued_in_a_circle_are_no_endless_search() -> None:
    """On one host, times may contradict each other by 20 us. Here each of three
    collectives ends on one rank before it starts on another one, so that each seems
    queued behind the next one. Rank 3 is 100 us late for the last collective."""
    x, y, z = (ProcessGroup("", ranks, 2) for ranks in ((1, 3), (1, 2), (2, 3)))
    programs: list[list[tuple[ProcessGroup, int, int, int]]] = [
        [(ALL, 300, 300, 410)],
        [(y, 50, 50, 90), (x, 95, 100, 120), (ALL, 300, 300, 410)],
        [(z, 40, 40, 70), (y, 66, 71, 95), (ALL, 300, 300, 410)],
        [(x, 60, 60, 85), (z, 80, 86, 110), (ALL, 400, 400, 410)],
    ]
    ranks = []
    for number, program in enumerate(programs):
        groups = tuple(group for group, *_ in program)
        times = [(start, end) for _, _, start, end in program]
        ready = np.array([ready * US for _, ready, _, _ in program])
        one = rank(number, times, size=4, host="h")
        columns = replace(one.collectives, group=np.arange(len(groups)), ready=ready)
        ranks.append(replace(one, groups=groups, collectives=columns))
    answer = answer_of(ranks)
    assert answer.collectives == 4
    assert [one.rank for one in answer.stragglers] == [3]
