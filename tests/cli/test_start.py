"""Without a trace there is a list to choose from; several traces are one as well."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fusetui.commands.open import MAX_NEWEST, collect_offers, find_offers
from fusetui.commands.sources import one_trace
from fusetui.sample_traces import lessons
from fusetui.trace.formats import looks_like_a_trace
from fusetui.tui.recent_traces import remember_opened, remember_written
from fusetui.tui.state.offers import make_offers

Run = Callable[..., Any]
LESSON = lessons.path("linear-eager")


def trace_at(path: Path, age: int = 0) -> Path:
    """A trace that was written so many seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(LESSON, path)
    os.utime(path, (2e9 - age, 2e9 - age))
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, Any]]]:
    """What the app was asked to show; there is a terminal."""
    calls: list[tuple[list[str], dict[str, Any]]] = []

    def run(paths: Sequence[str], **settings: Any) -> int:
        calls.append(([Path(path).name for path in paths], settings))
        return 0

    monkeypatch.setattr("fusetui.commands.open.has_terminal", lambda: True)
    monkeypatch.setattr("fusetui.tui.app.run", run)
    return calls


def test_the_newest_traces_come_first(tmp_path: Path) -> None:
    for age in range(MAX_NEWEST + 2):
        trace_at(tmp_path / f"{age}.json.gz", age)
    (tmp_path / "package.json").write_text('{"name": "no trace"}')
    found = [Path(offer.label).name for offer in collect_offers(tmp_path)]
    assert found[:MAX_NEWEST] == [f"{age}.json.gz" for age in range(MAX_NEWEST)]
    assert found[MAX_NEWEST] == "tutor"


def test_runs_of_the_folder_and_of_make_demo(tmp_path: Path) -> None:
    for name in ("mine", "runs/demo-1"):
        trace_at(tmp_path / name / "eager.json.gz")
        (tmp_path / name / "run.json").write_text("{}")
    found = [offer for offer in find_offers(tmp_path) if "run: " in offer.about]
    assert {Path(offer.label).name for offer in found} == {"mine", "demo-1"}
    assert all("run: eager" in offer.about for offer in found)


def test_recordings_of_the_folder_are_offered_newest_first_with_their_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fusetui: Run
) -> None:
    """The command that is printed opens what was recorded."""
    monkeypatch.chdir(tmp_path)
    for name, age in (("recorded-old", 9), ("recorded-my job", 1)):
        trace_at(Path(name, "train_12.json.gz"))
        os.utime(name, (2e9 - age, 2e9 - age))
    Path("recorded-empty").mkdir()
    listed = fusetui().out
    lines = [line for line in listed.splitlines() if "1 trace of run or record" in line]
    commands = [line.rpartition("   ")[2] for line in lines]
    assert commands == ["fusetui 'recorded-my job/'", "fusetui recorded-old/"]
    for command in commands:
        _, name = shlex.split(command)
        assert one_trace(name) == str(Path(name, "train_12.json.gz"))


def test_what_was_recorded_elsewhere_comes_before_what_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSETUI_KEPT", str(tmp_path / "kept"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    opened = trace_at(tmp_path / "opened.json.gz")
    trace = trace_at(tmp_path / "job" / "train_12.json.gz")
    remember_written([str(trace)], "run", str(trace.parent))
    remember_opened([str(opened)])
    written, recent, tour, *_ = collect_offers(Path())
    assert written.label == str(tmp_path / "job")
    assert written.about.endswith(f"1 trace of run   fusetui {tmp_path}/job")
    assert recent.paths == (str(opened),)
    assert tour.is_tour


def test_start_list_offers_tutor_lessons_and_samples(tmp_path: Path) -> None:
    found = {offer.label: offer for offer in collect_offers(tmp_path)}
    assert found["tutor"].is_tour
    assert found["lesson:mlp-liger"].paths == (one_trace("lesson:mlp-liger"),)
    assert "sample:mlp-eager" in found


@pytest.mark.parametrize("command", [[], ["open"]])
def test_without_a_terminal_the_list_is_printed(
    fusetui: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    trace_at(tmp_path / "mine.json.gz")
    found = fusetui(*command)
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("mine.json.gz\n")
    assert "lesson:mlp-eager\n" in found.out
    assert "fusetui --help" in found.out


@pytest.mark.parametrize("command", [[], ["open"]])
def test_open_without_a_trace_shows_the_start_list(
    fusetui: Run,
    opened: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    fusetui(*command)
    ((paths, settings),) = opened
    assert (paths, settings["opened"]) == ([], 0)
    assert settings["offers"]


@pytest.mark.parametrize(("count", "at_once"), [(1, 2), (2, 2), (3, 0)])
def test_open_of_more_than_two_traces_shows_a_list(
    fusetui: Run, opened: list[Any], count: int, at_once: int
) -> None:
    names = ["lesson:mlp-eager", "lesson:mlp-compiled", "lesson:mlp-liger"][:count]
    assert fusetui("open", *names).code == 0
    ((paths, settings),) = opened
    assert len(paths) == count
    assert settings["opened"] == at_once


def test_the_tutor_opens_a_lesson(fusetui: Run, opened: list[Any]) -> None:
    assert fusetui("tutor", "--ascii").code == 0
    ((paths, settings),) = opened
    assert paths == ["mlp-eager.json.gz", "mlp-compiled.json.gz"]
    assert settings["tour"]
    assert settings["ascii_only"]


def test_the_tutor_needs_a_terminal(fusetui: Run) -> None:
    found = fusetui("tutor")
    assert found.code == 2
    assert "docs/tour.md" in found.sentence


def test_files_of_one_name_are_told_apart_by_their_paths() -> None:
    labels = [
        offer.label for offer in make_offers(["a/x.json", "b/x.json", "b/y.json"])
    ]
    assert labels == ["a/x.json", "b/x.json", "y.json"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (LESSON.read_bytes(), True),
        (b'{"schemaVersion": 1, "traceEvents": [', True),
        (json.dumps([{"ph": "X"}]).encode(), True),
        (b'{"name": "package"}', False),
        (b"\x1f\x8b\x08garbage", False),
        (b"", False),
    ],
)
def test_a_trace_is_known_by_its_beginning(
    tmp_path: Path, content: bytes, expected: bool
) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(content)
    assert looks_like_a_trace(str(path)) is expected
    assert not looks_like_a_trace(str(tmp_path / "missing.json"))
