"""The user's code may change the folder or fork."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fusetui.capture.guard import keep_working_directory


def test_the_folder_is_the_same_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with suppress(ValueError), keep_working_directory():
        os.chdir("elsewhere")
        raise ValueError
    assert Path.cwd() == tmp_path


def test_a_folder_that_was_removed_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    with keep_working_directory():
        os.chdir(tmp_path)
        (tmp_path / "gone").rmdir()
    with keep_working_directory():
        pass
    assert Path.cwd() == tmp_path


FORKS = """
import os, sys
from fusetui.capture.guard import end_forked_children

try:
    with end_forked_children():
        child = os.fork()
        if child == 0:
            print("the child's")
            CHILD
except BaseException:
    print("it came back")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(
    ("child", "code"),
    [
        ("pass", 0),
        ("sys.exit()", 0),
        ("sys.exit(7)", 7),
        ("sys.exit('no')", 1),
        ("sys.exit('')", 1),
        ("sys.exit([])", 1),
        ("1 / 0", 1),
    ],
)
def test_a_child_ends_where_its_code_ends(child: str, code: int) -> None:
    words = [sys.executable, "-P", "-c", FORKS.replace("CHILD", child)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.stdout == f"the child's\n{code}\n"
    assert ("ZeroDivisionError" in done.stderr) is (child == "1 / 0")


def test_text_that_a_child_gives_to_exit_is_printed() -> None:
    script = FORKS.replace("CHILD", "sys.exit('no data')")
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=30
    )
    assert done.stderr == "no data\n"
