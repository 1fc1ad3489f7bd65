"""Files -> dumps."""

from __future__ import annotations

import gzip
import os
import pickle
import random
from pathlib import Path

import pytest
from tests.flight_dumps import WORLD, Job

from fusetui.trace.flight import reading
from fusetui.trace.flight.columns import UNKNOWN, GroupName
from fusetui.trace.flight.reading import files_of_job, rank_in_name, read_dumps


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank_3", 3),
        ("nccl_trace_rank_12", 12),
        ("node7-rank3.pickle", 3),
        ("comm_lib_trace_rank_4.gz", 4),
        ("PREFIX5", 5),
        ("rank0.json", 0),
        ("dump", UNKNOWN),
    ],
)
def test_the_rank_is_the_last_number_of_the_name(name: str, rank: int) -> None:
    assert rank_in_name(f"/tmp/2024/{name}") == rank


def test_without_numbers_ranks_are_places_in_the_order_of_the_files() -> None:
    job = files_of_job(["b", "a"])
    assert [(dump.rank, dump.path) for dump in job.planned] == [(0, "b"), (1, "a")]
    assert job.left_out == []
    assert job.ranks_from_order


def test_a_second_file_of_a_rank_is_left_out() -> None:
    job = files_of_job(["x/rank_1", "y/rank_1"])
    assert [dump.path for dump in job.planned] == ["x/rank_1"]
    assert job.left_out[0].reason == "y/rank_1 is skipped: x/rank_1 is also of rank 1."


def test_json_of_the_debug_server_says_the_same_as_a_pickle(tmp_path: Path) -> None:
    job = Job(2)
    job.everywhere()
    pickled = read_dumps(job.write(tmp_path))
    decoded = read_dumps(job.write_json(tmp_path))
    assert decoded.groups == pickled.groups == (GroupName("0", WORLD),)
    assert decoded.tensors == pickled.tensors
    assert decoded.stacks == pickled.stacks
    assert decoded.entries.created_ns.tolist() == pickled.entries.created_ns.tolist()


def test_version_1_has_one_number_for_collectives_and_messages(tmp_path: Path) -> None:
    job = Job(1)
    entry = job.issue(0, seq_id=7)
    for key in ("collective_seq_id", "p2p_seq_id", "process_group"):
        del entry[key]
    dumps = read_dumps(job.write(tmp_path))
    assert dumps.entries.sequence.tolist() == [7]
    assert dumps.groups == (GroupName("0", ""),)


def test_a_compressed_dump_is_read(tmp_path: Path) -> None:
    job = Job(1)
    job.everywhere()
    path = tmp_path / "rank_0.gz"
    path.write_bytes(gzip.compress(pickle.dumps(job.dump(0), protocol=2)))
    assert len(read_dumps([str(path)]).entries) == 1


def test_an_empty_file_is_unread_with_its_rank(tmp_path: Path) -> None:
    job = Job(2)
    job.everywhere()
    paths = job.write(tmp_path)
    Path(paths[1]).write_bytes(b"")
    dumps = read_dumps(paths)
    assert [dump.rank for dump in dumps.ranks] == [0]
    (unread,) = dumps.unread
    assert unread.rank == 1


class Opened:
    """Opens a file when it is unpickled by Python."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (self.path,))


def test_flight_dump_pickle_calls_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    path = tmp_path / "rank_0"
    path.write_bytes(pickle.dumps({"entries": [Opened(str(made))]}, protocol=2))
    (unread,) = read_dumps([str(path)]).unread
    assert "asks Python to import or call something" in unread.reason
    assert not made.exists()


def test_mutated_dumps_end_in_an_answer_or_a_sentence(tmp_path: Path) -> None:
    job = Job(1)
    for _ in range(3):
        job.everywhere()
    whole = pickle.dumps(job.dump(0), protocol=2)
    path = tmp_path / "rank_0"
    chance = random.Random(20261129)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(
            damaged[: chance.choice([len(damaged), chance.randrange(2, 900)])]
        )
        dumps = read_dumps([str(path)])
        assert len(dumps.ranks) + len(dumps.unread) == 1
        for unread in dumps.unread:
            assert unread.reason.endswith(".")


def test_files_that_processes_share_out_are_read_as_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(6)
    job.group("pair", 1, 4)
    job.everywhere()
    job.everywhere(group="pair")
    paths = job.write(tmp_path)
    alone = read_dumps(paths)
    monkeypatch.setattr(reading, "FILES_PER_PART", 2)
    together = read_dumps(paths)
    assert together.groups == alone.groups
    assert together.ranks == alone.ranks
    assert together.entries.dump.tolist() == alone.entries.dump.tolist()
    assert together.entries.group.tolist() == alone.entries.group.tolist()


def test_a_folder_of_which_nothing_can_be_read_has_no_ranks(tmp_path: Path) -> None:
    path = tmp_path / "rank_0"
    path.write_bytes(b"")
    assert read_dumps([str(path)]).ranks == ()
