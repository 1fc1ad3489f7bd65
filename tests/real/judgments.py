"""The findings over all real traces as a table (docs/judgments.tsv), and what a person
who held each against the events of its trace says of it.

    FUSETUI_UPDATE_FINDINGS=1 python -P -m pytest
    tests/real/test_findings.py

writes the lines anew. The judgment stays beside a finding that stays as it is; a new
one, or one whose figure, worth or certainty is another, is `open` until somebody looks
at it.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.places import ROOT

from fusetui.analysis.why.model import Finding

TABLE = ROOT / "docs" / "judgments.tsv"
JUDGMENTS = ("right", "half right", "wrong", "cannot be told")
UPDATE = "FUSETUI_UPDATE_FINDINGS" in os.environ
NONE = "-"


class Line(NamedTuple):
    """A finding, and what is said of it: one of JUDGMENTS (or `open`), and how that was
    checked."""

    trace: str
    rule: str
    certainty: str
    at_stake_ms: str
    worth_ms: str  # of a step, where there are steps
    judgment: str = "open"
    checked: str = ""

    @property
    def finding(self) -> tuple[str, ...]:
        return self[:5]


def lines_of(trace: str, findings: Sequence[Finding]) -> list[Line]:
    """Not judged yet. A trace without findings has one line."""
    found = [
        Line(trace, one.rule, one.certainty, _ms(one.at_stake_ns), _ms(one.worth_ns))
        for one in findings
    ]
    return found or [Line(trace, NONE, NONE, NONE, NONE)]


def _ms(ns: int | None) -> str:
    return NONE if ns is None else f"{ns / 1e6:.3g}"


def read() -> list[Line]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Line(*row) for row in rows][1:]


def rewrite(trace: str, lines: Iterable[Line]) -> None:
    """The lines of one trace anew."""
    before = read()
    judged = {line.finding: line for line in before}
    checked = {line[:2]: line.checked for line in before}
    new = [
        judged.get(line.finding, line._replace(checked=checked.get(line[:2], "")))
        for line in lines
    ]
    kept = [line for line in before if line.trace != trace]
    rows = sorted([*kept, *new], key=lambda line: line.trace)
    text = "".join("\t".join(row) + "\n" for row in (Line._fields, *rows))
    TABLE.write_text(text, encoding="utf-8")
