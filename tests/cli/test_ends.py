"""Other ways to end than with an answer: an internal error, a signal."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.hostile import WORST, obeyed
from tests.laptops import needs_fork
from tests.places import ROOT
from tests.room import room_for

from fusetui import Error, cli, signals
from fusetui.commands import crash, errors
from fusetui.report.streams import OutputError
from fusetui.tables.files import MissingPackageError
from fusetui.trace.model.errors import NotATraceError

Run = Callable[..., Any]
WAITING = """
import sys
from fusetui import cli

def wait(_):
    print("ready", flush=True)
    return 0 if sys.stdin.readline() else 2

cli.run = wait
cli.script()
"""
SWALLOWING = """
import sys, time
from fusetui import cli
from fusetui import signals

def wait(_):
    while True:
        try:
            print("ready", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            pass

cli.run = wait
signals.CLEANUP_SECONDS = 0.1
cli.script()
"""
LATE = 60  # seconds after which a process counts as hanging


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user's logs, on Linux."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "fusetui" / "log"


@pytest.fixture
def bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command fails."""

    def fail(_: object) -> int:
        raise ValueError(f"a bug {WORST}\nand more of it")

    monkeypatch.setattr(cli, "run", fail)


@pytest.mark.usefixtures("bug")
def test_internal_error_exits_with_70_and_writes_a_report(
    fusetui: Run, logs: Path
) -> None:
    found = fusetui("summary", "x")
    assert (found.code, found.out) == (70, "")
    assert "ValueError: a bug" in found.sentence
    assert obeyed(found.err) == set()
    (report,) = logs.iterdir()
    assert str(report) in found.sentence
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    text = report.read_text()
    assert "Traceback (most recent call last)" in text
    assert obeyed(text) == set()


@pytest.mark.usefixtures("bug")
def test_a_bug_where_there_is_no_place_for_logs(
    fusetui: Run, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is a temporary file, and if that cannot be written either, only a
    message."""
    (tmp_path / "state").write_text("not a folder")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = fusetui("summary", "x")
    (report,) = tmp_path.glob("fusetui-crash-*.txt")
    assert (found.code, str(report) in found.sentence) == (70, True)
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    found = fusetui("summary", "x")
    assert found.code == 70
    assert "it ends at test_ends.py, line" in found.sentence


def test_no_half_report_of_a_bug_is_left(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with room_for(100), pytest.raises(OSError, match="File too large"):
        crash.written("x" * 200)
    assert [*logs.iterdir(), *tmp_path.glob("fusetui-crash-*")] == []


def test_an_installation_that_is_not_whole() -> None:
    script = "import sys; sys.modules['numpy'] = None\nfrom fusetui.cli import script; script()"
    found = subprocess.run(
        [sys.executable, "-P", "-c", script, "summary", "x"],
        capture_output=True,
        text=True,
        check=False,
        timeout=LATE,
    )
    assert found.returncode == 70
    assert found.stderr.startswith("fusetui is not completely installed: ")
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_signal_exits_with_128_plus_its_number(name: str) -> None:
    number = signal.Signals[name]
    with waiting() as run:
        run.send_signal(number)
        _, err = run.communicate(timeout=LATE)
    assert (run.returncode, err) == (128 + number, b"")


def test_a_signal_that_was_ignored() -> None:
    """As nohup does."""
    with waiting("trap '' HUP; exec \"$@\"") as run:
        run.send_signal(signal.SIGHUP)
        run.communicate(b"go on\n", timeout=LATE)
    assert run.returncode == 0


def test_a_second_signal_does_not_interrupt_tidying_up() -> None:
    """A signal ends a block as an exception does, and a second one does not interrupt
    that."""
    ends: list[str] = []

    def command() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            ends.append("tidy")

    with pytest.raises(KeyboardInterrupt) as raised, signals.ending():
        command()
    assert ends == ["tidy"]
    assert errors.find_exit_code(raised.value) == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_an_import_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A module written in C may crash when an exception is raised while it is set
    up."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "ends", [], raising=False)
    (tmp_path / "module_that_is_interrupted.py").write_text(
        f"import os, sys\nos.kill(os.getpid(), {number:d})\nsys.ends.append('whole')\n"
    )
    monkeypatch.delitem(sys.modules, "module_that_is_interrupted", raising=False)
    with pytest.raises(KeyboardInterrupt) as raised, signals.ending():
        import_module("module_that_is_interrupted")
    assert errors.find_exit_code(raised.value) == 128 + number
    assert vars(sys)["ends"] == ["whole"]


def test_a_prompt_may_catch_each_ctrl_c() -> None:
    """It neither ignores the next one nor ends the process at the end of the block."""
    caught = 0
    with signals.ending():
        for _ in range(3):
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                caught += 1
    assert caught == 3


IMPORTING = """
import os, signal, sys

class Interrupting:
    @staticmethod
    def find_spec(name, *_):
        if name == "fusetui.cli":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, {before})
sys.meta_path.insert(0, Interrupting)
sys.argv = ["fusetui", "--version"]
from fusetui.__main__ import script
script()
"""


@pytest.mark.parametrize("before", ["signal.default_int_handler", "signal.SIG_IGN"])
def test_ctrl_c_before_there_is_a_command(before: str) -> None:
    """It ends the process without a word, unless it is ignored."""
    program = IMPORTING.format(before=before)
    run = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        check=False,
        timeout=LATE,
    )
    is_ignored = before == "signal.SIG_IGN"
    assert (run.returncode, run.stderr) == (0 if is_ignored else -signal.SIGINT, b"")
    assert run.stdout.startswith(b"fusetui ") == is_ignored


def test_a_clean_up_has_a_bound() -> None:
    """Also where somebody swallowed the exception, and signals are ignored."""
    with waiting(program=SWALLOWING) as run:
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=LATE)
    assert run.returncode == 128 + signal.SIGTERM


@needs_fork
def test_a_process_that_was_forked_dies_of_it() -> None:
    with signals.ending():
        child = os.fork()
        if not child:
            with suppress(BaseException):
                os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


def test_every_exit_code_has_a_meaning(fusetui: Run) -> None:
    codes = {code for _, code in errors.CODES_OF_ERRORS}
    codes |= {errors.DONE, errors.NO, errors.CANNOT_TELL}
    assert {*errors.EXIT_CODES} == codes
    told = " ".join(fusetui("--help").out.split())
    assert told.endswith(errors.exit_codes_text())


def test_the_guide_has_every_exit_code() -> None:
    """Its table has a code of each signal, and may say more of a meaning."""
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    section = guide.partition("## Exit codes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\d, ]+) \| (.*) \|$", section, re.M)
    meanings = {
        int(code): meaning for codes, meaning in rows for code in codes.split(",")
    }
    of_signals = {
        signals.ENDED + number
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)
    }
    assert {*meanings} == {*errors.EXIT_CODES} | of_signals
    for code in {*errors.EXIT_CODES} - of_signals:
        assert meanings[code].startswith(errors.EXIT_CODES[code])


def test_the_reference_and_the_manual_page_have_every_exit_code() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    manual = (ROOT / "docs" / "fusetui.1").read_text(encoding="utf-8")
    for code, meaning in errors.EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in reference
        assert f"\n.B {code}\n" in manual


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Error("No."), 2),
        (errors.CommandError("No."), 2),
        (NotATraceError("No."), 2),
        (MissingPackageError("No."), 2),  # an ImportError too
        (OutputError("No."), 2),
        (ImportError("No."), 70),
        (ZeroDivisionError("No."), 70),
        (BrokenPipeError("No."), 141),
        (KeyboardInterrupt(), 130),
        (signals.SignalInterrupt(signal.SIGTERM), 143),
    ],
)
def test_class_of_an_error_decides_the_exit_code(
    error: BaseException, code: int
) -> None:
    assert errors.find_exit_code(error) == code

    def command() -> int:
        raise error

    assert errors.run_guarded(command) == code


@contextmanager
def waiting(
    shell: str = 'exec "$@"', program: str = WAITING
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is ready for a signal, by default a command that waits for a line.
    If it does not end, it is killed, so that the test fails and does not wait for
    it."""
    with subprocess.Popen(
        ["sh", "-c", shell, "sh", sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as run:
        try:
            assert run.stdout is not None
            assert run.stdout.readline() == b"ready\n"
            yield run
        finally:
            run.kill()
