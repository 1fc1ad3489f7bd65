"""The debug log: what it says of each decision, and where it goes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fusetui import debug_log
from fusetui.own_process import OwnProcess, calls
from fusetui.trace.load import open_trace
from fusetui.trace.read import scanned, workers
from fusetui.trace.read.threads import in_threads

EVENT = '{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}'
ODD_EVENT = EVENT.replace('"ts": 1', '"ts": "1"')  # a time in quotes

Lines = Callable[[], list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    """What was logged so far, as a program that uses fusetui as a library sees it."""
    with caplog.at_level(logging.DEBUG, logger=debug_log.LOGGER):
        yield lambda: [record.getMessage() for record in caplog.records]


def only(lines: list[str], *words: str) -> str:
    """The only line with all of these words."""
    (line,) = [line for line in lines if all(word in line for word in words)]
    return line


def command(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "fusetui", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


# What it says


def test_debug_log_names_the_compiled_scanner(
    write: Callable[[str], Path], lines: Lines
) -> None:
    if scanned.scan is None:
        pytest.skip("there is no compiled scanner")
    open_trace(str(write(f"[{EVENT}]")))
    assert str(scanned.scan.__file__) in only(lines(), "the events are decoded by")
    assert not [line for line in lines() if "by Python, not by" in line]


def test_debug_log_says_that_there_is_no_compiled_scanner(
    write: Callable[[str], Path], lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanned, "scan", None)
    open_trace(str(write(f"[{EVENT}]")))
    assert "Python: there is no scanner" in only(lines(), "the events are decoded by")


def test_debug_log_names_bytes_that_the_scanner_leaves_to_python(
    write: Callable[[str], Path], lines: Lines
) -> None:
    open_trace(str(write(f"[{ODD_EVENT}]")))
    line = only(lines(), "decoded by Python, not by the scanner")
    assert line.startswith(f"bytes 1 to {1 + len(ODD_EVENT)} ")


def test_debug_log_says_that_a_file_is_read_as_json(
    write: Callable[[str], Path], lines: Lines
) -> None:
    path = write(f"[{EVENT}]")
    open_trace(str(path))
    assert only(lines(), "is read as") == f"{path} begins with b'[': it is read as JSON"


def test_debug_log_names_the_reader_of_other_bytes(
    write: Callable[[bytes], Path], lines: Lines
) -> None:
    path = write(b"SQLite format 3\0" + b"CUPTI_ACTIVITY_KIND_KERNEL")
    with pytest.raises(Exception, match=r"trace\.json"):
        open_trace(str(path))
    line = only(lines(), "is read as")
    assert "(not packed)" in line
    assert line.endswith("begins with b'SQLite format 3\\x00': it is read as nsys")


def test_a_document_that_is_too_small_for_the_cache(
    write: Callable[[str], Path], lines: Lines
) -> None:
    path = write(f"[{EVENT}]")
    open_trace(str(path))
    assert "smaller than 8 MB" in only(lines(), "cache:", str(path), "is not kept")


def test_a_cache_that_is_off(
    write: Callable[[str], Path], lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSETUI_CACHE", "off")
    open_trace(str(write(f"[{EVENT}]")))
    assert only(lines(), "cache:") == "cache: it is off"


def test_a_trace_that_is_written_to_the_cache_and_taken_from_it(
    write: Callable[[str], Path], lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 0)
    path = str(write(f"[{EVENT}]"))
    open_trace(path)
    only(lines(), "cache: nothing is kept of", path)
    only(lines(), "cache:", "was written for", path)
    open_trace(path)
    only(lines(), "cache:", "is used for", path)


def test_an_entry_that_is_not_used(
    write: Callable[[str], Path], lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 0)
    path = write(f"[{EVENT}]")
    open_trace(str(path))
    path.write_text(f"[{EVENT},{EVENT}]")
    open_trace(str(path))
    line = only(lines(), "is not used for", str(path))
    assert line.endswith("it was made from another state of the file")


def test_the_thread_that_decodes(write: Callable[[str], Path], lines: Lines) -> None:
    open_trace(str(write(f"[{EVENT}]")))
    only(lines(), "this thread decodes a document of about")


def test_debug_log_counts_the_threads_that_decode(
    write: Callable[[str], Path], lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "core_count", lambda: 2)
    monkeypatch.setattr(workers, "MIN_BYTES_FOR_THREADS", 0)
    open_trace(str(write(f"[{EVENT}]")))
    only(lines(), "2 threads decode a document of about")


def test_the_threads_that_read_args(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "core_count", lambda: 2)
    for is_worth_it in (True, False):
        with in_threads(abs, 3, is_worth_it) as results:
            assert results() == [0, 1, 2]
    only(lines(), "3 parts of the document are read by 2 threads")
    only(lines(), "3 parts of the document are read by this thread")


def test_debug_log_says_when_a_process_starts_and_what_it_calls(lines: Lines) -> None:
    with OwnProcess() as process:
        assert process.call(abs, -1) == 1
    only(lines(), "process", "was started")
    only(lines(), "calls builtins.abs")
    assert sorted(calls(abs, [(-1,), (-2,)], processes=1)) == [(0, 1), (1, 2)]
    only(lines(), "1 processes share 2 calls")


# Where it goes


def test_the_option_writes_to_stderr(write: Callable[[str], Path]) -> None:
    path = write(f"[{EVENT}]")
    plain = command("summary", path)
    assert "is read as JSON" not in plain.stderr
    for arguments in (("--debug", "summary", path), ("summary", path, "--debug")):
        run = command(*arguments)
        assert run.returncode == 0
        assert run.stdout == plain.stdout
        assert f"ms: {path} begins with b'[': it is read as JSON\n" in run.stderr


def test_the_variable_writes_to_stderr(write: Callable[[str], Path]) -> None:
    path = write(f"[{EVENT}]")
    assert "is read as JSON" in command("summary", path, FUSETUI_DEBUG="1").stderr
    for off in ("", "0"):
        assert command("summary", path, FUSETUI_DEBUG=off).stderr == ""


def test_the_variable_names_a_file(
    write: Callable[[str], Path], tmp_path: Path
) -> None:
    path = write(f"[{EVENT}]")
    log = tmp_path / "debug.log"
    for _ in range(2):
        assert command("summary", path, FUSETUI_DEBUG=str(log)).stderr == ""
    assert log.read_text().count("is read as JSON") == 2


def test_a_file_that_cannot_be_written(
    write: Callable[[str], Path], tmp_path: Path
) -> None:
    run = command("summary", write(f"[{EVENT}]"), FUSETUI_DEBUG=str(tmp_path))
    assert run.returncode == 2
    assert run.stderr == (
        f"FUSETUI_DEBUG names {tmp_path}, which cannot be written: Is a directory.\n"
    )


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m.json"
    path.write_text(f"[{EVENT}]")
    run = command("--debug", "summary", path)
    assert "is read as JSON" in run.stderr
    assert "\x1b" not in run.stderr


def test_a_debug_option_of_a_captured_script_is_not_taken() -> None:
    from fusetui.command_line.parser import remove_debug

    given = ["capture", "train.py", "--debug"]
    assert remove_debug(given) == (given, False)
    assert remove_debug(["--debug", *given]) == (given, True)
    behind = ["open", "--", "--debug"]
    assert remove_debug(behind) == (behind, False)


LEFT = """
from fusetui import debug_log
debug_log.start_from_environment()
debug_log.debug("before")
debug_log.leave_terminal()
debug_log.debug("after")
"""


@pytest.mark.parametrize("is_file", [False, True])
def test_the_app_gets_no_line_on_its_screen(tmp_path: Path, is_file: bool) -> None:
    log = tmp_path / "debug.log"
    run = subprocess.run(
        [sys.executable, "-P", "-c", LEFT],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, debug_log.VARIABLE: str(log) if is_file else "1"},
    )
    if is_file:
        assert run.stderr == ""
        assert "before" in log.read_text()
        assert "after" in log.read_text()
    else:
        assert "before" in run.stderr
        assert "after" not in run.stderr


def test_the_app_leaves_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from fusetui.commands import open as open_command
    from fusetui.commands import terminal
    from fusetui.tui import app

    order: list[str] = []

    def run(*_: object, **__: object) -> int:
        order.append("ran")
        return 0

    monkeypatch.setattr(debug_log, "leave_terminal", lambda: order.append("left"))
    monkeypatch.setattr(app, "run", run)
    monkeypatch.setattr(terminal, "prepare", lambda *_: None)
    open_command.show([], theme="dark")
    assert order == ["left", "ran"]


def test_logging_is_not_imported_unless_the_debug_log_is_on() -> None:
    program = (
        "import sys; from fusetui.debug_log import debug, start_from_environment;"
        "start_from_environment(); debug('a %s', 1);"
        "print('logging' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "False\n"
