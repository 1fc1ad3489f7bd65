"""If a file changes while it is read, there are figures and a warning, never a
signal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fusetui.commands.loading import load, notices
from fusetui.trace import CannotReadError, open_trace
from fusetui.trace.read import workers
from fusetui.trace.read.chunks import Chunk, decode_extent

EVENTS = [
    {
        "ph": "X",
        "cat": "cpu_op",
        "name": f"op{n}",
        "pid": 1,
        "tid": 1,
        "ts": n,
        "dur": 1,
    }
    for n in range(20_000)
]
TEXT = ("[" + ",\n".join(map(json.dumps, EVENTS)) + "]").encode()

Change = Callable[[Path], None]


def shrink(path: Path) -> None:
    os.truncate(path, len(TEXT) // 3)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(TEXT.replace(b'"op', b'"xx'))
    os.utime(path, (1, 1))


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b" " * 100)


@pytest.fixture
def cells_read_late(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Change], None]:
    """The file changes before its second extent is decoded."""

    def prepare(path: Path, change: Change) -> None:
        def decode(file: int, cell: int, size: int) -> Chunk | None:
            if cell == 1:
                change(path)
            return decode_extent(file, cell, size)

        monkeypatch.setattr(workers, "decode_extent", decode)
        monkeypatch.setattr(workers, "core_count", lambda: 1)
        monkeypatch.setattr(
            sys.modules["fusetui.trace.read.reading"], "EXTENT_BYTES", 1 << 16
        )

    return prepare


@pytest.mark.parametrize("change", [shrink, overwrite, grow])
def test_file_that_changes_while_it_is_read_is_reported(
    write: Callable[[bytes], Path],
    cells_read_late: Callable[[Path, Change], None],
    change: Change,
) -> None:
    path = write(TEXT)
    cells_read_late(path, change)
    trace = open_trace(str(path))
    assert trace.report.changed
    assert "changed while it was read" in next(notices(trace.report))


def test_file_that_changes_while_it_is_read_gives_exit_code_2(
    write: Callable[[bytes], Path], cells_read_late: Callable[[Path, Change], None]
) -> None:
    path = write(TEXT)
    cells_read_late(path, overwrite)
    assert load(str(path)).code == 2


def test_file_that_changes_while_it_is_read_is_not_cached(
    write: Callable[[bytes], Path],
    cells_read_late: Callable[[Path, Change], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 0)
    path = write(TEXT)
    cells_read_late(path, overwrite)
    assert open_trace(str(path)).report.changed
    assert not open_trace(str(path)).report.changed


def test_file_that_shrinks_to_nothing_is_refused(
    write: Callable[[bytes], Path], cells_read_late: Callable[[Path, Change], None]
) -> None:
    path = write(TEXT)
    cells_read_late(path, empty)
    with pytest.raises(CannotReadError, match="changed while it was read"):
        open_trace(str(path))


def test_args_of_a_file_that_shrinks_are_blank(write: Callable[[bytes], Path]) -> None:
    path = write(TEXT)
    trace = open_trace(str(path))
    os.truncate(path, 10)
    assert trace.args_of(len(trace) - 1) == {}


def test_an_unreadable_disk_is_a_sentence(
    write: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    path = write(TEXT)
    monkeypatch.setattr("fusetui.trace.read.document.read_at", fail)
    with pytest.raises(CannotReadError, match=r"cannot be read: input/output error\.$"):
        open_trace(str(path))
