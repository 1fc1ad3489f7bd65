"""The name that stands for several calls, and how often it has to occur."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fusetui.analysis.why.rule import name_most_frequent
from fusetui.trace.model.columns import Trace


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "a"], "a"),
        (["a", "a", "b"], "mostly a"),
        (["a", "a", "b", "c"], "most often a"),
    ],
)
def test_only_a_majority_is_mostly(
    trace_of: Callable[..., Trace],
    event: Callable[..., Any],
    names: Sequence[str],
    expected: str,
) -> None:
    trace = trace_of([event(name, 10 * n, 5) for n, name in enumerate(names)])
    assert name_most_frequent(trace, np.arange(len(names))) == expected
