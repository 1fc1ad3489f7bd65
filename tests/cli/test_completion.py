"""The completion scripts are made from the parsers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui.command_line.registry import COMMANDS

Run = Callable[..., Any]
SHELLS = ["bash", "zsh", "fish"]
ASK = """
source {script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p fusetui | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_completed(fusetui: Run, shell: str) -> None:
    found = fusetui("completion", shell)
    assert found.code == 0
    assert all(command.name in found.out for command in COMMANDS)
    assert "--fail-over" in found.out


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_are_valid(fusetui: Run, tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(fusetui("completion", shell).out)
    checked = subprocess.run(
        [shell, "-n", tmp_path / "script"], timeout=20, check=False
    )
    assert checked.returncode == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fusetui kern", {"kernels"}),
        ("fusetui diff --fail", {"--fail-over"}),
        ("fusetui kernels --by fam", {"family"}),
        ("fusetui whatif some.json lo", {"loader", "loader:"}),
        ("fusetui whatif --sweep ki", {"kind:"}),
        ("fusetui ranks --what-if comm", {"comm"}),
        ("fusetui summary some", {"some.json"}),
    ],
)
def test_bash_completes_commands_options_and_files(
    fusetui: Run, tmp_path: Path, words: str, expected: set[str]
) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    (tmp_path / "script").write_text(fusetui("completion", "bash").out)
    (tmp_path / "some.json").touch()
    asked = ASK.format(script=tmp_path / "script", words=words)
    found = subprocess.run(
        ["bash", "-c", asked],
        capture_output=True, text=True, timeout=20, cwd=tmp_path, check=True,
    )  # fmt: skip
    assert set(found.stdout.split()) == expected
