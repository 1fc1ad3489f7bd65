"""Closed or full standard streams: one message where it can be written, never the exit
code of an answer, never a traceback."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

File = Callable[..., Path]


def run(
    redirection: str, *words: object, before: str = "", unbuffered: bool = False
) -> subprocess.CompletedProcess[str]:
    """Runs fusetui from a shell, in which `before` is done first."""
    command = [sys.executable, "-P", "-m", "fusetui", *map(str, words)]
    return subprocess.run(
        ["sh", "-c", f'{before} "$@" {redirection}', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONUNBUFFERED": "1" if unbuffered else ""},
    )


@pytest.fixture
def long_trace(
    write: Callable[[str], Path], event: Callable[..., dict[str, object]]
) -> Path:
    """A trace whose answer is longer than what a pipe holds."""
    ops = [event(f"op{n} {'x' * 100}", n) for n in range(1000)]
    return write(json.dumps({"traceEvents": ops}))


@pytest.mark.parametrize(
    "words",
    [["summary", "TRACE"], ["summary", "TRACE", "--json"], ["samples"], ["--help"]],
)
@pytest.mark.parametrize(
    ("redirection", "says"),
    [
        (">&-", "Standard output is closed"),
        (">/dev/full", "Standard output cannot be written: No space left on device."),
    ],
)
def test_closed_or_full_standard_output_exits_with_2(
    trace_file: File, words: list[str], redirection: str, says: str
) -> None:
    found = run(
        redirection, *[trace_file() if word == "TRACE" else word for word in words]
    )
    assert found.returncode == 2
    assert says in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_file_that_may_not_grow_gets_no_half_answer(
    long_trace: Path, tmp_path: Path, unbuffered: bool
) -> None:
    words = ["ops", long_trace, "--json", "--top", "0"]
    found = run(
        f">{tmp_path}/out", *words, before="ulimit -f 8;", unbuffered=unbuffered
    )
    assert found.returncode == 2
    assert found.stderr == "Standard output cannot be written: File too large.\n"


@pytest.mark.parametrize("packed", [False, True])
def test_a_document_that_finds_no_room_is_not_read_in_part(
    long_trace: Path, packed: bool
) -> None:
    """What is unpacked, or comes from a pipe, is held in a file."""
    text = long_trace.read_bytes()
    long_trace.write_bytes(gzip.compress(text) if packed else text)
    words = ["summary", long_trace if packed else "-", "--no-cache"]
    piped = f"cat {long_trace} |"
    found = run("", *words, before=f"ulimit -f 100; {'' if packed else piped}")
    assert (found.returncode, found.stdout) == (2, "")
    assert "file too large" in found.stderr


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_reader_that_leaves_ends_it_as_sigpipe_would(
    long_trace: Path, unbuffered: bool
) -> None:
    words = ["ops", long_trace, "--json", "--top", "0"]
    left = "; echo $? >&2; } | head -c 10"
    found = run(left, *words, before="{", unbuffered=unbuffered)
    assert (found.stderr, len(found.stdout)) == ("141\n", 10)


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_slow_reader_gets_all(long_trace: Path, unbuffered: bool) -> None:
    words = ["ops", long_trace, "--json", "--top", "0"]
    found = run("| { sleep 0.2; cat; }", *words, unbuffered=unbuffered)
    assert len(json.loads(found.stdout)["ops"]) == 1000


@pytest.mark.parametrize("words", [["summary", "TRACE"], ["summary", "-"], ["nothing"]])
@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_closed_or_full_standard_error_leaves_results_intact(
    trace_file: File, words: list[str], redirection: str
) -> None:
    """Results are unaffected, and no messages are mixed with them."""
    words = [str(trace_file()) if word == "TRACE" else word for word in words]
    found = run(f"{redirection} </dev/null", *words)
    assert found.returncode == (0 if words[-1].endswith("json") else 2)
    assert found.stdout.startswith("/") == (found.returncode == 0)
    assert found.stderr == ""


@pytest.mark.parametrize(
    "words", [["summary", "-"], ["decode", "-"], ["open", "sample:mlp-eager"]]
)
def test_closed_standard_input_exits_with_2(words: list[str]) -> None:
    found = run("<&-", *words)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.count("\n") == 1
    assert "Traceback" not in found.stderr


def test_all_standard_streams_closed_exit_with_2() -> None:
    assert run("<&- >&- 2>&-", "summary", "sample:mlp-eager").returncode == 2


def test_input_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "names"
    path.write_bytes(b"ampere\xff_sgemm\n")
    found = run(f"<{path}", "decode", "-")
    assert found.returncode == 0
    assert "ampere\\xff_sgemm" in found.stdout
