"""The code blocks of the pages run, and print what the pages say."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.docs.test_reference import DOCS, script

from fusetui.commands.sources import traces
from fusetui.parser import parse

BLOCKS = script("blocks")
NEEDS_TORCH = pytest.param("recording.md", marks=pytest.mark.torch)
SHIPPED = re.compile(r"(?:sample|lesson):\S+")
COMMAND = re.compile(r"(?:^|\||\$)\s*(?:[A-Z]+=\S+ )?fusetui (.*)")
RUN = re.compile(r"^( +)- (?:name: .*\n +)?run: \|\n((?:\1 .*\n|\n)+)", re.MULTILINE)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["reading-a-gpu-trace.md", "ssh.md", "ci.md", NEEDS_TORCH])
def test_blocks_print_what_the_page_says(name: str, tmp_path: Path) -> None:
    if name == "recording.md":
        pytest.importorskip("torch", reason="the page records a trace")
    for block, printed in BLOCKS.outputs(page(name), tmp_path):
        assert block.text == printed, "run python -P docs/blocks.py"


@pytest.mark.parametrize("name", BLOCKS.PAGES)
def test_every_fusetui_command_of_a_page_is_one(name: str) -> None:
    """Also in blocks that do not run here."""
    lines = [
        line
        for b in BLOCKS.blocks(page(name))
        if b.kind in ("sh", "console", "yaml")
        for line in b.text.replace("\\\n", " ").splitlines()
    ]
    commands = [found[1] for line in lines if (found := COMMAND.search(line))]
    for command in commands:
        words = shlex.split(re.split(r"\s(?:>|\||&&|;|<)", command)[0])
        parse(words)
        assert all(traces(word) for word in words if SHIPPED.fullmatch(word))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_scripts_of_the_workflow_are_valid_shell(number: int) -> None:
    (workflow,) = (b.text for b in BLOCKS.blocks(page("ci.md")) if b.kind == "yaml")
    found = list(RUN.finditer(workflow))[number]
    checked = subprocess.run(["bash", "-n"], input=found[2], text=True, timeout=20, check=False)
    assert checked.returncode == 0


def test_a_block_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exit code 2"):
        list(BLOCKS.outputs("```sh\nfusetui summary nowhere.json\n```\n", tmp_path))
