"""The commands of the skill run, and its checks hold; docs/agents.md has every tool."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest
from tests.cli.conftest import Result, fusetui
from tests.places import ROOT

from fusetui.commands.agents.tools import TOOLS

SKILL = (ROOT / "docs" / "skills" / "fusetui" / "SKILL.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
ASKED = re.findall(r"`(fusetui \w+ [^`]*lesson:[^`]*|fusetui decode [^`]*)`", SKILL)
CHECKS = re.findall(r"^ +(fusetui .*)$", SKILL, re.MULTILINE)
Run = Callable[..., Result]
__all__ = ["fusetui"]


def answer(run: Run, command: str) -> Result:
    found = run(*shlex.split(command)[1:])
    assert found.code == 0
    return found


@pytest.mark.parametrize("command", [*ASKED, *CHECKS])
def test_the_commands_of_the_skill_run(fusetui: Run, command: str) -> None:
    assert answer(fusetui, command).out


def test_checks_of_the_skill_hold(fusetui: Run) -> None:
    kernels, gaps = (
        sum(map(int, answer(fusetui, command).out.splitlines()[1:]))
        for command in CHECKS[:2]
    )
    (device,) = answer(fusetui, "fusetui why lesson:mlp-eager --json").json["devices"]
    assert kernels == 1_650_000
    assert gaps == device["idle_ns"] == 141_400
    assert "cudaDeviceSynchronize" in answer(fusetui, CHECKS[2]).out


def test_the_skill_is_found_by_its_head() -> None:
    head = re.match(r"---\nname: fusetui\ndescription: (.{1,1024})\n---\n", SKILL)
    assert head
    assert len(SKILL.splitlines()) < 70


def test_the_page_has_every_tool() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"\w+", row)} == {*TOOLS}
