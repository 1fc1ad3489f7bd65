"""docs/why.md explains every figure of `why --json`."""

from __future__ import annotations

import re

import msgspec
import pytest
from tests.places import ROOT

from fusetui.analysis.why.engine import RULES
from fusetui.analysis.why.model import (
    IDLE,
    Ceiling,
    DeviceAccount,
    Finding,
    Gap,
    ThreadAccount,
)
from fusetui.analysis.why.remedies import choose_remedy_words
from fusetui.analysis.why.rule import Rule
from fusetui.analysis.why.thread_activity import ThreadActivity

DEFAULT = frozenset(
    {"nvidia", "compile", "graphs", "pdl", "torch2", "segments", "training"}
)
"""Of the section about a rule: training on a recent NVIDIA GPU."""

PAGE = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")
FIGURES = [
    field.name
    for record in (DeviceAccount, ThreadAccount, Ceiling)
    for field in msgspec.structs.fields(record)
    if field.name.endswith("_ns")
]
ABOUT_A_GAP = [
    field.name for field in msgspec.structs.fields(Gap) if field.type == str | None
]

OF_A_FINDING = [name.rstrip("_") for name in Finding.__struct_fields__]


def test_each_figure_of_why_json_is_explained() -> None:
    names = [*IDLE, *FIGURES, *ABOUT_A_GAP, *OF_A_FINDING]
    assert [name for name in names if f"`{name}`" not in PAGE] == []


def test_reasons_of_the_host_are_in_its_order() -> None:
    assert [*IDLE][2 : 2 + len(ThreadActivity)] == [
        f"host_{kind.name.lower()}" for kind in ThreadActivity
    ]


def _figure(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else str(value)


def _told_thresholds(section: str) -> list[str]:
    """Each with a figure, and with what it bounds in parentheses."""
    line = section.partition("* **Thresholds**: ")[2].partition("\n")[0]
    parts = [part.partition(" (") for part in line.split("; `")] if line else []
    assert all(len(meaning) > 1 for _, _, meaning in parts)
    return [f"`{figure.removeprefix('`')}" for figure, _, _ in parts]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_each_rule_has_a_section(rule: Rule) -> None:
    """With its figures and its remedy as they are."""
    section = PAGE.partition(f"### {rule.id}\n")[2].partition("\n### ")[0]
    assert all(
        f"* **{part}**: " in section for part in ("Question", "Needs", "Upper bound")
    )
    assert _told_thresholds(section) == [
        f"`{name}` {_figure(value)}" for name, value in rule.thresholds.items()
    ]
    assert f"* **Try**: {choose_remedy_words(rule.remedy, DEFAULT)}\n" in section


def test_each_section_has_a_rule() -> None:
    sections = PAGE.partition("## The rules\n")[2].partition("\n## ")[0]
    assert re.findall("(?m)^### (.*)", sections) == [rule.id for rule in RULES]
