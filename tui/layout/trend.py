"""How the durations of some slices change over the steps of a trace, or over its time."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.chain import is_gpu
from fusetui.trace.layout.steps import Steps
from fusetui.trace.model.columns import Trace

Rows = NDArray[np.intp]
FEW = 2
"""Of fewer slices nothing is said."""


class Trend(msgspec.Struct, frozen=True):
    """The median duration (ns) of each stretch, -1 for a stretch without any."""

    medians: tuple[int, ...]
    steps: int  # that the stretches are made of; 0: equal numbers of slices instead
    least_ns: int
    median_ns: int
    most_ns: int


def trend(
    trace: Trace, rows: Rows, dur: NDArray[np.int64], steps: Steps, cells: int
) -> Trend | None:
    """`rows` in order of time, which take `dur` ns each; at most `cells` stretches. GPU work counts
    where it was launched."""
    if len(rows) < FEW or cells < FEW:
        return None
    number, total = _of_steps(trace, rows, steps) if len(steps) > 1 else (np.arange(len(rows)), 0)
    count = total or len(rows)
    stretch = number * min(cells, count) // count
    medians = [
        int(np.median(own)) if len(own) else -1
        for own in (dur[stretch == cell] for cell in range(min(cells, count)))
    ]
    least, most = int(dur.min()), int(dur.max())
    return Trend(tuple(medians), total, least, int(np.median(dur)), most)


def _of_steps(trace: Trace, rows: Rows, steps: Steps) -> tuple[Rows, int]:
    """The step of each row: that in which it, or its launch, began, else the one before."""
    first = int(rows[0])
    launched = is_gpu(trace, first) and int(trace.launch[first]) >= 0
    hosts = np.where(trace.launch[rows] >= 0, trace.launch[rows], rows) if launched else rows
    number = np.searchsorted(steps.start, trace.start[hosts], side="right") - 1
    return np.maximum(number, 0), len(steps)
