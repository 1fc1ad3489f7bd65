"""The bytes of a trace are looked up only in the very file that was read."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui.trace import CannotReadError, open_trace
from fusetui.trace.read.document import Document, OpenFile
from fusetui.trace.read.document_text import Filed, text_of
from fusetui.trace.read.source import open_source, state_of

Write = Callable[[str | bytes], Path]
EVENT = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "a",
    "ts": 1,
    "dur": 1,
    "args": {"size": 7},
}


def filed(path: Path) -> Filed:
    with path.open("rb") as file:
        return Filed(str(path), OpenFile(file.fileno()), state_of(file.fileno()))


def test_part_of_a_plain_file_is_at_hand(write: Write) -> None:
    text = filed(write("[0, 1, 2]"))
    assert text.at_hand
    assert text.problem() == ""
    assert bytes(text.part(1, 5)) == b"0, 1"


def test_a_packed_file_is_unpacked_when_it_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b"[0, 1, 2]"))
    text = filed(path)
    assert not text.at_hand
    assert bytes(text.part(1, 5)) == b"0, 1"
    assert text.at_hand
    path.unlink()
    assert bytes(text.part(1, 5)) == b"0, 1"


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_was_written_over(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(gzip.compress(b"[0, 1, 2]") if packed else b"[0, 1, 2]")
    text = filed(path)
    path.write_bytes(b"[0]")
    assert text.problem() == f"{path} has changed since it was read"
    with pytest.raises(CannotReadError, match="has changed"):
        text.part(1, 5)


def test_file_with_another_modification_time_has_changed(write: Write) -> None:
    path = write("[0]")
    text = filed(path)
    os.utime(path, (1, 1))
    assert "has changed" in text.problem()


def test_a_file_that_is_gone_is_still_read(write: Write) -> None:
    path = write("[0, 1, 2]")
    text = filed(path)
    path.unlink()
    path.write_text("another of its name")
    assert text.problem() == ""
    assert bytes(text.part(1, 5)) == b"0, 1"


def test_a_large_document_is_let_go_and_unpacked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.trace.read.source.LARGE", 0)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps([EVENT]).encode()))
    trace = open_trace(str(path))
    path.unlink()
    assert not trace.elements.text.at_hand
    assert trace.args_of(0) == {"size": 7}
    assert trace.elements.text.at_hand


def test_a_small_document_is_held(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b"[0, 1, 2]"))
    text = text_of(open_source(str(path)))
    path.write_bytes(b"another")
    assert isinstance(text, Document)
    assert bytes(text.part(1, 5)) == b"0, 1"


def test_args_of_a_file_that_was_written_anew(write: Write) -> None:
    path = write(json.dumps([EVENT]))
    trace = open_trace(str(path))
    assert trace.args_of(0) == {"size": 7}
    other: dict[str, Any] = {**EVENT, "args": {"size": 8}}
    trace = open_trace(str(path))
    path.write_text(json.dumps([other, other]))
    assert trace.args_of(0) == {}
