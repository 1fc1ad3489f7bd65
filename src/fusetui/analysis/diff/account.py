"""Closes the sum: the change of the step is that of its rows, of idle time, and of what is left."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fusetui.analysis.diff.dispatch import dispatched
from fusetui.analysis.diff.items import Items
from fusetui.analysis.diff.model import Accounting, DiffSide, Row, StepChange
from fusetui.analysis.diff.statistics import mean, middle
from fusetui.analysis.diff.work import Work
from fusetui.analysis.questions.busy import any_busy_ns
from fusetui.analysis.why.causes import idle_by_cause
from fusetui.trace.layout.devices import device_names
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace


def side(items: Items, on_cpu: bool) -> DiffSide:
    """The figures of one trace: means over its usual steps, which add up to these steps.

    `on_cpu`: neither trace has GPU events, so dispatch on the CPU is part of the sum.
    """
    work, usual = items.work, items.usual
    rows = work.trace.gpu_rows if work.gpu else _top_rows(work.trace) if on_cpu else work.row
    spans = work.windows.start[usual], work.windows.end[usual]
    busy = any_busy_ns(work.trace, rows, *spans)
    dispatch = int(mean(dispatched(items)[usual])) if on_cpu else 0
    later, earlier = _beyond(work, rows, usual)
    work_ns, busy_ns = int(items.ns.sum()), int(mean(busy))
    idle_ns = int(mean(work.windows.dur[usual])) - busy_ns
    return DiffSide(
        label=work.label,
        gpu=work.gpu,
        devices=tuple(dict.fromkeys(device_names(work.trace))) if work.gpu else (),
        steps=len(work.windows),
        items=len(items),
        work_ns=work_ns,
        busy_ns=busy_ns,
        idle_ns=idle_ns,
        cpu_ns=int(mean(any_busy_ns(work.trace, _top_rows(work.trace), *spans))),
        dispatch_ns=dispatch,
        overlap_ns=work_ns + dispatch + earlier - later - busy_ns,
        later_ns=later,
        earlier_ns=earlier,
        odd_ns=_odd(items),
        usual=tuple(usual.tolist()),
        idle=idle_by_cause(work.trace, *spans, idle_ns) if work.gpu else {},
    )


def accounting(step: StepChange, a: DiffSide, b: DiffSide, rows: Iterable[Row]) -> Accounting:
    """Integers throughout, so that the sum closes exactly."""
    of_rows = sum(row.change_ns for row in rows if row.counts)
    idle = b.idle_ns - a.idle_ns
    overlap = a.overlap_ns - b.overlap_ns
    later, earlier = a.later_ns - b.later_ns, b.earlier_ns - a.earlier_ns
    odd = b.odd_ns - a.odd_ns
    rest = step.change_ns - of_rows - idle - overlap - later - earlier - odd
    return Accounting(step.change_ns, of_rows, idle, rest, overlap, later, earlier, odd)


def _odd(items: Items) -> int:
    """How much the steps that differ from the usual ones move the median."""
    durations = items.work.windows.dur
    return int(np.median(durations) - middle(durations, items.plain)) if len(durations) else 0


def _beyond(work: Work, rows: Rows, usual: Rows) -> tuple[int, int]:
    """Means over the usual steps: how long a step's own work ran after it, and other work in it.

    On a GPU, a step's own work is what its calls launched, unless steps are stretches of the GPU's
    time; there and on a CPU, what began in it. In a trace without steps, all work is its own.
    """
    trace, windows = work.trace, work.windows
    if windows.whole or not len(usual):
        return 0, 0
    launched = work.gpu and not windows.of_gpu
    own = rows[trace.launch[rows] >= 0] if launched else rows
    called = trace.start[trace.launch[own] if launched else own]
    step_of = windows.index_of(called)
    later, earlier = [], []
    for number in usual.tolist():
        begin, end = windows.start[number], windows.end[number]
        start, until = np.clip(trace.start[rows], begin, end), np.clip(trace.end[rows], begin, end)
        mine = own[step_of == number]
        here = np.clip(trace.end[mine], begin, end) - np.clip(trace.start[mine], begin, end)
        later.append(int((trace.dur[mine] - here).sum()))
        earlier.append(int((until - start).sum() - here.sum()))
    return int(mean(np.array(later))), int(mean(np.array(earlier)))


def _top_rows(trace: Trace) -> Rows:
    ops = np.array([t.layer is Layer.OPS for t in trace.tracks] or [False])
    return np.flatnonzero(ops[trace.track] & (trace.parent < 0))
