"""Which lane of A is which of B."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fusetui.analysis.diff import align
from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import RowKind
from fusetui.trace import Trace
from fusetui.trace.model.arrays import Int64s

LANES = 200


def test_the_work_of_many_lanes_is_not_compared_with_that_of_each_other(
    trace_of: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "dur": 5}
    trace = trace_of([{**plain, "tid": n, "ts": n} for n in range(LANES)])
    compared = []
    in_common = align._count_in_common

    def counted(a: Int64s, b: Int64s) -> int:
        compared.append(a)
        return in_common(a, b)

    monkeypatch.setattr(align, "_count_in_common", counted)
    found = diff(trace, trace)
    assert all(row.kind is RowKind.SAME for row in found.rows)
    assert len(compared) <= 2 * (align.MAX_COMPARED_LANES**2 + LANES)
