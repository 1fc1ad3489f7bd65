"""The list of recent traces: what goes into it, and what `o` makes of it."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

import pytest
from tests.tui.driving import opened, screen, settled

from fusetui.sample_traces import lessons
from fusetui.tui import recent_traces
from fusetui.tui.recent_traces import (
    MAX_ENTRIES,
    make_recent_offers,
    remember_opened,
    remember_written,
)

LESSON = lessons.path("linear-eager")
HOSTILE = "a [bold]x\x1b[31m.json.gz"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The list of recent traces."""
    monkeypatch.setenv("FUSETUI_KEPT", str(tmp_path / "kept"))
    return tmp_path / "kept" / "recent.json"


def trace_at(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(LESSON, path)
    return str(path)


def listed() -> list[str]:
    """The first path of each entry, by its name."""
    entries = recent_traces.recent_traces()
    return [os.path.basename(entry.paths[0]) for entry in entries]


def test_the_newest_come_first_and_each_once(kept: Path, tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz", "a.json.gz"):
        remember_opened([trace_at(tmp_path / name)])
    assert listed() == ["a.json.gz", "b.json.gz"]
    assert kept.stat().st_mode & 0o077 == 0


def test_the_list_is_bounded(kept: Path, tmp_path: Path) -> None:
    paths = [trace_at(tmp_path / f"{n}.json.gz") for n in range(MAX_ENTRIES + 5)]
    for path in paths:
        remember_opened([path])
    assert len(json.loads(kept.read_text())) == MAX_ENTRIES
    assert listed()[0] == f"{MAX_ENTRIES + 4}.json.gz"


def test_files_that_are_gone_urls_and_lessons_are_not_listed(
    kept: Path, tmp_path: Path
) -> None:
    gone = trace_at(tmp_path / "gone.json.gz")
    remember_opened([gone, str(LESSON), "https://host/a.json?token=secret"])
    assert "secret" not in kept.read_text()
    os.unlink(gone)
    assert listed() == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"[" * 90_000, b"\xff"])
def test_a_damaged_list_is_ignored_with_a_sentence_in_the_debug_log(
    kept: Path, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    kept.parent.mkdir()
    kept.write_bytes(content)
    with caplog.at_level(logging.DEBUG, "fusetui"):
        assert listed() == []
    (record,) = caplog.records
    assert record.getMessage().startswith("The list of recent traces ")
    assert " is ignored: " in record.getMessage()
    remember_opened([trace_at(tmp_path / "a.json.gz")])
    assert listed() == ["a.json.gz"]


def test_an_entry_that_cannot_be_shown_is_left_out(kept: Path, tmp_path: Path) -> None:
    path = trace_at(tmp_path / "a.json.gz")
    kept.parent.mkdir()
    entries = [
        {"paths": [path], "when_s": 1e300},
        {"paths": ["relative.json"], "when_s": 2.0},
        {"paths": [], "when_s": 2.0},
        {"paths": ["/nul\0"], "when_s": 2.0},
        {"paths": [path], "when_s": 1.0},
    ]
    kept.write_text(json.dumps(entries))
    assert [entry.when_s for entry in recent_traces.recent_traces()] == [1.0]


def test_nothing_is_written_where_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSETUI_KEPT", "off")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    remember_opened([trace_at(tmp_path / "a.json.gz")])
    assert listed() == []
    assert not (tmp_path / "state").exists()


def test_ranks_that_were_recorded_are_one_offer_of_a_job(
    kept: Path, tmp_path: Path
) -> None:
    paths = [trace_at(tmp_path / f"train-rank{n}_{n}.json.gz") for n in range(3)]
    remember_written(paths, "run", str(tmp_path))
    (offer,) = make_recent_offers(recent_traces.recent_traces(), known=())
    assert offer.is_job
    assert offer.paths == tuple(paths)
    assert "3 traces of run" in offer.about


async def test_o_lists_recent_traces_without_the_open_one(
    kept: Path, tmp_path: Path
) -> None:
    """The newest first; Enter opens one, which was opened last from then on."""
    older = trace_at(tmp_path / "x" / "older.json.gz")
    newer = trace_at(tmp_path / "y" / HOSTILE)
    remember_opened([older])
    remember_opened([newer])
    here = trace_at(tmp_path / "here.json.gz")
    async with opened([here], (160, 30)) as (app, pilot):
        await pilot.press("o")
        await settled(app, pilot)
        shown = screen(app)
        assert "here.json.gz" not in shown
        assert shown.index("a [bold]x·[31m") < shown.index("older.json.gz")
        await pilot.press("down", "enter")
        await settled(app, pilot)
        assert app.state.paths == (older,)
    assert listed() == ["older.json.gz", "here.json.gz", HOSTILE]


async def test_o_lists_recent_traces_behind_those_that_were_named(
    kept: Path, tmp_path: Path
) -> None:
    recent = trace_at(tmp_path / "recent.json.gz")
    remember_opened([recent])
    paths = [trace_at(tmp_path / name) for name in ("a.json.gz", "b.json.gz")]
    async with opened(paths, (160, 30)) as (app, pilot):
        await pilot.press("o")
        await settled(app, pilot)
        await pilot.press("end", "enter")
        await settled(app, pilot)
        assert app.state.paths == (recent,)


async def test_o_without_recent_traces_shows_what_was_named(
    kept: Path, tmp_path: Path
) -> None:
    here = trace_at(tmp_path / "here.json.gz")
    async with opened([here], (160, 30)) as (app, pilot):
        await pilot.press("o")
        await settled(app, pilot)
        assert app.state.overlay is not None
        assert "here.json.gz" in screen(app)


async def line_of_a_trace_with_a_long_path(
    folder: Path, screen_size: tuple[int, int]
) -> str:
    """Return the line of the list of recent traces about a trace far down in a folder."""
    remember_opened([trace_at(folder / ("long-" * 20) / "attention_fused.json.gz")])
    async with opened([str(LESSON)], screen_size) as (app, pilot):
        await pilot.press("o")
        await settled(app, pilot)
        lines = screen(app).splitlines()
    (line,) = [line for line in lines if "attention_fused" in line]
    return line


async def test_a_path_longer_than_the_list_is_cut_before_its_file_name(
    kept: Path, tmp_path: Path
) -> None:
    line = await line_of_a_trace_with_a_long_path(tmp_path, (60, 18))
    assert "…/attention_fused.json.gz" in line


async def test_a_long_path_leaves_room_for_what_is_said_about_traces(
    kept: Path, tmp_path: Path
) -> None:
    line = await line_of_a_trace_with_a_long_path(tmp_path, (80, 24))
    summary = line.partition("attention_fused.json.gz")[2]
    assert len(summary.strip()) > 20
