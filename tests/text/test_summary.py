"""What the text of a summary says of the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.analysis.questions.summary import summary
from fusetui.analysis.questions.totals import sum_kernels_by_name
from fusetui.report.summary import format_summary
from fusetui.trace import Trace

WIDTH = 100


@pytest.mark.parametrize(
    ("annotation", "is_said"),
    [("Optimizer.step#SGD.step", True), ("ProfilerStep", False)],
)
def test_steps_that_end_with_an_optimizer_are_told_from_annotated_ones(
    annotation: str,
    is_said: bool,
    trace_of: Callable[..., Trace],
    event: Callable[..., dict[str, Any]],
    launched: Callable[..., list[dict[str, Any]]],
) -> None:
    work = [
        one for n in range(3) for one in launched(n + 1, 100 * n + 20, 100 * n + 30)
    ]
    notes = [
        event(
            annotation if is_said else f"{annotation}#{n}",
            100 * n + (80 if is_said else 0),
            10 if is_said else 90,
            cat="user_annotation",
        )
        for n in range(3)
    ]
    no_kernels = sum_kernels_by_name(trace_of([]))
    text = format_summary(summary(trace_of([*work, *notes])), no_kernels, [], WIDTH)
    said = (
        "Steps are not annotated: each lasts up to the end of Optimizer.step#SGD.step."
    )
    assert (said in text) == is_said
    assert ("Steps are not annotated" in text) == is_said
