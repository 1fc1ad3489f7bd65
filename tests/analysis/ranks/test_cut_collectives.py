"""Collectives that the beginning or the end of a recording cuts: they prove nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.analysis.ranks.made import answer_of, rank, texts_of

from fusetui.analysis.ranks.model import JobAnswer, RankSummary
from fusetui.analysis.ranks.summary import read_summary
from fusetui.report.ranks_words import describe_clocks, describe_given
from fusetui.trace.layout.steps import CLIPPED

Make = Callable[..., dict[str, Any]]
STEPS = [(number * 1000.0, number * 1000.0 + 1000) for number in range(4)]


def one_late_rank(last_start: float, last_end: float) -> list[RankSummary]:
    """Rank 1 is 300 us late in each of four steps. Behind them rank 0 has another
    collective, from 5000 us until its recording ends at 5100 us, and rank 1 one at
    these times."""
    early = [(begin + 100, begin + 500) for begin, _ in STEPS]
    late = [(begin + 400, begin + 500) for begin, _ in STEPS]
    return [
        rank(0, [*early, (5000, 5100)], steps=STEPS, host="h"),
        rank(1, [*late, (last_start, last_end)], steps=STEPS, host="h"),
    ]


def names_rank_1(answer: JobAnswer) -> bool:
    return [one.rank for one in answer.stragglers] == [1]


def test_one_that_the_end_cuts_does_not_contradict_the_clocks() -> None:
    """On rank 0 it seems to end 90 us before it starts on rank 1."""
    ranks = one_late_rank(5190, 5400)
    assert (
        "ends on rank 0 before it starts on rank 1" in answer_of(ranks).clocks.refused
    )
    answer = answer_of([replace(ranks[0], cut=(4,)), ranks[1]])
    assert (answer.clocks.refused, answer.collectives, answer.cut) == ("", 4, 1)
    assert names_rank_1(answer)
    assert "Rank 1 arrives last in 4 of 4 collectives" in texts_of(answer)[0]


def test_a_collective_cut_by_the_recordings_beginning_proves_no_lateness() -> None:
    """On rank 0 it seems to start 900 us after it did on rank 1: as the recording
    begins there."""
    in_time = [(2100, 2200), (3100, 3200)]
    cut = rank(0, [(1900, 1950), *in_time], host="h", begin=1900)
    whole = rank(1, [(1000, 1950), *in_time], host="h", begin=1000)
    assert answer_of([cut, whole]).stragglers
    answer = answer_of([replace(cut, cut=(0,)), whole])
    assert answer.stragglers == ()
    assert [row.caused_ns for row in answer.ranks] == [0, 0]
    assert [row.waited_ns for row in answer.ranks] == [0, 0]


def test_cut_collective_is_no_bound_of_the_clocks() -> None:
    """It would leave no offset at all."""
    whole = [(100.0, 150.0), (300.0, 350.0)]
    a = rank(0, [*whole, (500, 520)], host="a")
    b = rank(1, [*whole, (900, 950)], host="b")
    c = rank(1, [*whole, (0, 20)], host="b")
    assert answer_of([replace(a, cut=(2,)), b]).clocks.hosts[1].uncertainty_ns == 50_000
    assert answer_of([a, replace(c, cut=(2,))]).clocks.hosts[1].uncertainty_ns == 50_000


def test_the_others_are_matched_as_with_it() -> None:
    """It counts as one of its name; and where counts disagree, it is no other one."""
    ranks = one_late_rank(5190, 5400)
    lost = rank(
        1, [(begin + 400, begin + 500) for begin, _ in STEPS], steps=STEPS, host="h"
    )
    answer = answer_of([replace(ranks[0], cut=(4,)), lost])
    assert (answer.collectives, answer.unmatched, answer.cut) == (4, 0, 1)
    assert names_rank_1(answer)


def test_job_with_a_cut_collective_in_a_step_is_not_replayed() -> None:
    ranks = one_late_rank(5000, 5100)
    assert answer_of([replace(ranks[0], cut=(4,)), ranks[1]]).no_what_if == ""
    in_a_step = answer_of([ranks[0], replace(ranks[1], cut=(3,))])
    assert in_a_step.no_what_if == (
        "a collective of a step is cut off at the start or end of a recording"
    )


def test_cut_collective_is_reported_in_the_headline() -> None:
    ranks = one_late_rank(5190, 5400)
    answer = answer_of([replace(ranks[0], cut=(4,)), ranks[1]])
    assert (
        "1 collective is cut off at the start or end of a recording and is excluded "
        "from clocks and lateness."
    ) in list(describe_given(answer))
    both = answer_of([replace(one, cut=(0, 4)) for one in ranks])
    assert (
        "2 collectives are cut off at the start or end of a recording and are "
        "excluded from clocks and lateness."
    ) in list(describe_given(both))
    assert describe_clocks(both) == (
        "Times are compared without clock alignment, because all ranks ran on one machine. "
        "Differences of up to 2 us are too small to show which rank arrives last."
    )


def summary_of_gloo(
    path: Path, event: Make, keys: dict[str, Any], **last: Any
) -> RankSummary:
    """Two collectives of gloo, from 10 to 20 us and from 40 to 60 us."""
    ops = [event("c10d::allreduce_", ts, 2) for ts in (5, 35)]
    marks = [
        event("gloo:all_reduce", 10, 10, cat="user_annotation", tid=9),
        event("gloo:all_reduce", 40, 20, cat="user_annotation", tid=9, args=last),
    ]
    info = {"rank": 0, "world_size": 2, "backend": "gloo"}
    document = {"distributedInfo": info, **keys, "traceEvents": [*ops, *marks]}
    path.write_text(json.dumps(document))
    found = read_summary(str(path), cached=False)
    assert isinstance(found, RankSummary)
    return found


def test_the_profiler_marks_what_had_not_finished(tmp_path: Path, event: Make) -> None:
    """libkineto ends it where the recording ends."""
    path = tmp_path / "rank0.json"
    assert summary_of_gloo(path, event, {}).cut == ()
    assert summary_of_gloo(path, event, {}, finished=True).cut == ()
    assert summary_of_gloo(path, event, {}, finished=False).cut == (1,)


def test_a_part_of_a_trace_says_what_it_clips(tmp_path: Path, event: Make) -> None:
    """As `fusetui cut` writes it: begin and end in ns."""
    keys = {CLIPPED: [["10000", "20000"]]}
    assert summary_of_gloo(tmp_path / "rank0.json", event, keys).cut == (0,)
