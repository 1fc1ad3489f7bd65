"""Findings of small real traces beside themselves, and of the halves of one run."""

from __future__ import annotations

from tests.analysis.why.test_compared import (
    halves_do_not_differ,
    test_a_trace_twice_is_silent,
)
from tests.real.traces import each_of, listed, real

any_trace = each_of(listed(below_bytes=1 << 17))


def test_findings_of_two_halves_of_a_run_do_not_differ() -> None:
    halves_do_not_differ(real("a100_train_diff_control"), first_steps=3)
