"""Computes the diff of two traces, and closes its sum: the change of the step is that of its
rows, of idle time, and of what is left."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import msgspec
import numpy as np

from fusetui.analysis.diff import dispatch, explain, outlier_steps, outlier_work
from fusetui.analysis.diff.align import align
from fusetui.analysis.diff.dispatch import dispatched
from fusetui.analysis.diff.items import Items, Vocabulary, items, settled
from fusetui.analysis.diff.model import Accounting, Diff, DiffSide, Row, StepChange
from fusetui.analysis.diff.notes import notes
from fusetui.analysis.diff.program_location import ProgramPlaces
from fusetui.analysis.diff.regions import around, by_region, surplus
from fusetui.analysis.diff.rules import group, moved
from fusetui.analysis.diff.statistics import mean, middle
from fusetui.analysis.diff.step_change import other_devices, step_change, verdict
from fusetui.analysis.diff.story import by_place, by_work, story
from fusetui.analysis.diff.work import Work, in_common, work_of
from fusetui.analysis.questions.busy import any_busy_ns
from fusetui.analysis.why.causes import idle_by_cause
from fusetui.text.printable import without_credentials
from fusetui.trace.layout.devices import device_names
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.read.reading import without_collector

_ENDING = re.compile(r"(\.pt)?(\.trace)?(\.json)?(\.gz|\.zst)?\Z")


def diff(a: Trace, b: Trace, *, step_by: str | None = None) -> Diff:
    """What changed from A to B, why, and whether it is more than noise.

    Times compare a step of B with a step of A; `step.ratio` is B / A, below 1 when B is faster.
    `step_by`: annotations that match this regular expression or plain text are the steps of both;
    raises NoStepsError if one has none.
    """
    labels = _labels(*(without_credentials(one.report.path) for one in (a, b)))
    with without_collector():  # nothing here is cyclic either
        return compared(work_of(a, labels[0], step_by), work_of(b, labels[1], step_by))


def compared(work_a: Work, work_b: Work) -> Diff:
    """The same for the work of some steps of two traces, or of one."""
    work_a, work_b = in_common(work_a, work_b)
    words = Vocabulary()
    of_a, notes_a = items(work_a, words)
    of_b, notes_b = items(work_b, words)
    of_a, of_b = settled(of_a, of_b)
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
    found = Diff(
        a=work_a.label,
        b=work_b.label,
        step=step,
        verdict=verdict(step, side_a, side_b),
        rows=rows,
        notes=tuple(
            dict.fromkeys((*notes(of_a, of_b, groups, devices, step, sums), *notes_a, *notes_b))
        ),
        accounting=sums,
        side_a=side_a,
        side_b=side_b,
    )
    return msgspec.structs.replace(
        found, story=story(found), by_work=by_work(found), by_place=by_place(found)
    )


def _labels(a: str, b: str) -> tuple[str, str]:
    """File names without extensions; with the folder where both files have the same name."""
    short = _short(os.path.basename(a)), _short(os.path.basename(b))
    if short[0] != short[1]:
        return short
    longer = [_short(os.path.join(*path.split(os.sep)[-2:])) for path in (a, b)]
    return (longer[0], longer[1]) if longer[0] != longer[1] else short


def _short(name: str) -> str:
    return _ENDING.sub("", name) or name


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
