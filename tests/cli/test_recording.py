"""`run`, `record` and `watch`: what they refuse, and what a program gets from `run`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest
from tests.places import ROOT

from fusetui import cli
from fusetui.attach import recording
from fusetui.commands import open as opening
from fusetui.commands.errors import guarded
from fusetui.signals import ENDED, Ended

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the door is Linux's")
FAKE = str(ROOT / "tests/attach/fake_job.py")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("record", "Name what to record"),
        ("record --all --pid 1", "Name what to record"),
        ("record --pid 999999999", "There is no process 999999999 of yours."),
        ("record --pid OWN", "is closed. Start it with fusetui run"),
        ("record --job none-such", "No process of job none-such of yours"),
        ("record --all --steps 3 --seconds 1", "either --seconds or --steps"),
        ("record --all --seconds 0", "--seconds takes"),
        ("record --all --with shape", "takes stack, shapes, memory or none, not 'shape'"),
        ("run", "Name the program"),
        ("run -- /no/such/program", "cannot be started: No such file"),
        ("watch /no/such/folder", "is no folder"),
        ("watch /tmp", "needs a terminal"),
    ],
)
def test_wrong_use(
    line: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = line.replace("OWN", str(os.getpid())).split()
    assert guarded(lambda: cli.run(words)) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_run_records_and_passes_the_exit_code_on(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("IMPORTING_S", "POLL_S"):
        monkeypatch.setattr(recording, name, 0.0)
    out = tmp_path / "out"
    assert cli.run(["run", "--out", str(out), "--", sys.executable, FAKE]) == 7
    (trace,) = out.iterdir()
    assert trace.name.startswith("fake_job_")
    assert out.stat().st_mode & 0o777 == 0o700
    told = capfd.readouterr()
    assert told.out == ""
    assert f"recorded, {trace.stat().st_size} bytes, in " in told.err


def test_run_passes_signals_on(tmp_path: Path) -> None:
    """The program ends by the signal; there is no folder where nothing was recorded."""
    line = [sys.executable, "-m", "fusetui", "run", "--", "sh", "-c", "echo begun; exec sleep 20"]
    with subprocess.Popen(
        line,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_watch_waits_for_the_newest_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that grows is not whole yet, and other files are no traces."""
    (old, new), now = (tmp_path / "a.json", tmp_path / "b.json"), time.time()
    old.write_text('{"traceEvents": []}')
    os.utime(old, (now - 9, now - 9))
    assert opening.newest(tmp_path) == old
    turns = 0

    def sleep(_: float) -> None:
        nonlocal turns
        turns += 1
        if turns < 4:
            new.write_text('{"traceEvents": [' + " " * turns + "]}")
            (tmp_path / "c.json").write_text("[1]")

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr(opening, "has_terminal", lambda: True)
    assert opening.waited_for(tmp_path, old) == new
    assert turns == 4


def test_watch_ends_when_its_terminal_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(opening, "has_terminal", lambda: False)
    with pytest.raises(Ended):
        opening.waited_for(tmp_path, None)


def test_watch_ends_with_the_signal_that_ended_its_app(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trace = tmp_path / "a.json"
    monkeypatch.setattr(opening, "has_terminal", lambda: True)
    monkeypatch.setattr(opening, "waited_for", lambda folder, shown: trace)
    monkeypatch.setattr(opening, "browse", lambda names: ENDED + signal.SIGTERM)
    code = opening.run_watch(Namespace(folder=str(tmp_path)))
    assert code == ENDED + signal.SIGTERM
