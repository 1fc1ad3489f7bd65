"""Closed or full standard streams: one message where it can be written, never the exit code of an
answer, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

File = Callable[..., Path]


def run(redirection: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Runs fusetui from a shell."""
    command = [sys.executable, "-P", "-m", "fusetui", *map(str, words)]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    "words", [["summary", "TRACE"], ["summary", "TRACE", "--json"], ["samples"], ["--help"]]
)
@pytest.mark.parametrize(
    ("redirection", "says"),
    [
        (">&-", "Standard output is closed"),
        (">/dev/full", "Standard output cannot be written: No space left on device."),
    ],
)
def test_output(trace_file: File, words: list[str], redirection: str, says: str) -> None:
    found = run(redirection, *[trace_file() if word == "TRACE" else word for word in words])
    assert found.returncode == 2
    assert says in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["summary", "TRACE"], ["summary", "-"], ["nothing"]])
@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_talk(trace_file: File, words: list[str], redirection: str) -> None:
    """Results are unaffected, and no messages are mixed with them."""
    words = [str(trace_file()) if word == "TRACE" else word for word in words]
    found = run(f"{redirection} </dev/null", *words)
    assert found.returncode == (0 if words[-1].endswith("json") else 2)
    assert found.stdout.startswith("/") == (found.returncode == 0)
    assert found.stderr == ""


@pytest.mark.parametrize("words", [["summary", "-"], ["decode", "-"], ["open", "sample:mlp-eager"]])
def test_input(words: list[str]) -> None:
    found = run("<&-", *words)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.count("\n") == 1
    assert "Traceback" not in found.stderr


def test_all_of_them() -> None:
    assert run("<&- >&- 2>&-", "summary", "sample:mlp-eager").returncode == 2


def test_input_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "names"
    path.write_bytes(b"ampere\xff_sgemm\n")
    found = run(f"<{path}", "decode", "-")
    assert found.returncode == 0
    assert "ampere\\xff_sgemm" in found.stdout
