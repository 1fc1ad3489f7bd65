"""Run folders appear completely or not at all."""

import os
from datetime import datetime
from pathlib import Path

import pytest

from fusetui.capture.errors import CaptureError
from fusetui.capture.folder import (
    FolderClaim,
    claim_free,
    default_folder,
    folder_to_fill,
    new_folder,
)

NOW = datetime(2026, 1, 31, 17, 45)


def test_a_folder_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    with new_folder(out) as folder:
        (folder / "x").touch()
        assert not out.exists()
    assert [file.name for file in out.iterdir()] == ["x"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_of_a_run_that_stopped(
    tmp_path: Path, error: type[BaseException]
) -> None:
    with pytest.raises(error), new_folder(tmp_path / "runs" / "a"):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_folders_of_other_runs_survive_a_run_that_stopped(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match="stop"), new_folder(tmp_path / "a"):
        raise ValueError("stop")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_an_existing_folder_is_not_touched(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="already exists"), new_folder(tmp_path):
        pass


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(CaptureError, match="Cannot write to"),
        new_folder(tmp_path / "file" / "a"),
    ):
        pass


def test_the_default_name_tells_workload_device_and_time() -> None:
    assert default_folder("mlp", "cpu", NOW) == Path("runs/mlp-cpu-20260131-174500")


def test_a_second_run_in_one_second_gets_a_number(tmp_path: Path) -> None:
    def take() -> FolderClaim:
        return claim_free(tmp_path / "a")

    with folder_to_fill(take), folder_to_fill(take):
        pass
    with folder_to_fill(take) as claim:
        assert claim.out == tmp_path / "a-3"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a-2", "a-3"]


def test_a_folder_that_another_capture_writes_is_told_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    with (
        new_folder(tmp_path / "a"),
        pytest.raises(CaptureError, match="another capture is writing"),
        new_folder(tmp_path / "a"),
    ):
        pytest.fail("it would measure in vain")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_run_is_kept_when_another_program_takes_its_name(tmp_path: Path) -> None:
    claim = FolderClaim(tmp_path / "a")
    (claim.part / "x").touch()
    (tmp_path / "a").mkdir()
    with pytest.raises(CaptureError, match=r"the run is in .*/a-2\."):
        claim.keep()
    assert [path.name for path in (tmp_path / "a-2").iterdir()] == ["x"]
    assert list((tmp_path / "a").iterdir()) == []


def test_a_link_that_leads_nowhere_is_a_name_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("nowhere")
    with (
        pytest.raises(CaptureError, match="already exists"),
        new_folder(tmp_path / "a"),
    ):
        pass


@pytest.mark.parametrize("name", ["x/..", "."])
def test_a_folder_needs_a_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(CaptureError, match="choose another --out"),
        new_folder(Path(name)),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_folder_stays_where_it_was_meant_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with new_folder(Path("runs/a")):
        os.chdir("elsewhere")
    assert (tmp_path / "runs" / "a").is_dir()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_working_directory_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with (
        pytest.raises(CaptureError, match="working directory no longer exists"),
        new_folder(Path("a")),
    ):
        pass
    monkeypatch.chdir(tmp_path)
