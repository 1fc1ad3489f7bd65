"""Damaged files that profilers wrote."""

from __future__ import annotations

import pytest
from tests.real.traces import TRACES, existing
from tests.trace.read.test_damage import names

from fusetui.trace import open_trace

DAMAGED = TRACES.parent / "damaged"
EXPECTED = {  # file: names, skipped, complete
    "backslash.json": (["aten::a", r"torch\cuda\__init__.py(1): f"], 0, True),
    "badutf8.json": (["aten::a", "a\ufffd\ufffdb"], 0, True),
    "bare.json": (["aten::a", "aten::b"], 0, True),
    "dupkey.json": (["aten::a"], 0, True),
    "inf_lower.json": (["aten::a", "aten::b"], 0, True),
    "nodur.json": (["aten::a", "aten::b"], 0, True),
    "quote.json": (["aten::a", "aten::c"], 1, True),
    "strpid.json": (["aten::a"], 0, True),
    "trailcomma.json": (["aten::a", "aten::b"], 0, True),
    "truncated.json": (["aten::a"], 1, False),
}


@pytest.mark.parametrize("file", EXPECTED)
def test_damaged_files_give_their_known_events_and_losses(file: str) -> None:
    trace = open_trace(str(existing(DAMAGED / file)))
    found = (names(trace), len(trace.report.skipped), trace.report.complete)
    assert found == EXPECTED[file]
