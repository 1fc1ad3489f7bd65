"""The collectives of a group by rank and number, as the hang page shows them."""

from __future__ import annotations

from pathlib import Path

from tests.flight_dumps import Job

from fusetui.analysis.hang.grid import CollectiveGrid, NumberRange, make_collective_grid
from fusetui.analysis.hang.model import CallState
from fusetui.trace.flight.reading import read_dumps

FIRST_AND_SECOND = range(1, 3)


def grid(job: Job, folder: Path, *, without: tuple[int, ...] = ()) -> CollectiveGrid:
    return make_collective_grid(read_dumps(job.write(folder, without=without)))


def states(grid: CollectiveGrid, rank: int, numbers: range) -> list[CallState]:
    return [call.state for call in grid.list_calls(0, rank, numbers)]


def test_a_call_that_others_wait_for_is_missing(tmp_path: Path) -> None:
    job = Job(2)
    job.everywhere()
    job.issue(0, over=False)
    found = grid(job, tmp_path)
    assert states(found, 0, FIRST_AND_SECOND) == [CallState.OVER, CallState.STARTED]
    assert states(found, 1, FIRST_AND_SECOND) == [CallState.OVER, CallState.MISSING]


def test_a_call_that_nobody_waits_for_is_not_issued(tmp_path: Path) -> None:
    job = Job(2)
    job.everywhere()
    found = grid(job, tmp_path)
    assert states(found, 0, range(2, 3)) == [CallState.NOT_ISSUED]


def test_a_rank_without_a_dump_is_missing_where_others_wait(tmp_path: Path) -> None:
    job = Job(2)
    job.everywhere()
    job.issue(0, over=False)
    found = grid(job, tmp_path, without=(1,))
    assert states(found, 1, FIRST_AND_SECOND) == [
        CallState.UNKNOWN,
        CallState.MISSING,
    ]


def test_a_call_before_the_oldest_entry_of_a_ring_is_not_known(tmp_path: Path) -> None:
    job = Job(2)
    job.everywhere()
    job.everywhere()
    job.entries[1] = job.entries[1][1:]
    found = grid(job, tmp_path)
    assert states(found, 1, FIRST_AND_SECOND) == [CallState.UNKNOWN, CallState.OVER]


def test_sides_of_a_mismatch_are_told_apart(tmp_path: Path) -> None:
    job = Job(3)
    for rank in (0, 2):
        job.issue(rank, "all_gather", over=False)
    job.issue(1, "barrier", over=False)
    found = grid(job, tmp_path)
    sides = [found.list_calls(0, rank, range(1, 2))[0].side for rank in range(3)]
    assert sides == [0, 1, 0]


def test_scheduled_and_started_calls_are_told_apart(tmp_path: Path) -> None:
    job = Job(2)
    job.issue(0, over=False)
    job.issue(1, over=False, state="scheduled")
    found = grid(job, tmp_path)
    assert states(found, 0, range(1, 2)) == [CallState.STARTED]
    assert states(found, 1, range(1, 2)) == [CallState.SCHEDULED]


def test_a_state_of_a_later_torch_is_another(tmp_path: Path) -> None:
    job = Job(2)
    job.issue(0, over=False, state="paused")
    job.issue(1, over=False)
    assert states(grid(job, tmp_path), 0, range(1, 2)) == [CallState.OTHER]


def test_numbers_begin_where_the_rings_do(tmp_path: Path) -> None:
    job = Job(2)
    for _ in range(4):
        job.everywhere()
    for rank in range(2):
        job.entries[rank] = job.entries[rank][2:]
    assert grid(job, tmp_path).number_range(0) == NumberRange(first=3, last=4)


def test_each_group_has_its_own_numbers(tmp_path: Path) -> None:
    job = Job(3)
    job.group("pair", 1, 2)
    job.everywhere()
    job.everywhere(group="pair")
    job.everywhere(group="pair")
    found = grid(job, tmp_path)
    names = [progress.group.description for progress in found.groups]
    pair = names.index("pair")
    assert found.number_range(pair) == NumberRange(first=1, last=2)
    assert found.groups[pair].members == (1, 2)


def test_grid_cell_has_the_call_and_its_source_line(tmp_path: Path) -> None:
    job = Job(2)
    job.everywhere()
    job.issue(0, "all_gather", over=False, line=21)
    job.issue(1, "all_gather", over=False, line=22)
    found = grid(job, tmp_path)
    issued = found.find_issued(0, 1, 2)
    assert issued is not None
    assert issued.operation == "nccl:all_gather"
    assert issued.place is not None
    assert issued.place.line == 22
    assert [frame.line for frame in found.find_stack(0, 1, 2)] == [1, 22]
    assert found.find_issued(0, 1, 3) is None


def test_sends_and_receives_are_no_columns(tmp_path: Path) -> None:
    job = Job(2)
    job.everywhere()
    job.issue(0, "send 0->1", over=False)
    assert grid(job, tmp_path).number_range(0) == NumberRange(first=1, last=1)


def test_the_first_of_coalesced_operations_stands_for_all(tmp_path: Path) -> None:
    job = Job(2)
    for rank in range(2):
        first = job.issue(rank, "reduce_scatter", over=False)
        second = job.issue(rank, "all_gather", over=False)
        second["collective_seq_id"] = first["collective_seq_id"]
        second["op_id"] = first["op_id"]
    issued = grid(job, tmp_path).find_issued(0, 0, 1)
    assert issued is not None
    assert issued.operation == "nccl:reduce_scatter"
