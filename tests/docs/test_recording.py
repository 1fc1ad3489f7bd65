"""The commands of docs/recording.md and docs/attach.md: every option is one, and those
that start or record a program do so, with a program that asks as libkineto does."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.test_reference import DOCS, script
from tests.places import ROOT

from fusetui import cli
from fusetui.attach import processes, recording
from fusetui.command_line.parser import command_parsers
from fusetui.commands import record
from fusetui.commands import run as running

BLOCKS = script("blocks")
PAGE = (DOCS / "recording.md").read_text(encoding="utf-8")
FAKE = ROOT / "tests/attach/fake_job.py"
OTHERS = {
    *("--nproc-per-node", "--rdzv-id"),  # of torchrun
    *("--ntasks-per-node", "--jobid", "--overlap", "--nodes", "--ntasks"),  # of srun
    *("--pids", "--duration-ms", "--log-file"),  # of dyno
}
"""Options of other programs, which the pages name too."""


def commands(verb: str) -> list[list[str]]:
    """The words of the commands of the page that begin with `fusetui` and this verb."""
    lines = [
        line
        for block in BLOCKS.blocks(PAGE)
        if block.kind == "console"
        for line in block.text.splitlines()
    ]
    return [
        shlex.split(line)[1:] for line in lines if line.startswith(f"fusetui {verb} ")
    ]


@pytest.mark.parametrize("name", ["recording.md", "attach.md"])
def test_every_option_that_a_page_names_is_one(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    prose = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", prose))
    known = {
        option
        for parser in command_parsers().values()
        for action in parser._actions
        for option in action.option_strings
    }
    assert len(named) > 3
    assert named - known <= OTHERS


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`python train.py` and `torchrun ... train.py` start a program that asks to be
    recorded."""
    for name in ("IMPORTING_S", "POLL_S"):
        monkeypatch.setattr(recording, name, 0.0)
    monkeypatch.setattr(running, "GROUP_SECONDS", 0.0)
    (tmp_path / "train.py").write_text(FAKE.read_text(encoding="utf-8"))
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("python", "torchrun"):
        launcher = place / name
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" train.py\n')
        launcher.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CODE", "0")
    monkeypatch.chdir(tmp_path)
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    os.write(writing, b"\n")  # Enter
    with os.fdopen(reading) as entered:
        monkeypatch.setattr(sys, "stdin", entered)
        yield
    os.close(writing)


linux = pytest.mark.skipif(sys.platform != "linux", reason="the door is Linux's")


@linux
@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("words", commands("run"), ids=" ".join)
def test_run_as_the_page_has_it_records(words: list[str], tmp_path: Path) -> None:
    """Without the minute of `--after`."""
    at_once = ["0" if word == "60" else word for word in words]
    assert cli.run(at_once) == 0
    (trace,) = tmp_path.glob("*/*.json")
    assert trace.name.startswith("train_")
    assert (trace.parent.name == "traces") is ("--out" in words)


@linux
@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("words", commands("record"), ids=" ".join)
def test_record_as_the_page_has_it_records(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as sock:
        door = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": sock}
        line = [sys.executable, "train.py"]
        with subprocess.Popen(line, env=os.environ | door) as child:
            # the program needs no torch to ask as it does
            for module in (processes, record):
                monkeypatch.setattr(module, "has_torch", lambda pid: pid == child.pid)
            mine = [str(child.pid) if word == "12345" else word for word in words]
            assert cli.run(mine) == 0
            assert child.wait() == 0
    (trace,) = tmp_path.glob("*/*.json")
    assert trace.name == f"train_{child.pid}.json"
