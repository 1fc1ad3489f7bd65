"""Where a run was made."""

import subprocess
from pathlib import Path

import pytest

from fusetui.capture import provenance


def git(folder: Path, *command: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *command], cwd=folder, check=True, capture_output=True)


def test_the_command_can_be_typed_again() -> None:
    command = provenance.command_line(
        ["/opt/bin/fusetui", "capture", "mlp", "--out", "my runs"]
    )
    assert command == "fusetui capture mlp --out 'my runs'"


def test_a_folder_outside_any_repository_has_no_commit(tmp_path: Path) -> None:
    assert provenance.read_git_state(tmp_path) is None


def test_the_commit_and_whether_files_differ_from_it(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-m", "a")
    state = provenance.read_git_state(tmp_path)
    assert state is not None
    assert (len(state["commit"]), state["changed"]) == (40, False)
    (tmp_path / "a").write_text("2")
    assert provenance.read_git_state(tmp_path) == {**state, "changed": True}


def test_unknown_properties_of_a_gpu_are_null() -> None:
    found = provenance.parse_smi("550.54.15, 1980 MHz, [N/A], 2619 MHz, 700.00 W")
    assert found["driver_version"] == "550.54.15"
    assert found["clocks.max.sm"] is None
    assert set(provenance.parse_smi("").values()) == {None}


@pytest.mark.parametrize(
    ("scrubbed", "shown"), [(True, "x.py:build"), (False, "/home/me/x.py:")]
)
def test_scrubbing_takes_paths_out_of_the_command(
    scrubbed: bool, shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["fusetui", "capture", "/home/me/x.py:build"])
    command = provenance.provenance("cpu", tmp_path, scrubbed)["command"]
    assert shown in command
    assert ("home" in command) is not scrubbed
