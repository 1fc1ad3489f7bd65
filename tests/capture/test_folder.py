"""Run folders appear whole or not at all."""

from datetime import datetime
from pathlib import Path

import pytest

from fusetui.capture.errors import CaptureError
from fusetui.capture.folder import default_folder, new_folder, read_record, trace_files

NOW = datetime(2026, 1, 31, 17, 45)


def test_a_folder_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "a"
    with new_folder(out) as folder:
        (folder / "x").touch()
        assert not out.exists()
    assert [file.name for file in out.iterdir()] == ["x"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_of_a_run_that_stopped(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), new_folder(tmp_path / "runs" / "a"):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_other_runs_survive_one_that_stopped(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match="stop"), new_folder(tmp_path / "a"):
        raise ValueError("stop")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_an_existing_folder_is_not_touched(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="exists already"), new_folder(tmp_path):
        pass


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CaptureError, match="cannot write to"), new_folder(tmp_path / "file" / "a"):
        pass


def test_the_default_name_tells_workload_device_and_time() -> None:
    assert default_folder("mlp", "cpu", NOW) == Path("runs/mlp-cpu-20260131-174500")


def test_a_second_run_in_one_second_gets_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    default_folder("mlp", "cpu", NOW).mkdir(parents=True)
    assert default_folder("mlp", "cpu", NOW).name == "mlp-cpu-20260131-174500-2"


def test_failed_variants_have_no_trace_file(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(
        '{"variants": [{"name": "eager", "files": ["eager.json.gz"]},'
        ' {"name": "fused", "failed": "no GPU."}]}'
    )
    assert trace_files(tmp_path) == [("eager", tmp_path / "eager.json.gz")]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read"), ("{", "is no JSON"), ("[1]", "is not the record of a fusetui run")],
)
def test_a_folder_without_a_record_is_told(
    tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(CaptureError, match=message):
        read_record(tmp_path)
