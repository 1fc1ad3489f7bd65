"""The line on which all threads and devices of a trace lie one behind the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.analysis.why.thread_activity import SharedAxis
from fusetui.trace import Trace

DAY_US = 24 * 60 * 60 * 10**6


def test_how_many_fit_does_not_depend_on_when_the_clock_began(
    trace_of: Callable[..., Trace], event: Callable[..., dict[str, Any]]
) -> None:
    early = trace_of([event(ts=0, dur=1000)])
    late = trace_of([event(ts=20_000 * DAY_US, dur=1000)])
    assert SharedAxis(late).length == SharedAxis(early).length
    assert SharedAxis(late).capacity == SharedAxis(early).capacity
