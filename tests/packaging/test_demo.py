"""`make demo` captures, shows, and at last says how fusetui is called."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.places import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
STUB = """#!/bin/sh
echo "called: $*"
for word in "$@"; do last=$word; done
[ "$1" = capture ] && mkdir -p "$last"
exit 0
"""

END = "\0"  # marks where a terminal's output ends, which comes in several parts


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile, and a fusetui that only says how it was called."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    program = tmp_path / ".venv" / "bin" / "fusetui"
    program.parent.mkdir(parents=True)
    program.write_text(STUB)
    program.chmod(0o755)
    return tmp_path


def demo(checkout: Path, stdout: int) -> subprocess.CompletedProcess[str]:
    """What make demo does in an environment that is installed already."""
    installed = ("--old-file=.venv/.capture", "--old-file=.venv/.made")
    command = ["make", *installed, "demo"]
    return subprocess.run(
        command,
        cwd=checkout,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )


def check_end(output: str, checkout: Path) -> None:
    """The last lines name the run that was captured and a program that is there."""
    lines = output.replace("\r", "").splitlines()
    captured = re.search(r"called: capture .* --out (\S+)", output)
    assert captured is not None
    program, run = lines[-3].split()
    assert run == captured[1]
    assert (checkout / run).is_dir()
    assert os.access(checkout / program, os.X_OK)
    assert lines[-2].split() == [program, "TRACE"]
    assert lines[-1] == "After . .venv/bin/activate, fusetui alone is enough."


def test_piped_demo_ends_with_how_to_call_fusetui(checkout: Path) -> None:
    output = demo(checkout, subprocess.PIPE).stdout
    assert "called: diff runs/demo-" in output
    check_end(output, checkout)


def test_demo_on_a_terminal_ends_with_how_to_call_fusetui(checkout: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        demo(checkout, theirs)
        os.write(theirs, END.encode())
        output = ""
        while not output.endswith(END):
            output += os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    output = output.removesuffix(END)
    assert "called: open runs/demo-" in output
    check_end(output, checkout)
