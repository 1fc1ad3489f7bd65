"""`fusetui help`: pages of the documentation, and the help of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.places import ROOT

Run = Callable[..., Any]


def test_the_topics_are_listed(fusetui: Run) -> None:
    found = fusetui("help")
    assert (found.code, found.err) == (0, "")
    names = [line.split()[0] for line in found.out.splitlines()]
    assert names == sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
    assert "In continuous integration" in found.out


def test_a_page_is_printed(fusetui: Run) -> None:
    assert fusetui("help", "ssh").out == (ROOT / "docs/ssh.md").read_text(
        encoding="utf-8"
    )


def test_a_command_without_a_page_has_its_help(fusetui: Run) -> None:
    assert fusetui("help", "decode").out == fusetui("decode", "--help").out


@pytest.mark.parametrize("name", ["nothing", "../README"])
def test_help_of_an_unknown_topic_lists_the_topics(fusetui: Run, name: str) -> None:
    found = fusetui("help", name)
    assert found.code == 2
    assert f"Unknown topic {name}: choose one of " in found.sentence
