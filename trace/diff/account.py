"""Closes the sum: the change of the step is that of its rows, of idle time, and of what is left."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.diff.items import Items
from fusetui.trace.diff.model import Accounting, Row, Side, StepChange
from fusetui.trace.diff.pieces import Work
from fusetui.trace.diff.statistics import median, ratio_interval
from fusetui.trace.layout.devices import device_names
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.questions.busy import any_busy_ns

Int64s = NDArray[np.int64]


def step_change(a: Work, b: Work) -> StepChange:
    """The medians over the steps used, and the bootstrap interval of their ratio."""
    of_a, of_b = a.windows.dur, b.windows.dur
    a_ns = int(median(of_a)) if len(of_a) else None
    b_ns = int(median(of_b)) if len(of_b) else None
    ratio = b_ns / a_ns if a_ns and b_ns is not None else None
    low, high = ratio_interval(of_a, of_b) or (None, None)
    return StepChange(a_ns, b_ns, ratio, low, high)


def side(items: Items) -> Side:
    """The figures of one trace: medians over the steps used."""
    work = items.work
    of_cpu = _cpu_ns(work)
    busy = _gpu_ns(work) if work.gpu else of_cpu
    return Side(
        label=work.label,
        gpu=work.gpu,
        devices=tuple(dict.fromkeys(device_names(work.trace))) if work.gpu else (),
        steps=len(work.windows),
        items=len(items),
        work_ns=int(items.ns.sum()),
        busy_ns=_median(busy),
        idle_ns=_median(work.windows.dur - busy),
        cpu_ns=_median(of_cpu),
    )


def accounting(step: StepChange, a: Side, b: Side, rows: Iterable[Row]) -> Accounting:
    """Integers throughout, so that the sum closes exactly."""
    of_rows = sum(row.change_ns for row in rows if row.counts)
    idle = b.idle_ns - a.idle_ns
    return Accounting(step.change_ns, of_rows, idle, step.change_ns - of_rows - idle)


def _gpu_ns(work: Work) -> Int64s:
    """Per step: the time during which any GPU event ran, whichever step launched it."""
    return any_busy_ns(work.trace, work.trace.gpu_rows, work.windows.start, work.windows.end)


def _cpu_ns(work: Work) -> Int64s:
    """Per step: the time during which any CPU op or runtime call ran, on any thread."""
    return any_busy_ns(work.trace, _top_rows(work.trace), work.windows.start, work.windows.end)


def _top_rows(trace: Trace) -> NDArray[np.intp]:
    ops = np.array([t.layer is Layer.OPS for t in trace.tracks] or [False])
    return np.flatnonzero(ops[trace.track] & (trace.parent < 0))


def _median(values: Int64s) -> int:
    return int(median(values)) if len(values) else 0
