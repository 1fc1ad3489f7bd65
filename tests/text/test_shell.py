"""What is quoted is read back by a shell as it was."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from fusetui.text.printable import is_printable
from fusetui.text.shell import shell_path, shell_word

WORDS = [
    "",
    "plain.json",
    "a b",
    "it's",
    "$(touch pwned) `id` ; rm & | > < * ? ~ ! # \\",
    "\n",
    "tab\there",
    "\x1b[31mred\x07",
    "it's \x1b\\ both",
    "\x01f",
    "right\u202eleft",
    "naïve 漢",
    "\udcff not UTF-8",
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_reads_back_every_word() -> None:
    line = " ".join(map(shell_word, ["printf", "%s\\0", *WORDS]))
    assert is_printable(line)
    printed = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert printed.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in WORDS]


def test_a_path_is_no_option() -> None:
    assert shell_path("-v.json") == "./-v.json"
    assert shell_word("--json") == "--json"
