"""Files that are no ranks of the job: each is a row with its reason, and the rest goes
on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.ranks.made import answer_of, rank

from fusetui.analysis.ranks import executors
from fusetui.analysis.ranks.executors import choose_process_count, summarize
from fusetui.analysis.ranks.matching import determine_job
from fusetui.analysis.ranks.model import (
    LeftOut,
    RankSummary,
    decode_summary,
    encode_summary,
)
from fusetui.analysis.ranks.summary import read_summary
from fusetui.report.ranks_words import describe_clocks, describe_given, ranks_named

Make = Callable[..., Any]
DAY = 86_400e6  # us


def test_a_missing_rank_is_named() -> None:
    job = determine_job([rank(0, size=4), rank(2, size=4)])
    assert (job.missing, job.is_whole) == ((1, 3), False)


def test_second_file_of_a_rank_is_left_out() -> None:
    job = determine_job([rank(0), rank(1), rank(1, path="copy.json")])
    assert [one.path for one in job.ranks] == ["rank0.json", "rank1.json"]
    assert [(one.rank, one.reason) for one in job.left_out] == [
        (1, "copy.json is skipped: it is rank 1, like rank1.json.")
    ]


def test_rank_of_another_world_size_is_left_out() -> None:
    job = determine_job([rank(0, size=4), rank(1, size=4), rank(2, size=8)])
    assert job.world_size == 4
    (left,) = job.left_out
    assert (
        left.reason
        == "rank2.json is of a different job: it has 8 ranks, and the others have 4."
    )


def test_a_rank_recorded_at_another_time() -> None:
    ranks = [rank(n, [(0, 10)], size=3, begin=0) for n in range(2)]
    job = determine_job([*ranks, rank(2, [(DAY, DAY + 10)], size=3, begin=DAY)])
    assert [one.rank for one in job.left_out] == [2]
    assert "is skipped: it was recorded" in job.left_out[0].reason


def test_a_file_that_cannot_be_read_does_not_end_the_rest() -> None:
    answer = answer_of(
        [rank(0, size=3), LeftOut("x.json", None, "x.json is empty."), rank(1, size=3)]
    )
    assert [row.rank for row in answer.ranks] == [0, 1]
    assert [one.reason for one in answer.left_out] == ["x.json is empty."]
    assert answer.missing == (2,)
    assert (
        "Rank 2 is not given and may have arrived later than the given ranks."
        in list(describe_given(answer))
    )


def test_ranks_that_nothing_numbers_are_numbered_in_order() -> None:
    unknown: dict[str, Any] = {"rank_by": "file order", "size": 0}
    job = determine_job(
        [rank(-1, path="a", **unknown), rank(0), rank(-1, path="b", **unknown)]
    )
    assert {one.path: one.rank for one in job.ranks} == {
        "a": 1,
        "rank0.json": 0,
        "b": 2,
    }
    assert job.notes == ("Some ranks are numbered by file order.",)


def test_job_without_readable_ranks_has_no_rows() -> None:
    answer = answer_of(LeftOut(name, None, f"{name} is empty.") for name in "ab")
    assert (answer.given, len(answer.left_out), answer.ranks) == (0, 2, ())
    assert (
        next(iter(describe_given(answer)))
        == "The traces contain 0 ranks, 0 steps and 0 collectives."
    )


def test_waits_are_known_no_better_than_the_clocks() -> None:
    """Rank 1 starts within 20 us before rank 0 ends, and the other way round within
    30."""
    answer = answer_of([rank(0, [(0, 30)]), rank(1, [(10, 30)], clock=500)])
    assert describe_clocks(answer).startswith(
        "Clocks are aligned to rank 0 to within 25 us, which limits the "
        "precision of waits. The"
    )


def test_consecutive_ranks_are_written_as_a_range() -> None:
    assert ranks_named((3,)) == "rank 3"
    assert ranks_named((4, 5, 6, 9)) == "ranks 4 to 6 and 9"


@pytest.fixture
def folder(tmp_path: Path, event: Make) -> Path:
    """Four ranks of gloo; the third file is cut, the last one is no trace."""
    for number in range(4):
        ops = [event("c10d::allreduce_", ts, 2) for ts in (10, 50)]
        marks = [
            event(
                "gloo:all_reduce",
                ts + number,
                20 - number,
                cat="user_annotation",
                tid=9,
            )
            for ts in (12, 52)
        ]
        info = {"rank": number, "world_size": 4, "backend": "gloo"}
        text = json.dumps({"distributedInfo": info, "traceEvents": [*ops, *marks]})
        (tmp_path / f"rank{number}.json").write_text(
            text if number != 2 else text[:-60]
        )
    (tmp_path / "rank3.json").write_text('{"nodes": []}')
    return tmp_path


def test_damage_is_a_row_with_its_reason(folder: Path) -> None:
    answer = answer_of(summarize(sorted(map(str, folder.iterdir()))))
    assert {row.rank: bool(row.damage) for row in answer.ranks} == {
        0: False,
        1: False,
        2: True,
    }
    assert [Path(one.path).name for one in answer.left_out] == ["rank3.json"]
    assert "Rank 2: the file is truncated." in list(describe_given(answer))


def test_a_summary_is_read_from_the_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(folder / "rank0.json")
    first = read_summary(path)
    # it is not called again
    monkeypatch.setattr("fusetui.analysis.ranks.summary.open_trace", None)
    second = read_summary(path)
    assert isinstance(first, RankSummary)
    assert isinstance(second, RankSummary)
    assert encode_summary(first) == encode_summary(second)


def test_a_summary_of_another_state_of_the_file_is_not_used(folder: Path) -> None:
    path = folder / "rank0.json"
    read_summary(str(path))
    path.write_text(path.read_text().replace('"rank": 0', '"rank": 3'))
    found = read_summary(str(path))
    assert isinstance(found, RankSummary)
    assert found.rank == 3


def test_a_summary_survives_being_sent() -> None:
    one = rank(3, [(0, 5)], places=[(0, "op", "aten::a", 2)])
    assert encode_summary(decode_summary(encode_summary(one))) == encode_summary(one)


def test_processes_give_the_same_as_this_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sorted(map(str, folder.iterdir()))
    here = answer_of(summarize(paths, cached=False))
    monkeypatch.setattr(executors, "MIN_BYTES_FOR_PROCESSES", 0)
    monkeypatch.setattr(executors, "core_count", lambda: 2)
    there = answer_of(summarize(paths, cached=False))
    assert here == there


class Elsewhere(Executor):
    """Runs tasks at once, in another working directory."""

    def submit(self, run: Any, /, *args: Any, **more: Any) -> Future[Any]:
        done: Future[Any] = Future()
        with contextlib.chdir("/"):
            done.set_result(run(*args, **more))
        return done


class Dying:
    """Processes of which the one that reads rank 1 dies so many times."""

    def __init__(self, deaths: int) -> None:
        self._deaths = deaths

    def calls(
        self, function: Any, arguments: Any, processes: int
    ) -> Iterator[tuple[int, Any]]:
        for number, (path, cached) in enumerate(arguments):
            if "rank1" in path and self._deaths:
                self._deaths -= 1
            else:
                yield number, function(path, cached)


@pytest.mark.parametrize(("deaths", "is_read"), [(0, True), (2, True), (3, False)])
def test_a_rank_whose_process_dies_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, deaths: int, is_read: bool
) -> None:
    monkeypatch.setattr(executors, "MIN_BYTES_FOR_PROCESSES", 0)
    monkeypatch.setattr(executors, "core_count", lambda: 2)
    monkeypatch.setattr(executors, "calls", Dying(deaths).calls)
    answer = answer_of(summarize(sorted(map(str, folder.iterdir())), cached=False))
    assert [row.rank for row in answer.ranks if row.rank != 2] == (
        [0, 1] if is_read else [0]
    )
    died = [one.reason for one in answer.left_out if "rank1" in one.path]
    assert [reason.startswith("The process that read") for reason in died] == [True] * (
        not is_read
    )


def test_an_executor_may_work_in_another_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    here = summarize(["rank0.json", "rank1.json"], cached=False)
    there = summarize(["rank0.json", "rank1.json"], Elsewhere(), cached=False)
    assert answer_of(here) == answer_of(there)
    assert [one.path for one in there] == ["rank0.json", "rank1.json"]


def test_no_more_processes_than_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file needs 3 times its 1000 bytes; 70 % of 10,000 bytes hold two of them."""
    for n in range(8):
        (tmp_path / f"{n}.json").write_bytes(bytes(1000))
    monkeypatch.setattr(executors, "core_count", lambda: 16)
    monkeypatch.setattr(executors, "memory_left", lambda: 10_000)
    assert choose_process_count(sorted(map(str, tmp_path.iterdir()))) == 2
