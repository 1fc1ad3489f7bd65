"""Replays of real traces, also of those that nothing was adjusted to, whose loaders may
have workers."""

from __future__ import annotations

import pytest
from tests.analysis.replay.test_batches import (
    NEXT,
    test_no_step_is_longer_without_a_reason,
)
from tests.real.traces import FRESH, each_of, existing, listed

from fusetui.analysis.replay.path import path
from fusetui.analysis.replay.whatif import whatif
from fusetui.trace import Trace, open_trace

any_trace = each_of([*listed(), *listed(FRESH)])


def calls_of(trace: Trace) -> list[int]:
    """How long each call for a batch took, in ns."""
    return [
        int(trace.dur[row]) for row in range(len(trace)) if trace.name_of(row) == NEXT
    ]


def test_two_waits_and_one_call_at_once() -> None:
    trace = open_trace(str(existing(FRESH / "t4_fp32.json.gz")))
    calls = calls_of(trace)
    rows = [row.ns for row in path(trace).rows if row.what == NEXT]
    assert sum(rows) == sum(calls)
    found = whatif(trace, ["loader"])
    assert (found.certainty, found.of) == ("bound", "step")
    saved = [one.before_ns - (one.after_ns or 0) for one in found.steps[1:]]
    assert saved == pytest.approx([one - min(calls) for one in calls[1:]], rel=0.05)
