"""Traces open on macOS and Windows, as far as that can be simulated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import textual.drivers.linux_driver  # noqa: F401  (Textual has another one for Windows)
from tests.laptops import take_away
from tests.tui.driving import screen, settled

from fusetui import sample_traces, signals
from fusetui.sample_traces import lessons
from fusetui.trace import Trace, open_trace
from fusetui.trace.cache.folder import opened, own_files
from fusetui.trace.read import workers
from fusetui.tui.app import AppOptions, FusetuiApp

Run = Callable[..., Any]
SHIPPED = [
    shelf.path(name) for shelf in (sample_traces, lessons) for name in shelf.names()
]
COLUMNS = ("start", "dur", "name", "launch", "op", "parent", "role")


@pytest.fixture(params=["darwin", "win32"])
def laptop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """On it, every file is large enough for several threads, and no process may be started."""

    def never(*arguments: object, **settings: object) -> None:
        raise AssertionError("a process was started")

    take_away(monkeypatch)
    monkeypatch.setattr(workers, "core_count", lambda: 4)
    monkeypatch.setattr(workers, "MIN_BYTES_FOR_THREADS", 0)
    monkeypatch.setattr(subprocess, "Popen", never)
    monkeypatch.setattr(sys, "platform", request.param)
    if request.param == "darwin":
        monkeypatch.setattr(os, "fork", never, raising=False)
    return str(request.param)


@pytest.fixture(scope="module")
def as_read_here(any_trace: Path) -> Trace:
    """The trace as it is read on this machine."""
    return open_trace(str(any_trace), cached=False)


def test_a_trace_is_the_same(as_read_here: Trace, laptop: str, any_trace: Path) -> None:
    found, expected = open_trace(str(any_trace), cached=False), as_read_here
    for column in COLUMNS:
        assert np.array_equal(getattr(found, column), getattr(expected, column))
    row = len(expected) // 2
    assert found.args_of(row) == expected.args_of(row)


def test_the_cache_works(
    laptop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also its limit, which removes entries."""
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 1)
    monkeypatch.setenv("FUSETUI_CACHE", str(tmp_path))
    first, second = (str(path) for path in SHIPPED[:2])
    trace = open_trace(first)
    # the file itself is not read again
    monkeypatch.setattr("fusetui.trace.load.read", None)
    assert (open_trace(first).start == trace.start).all()
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 1)
    monkeypatch.setenv("FUSETUI_CACHE", str(tmp_path))
    monkeypatch.setenv("FUSETUI_CACHE_MB", "0.000001")
    take_away(monkeypatch)
    open_trace(second)
    with opened(tmp_path) as folder:
        assert isinstance(folder, Path)
        assert not list(own_files(folder))


@pytest.mark.parametrize(
    "command", ["summary", "kernels", "ops", "modules", "why", "launches"]
)
def test_commands_answer_without_linux_functions(
    fusetui: Run, laptop: str, command: str
) -> None:
    found = fusetui(command, "lesson:mlp-eager", "--json")
    assert (found.code, found.err) == (0, "")


@pytest.mark.parametrize(
    "command",
    ["record --all", "record --pid 1", "run -- python train.py", "run --dumps -- true"],
)
def test_recording_says_that_it_needs_linux(
    fusetui: Run, laptop: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libkineto looks for requests only there, whoever looks for its processes."""
    is_folder = os.path.isdir

    def is_folder_elsewhere(path: str) -> bool:
        return path != "/proc/self" and is_folder(path)

    monkeypatch.setattr(os.path, "isdir", is_folder_elsewhere)
    outcome = fusetui(*command.split())
    assert (outcome.code, outcome.out) == (2, "")
    name = command.split()[0]
    expected = f"{name} needs Linux: torch supports on-demand profiling only there."
    assert expected in outcome.err


def test_pipe_is_read_without_linux_functions(
    fusetui: Run, laptop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SHIPPED[0].open("rb") as file:
        monkeypatch.setattr(
            "fusetui.trace.read.source.stat.S_ISREG", lambda mode: False
        )
        monkeypatch.setattr(
            "fusetui.trace.read.source._opened", lambda path: (file, None)
        )
        assert len(open_trace(str(SHIPPED[0]), cached=False))


async def test_app_runs_without_linux_functions(laptop: str) -> None:
    paths = tuple(str(lessons.path(name)) for name in ("mlp-eager", "mlp-compiled"))
    app = FusetuiApp(AppOptions(paths))
    async with app.run_test(size=(100, 30)) as pilot:
        for _ in range(2):
            await settled(app, pilot)
        assert "fused" in screen(app)
        await pilot.press("q")
    assert app.return_value == 0


def test_a_read_does_not_move_the_file(laptop: str, tmp_path: Path) -> None:
    """The unpacked part of a document is read while more of it is written."""
    from fusetui.trace.read.document import read_at

    with (tmp_path / "file").open("w+b", buffering=0) as file:
        file.write(b"abcdef")
        assert read_at(file.fileno(), 1, 3) == b"bcd"
        file.write(b"ghi")
        assert read_at(file.fileno(), 4, 99) == b"efghi"


def test_a_terminal_that_is_gone_has_a_signal() -> None:
    assert signals.HUNG_UP in signal.Signals
