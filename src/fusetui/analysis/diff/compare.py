"""Computes the diff of two traces, and closes its sum: the change of the step is that of its
rows, of idle time, and of what is left."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from fusetui.analysis.diff import dispatch, explain, outlier_steps, outlier_work
from fusetui.analysis.diff.align import align
from fusetui.analysis.diff.dispatch import dispatched
from fusetui.analysis.diff.items import Items, Vocabulary, items, settled
from fusetui.analysis.diff.model import Accounting, Diff, DiffSide, Row, StepChange
from fusetui.analysis.diff.notes import notes
from fusetui.analysis.diff.regions import ProgramPlaces, around, by_region, surplus
from fusetui.analysis.diff.rules import group, moved
from fusetui.analysis.diff.statistics import mean, middle
from fusetui.analysis.diff.step_change import other_devices, step_change, verdict
from fusetui.analysis.diff.story import told
from fusetui.analysis.diff.work import Work, in_common, work_of
from fusetui.analysis.questions.busy import any_busy_ns
from fusetui.analysis.why.causes import idle_by_cause
from fusetui.text.patterns import late
from fusetui.text.printable import without_credentials
from fusetui.trace.layout.devices import device_names
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.read.reading import without_collector

_ENDING = late(r"(\.pt)?(\.trace)?(\.json)?(\.gz|\.zst)?\Z")


def diff(a: Trace, b: Trace, *, step_by: str | None = None) -> Diff:
    """What changed from A to B, why, and whether it is more than noise.

    Times compare a step of B with a step of A; `step.ratio` is B / A, below 1 when B is faster.
    `step_by`: annotations that match this regular expression or plain text are the steps of both;
    raises NoStepsError if one has none.
    """
    paths = [without_credentials(one.report.path) for one in (a, b)]
    labels = [_ENDING.sub("", name) or name for name in map(os.path.basename, paths)]
    longer = [os.path.join(*path.split(os.sep)[-2:]) for path in paths]
    if labels[0] == labels[1] and longer[0] != longer[1]:  # with the folder
        labels = [_ENDING.sub("", name) or name for name in longer]
    with without_collector():  # nothing here is cyclic either
        return compared(work_of(a, labels[0], step_by), work_of(b, labels[1], step_by))


def compared(work_a: Work, work_b: Work) -> Diff:
    """The same for the work of some steps of two traces, or of one."""
    work_a, work_b = in_common(work_a, work_b)
    words = Vocabulary()
    of_a, of_b = settled(items(work_a, words), items(work_b, words))
    programs = ProgramPlaces(of_a), ProgramPlaces(of_b)
    aligned = align(of_a, of_b, (programs[0].at, programs[1].at))
    groups = [found for lanes in aligned for found in group(of_a, of_b, lanes)]
    groups = moved(of_a, of_b, groups)
    groups = by_region(*programs, groups) + surplus(of_a, of_b, aligned)
    step = step_change(of_a, of_b, groups)
    once = outlier_steps.once(of_a, of_b, groups)
    of_a, of_b = settled(of_a, of_b, [one.step for one in once if one.paired])
    rows = (
        *explain.rows(of_a, of_b, groups, programs),
        *outlier_work.rows(of_a, of_b),
        *(one.row for one in once),
        *dispatch.rows(of_a, of_b, around(of_a, of_b, groups)),
    )
    on_cpu = not (work_a.gpu or work_b.gpu)
    side_a, side_b = side(of_a, on_cpu), side(of_b, on_cpu)
    devices = other_devices(side_a, side_b)
    sums = accounting(step, side_a, side_b, rows)
    said = tuple(dict.fromkeys(notes(of_a, of_b, groups, devices, step, sums)))
    judged = verdict(step, side_a, side_b)
    return told(Diff(work_a.label, work_b.label, step, judged, rows, said, sums, side_a, side_b))


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
    work_ns, busy_ns, every = int(items.ns.sum()), int(mean(busy)), work.windows.dur
    idle_ns = int(mean(every[usual])) - busy_ns
    # how much the steps that differ from the usual ones move the median
    odd = int(np.median(every) - middle(every, items.plain)) if len(every) else 0
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
        odd_ns=odd,
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


def _beyond(work: Work, rows: Rows, usual: Rows) -> tuple[int, int]:
    """Means over the usual steps: how long a step's own work ran after it, and other work in it.

    On a GPU, a step's own work is what its calls launched, unless steps are stretches of the GPU's
    time; there and on a CPU, what began in it. In a trace without steps, all work is its own.
    """
    trace, windows = work.trace, work.windows
    if windows.whole or not len(usual):
        return 0, 0
    calls = trace.launch[rows] if work.gpu and not windows.of_gpu else rows
    step_of = np.where(calls >= 0, windows.index_of(trace.start[calls]), -1)
    later, earlier = [], []
    for number in usual.tolist():
        begin, end = windows.start[number], windows.end[number]
        here = np.clip(trace.end[rows], begin, end) - np.clip(trace.start[rows], begin, end)
        mine = step_of == number
        later.append((trace.dur[rows] - here)[mine].sum())
        earlier.append(here[~mine].sum())
    return int(mean(np.array(later))), int(mean(np.array(earlier)))


def _top_rows(trace: Trace) -> Rows:
    ops = np.array([t.layer is Layer.OPS for t in trace.tracks] or [False])
    return np.flatnonzero(ops[trace.track] & (trace.parent < 0))
