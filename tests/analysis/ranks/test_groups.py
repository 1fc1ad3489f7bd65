"""Of which group a collective of gloo is, which its file does not say."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.ranks.made import US, Meet, answer_of, played

from fusetui.analysis.questions.process_groups import UNKNOWN_GROUP, ProcessGroup
from fusetui.analysis.ranks.groups import infer_groups
from fusetui.analysis.ranks.model import RankSummary
from fusetui.report.ranks_words import describe_clocks, describe_given

PAIRS = [ProcessGroup("1", (0, 1), 2, "tp"), ProcessGroup("2", (2, 3), 2, "tp")]
ACROSS = [ProcessGroup("3", (0, 2), 2, "dp"), ProcessGroup("4", (1, 3), 2, "dp")]
ALL = ProcessGroup("0", (0, 1, 2, 3), 4, "default")


def job(late: float) -> list[RankSummary]:
    """Two layers that meet in pairs, then across them, then all four; rank 1 is late in
    each layer, and ranks of odd numbers 150 us where they meet across. Files list the
    groups, collectives do not name them."""

    def program(number: int) -> list[Meet]:
        own = 500 + late * (number == 1)
        pair, across = PAIRS[number // 2], ACROSS[number % 2]
        return [
            Meet(own, pair),
            Meet(own, pair),
            Meet(100 + 150 * (number % 2), across),
            Meet(50, ALL),
        ]

    ranks = played([program(number) for number in range(4)])
    return [_unnamed(one) for one in ranks]


def _unnamed(one: RankSummary) -> RankSummary:
    """As a file of gloo: the groups in the order in which they were created."""
    mine = sorted(one.groups, key=lambda group: group.name)
    nothing = np.zeros(len(one.collectives), dtype=np.int64)
    columns = replace(one.collectives, group=nothing)
    return replace(one, groups=(UNKNOWN_GROUP, *mine), collectives=columns)


def test_groups_are_told_by_the_ends() -> None:
    ranks = infer_groups(job(200))
    for one in ranks:
        kinds = [one.groups[n].description for n in one.collectives.group[:4]]
        assert kinds == ["tp", "tp", "dp", "default"]


def test_the_delay_goes_back_through_them() -> None:
    """Rank 1 is 200 us later in each of two layers: three ranks wait 400 us a step.
    Where all meet, ranks 0 and 2 wait another 150 us, for what ranks of odd numbers do
    before."""
    (found,) = answer_of(job(200)).stragglers
    assert (found.rank, found.waiters, found.caused_ns) == (
        1,
        3,
        4 * (550 + 550 + 400) // 3 * US,
    )


def test_collective_cut_by_the_recording_does_not_define_a_group() -> None:
    """In the first step the collective of all ranks seems to end on rank 0 as it
    starts: before it starts on the ranks of odd numbers."""
    ranks = job(200)
    columns = ranks[0].collectives
    end = columns.end.copy()
    end[3] = columns.start[3] + 1
    cut = replace(ranks[0], collectives=replace(columns, end=end))

    def group_of_the_last(first_rank: RankSummary) -> str:
        found = infer_groups([first_rank, *ranks[1:]])[0]
        return str(found.groups[found.collectives.group[3]].description)

    assert group_of_the_last(cut) != "default"
    assert group_of_the_last(replace(cut, cut=(3,))) == "default"


@pytest.mark.parametrize("apart", [True, False])
def test_undecided_groups_name_no_straggler(apart: bool) -> None:
    """Clocks of several hosts do not tell it; nor do pairs that arrive together."""
    ranks = job(200 if apart else 0)
    if apart:
        ranks = [replace(one, host=f"h{one.rank}") for one in ranks]
    else:
        ranks = [
            replace(one, groups=(*one.groups[:1], *one.groups[2:])) for one in ranks
        ]
    answer = answer_of(ranks)
    assert answer.stragglers == ()
    assert answer.no_group > 0
    assert (
        f"the process group of {answer.no_group} collectives was not recorded."
        in describe_clocks(answer)
    )
    assert not any("counts disagree" in line for line in describe_given(answer))


def test_a_job_is_whole_if_its_size_is_known_and_no_rank_is_missing() -> None:
    answer = replace(answer_of(job(200)), world_size=4, missing=())
    assert answer.is_whole
    assert not replace(answer, missing=(3,)).is_whole
    assert not replace(answer, world_size=None).is_whole
