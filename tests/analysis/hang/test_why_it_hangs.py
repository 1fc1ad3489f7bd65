"""Which rank is missing, and who waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flight_dumps import WORLD, Job

from fusetui.analysis.hang.answer import why_it_hangs
from fusetui.analysis.hang.model import HangAnswer
from fusetui.trace.flight.reading import read_dumps


def answer_of(job: Job, folder: Path, *, without: tuple[int, ...] = ()) -> HangAnswer:
    return why_it_hangs(read_dumps(job.write(folder, without=without)))


def doubts_of(answer: HangAnswer) -> list[str]:
    return [doubt.kind for doubt in answer.doubts]


def test_a_rank_that_did_not_issue_what_others_wait_in_is_missing(
    tmp_path: Path,
) -> None:
    job = Job(4)
    job.everywhere()
    for rank in (0, 2, 3):
        job.issue(rank, "all_gather", over=False, line=20)
    answer = answer_of(job, tmp_path)
    assert answer.verdict == "missing"
    (culprit,) = answer.culprits
    assert (culprit.rank, culprit.sequence, culprit.waiting) == (1, 2, 3)
    assert culprit.last is not None
    assert culprit.last.place is not None
    assert culprit.last.place.file == "/job/train.py"
    (wait,) = answer.waits
    assert wait.waiting == (0, 2, 3)
    assert wait.lacking == (1,)


def test_nobody_is_missing_when_the_newest_is_in_flight_on_all(tmp_path: Path) -> None:
    job = Job(3)
    job.everywhere()
    for rank in range(3):
        job.issue(rank, over=False)
    answer = answer_of(job, tmp_path)
    assert answer.verdict == "none"
    assert answer.culprits == ()


def test_a_rank_that_is_behind_with_nobody_waiting_is_not_missing(
    tmp_path: Path,
) -> None:
    job = Job(2)
    job.everywhere()
    job.issue(0, "broadcast")
    assert answer_of(job, tmp_path).verdict == "none"


def test_a_rank_that_is_behind_because_it_waits_elsewhere_is_not_the_culprit(
    tmp_path: Path,
) -> None:
    job = Job(4)
    job.group("low", 0, 1)
    job.group("high", 2, 3)
    job.everywhere()
    job.issue(2, "all_reduce", "high", over=False)  # 3 never comes
    job.issue(0, "all_gather", over=False)
    job.issue(1, "all_gather", over=False)
    answer = answer_of(job, tmp_path)
    assert answer.verdict == "missing"
    assert [culprit.rank for culprit in answer.culprits] == [3]
    assert answer.culprits[0].waiting == 3


def test_two_groups_entered_in_another_order_are_a_deadlock(tmp_path: Path) -> None:
    job = Job(2)
    job.group("a", 0, 1)
    job.group("b", 0, 1)
    job.everywhere()
    job.issue(0, "all_reduce", "a", over=False)
    job.issue(1, "all_reduce", "b", over=False)
    answer = answer_of(job, tmp_path)
    assert answer.verdict == "deadlock"
    assert answer.cycle == (0, 1)
    assert answer.culprits == ()


def test_ranks_that_wait_for_a_deadlock_are_not_part_of_it(tmp_path: Path) -> None:
    job = Job(3)
    job.group("a", 0, 1)
    job.group("b", 0, 1)
    job.everywhere()
    job.issue(0, "all_reduce", "a", over=False)
    job.issue(1, "all_reduce", "b", over=False)
    job.issue(2, "all_reduce", over=False)
    assert answer_of(job, tmp_path).cycle == (0, 1)


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        ({"operation": "barrier"}, "operation"),
        ({"sizes": [[65]]}, "sizes"),
        ({"dtype": "Half"}, "dtypes"),
    ],
)
def test_another_call_under_the_same_number_is_a_mismatch(
    tmp_path: Path, other: dict[str, object], kind: str
) -> None:
    job = Job(3)
    for rank in (0, 2):
        job.issue(rank, over=False)
    job.issue(1, over=False, **other)  # type: ignore[arg-type]
    answer = answer_of(job, tmp_path)
    assert answer.verdict == "mismatch"
    (mismatch,) = answer.mismatches
    assert mismatch.kind == kind
    assert [side.ranks for side in mismatch.sides] == [(0, 2), (1,)]


def test_shapes_with_as_many_elements_are_no_mismatch(tmp_path: Path) -> None:
    job = Job(2)
    job.issue(0, sizes=[[8, 8]])
    job.issue(1, sizes=[[64]])
    assert answer_of(job, tmp_path).mismatches == ()


@pytest.mark.parametrize("operation", ["all_to_all", "scatter", "barrier"])
def test_inputs_that_may_differ_are_no_mismatch(tmp_path: Path, operation: str) -> None:
    job = Job(2)
    job.issue(0, operation, sizes=[[8]], output_sizes=[[4]])
    job.issue(1, operation, sizes=[[12]], output_sizes=[[4]])
    assert answer_of(job, tmp_path).mismatches == ()


def test_a_root_that_differs_leaves_the_question_open(tmp_path: Path) -> None:
    job = Job(4, "gloo")
    for rank in range(4):
        job.issue(rank, "broadcast", over=rank in (1, 3))
    for rank in (1, 3):
        job.issue(rank, over=False)
    answer = answer_of(job, tmp_path)
    assert answer.verdict == "undecided"
    assert "stuck" in doubts_of(answer)
    assert answer.culprits == ()


def test_a_rank_without_a_dump_comes_first_and_leaves_the_question_open(
    tmp_path: Path,
) -> None:
    job = Job(4)
    job.everywhere()
    for rank in (0, 1, 2):
        job.issue(rank, over=False)
    answer = answer_of(job, tmp_path, without=(3,))
    assert answer.verdict == "undecided"
    assert [(culprit.rank, culprit.has_dump) for culprit in answer.culprits] == [
        (3, False)
    ]
    assert answer.doubts[0].kind == "no_dump"


def test_the_size_of_an_all_gather_shows_a_rank_without_a_dump(tmp_path: Path) -> None:
    job = Job(3, "gloo", lists_members=False)
    for rank in range(3):
        job.issue(rank, "all_gather", sizes=[[8]], output_sizes=[[3, 8]])
    for rank in (0, 1):
        job.issue(rank, over=False)
    answer = answer_of(job, tmp_path, without=(2,))
    assert [culprit.rank for culprit in answer.culprits] == [2]


def test_a_ring_that_lost_the_group_leaves_the_question_open(tmp_path: Path) -> None:
    job = Job(2)
    job.group("side", 0, 1)
    job.issue(0, "all_reduce", "side", over=False)
    job.issue(1, record_id=500)  # what was before is lost, perhaps one of `side`
    job.issue(0)
    answer = answer_of(job, tmp_path)
    assert answer.verdict == "undecided"
    assert "lost" in doubts_of(answer)


def test_the_status_of_all_ranks_replaces_what_the_ring_lost(tmp_path: Path) -> None:
    """Rank 1 says that it issued 3 of all ranks, which its ring no longer holds."""
    job = Job(2)
    job.group("side", 0, 1)
    for _ in range(3):
        job.everywhere()
    job.issue(0, over=False)
    job.issue(0, group="side")
    job.entries[1].clear()
    job.issue(1, group="side", record_id=500)
    job.status[1] = {"0": {"last_enqueued_collective": 3}}
    answer = answer_of(job, tmp_path)
    assert answer.verdict == "missing"
    (culprit,) = answer.culprits
    assert (culprit.rank, culprit.sequence) == (1, 4)


def test_a_receive_without_its_send_is_unmatched(tmp_path: Path) -> None:
    job = Job(2)
    job.everywhere()
    job.issue(1, "recv 1<-0", over=False)
    answer = answer_of(job, tmp_path)
    assert answer.verdict == "unmatched"
    (message,) = answer.unmatched
    assert (message.issued.rank, message.peer) == (1, 0)


def test_a_send_that_a_ring_may_have_lost_leaves_the_question_open(
    tmp_path: Path,
) -> None:
    job = Job(2)
    job.issue(1, "recv 1<-0", over=False)
    job.issue(0, record_id=500)
    job.issue(1, record_id=500)
    answer = answer_of(job, tmp_path)
    assert answer.verdict == "undecided"
    assert answer.unmatched == ()
    assert "lost" in doubts_of(answer)


def test_a_send_and_its_receive_match(tmp_path: Path) -> None:
    job = Job(2)
    job.issue(0, "send 0->1", over=False)
    job.issue(1, "recv 1<-0", over=False)
    answer = answer_of(job, tmp_path)
    assert answer.verdict == "none"
    assert answer.unmatched == ()


def test_the_places_of_a_message_count_within_its_group(tmp_path: Path) -> None:
    job = Job(4)
    job.group("high", 2, 3)
    job.issue(3, "recv 1<-0", "high", over=False)
    (message,) = answer_of(job, tmp_path).unmatched
    assert message.peer == 2


def test_coalesced_records_of_one_operation_are_compared_in_order(
    tmp_path: Path,
) -> None:
    job = Job(2)
    for rank in (0, 1):
        first = job.issue(rank, "_all_gather_base", over=False)
        for _ in range(2 if rank else 1):
            job.issue(
                rank,
                "_all_gather_base",
                over=False,
                collective_seq_id=first["collective_seq_id"],
                op_id=first["op_id"],
            )
    (mismatch,) = answer_of(job, tmp_path).mismatches
    assert mismatch.kind == "coalesced"


def test_sixteen_ranks_one_of_which_left_early(tmp_path: Path) -> None:
    job = Job(16)
    for _ in range(5):
        job.everywhere()
    for rank in range(16):
        if rank != 11:
            job.issue(rank, over=False)
    answer = answer_of(job, tmp_path)
    assert [culprit.rank for culprit in answer.culprits] == [11]
    assert answer.culprits[0].waiting == 15


def test_a_group_of_which_no_dump_lists_the_members_has_those_that_name_it(
    tmp_path: Path,
) -> None:
    job = Job(4, "gloo", lists_members=False)
    job.group("low", 0, 1)
    job.everywhere()
    job.everywhere(group="low")
    groups = {
        group.group.description: group for group in answer_of(job, tmp_path).groups
    }
    assert groups["low"].members == (0, 1)
    assert not groups["low"].members_are_listed
    assert groups[WORLD].members == (0, 1, 2, 3)
