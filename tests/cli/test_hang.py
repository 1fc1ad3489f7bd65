"""`fusetui hang`, and dumps that are named without a command."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cli.conftest import Result
from tests.flight_dumps import Job, hanging

from fusetui import sample_traces

Run = Callable[..., Result]
HEADLINE = "Rank 1 is missing"


def missing_rank(folder: Path) -> Path:
    """A folder with the dumps of a job whose rank 1 does not come."""
    folder.mkdir()
    job = Job(3)
    job.everywhere()
    for rank in (0, 2):
        job.issue(rank, "all_gather", over=False)
    job.write(folder)
    return folder


def test_a_missing_rank_is_named_first_with_exit_code_1(
    fusetui: Run, tmp_path: Path
) -> None:
    told = fusetui("hang", missing_rank(tmp_path / "dumps"))
    assert told.code == 1
    assert told.out.startswith(HEADLINE)


def test_a_job_in_which_nobody_waits_ends_with_0(fusetui: Run, tmp_path: Path) -> None:
    job = Job(2)
    job.everywhere()
    told = fusetui("hang", *job.write(tmp_path))
    assert told.code == 0
    assert told.out.startswith("No rank is missing")


def test_undecided_dumps_end_with_exit_code_3(fusetui: Run, tmp_path: Path) -> None:
    job = Job(2)
    job.issue(0, over=False)
    assert fusetui("hang", *job.write(tmp_path, without=(1,))).code == 3


def test_a_folder_without_dumps_is_refused(fusetui: Run, tmp_path: Path) -> None:
    told = fusetui("hang", tmp_path)
    assert told.code == 2
    assert told.sentence == f"{tmp_path} is a folder without flight-recorder dumps."


def test_dumps_in_folders_of_hosts_are_one_job(fusetui: Run, tmp_path: Path) -> None:
    dumps = missing_rank(tmp_path / "dumps")
    for rank in range(3):
        host = dumps / f"host{rank}"
        host.mkdir()
        (dumps / f"nccl_trace_rank_{rank}").rename(host / f"nccl_trace_rank_{rank}")
    assert fusetui("hang", dumps).out.startswith(HEADLINE)


def test_a_trace_and_a_snapshot_beside_dumps_are_passed_over(
    fusetui: Run, tmp_path: Path
) -> None:
    dumps = missing_rank(tmp_path / "dumps")
    shutil.copy(sample_traces.path("mlp-eager"), dumps)
    assert fusetui("hang", dumps).out.startswith(HEADLINE)


@pytest.mark.parametrize("as_folder", [True, False])
def test_dumps_without_a_command_are_answered(
    fusetui: Run, tmp_path: Path, as_folder: bool
) -> None:
    dumps = missing_rank(tmp_path / "dumps")
    named = [dumps] if as_folder else sorted(dumps.iterdir())
    assert fusetui("open", *named).out.startswith(HEADLINE)


def test_a_folder_with_a_trace_beside_dumps_is_opened(
    fusetui: Run, tmp_path: Path
) -> None:
    dumps = hanging(tmp_path / "dumps")
    shutil.copy(sample_traces.path("mlp-eager"), dumps)
    told = fusetui("open", dumps)
    assert told.out == ""
    assert told.sentence.startswith("fusetui open needs a terminal")


@pytest.fixture
def in_app(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """The calls of the app, as if on a terminal."""
    from fusetui.tui import app

    calls: list[dict[str, object]] = []

    def run(paths: Sequence[str], **options: object) -> int:
        calls.append({"paths": list(paths), **options})
        return 0

    monkeypatch.setattr(app, "run", run)
    monkeypatch.setattr("fusetui.commands.open.has_terminal", lambda: True)
    return calls


def names_of(dumps: object) -> list[str]:
    assert isinstance(dumps, tuple)
    return [Path(path).name for path in dumps]


def test_on_a_terminal_dumps_open_the_app(
    fusetui: Run, tmp_path: Path, in_app: list[dict[str, object]]
) -> None:
    assert fusetui("open", missing_rank(tmp_path / "dumps")).code == 0
    assert in_app[0]["paths"] == []
    assert names_of(in_app[0]["dumps"]) == [
        "nccl_trace_rank_0",
        "nccl_trace_rank_1",
        "nccl_trace_rank_2",
    ]


def test_dumps_beside_traces_are_opened_with_them(
    fusetui: Run, tmp_path: Path, in_app: list[dict[str, object]]
) -> None:
    """Also an empty one, which only its name tells from other files."""
    folder = hanging(tmp_path / "job")
    shutil.copy(sample_traces.path("mlp-eager"), folder)
    assert fusetui("open", folder).code == 0
    assert in_app[0]["paths"] == [str(folder / "mlp-eager.json.gz")]
    assert "nccl_trace_rank_4" in names_of(in_app[0]["dumps"])


def test_a_dump_that_is_named_beside_a_trace_is_no_trace(
    fusetui: Run, tmp_path: Path, in_app: list[dict[str, object]]
) -> None:
    dumps = missing_rank(tmp_path / "dumps")
    assert fusetui("open", "sample:mlp-eager", dumps / "nccl_trace_rank_0").code == 0
    paths = in_app[0]["paths"]
    assert isinstance(paths, list)
    assert [Path(path).name for path in paths] == ["mlp-eager.json.gz"]
    assert names_of(in_app[0]["dumps"]) == ["nccl_trace_rank_0"]
