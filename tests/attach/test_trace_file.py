"""What a file of a recording is called, whole or not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.attach.fake_job import TAIL

from fusetui.attach import trace_file
from fusetui.attach.trace_file import FileState, contents_of, extras_in, inspected, removed_if_own


def test_states(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    partial = tmp_path / "a.json.tmp"
    assert inspected(file).state is FileState.ABSENT
    partial.write_text(TAIL)
    assert inspected(file).state is FileState.PARTIAL  # it has not its name yet
    file.touch()
    assert contents_of(inspected(file)) == "a.json is empty"
    file.write_text(TAIL)
    assert inspected(file).state is FileState.WHOLE
    file.unlink()
    file.symlink_to(partial)
    assert inspected(file).state is FileState.STRANGE
    assert extras_in(file) is None
    removed_if_own(file)
    assert file.is_symlink()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    assert inspected(tmp_path / "a.json").state is FileState.STRANGE


def test_a_mark_across_two_chunks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    monkeypatch.setattr(trace_file, "CHUNK_BYTES", 64)
    for before in range(50, 66):
        file.write_text("{" + " " * before + '"cpu_op" "Input Dims"')
        assert extras_in(file) == frozenset({"shapes"})
    file.write_text("{" + " " * 500)
    assert extras_in(file) is None
