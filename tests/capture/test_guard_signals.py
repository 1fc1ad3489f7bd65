"""SIGTERM, SIGHUP and SIGQUIT leave nothing behind, and end the process all the
same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fusetui.capture.folder import new_folder

WAITS = """
import ctypes, os, resource, signal, sys, threading, time, warnings
from pathlib import Path
from fusetui.capture import guard
from fusetui.capture.folder import new_folder

guard.GRACE_SECONDS = 0.1
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
BEFORE
with new_folder(Path(sys.argv[1])):
    FIRST
    print("ready", flush=True)
    WAIT
"""
STUCK = """
    mutex = ctypes.create_string_buffer(128)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    lock(mutex), lock(mutex)
"""
CHILD_IS_TOLD = """
    warnings.simplefilter("ignore", DeprecationWarning)  # threads and os.fork, from Python 3.12 on
    child = os.fork() or time.sleep(60)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    time.sleep(0.5)
"""


def command(out: Path, wait: str, before: str = "", first: str = "") -> list[str]:
    script = (
        WAITS.replace("BEFORE", before).replace("FIRST", first).replace("WAIT", wait)
    )
    return [sys.executable, "-P", "-c", script, str(out)]


def run(out: Path, number: int, wait: str = "time.sleep(60)", **script: str) -> int:
    """The exit code of a capture that receives a signal."""
    words = command(out, wait, **script)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        return process.wait(timeout=30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_leaves_nothing_and_ends_the_process(
    tmp_path: Path, number: int
) -> None:
    assert run(tmp_path / "runs" / "a", number) == -number
    assert list(tmp_path.iterdir()) == []


def test_a_capture_that_waits_for_the_gpu_ends_as_well(tmp_path: Path) -> None:
    """The main thread is in a library and runs no Python, and therefore no handler."""
    done = subprocess.run(
        command(tmp_path / "a", STUCK), capture_output=True, timeout=30
    )
    assert done.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_a_handler_that_was_there_is_called(tmp_path: Path) -> None:
    """Like the handler of the command line, which ends a program as Ctrl+C does."""
    handler = "signal.signal(signal.SIGTERM, signal.default_int_handler)"
    assert run(tmp_path / "a", signal.SIGTERM, before=handler) == -signal.SIGINT
    assert list(tmp_path.iterdir()) == []


def test_a_handler_that_goes_on_is_not_cut_short(tmp_path: Path) -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: None)"
    assert run(tmp_path / "a", signal.SIGTERM, "time.sleep(0.5)", before=handler) == 0
    assert (tmp_path / "a").is_dir()


def test_a_handler_that_cannot_be_called_is_not_waited_for(tmp_path: Path) -> None:
    handler = "signal.signal(signal.SIGTERM, signal.default_int_handler)"
    words = command(tmp_path / "a", STUCK, before=handler)
    assert subprocess.run(words, capture_output=True, timeout=30).returncode == 143
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_is_ignored_is_still_ignored(tmp_path: Path) -> None:
    """As under nohup."""
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    assert run(tmp_path / "a", signal.SIGHUP, "time.sleep(0.5)", before=ignored) == 0
    assert (tmp_path / "a").is_dir()


def test_a_signal_that_the_users_code_handles_is_its_own(tmp_path: Path) -> None:
    handled = "signal.signal(signal.SIGTERM, lambda *_: None)"
    assert run(tmp_path / "a", signal.SIGTERM, "time.sleep(0.5)", first=handled) == 0
    assert (tmp_path / "a").is_dir()


def test_a_signal_to_a_child_of_the_users_code_ends_only_the_child(
    tmp_path: Path,
) -> None:
    words = command(tmp_path / "a", CHILD_IS_TOLD)
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"ready\n{-signal.SIGTERM}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_everything_is_as_before_once_the_run_is_done(tmp_path: Path) -> None:
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    files = len(os.listdir("/dev/fd"))
    with new_folder(tmp_path / "a"):
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert [
        signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)
    ] == before
    assert signal.set_wakeup_fd(wakeup) == wakeup
    assert len(os.listdir("/dev/fd")) == files
