"""Which GPU events have their device to themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.analysis.why.kernels import Kernels
from fusetui.trace import Trace


def alone(trace: Trace) -> list[bool]:
    """Of each GPU event, in order of the trace's rows."""
    found: list[bool] = Kernels(
        trace, trace.gpu_rows, trace.begin_ns, trace.end_ns
    ).runs_alone.tolist()
    return found


@pytest.mark.parametrize(
    ("second_begins", "expected"),
    [(40, [True, True]), (30, [True, True]), (29, [False, False])],
)
def test_the_first_and_the_last_kernel_can_be_alone(
    second_begins: int,
    expected: list[bool],
    trace_of: Callable[..., Trace],
    launched: Callable[..., list[dict[str, Any]]],
) -> None:
    first = launched(1, ts=0, kernel_ts=20, dur=10)
    second = launched(2, ts=3, kernel_ts=second_begins, dur=10)
    second[1]["tid"] = 8  # a stream of its own
    assert alone(trace_of([*first, *second])) == expected
