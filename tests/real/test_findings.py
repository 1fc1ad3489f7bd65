"""All rules over all real traces, also those that nothing was adjusted to: nothing
fires but what was looked at (docs/judgments.tsv)."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.real.judgments import UPDATE, Line, lines_of, read, rewrite
from tests.real.traces import FRESH, TRACES, real

from fusetui.analysis.replay.worth import with_worth
from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.answer import answer_question
from fusetui.analysis.why.model import FreeThreadTime
from fusetui.analysis.why.selection import resolve_selection
from fusetui.trace import open_trace

INDEX = TRACES / "INDEX.tsv"
FRESH_INDEX = FRESH / "INDEX.tsv"
PREFIX = "fresh/"
"""Before the names of the traces of FRESH, in the table and here."""
SNAPSHOT = ".pickle.gz"
"""How a file of that folder ends that is no trace, but a snapshot of memory."""
needs_fresh = pytest.mark.skipif(
    not FRESH_INDEX.is_file(), reason=f"there are no traces in {FRESH}"
)


def traces() -> list[str]:
    return _listed(INDEX)


def fresh() -> list[str]:
    return [
        PREFIX + name for name in _listed(FRESH_INDEX) if not name.endswith(SNAPSHOT)
    ]


def _listed(index: Path) -> list[str]:
    if not index.is_file():
        return []
    with index.open(encoding="utf-8") as file:
        return sorted(row["file"] for row in csv.DictReader(file, delimiter="\t"))


def path_of(trace: str) -> Path:
    if trace.startswith(PREFIX):
        return FRESH / trace.removeprefix(PREFIX)
    return TRACES / trace


def of(trace: str) -> list[Line]:
    return [line for line in read() if line.trace == trace]


@pytest.mark.parametrize(
    "trace",
    [
        *(traces() or ["none"]),
        *(pytest.param(name, marks=needs_fresh) for name in fresh()),
    ],
)
def test_the_findings_are_those_that_were_looked_at(trace: str) -> None:
    opened = open_trace(str(path_of(trace)))
    why, _ = answer_question(resolve_selection(Accounts(opened)))
    lines = lines_of(trace, with_worth(opened, why, asked=True).findings)
    if UPDATE:
        rewrite(trace, lines)
    assert [line.finding for line in lines] == [line.finding for line in of(trace)]


def test_time_that_host_bound_would_change_is_outside_the_warm_up() -> None:
    """As of what it has at stake: its worth owes nothing to a first step that takes
    long."""
    why, facts = answer_question(
        resolve_selection(Accounts(open_trace(str(real("gp100_step_annotations")))))
    )
    rules = [one.rule for one in why.findings]
    wanted, warming = why._wanted[rules.index("host-bound")], facts.warm_up_time
    assert isinstance(wanted, FreeThreadTime)
    assert warming.ns
    assert not wanted.cover.within(warming.start, warming.end).any()


def test_the_table_has_the_traces_that_there_are() -> None:
    names = {line.trace for line in read()}
    assert {name for name in names if not name.startswith(PREFIX)} == set(traces())


@needs_fresh
def test_the_table_has_the_fresh_traces_that_there_are() -> None:
    names = {line.trace for line in read()}
    assert {name for name in names if name.startswith(PREFIX)} == set(fresh())
