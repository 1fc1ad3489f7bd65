"""Marks, folds and the last window of a trace are there again when it is opened
again."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.room import room_for
from tests.tui.driving import opened as app_opened
from tests.tui.driving import screen
from tests.tui.prepared import after, at, do, drawn, opened

from fusetui.trace import Trace
from fusetui.tui import view_store
from fusetui.tui.layout.view import make_first_view
from fusetui.tui.state import commands, moving
from fusetui.tui.state.session import Bookmark
from fusetui.tui.state.state import Size, State
from fusetui.tui.view_store import KeptView, keep, read_saved_view, restore_view


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUSETUI_KEPT", str(tmp_path / "kept"))
    return tmp_path / "kept"


def left(mlp: Trace, path: str) -> State:
    """Zoomed in, with a mark and a folded lane."""
    state = replace(opened(mlp), paths=(path,))
    set_a = partial(moving.set_mark, letter="a")
    return after(state, at("aten::gelu"), set_a, *do("zoom-in", "fold", "zoom-in"))


def test_window_marks_and_folds_are_restored(
    mlp: Trace, path: str, folder: Path
) -> None:
    before = left(mlp, path)
    keep(before)
    state = restore_view(opened(mlp), read_saved_view(path)[0])
    assert (state.view.begin, state.view.end) == (before.view.begin, before.view.end)
    assert state.view.folds == before.view.folds
    assert state.view.selected < 0
    assert dict(state.session.bookmarks) == dict(before.session.bookmarks)
    assert "0 show the whole trace" in drawn(state)


def test_kept_view_belongs_to_the_content_of_the_file(
    mlp: Trace, path: str, folder: Path, tmp_path: Path
) -> None:
    keep(left(mlp, path))
    copy = shutil.copy(path, tmp_path / "renamed.json")
    assert read_saved_view(str(copy))[0] == read_saved_view(path)[0] != KeptView()
    Path(path).write_text(Path(path).read_text() + " ")
    assert read_saved_view(path)[0] == KeptView()


def test_unchanged_view_is_not_kept(mlp: Trace, path: str, folder: Path) -> None:
    keep(left(mlp, path))
    keep(replace(opened(mlp, size=Size(80, 20)), paths=(path,)))
    assert read_saved_view(path)[0] == KeptView()


def test_restored_view_does_not_undo_keys_already_pressed(
    mlp: Trace, path: str, folder: Path
) -> None:
    keep(left(mlp, path))
    moved = after(opened(mlp), *do("zoom-in"))
    assert restore_view(moved, read_saved_view(path)[0]) is moved


@pytest.mark.parametrize(
    "text", ["", "[]", '{"window": [5, 1]}', '{"marks": {"..": 3}}', "\xff"]
)
def test_a_damaged_file_is_none(mlp: Trace, path: str, folder: Path, text: str) -> None:
    keep(left(mlp, path))
    (file,) = folder.iterdir()
    file.write_text(text, encoding="latin-1")
    state = opened(mlp)
    now = restore_view(state, read_saved_view(path)[0])
    assert now.view == state.view


def test_of_two_traces_nothing_is_kept(mlp: Trace, folder: Path) -> None:
    keep(opened(mlp, mlp))
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_no_error(
    mlp: Trace, path: str, folder: Path
) -> None:
    """But it is said, if there was anything to keep."""
    folder.write_text("a file")
    assert keep(left(mlp, path)).startswith("Marks and window were not kept: ")
    assert keep(replace(opened(mlp), paths=(path,))) == ""
    assert read_saved_view(path)[0] == KeptView()


def test_the_oldest_go(
    mlp: Trace, path: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_store, "MAX_FILES", 1)
    folder.mkdir()
    (folder / "0.json").write_text("{}")
    keep(left(mlp, path))
    assert len(list(folder.iterdir())) == 1
    assert read_saved_view(path)[0] != KeptView()


async def test_the_app_opens_as_it_was_left(
    mlp: Trace, path: str, folder: Path
) -> None:
    async with app_opened([path]) as (app, pilot):
        await pilot.press("w", "w", "m", "a")
        keep(app.state)
        window = (app.state.view.begin, app.state.view.end)
    async with app_opened([path]) as (app, pilot):
        assert (app.state.view.begin, app.state.view.end) == window
        assert "a" in app.state.session.bookmarks
        assert "0 show the whole trace" in screen(app)


async def test_the_tour_begins_afresh_and_leaves_nothing(
    mlp: Trace, path: str, folder: Path
) -> None:
    keep(left(mlp, path))
    before = read_saved_view(path)[0]
    async with app_opened([path], tour=True) as (app, pilot):
        assert app.state.session.bookmarks == {}
        assert app.state.view == make_first_view(app.state.side)
        await pilot.press("w", "w", "m", "b")
        keep(app.state)
    assert read_saved_view(path)[0] == before != KeptView()


def test_pinned_and_hidden_lanes_are_there_again(
    mlp: Trace, path: str, folder: Path
) -> None:
    state = replace(opened(mlp), paths=(path,))
    state = after(
        state, at("aten::gelu"), *do("pin"), at("ProfilerStep#3"), *do("hide", "sort")
    )
    keep(state)
    again = restore_view(opened(mlp), read_saved_view(path)[0])
    assert again.view.arranged == state.view.arranged
    assert len(again.view.arranged.pinned) == len(again.view.arranged.hidden) == 1


DAMAGED: tuple[KeptView, ...] = (
    KeptView(window=(-(2**63), 2**63 - 1)),
    KeptView(window=(2**62, 2**63 - 1)),
    KeptView(marks={"a": Bookmark(5, 5)}),
    KeptView(marks={"a": Bookmark(0, 10**30)}),
    KeptView(marks={"a": Bookmark(-(2**63), 2**63 - 1, order=2**63 - 1)}),
    KeptView(marks={"a": Bookmark(0, 1_000_000, order=2**80)}),
    KeptView(folds={"ops 1 1": -(2**80)}),
)


@pytest.mark.parametrize("damaged", DAMAGED)
def test_kept_values_that_no_trace_can_have_are_ignored(
    mlp: Trace, damaged: KeptView
) -> None:
    """The app opens, and every key works."""
    first = opened(mlp)
    state = restore_view(first, damaged)
    assert (state.view.begin, state.view.end) == (first.view.begin, first.view.end)
    go = partial(moving.go_to_mark, letter="a")
    assert drawn(after(state, go, *do("zoom-in", "pan-right", "down", "zoom-out")))


def test_nothing_is_kept_of_a_file_that_was_changed_meanwhile(
    mlp: Trace, path: str, folder: Path
) -> None:
    """The marks of one trace are no marks of another."""
    state = replace(left(mlp, path), kept_as=read_saved_view(path)[1])
    Path(path).write_text(Path(path).read_text() + " ")
    keep(state)
    assert read_saved_view(path)[0] == KeptView()


def test_notes_are_kept(mlp: Trace, path: str, folder: Path) -> None:
    state = replace(opened(mlp), paths=(path,))
    keep(after(state, partial(commands.obeyed, line="mark a the slow step")))
    again = restore_view(opened(mlp), read_saved_view(path)[0])
    assert again.session.bookmarks["a"].note == "the slow step"
    assert "at mark a: the slow step" in drawn(
        after(again, partial(moving.go_to_mark, letter="a"))
    )
    assert "a the slow step" in drawn(after(again, *do("to-mark")))


def test_a_full_disk_costs_nothing_of_the_last_time(
    mlp: Trace, path: str, folder: Path
) -> None:
    keep(left(mlp, path))
    (before,) = folder.iterdir()
    text = before.read_bytes()
    with room_for(10):
        said = keep(after(left(mlp, path), partial(moving.set_mark, letter="b")))
    assert said == "Marks and window were not kept: file too large."
    assert [file.read_bytes() for file in folder.iterdir()] == [text]
