"""Tables, widths and the progress bar."""

from __future__ import annotations

import io

import pytest
from tests.hostile import WORST, obeyed

from fusetui.render import progress
from fusetui.render.table import Column, table
from fusetui.render.text import cells, fit

COLUMNS = (Column("n"), Column("spare", spare=1), Column("name", left=True))
ROWS = [("1", "x" * 20, "a" * 60), ("22", "y", "b")]


def test_wide_table() -> None:
    assert table(COLUMNS, [("1", "2", "a"), ("22", "3", "bb")], 80).splitlines() == [
        " n  spare  name",
        " 1      2  a",
        "22      3  bb",
    ]


@pytest.mark.parametrize("width", [40, 50, 58, 60, 80, 100])
def test_table_fits(width: int) -> None:
    lines = table(COLUMNS, ROWS, width).splitlines()
    assert max(map(len, lines)) <= width
    assert ("spare" in lines[0]) == (width >= 60)
    assert ("..." in lines[1]) == (width < 86)


def test_cells() -> None:
    assert cells("abc") == 3
    assert cells("日本") == 4
    assert cells("e\u0301") == 1


@pytest.mark.parametrize(
    ("width", "shown"), [(9, "日本語の"), (8, "日本語の"), (7, "日本..."), (3, "...")]
)
def test_fit(width: int, shown: str) -> None:
    assert fit("日本語の", width) == shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0)
    stream = Terminal()
    with progress.Bar("reading x.json", stream) as bar:
        bar.update(1, 2)
        bar.update(2, 2)  # too soon to draw again
    blocks = f"[{'#' * 12}{'-' * 12}]"
    assert stream.getvalue() == f"\r\x1b[Kreading x.json  {blocks}    50 %\r\x1b[K"


def test_a_bar_shows_a_name_and_does_not_obey_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0)
    stream = Terminal()
    with progress.Bar(f"reading {WORST}", stream) as bar:
        bar.update(1, 2)
    assert obeyed(stream.getvalue().replace("\r\x1b[K", "")) == set()


class Full(Terminal):
    def write(self, _: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_bar_that_nobody_sees_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0)
    with progress.Bar("reading x.json", Full()) as bar:
        bar.update(1, 2)


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_no_bar(stream: io.StringIO) -> None:
    """Neither off a terminal nor within the first second."""
    with progress.Bar("reading x.json", stream) as bar:
        bar.update(1, 2)
    assert stream.getvalue() == ""
