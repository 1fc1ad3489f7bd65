"""The progress bar."""

from __future__ import annotations

import io

import pytest
from tests.hostile import WORST, obeyed

from fusetui.report import output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_bar_draws_share_and_clears_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "PATIENCE_SECONDS", 0)
    stream = Terminal()
    with output.Bar("reading x.json", stream) as bar:
        bar.update(1, 2)
        bar.update(2, 2)  # too soon to draw again
    blocks = f"[{'#' * 12}{'-' * 12}]"
    assert stream.getvalue() == f"\r\x1b[Kreading x.json  {blocks}    50 %\r\x1b[K"


def test_a_bar_shows_a_name_and_does_not_obey_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "PATIENCE_SECONDS", 0)
    stream = Terminal()
    with output.Bar(f"reading {WORST}", stream) as bar:
        bar.update(1, 2)
    assert obeyed(stream.getvalue().replace("\r\x1b[K", "")) == set()


class Full(Terminal):
    asked = 0

    def write(self, _: str) -> int:
        self.asked += 1
        raise OSError(28, "No space left on device")


def test_a_bar_that_nobody_sees_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PATIENCE_SECONDS", 0)
    stream = Full()
    with output.Bar("reading x.json", stream) as bar:
        bar.update(1, 2)
    assert stream.asked == 2  # the bar, and wiping it


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_progress_bar_is_not_drawn_in_a_pipe_or_too_soon(stream: io.StringIO) -> None:
    """Neither off a terminal nor within the first second."""
    with output.Bar("reading x.json", stream) as bar:
        bar.update(1, 2)
    assert stream.getvalue() == ""
