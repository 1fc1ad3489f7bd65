"""The findings over all real traces as a table, and what a person sees who looks at each.

    FUSETUI_UPDATE_FINDINGS=1 python -P -m pytest tests/trace/insights/rules/test_findings.py

writes the lines anew; what was seen stays beside the findings that stay. A line without it fails.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from fusetui.trace.insights.model import Finding

TABLE = Path(__file__).parent / "findings.tsv"
HEAD = ("trace", "rule", "certainty", "at_stake_ms", "seen")
UPDATE = "FUSETUI_UPDATE_FINDINGS" in os.environ
NONE = "-"

Line = tuple[str, str, str, str, str]


def lines_of(trace: str, findings: Sequence[Finding]) -> list[Line]:
    """Without what was seen. A trace without findings has one line."""
    found: list[Line] = [
        (trace, one.rule, one.certainty, _ms(one.at_stake_ns), "") for one in findings
    ]
    return found or [(trace, NONE, NONE, NONE, "")]


def _ms(ns: int | None) -> str:
    return NONE if ns is None else f"{ns / 1e6:.3g}"


def read() -> list[Line]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(trace, rule, sure, ms, seen) for trace, rule, sure, ms, seen in rows][1:]


def rewrite(trace: str, lines: Iterable[Line]) -> None:
    """The lines of one trace anew."""
    before = read() if TABLE.exists() else []
    seen = {line[:2]: line[4] for line in before}
    new = [(*line[:4], seen.get(line[:2], "")) for line in lines]
    kept = [line for line in before if line[0] != trace]
    rows = sorted([*kept, *new], key=lambda line: line[0])
    text = "".join("\t".join(row) + "\n" for row in (HEAD, *rows))
    TABLE.write_text(text, encoding="utf-8")
