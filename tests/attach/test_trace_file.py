"""What a file of a recording is called, whole or not."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.attach.fake_job import TAIL

from fusetui.attach import trace_file
from fusetui.attach.trace_file import (
    FileState,
    describe_file,
    inspect_contents,
    inspect_trace,
    remove_if_own,
)


def test_trace_file_is_absent_partial_or_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    partial = tmp_path / "a.json.tmp"
    assert inspect_trace(file).state is FileState.ABSENT
    partial.write_text(TAIL)
    assert inspect_trace(file).state is FileState.PARTIAL  # it has not its name yet
    file.touch()
    assert describe_file(inspect_trace(file)) == "a.json is empty"
    file.write_text(TAIL)
    assert inspect_trace(file).state is FileState.WHOLE
    file.unlink()
    file.symlink_to(partial)
    assert inspect_trace(file).state is FileState.STRANGE
    assert not inspect_contents(file).has_operations
    remove_if_own(file)
    assert file.is_symlink()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    assert inspect_trace(tmp_path / "a.json").state is FileState.STRANGE


def test_a_mark_across_two_chunks_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.json"
    monkeypatch.setattr(trace_file, "CHUNK_BYTES", 64)
    for before in range(50, 66):
        file.write_text("{" + " " * before + '"cpu_op" "Input Dims"')
        assert inspect_contents(file).has_operations
        assert inspect_contents(file).extras == frozenset({"shapes"})
    file.write_text("{" + " " * 500)
    assert not inspect_contents(file).has_operations


LOOP = ["aten::addmm", "aten::relu", "aten::mm", "aten::add_"]
TRACED = ["aten::addmm", "PythonDispatchMode", "aten::empty_strided", "aten::detach"]


def trace_of(names: Iterable[str]) -> str:
    """As libkineto writes it; its operations are not in the order of their begin."""
    events = [
        f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 7, "tid": 7, "ts": {at}.25}}'
        for at, name in enumerate(names)
    ]
    return f'{{"traceEvents": [{",".join(reversed(events))}],"traceName": "x" }}'


@pytest.mark.parametrize(
    ("names", "is_compiling", "is_loop"),
    [
        (LOOP * 9, False, True),
        (LOOP, False, False),
        (TRACED * 9, True, False),
        (LOOP * 9 + TRACED, True, False),  # it compiles again
        (TRACED + LOOP * 9, False, True),
        (TRACED * 9 + LOOP * 2, True, False),  # the loop is a small part
        (
            TRACED + [f"aten::first{number}" for number in range(20)],
            True,
            False,
        ),  # nothing is repeated
    ],
)
def test_compilation_is_told_from_the_loop_after_it(
    names: list[str],
    is_compiling: bool,
    is_loop: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "a.json"
    file.write_text(trace_of(names))
    assert inspect_contents(file).has_operations
    assert inspect_contents(file).is_compiling is is_compiling
    assert inspect_contents(file).is_loop is is_loop
    monkeypatch.setattr(trace_file, "CHUNK_BYTES", 100)
    assert inspect_contents(file).is_compiling is is_compiling
    # none twice, in spite of the overlap
    assert len(trace_file._operation_names(file)) == len(names)
