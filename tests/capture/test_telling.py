"""What a capture prints."""

from __future__ import annotations

import sys
from io import StringIO

import pytest
from tests.hostile import WORST, obeyed

from fusetui.capture.errors import print_message
from fusetui.report.output import emit
from fusetui.report.streams import OutputError


class Full(StringIO):
    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error
        self.asked = False

    def write(self, _: str) -> int:
        self.asked = True
        raise self._error


def test_text_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    emit(f"one\n{WORST}")
    print_message(WORST)
    output = capsys.readouterr()
    assert obeyed(output.out + output.err) == set()
    assert output.out.startswith("one\n")
    assert output.err.count("\n") == 1


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Full(OSError(28, "No space left on device")))
    with pytest.raises(OutputError, match="cannot be written: No space left"):
        emit("a result")


def test_a_reader_that_left_is_no_failure_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", Full(BrokenPipeError()))
    with pytest.raises(BrokenPipeError):
        emit("a result")


def test_talk_that_nobody_hears_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Full(OSError(28, "No space left on device"))
    monkeypatch.setattr(sys, "stderr", stderr)
    print_message("a word")
    assert stderr.asked
