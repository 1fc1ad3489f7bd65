"""Pipelines: waiting in sends and receives is a bubble, and stages compare what they
compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.ranks.made import (
    Meet,
    answer_of,
    played,
    rank,
    texts_of,
    verdict_of,
)

from fusetui.analysis.questions.process_groups import ProcessGroup
from fusetui.analysis.ranks.groups import resolve_peers
from fusetui.analysis.ranks.matching import match_collectives
from fusetui.analysis.ranks.model import RankRow, RankSummary

BATCHES = 6


def by_rank(row: RankRow) -> int:
    return row.rank


def pipeline(work: Sequence[float], lines: int = 1) -> list[RankSummary]:
    """Stages that take `work` us for each of six batches and hand it on; several lines
    of them have the stages of a rank: line * stages + stage."""
    stages, every = (
        len(work) // lines,
        ProcessGroup("all", tuple(range(len(work))), len(work)),
    )

    def link(one: int) -> ProcessGroup:
        return ProcessGroup("pp", (one, one + 1), 2)

    programs = []
    for number, own in enumerate(work):
        stage, program = number % stages, []
        for _ in range(BATCHES):
            if stage:
                program.append(Meet(0, link(number - 1), "recv"))
            if stage < stages - 1:
                program.append(Meet(own, link(number), "send"))
        programs.append([*program, Meet(own * (1 + stage), every)])
    compute = [BATCHES * own for own in work]
    return played(programs, compute=compute, device=0)


def test_a_balanced_pipeline_names_nobody() -> None:
    """All meet at the end of a step, and the last stage comes last, as it must: the
    others wait for nobody but the pipeline."""
    answer = answer_of(pipeline([100, 100, 100, 100]))
    assert [row.last_count for row in sorted(answer.ranks, key=by_rank)] == [0, 0, 0, 4]
    assert answer.stragglers == ()
    assert [row.caused_ns for row in answer.ranks] == [0] * 4
    assert verdict_of(answer)[0].endswith(
        "No stage stands out: all compute for about as long."
    )
    assert "pipeline of 4 stages" in verdict_of(answer)[0]
    assert any(row.bubble_ns for row in answer.ranks)


def test_the_slow_stage_is_named_by_what_it_computes() -> None:
    answer = answer_of(pipeline([100, 100, 130, 100]))
    (found,) = answer.stragglers
    assert (found.rank, found.stage) == (2, 2)
    assert texts_of(answer)[0] == (
        "Rank 2, stage 2 (of 0 to 3), computes 180 us per step longer than "
        "the median of the other stages (30 %)."
    )
    assert answer.ranks[0].rank == 2


def test_all_ranks_of_a_slow_stage_are_named() -> None:
    answer = answer_of(pipeline([100, 130, 100, 100, 130, 100], lines=2))
    assert [(one.rank, one.stage) for one in answer.stragglers] == [(1, 1)]
    (text,) = texts_of(answer)
    assert text.startswith(
        "Ranks 1 and 4, stage 1 (of 0 to 2), compute 180 us per step longer"
    )


def test_a_slow_rank_is_compared_with_others_of_its_stage() -> None:
    """Stage 1 of the second line; the first stage computes twice as long on both: by
    design."""
    answer = answer_of(pipeline([200, 100, 100, 200, 130, 100], lines=2))
    assert [(one.rank, one.stage) for one in answer.stragglers] == [(4, 1)]
    assert (
        "the median of the other ranks of its stage, 1 (of 0 to 2) (30 %): kernels ran"
        in (texts_of(answer)[0])
    )


def test_no_wait_is_longer_than_the_step() -> None:
    for row in answer_of(pipeline([100, 140, 100, 100])).ranks:
        assert row.caused_ns <= row.steps * row.step_ns
        assert row.waited_ns + row.bubble_ns <= row.steps * row.step_ns


def test_without_a_gpu_stages_cannot_be_compared() -> None:
    ranks = [
        replace(one, accounts=one.accounts[:0])
        for one in pipeline([100, 100, 130, 100])
    ]
    assert "not recorded." in verdict_of(answer_of(ranks))[0]


@pytest.mark.parametrize("in_group", [True, False])
def test_peers_are_numbers_in_the_group_or_in_the_job(in_group: bool) -> None:
    """Ranks 2 and 3 are stages of one line: in their group they are 0 and 1."""
    group = ProcessGroup("pp", (2, 3), 2)
    sender, receiver = (rank(n, [(0, 10)], size=4, group=group) for n in (2, 3))
    sender = _with_peer(sender, "send", 1 if in_group else 3)
    receiver = _with_peer(receiver, "recv", 0 if in_group else 2)
    found = match_collectives(resolve_peers([sender, receiver]))
    assert found.names == ("send_recv 2 to 3",)


def _with_peer(one: RankSummary, name: str, peer: int) -> RankSummary:
    columns = replace(one.collectives, peer=np.array([peer]))
    return replace(one, names=(name, ""), collectives=columns)
