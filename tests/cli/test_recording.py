"""`run`, `record` and `watch`: what they refuse, and what a program gets from `run`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.attach.fake_job import TAIL
from tests.places import ROOT

from fusetui import cli
from fusetui.attach import recording
from fusetui.attach.processes import FOLDER, OPEN, process
from fusetui.commands import open as opening
from fusetui.commands import run as running
from fusetui.commands.errors import CommandError, run_guarded
from fusetui.commands.record import describe_left_out_forks, trace_folder
from fusetui.signals import ENDED, SignalInterrupt

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the door is Linux's")
FAKE = str(ROOT / "tests/attach/fake_job.py")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("record", "Specify what to record"),
        ("record --all --pid 1", "Specify what to record"),
        ("record --pid 999999999", "You have no process 999999999."),
        (
            "record --pid OWN",
            "does not accept on-demand profiling. Start it with fusetui run",
        ),
        ("record --job none-such", "None of your processes of job none-such"),
        ("record --all --steps 3 --seconds 1", "either --seconds or --steps"),
        ("record --all --seconds 0", "--seconds takes"),
        (
            "record --all --with shape",
            "takes stack, shapes, memory or none, not 'shape'",
        ),
        ("run", "Specify the program"),
        ("run -- /no/such/program", "cannot be started: No such file"),
        ("watch /no/such/folder", "is not a folder"),
        ("watch /tmp", "needs a terminal"),
    ],
)
def test_wrong_recording_arguments_are_refused_and_write_nothing(
    line: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = line.replace("OWN", str(os.getpid())).split()
    assert run_guarded(lambda: cli.run(words)) == 2
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
    line = [
        sys.executable,
        "-m",
        "fusetui",
        "run",
        "--",
        "sh",
        "-c",
        "echo begun; exec sleep 20",
    ]
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


def test_watch_waits_for_the_newest_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
    with pytest.raises(SignalInterrupt):
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


def test_a_program_that_ends_well_and_was_not_recorded_is_an_error(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The reason is true, and no folder is left. Its own failure comes first."""
    monkeypatch.chdir(tmp_path)
    assert cli.run(["run", "--", "true"]) == 1
    assert "none of its processes polled for a request" in capfd.readouterr().err
    assert cli.run(["run", "--", "sh", "-c", "exit 3"]) == 3
    line = ["run", "--after", "60", "--", sys.executable, FAKE, "0.2"]
    assert cli.run(line) == 1
    assert "but --after is 60 s" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_missing_ranks_are_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("IMPORTING_S", "POLL_S"):
        monkeypatch.setattr(recording, name, 0.0)
    monkeypatch.setattr(running, "GROUP_SECONDS", 0.0)
    ranks = {"RANK": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "3", "CODE": "0"}
    for name, value in ranks.items():
        monkeypatch.setenv(name, value)
    line = [
        "run",
        "--no-open",
        "--out",
        str(tmp_path / "out"),
        "--",
        sys.executable,
        FAKE,
    ]
    assert cli.run(line) == 1
    assert "Not recorded: rank 5, 6." in capfd.readouterr().err
    (trace,) = (tmp_path / "out").iterdir()
    assert trace.name.startswith("fake_job-rank4_")


def test_forks_are_named_with_what_helps(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The workers of a DataLoader are forks; the program itself is recorded."""
    for name in ("IMPORTING_S", "POLL_S"):
        monkeypatch.setattr(recording, name, 0.0)
    own = process(os.getpid())
    assert own is not None
    forks = [replace(own, pid=pid, program="train.py") for pid in range(101, 108)]
    monkeypatch.setattr(recording, "forks_of", lambda pids: forks)
    monkeypatch.setenv("CODE", "0")
    line = ["run", "--no-open", "--out", str(tmp_path / "out"), "--"]
    assert cli.run([*line, sys.executable, FAKE]) == 0
    said = capfd.readouterr().err
    assert "7 forks of train.py cannot be recorded (101, 102, 103, 104, 105" in said
    assert 'multiprocessing.set_start_method("spawn")' in said
    assert len(list((tmp_path / "out").iterdir())) == 1
    assert describe_left_out_forks([]) == []


def wait_for_command_line(child: subprocess.Popen[bytes]) -> None:
    """Wait until /proc shows it, which is shortly after a program was started."""
    while process(child.pid) is None and child.poll() is None:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("trace", "code"),
    [('{"traceEvents": [],"traceName": "x" }', 1), (TAIL, 0)],
)
def test_record_ends_with_an_error_where_the_trace_is_empty(
    trace: str,
    code: int,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """And leaves neither trace nor folder."""
    for name in ("IMPORTING_S", "POLL_S"):
        monkeypatch.setattr(recording, name, 0.0)
    monkeypatch.setattr(recording, "RESTS_S", (0.0,))
    monkeypatch.setattr("fusetui.commands.record.has_torch", lambda pid: True)
    out = tmp_path / "out"
    with tempfile.TemporaryDirectory(dir="/tmp") as sock:
        door = {OPEN: "1", FOLDER: sock, "TRACE": trace}
        with subprocess.Popen([sys.executable, FAKE], env=os.environ | door) as child:
            wait_for_command_line(child)
            line = ["record", "--no-open", "--pid", str(child.pid), "--out", str(out)]
            assert cli.run(line) == code
    said = capfd.readouterr().err
    assert ("not recorded" in said) == bool(code)
    assert ("it ran no operations in that time" in said) == bool(code)
    assert out.exists() == (code == 0)


def test_the_code_of_the_program_where_children_are_ignored(tmp_path: Path) -> None:
    """The system keeps no codes then; the program itself ignores its children as
    before."""
    code = "import signal, sys; sys.exit(7 + (signal.getsignal(signal.SIGCHLD) != signal.SIG_IGN))"
    line = ["-m", "fusetui", "run", "--", sys.executable, "-c", code]
    start = f"import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); {EXECUTE}"
    done = subprocess.run(
        [sys.executable, "-c", start, *line], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 7


EXECUTE = "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


@pytest.mark.parametrize(
    "command", ["run --on-enter -- touch started", "run -- sh -c 'exit 5'"]
)
def test_a_closed_input(command: str, tmp_path: Path) -> None:
    """Nothing is started where Enter could not be read; otherwise it makes no
    difference."""
    line = f"exec {sys.executable} -m fusetui {command} <&-"
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True
    )
    if "--on-enter" in command:
        assert done.returncode == 2
        assert "standard input, which is closed" in done.stderr
    else:
        assert done.returncode == 5
    assert not list(tmp_path.iterdir())


def test_an_error_while_recording_does_not_leave_the_program_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It goes on and is waited for; then the error is told."""
    monkeypatch.chdir(tmp_path)

    def fails(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(running._Watched, "record_until_end", fails)
    with pytest.raises(RuntimeError):
        cli.run(["run", "--", "sh", "-c", "sleep 0.3; touch done"])
    assert [one.name for one in tmp_path.iterdir()] == ["done"]


def test_a_folder_is_made_at_once_and_private(tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    with trace_folder(out):
        assert out.stat().st_mode & 0o777 == 0o700
        with trace_folder(out):  # own, private, there already
            pass
        assert out.is_dir()
    assert not out.exists()  # it was made, and is empty
    with trace_folder(out):
        (out / "trace.json").touch()
    assert out.is_dir()


@pytest.mark.parametrize("mode", [0o707, 0o777, 0o770])
def test_a_folder_that_others_can_write_to_is_refused(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "fusetui.commands.record._is_private_group", lambda group: False
    )
    tmp_path.chmod(mode)
    with pytest.raises(CommandError, match="chmod go-w"), trace_folder(tmp_path):
        pass
    tmp_path.chmod(0o755)
    with trace_folder(tmp_path):
        pass


def test_a_file_or_dangling_link_is_refused_as_trace_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    for name in ("file", "dangling"):
        with pytest.raises(CommandError, match=name), trace_folder(tmp_path / name):
            pass
    assert not (tmp_path / "absent").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user can be played only by root")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(CommandError, match="another user"), trace_folder(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="another user can be played only by root")
def test_a_link_of_another_user_to_an_own_folder_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(own)
    with trace_folder(link):  # the user made it
        pass
    os.lchown(link, 65534, 65534)
    with pytest.raises(CommandError, match="another user's link"), trace_folder(link):
        pass
