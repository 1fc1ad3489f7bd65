"""What a trace says about its own origin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fusetui.analysis.questions.note import MAX_TEXT_CHARACTERS, note_of
from fusetui.trace import open_trace


def note(folder: Path, **keys: Any) -> str:
    path = folder / "trace.json"
    path.write_text(json.dumps({**keys, "traceEvents": []}))
    return note_of(open_trace(str(path)))


def test_a_recorded_trace_has_none(tmp_path: Path) -> None:
    assert note(tmp_path) == ""


def test_a_reconstructed_trace_says_so(tmp_path: Path) -> None:
    said = "Reconstructed, not recorded: from a text."
    assert note(tmp_path, reconstructed=said) == said


def test_the_cache_keeps_it(tmp_path: Path) -> None:
    assert note(tmp_path, reconstructed="so") == "so"
    assert note_of(open_trace(str(tmp_path / "trace.json"))) == "so"


@pytest.mark.parametrize("value", [1, True, {"so": 1}, None])
def test_another_type_is_no_note(tmp_path: Path, value: Any) -> None:
    assert note(tmp_path, reconstructed=value) == ""


def test_a_hostile_note_is_one_short_printable_line(tmp_path: Path) -> None:
    found = note(tmp_path, reconstructed="\x1b[31m\n" * 500)
    assert found.isprintable()
    assert len(found) <= MAX_TEXT_CHARACTERS
