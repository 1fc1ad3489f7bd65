"""What commands write is remembered for the list of recent traces."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fusetui.attach.recording import AttachedProcess, RecordingPhase
from fusetui.commands import record
from fusetui.sample_traces import lessons
from fusetui.tui.recent_traces import recent_traces


@pytest.mark.parametrize("command", ["run", "record"])
def test_whole_recordings_are_remembered_with_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("FUSETUI_KEPT", str(tmp_path / "kept"))
    folder = tmp_path / "recorded-1"
    folder.mkdir()
    file = folder / "train_12.json.gz"
    shutil.copy(lessons.path("linear-eager"), file)
    jobs: list[Any] = [
        SimpleNamespace(file=file, phase=RecordingPhase.WHOLE),
        SimpleNamespace(file=folder / "b.json", phase=RecordingPhase.FAILED),
    ]
    record.remember(cast("list[AttachedProcess]", jobs), folder, command)
    (entry,) = recent_traces()
    assert entry.paths == (str(file),)
    assert (entry.written_by, entry.folder) == (command, str(folder))


def test_a_run_of_capture_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSETUI_KEPT", str(tmp_path / "kept"))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    shutil.copy(lessons.path("linear-eager"), folder / "eager.json.gz")
    record._remember_run(str(folder))
    (entry,) = recent_traces()
    assert entry.paths == (str(folder / "eager.json.gz"),)
    assert entry.written_by == "capture"
