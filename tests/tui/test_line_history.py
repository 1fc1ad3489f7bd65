"""The lines of `/` and `:` come back with Up, also in the next run, and no file of
theirs can do harm."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.cases import Cases
from tests.tui.driving import screen, settled

from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.line_history import (
    MAX_FILE_BYTES,
    MAX_LINE_CHARS,
    MAX_LINES,
    MAX_LINES_BYTES,
    LineHistory,
    open_saved_history,
)
from fusetui.tui.state.state import Prompt

SEARCH, COMMAND = Prompt.SEARCH, Prompt.COMMAND


def after_lines(file: Path | None, prompt: Prompt, *lines: str) -> LineHistory:
    """The history of a run in which these lines were typed."""
    history = LineHistory(file)
    for line in lines:
        history.add(prompt, line)
    return history


def test_lines_are_kept_by_kind_each_once_and_newest_last(tmp_path: Path) -> None:
    file = tmp_path / "new" / "history.json"
    first = after_lines(file, SEARCH, "gemm", "gelu", " gemm ", "")
    first.add(COMMAND, "step 2")
    first.add(COMMAND, "q")
    assert first.keep() == ""
    second = LineHistory(file)
    assert second.lines(SEARCH) == ("gelu", "gemm")
    assert second.lines(COMMAND) == ("step 2",)
    assert second.lines(Prompt.FILTER) == ()


def test_two_runs_at_once_lose_no_line(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    one = after_lines(file, SEARCH, "of one")
    other = after_lines(file, SEARCH, "of the other")
    assert one.lines(SEARCH) == ("of one",)
    one.keep()
    other.keep()
    assert LineHistory(file).lines(SEARCH) == ("of one", "of the other")


def test_the_file_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    many = [f"step {number}" for number in range(3 * MAX_LINES)]
    long = "x" * (MAX_LINE_CHARS + 1)
    history = after_lines(file, COMMAND, *many, long)
    for number in range(MAX_LINES):
        history.add(SEARCH, f"{number:03}" + "é" * (MAX_LINE_CHARS - 3))
    history.keep()
    again = LineHistory(file)
    assert again.lines(COMMAND) == tuple(many[-MAX_LINES:])
    searches = again.lines(SEARCH)
    assert searches[-1].startswith(f"{MAX_LINES - 1}")
    assert sum(len(line.encode()) for line in searches) <= MAX_LINES_BYTES
    assert file.stat().st_size <= MAX_FILE_BYTES


def test_a_file_that_is_damaged_or_hostile_is_no_history(tmp_path: Path) -> None:
    good = b'{"search": ["gemm", "\\u001b[31mred", "a\\u202eb", "x\\ny", "gelu"]}'
    contents = {
        "escape sequences": (good, ("gemm", "gelu")),
        "cut short": (good[:-3], ()),
        "not UTF-8": (b'{"search": ["\xff"]}', ()),
        "other types": (b'{"search": [1, {"a": []}]}', ()),
        "deep": (b'{"other": ' + b"[" * 100_000, ()),
        "a list": (b"[]", ()),
        "empty": (b"", ()),
        "too large": (b'{"search": ["gemm"]}' + b" " * MAX_FILE_BYTES, ()),
    }
    file = tmp_path / "history.json"
    with Cases() as cases:
        for name, (content, lines) in contents.items():
            with cases.case(name):
                file.write_bytes(content)
                assert LineHistory(file).lines(SEARCH) == lines
                assert after_lines(file, SEARCH, "new").keep() == ""
                assert LineHistory(file).lines(SEARCH) == (*lines, "new")
    file.unlink()
    file.mkdir()
    assert LineHistory(file).lines(SEARCH) == ()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    os.mkfifo(file)
    assert LineHistory(file).lines(SEARCH) == ()


def test_what_could_not_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = after_lines(tmp_path / "file" / "history.json", SEARCH, "gemm")
    assert history.keep().startswith("The typed lines were not saved: ")


def test_only_the_user_can_read_the_file(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    after_lines(file, SEARCH, "gemm").keep()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["history.json"]


def test_the_history_is_where_all_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSETUI_KEPT", "off")
    open_saved_history().add(SEARCH, "gemm")
    assert open_saved_history().keep() == ""
    monkeypatch.setenv("FUSETUI_KEPT", str(tmp_path))
    history = open_saved_history()
    history.add(SEARCH, "gemm")
    history.keep()
    assert open_saved_history().lines(SEARCH) == ("gemm",)
    assert (tmp_path / "history.json").is_file()


async def test_up_and_down_go_through_earlier_lines(path: str, tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    before = after_lines(file, SEARCH, "of an earlier run")
    before.add(COMMAND, "step 1")
    before.keep()
    lines = LineHistory(file)
    app = FusetuiApp(AppOptions((path,), history=lambda: lines))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        await pilot.press("slash", *"gelu", "enter")
        await pilot.press("slash", *"lin")
        shown = []
        for key in ("up", "up", "up", "down", "down", "down"):
            await pilot.press(key)
            shown.append(app._page.input.value)
        assert shown == ["gelu", *["of an earlier run"] * 2, "gelu", "lin", "lin"]
        await pilot.press("up")
        await settled(app, pilot)
        assert "gelu" in screen(app).splitlines()[-1]
        await pilot.press("enter")
        assert app.state.session.hits is not None
        assert app.state.session.hits.what == "gelu"
        await pilot.press("colon", "up")
        assert app._page.input.value == "step 1"
    lines.keep()
    assert LineHistory(file).lines(SEARCH) == ("of an earlier run", "gelu")


async def test_a_line_with_escape_sequences_is_not_kept(path: str) -> None:
    lines = after_lines(None, COMMAND, "step 1\x1b[31m", "\u202estep", "step 2")
    app = FusetuiApp(AppOptions((path,), history=lambda: lines))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        await pilot.press("colon", "up", "up", "up")
        assert app._page.input.value == "step 2"
