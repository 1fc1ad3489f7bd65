"""Computes the diff of two traces: how much longer a step takes, how sure that is, the
verdict, and a sum that closes. The change of the step is that of its rows, of idle
time, and of what is left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fusetui.analysis.diff import dispatch, explain, outlier_steps, outlier_work
from fusetui.analysis.diff.align import align
from fusetui.analysis.diff.dispatch import dispatched
from fusetui.analysis.diff.evidence import comparable
from fusetui.analysis.diff.groups import WorkGroup, pairs_of
from fusetui.analysis.diff.items import WorkItems, settled
from fusetui.analysis.diff.model import (
    Accounting,
    Answer,
    Diff,
    DiffSide,
    Row,
    StepChange,
    Verdict,
)
from fusetui.analysis.diff.notes import notes
from fusetui.analysis.diff.regions import ProgramPlaces, around, by_region, surplus
from fusetui.analysis.diff.renamed_dispatch import renamed_labels
from fusetui.analysis.diff.renamed_work import renamed_at_places
from fusetui.analysis.diff.rules import group, moved
from fusetui.analysis.diff.statistics import (
    FEW_ROUNDS,
    FEW_STEPS,
    mean,
    median,
    middle,
    paired_interval,
    ratio_interval,
)
from fusetui.analysis.diff.story import told
from fusetui.analysis.diff.work import Work, in_common, lacks_gpu_events, work_of
from fusetui.analysis.questions.busy import any_busy_ns
from fusetui.analysis.why.causes import idle_by_cause
from fusetui.text.patterns import late
from fusetui.text.printable import without_credentials
from fusetui.trace.layout.devices import device_names
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.read.reading import without_collector

LACKING = "launches GPU work, but its file has no GPU events: both sides are compared by their CPU ops"
_ENDING = late(r"(\.pt)?(\.trace)?(\.json)?(\.gz|\.zst)?\Z")


def diff(a: Trace, b: Trace, *, step_by: str | None = None) -> Diff:
    """What changed from A to B, why, and whether it is more than noise.

    Times compare a step of B with a step of A; `step.ratio` is B / A, below 1 when B is
    faster. `step_by`: annotations that match this regular expression or plain text are
    the steps of both; raises NoStepsError if one has none.
    """
    paths = [without_credentials(one.report.path) for one in (a, b)]
    labels = [_ENDING.sub("", name) or name for name in map(os.path.basename, paths)]
    longer = [os.path.join(*path.split(os.sep)[-2:]) for path in paths]
    if labels[0] == labels[1] and longer[0] != longer[1]:  # with the folder
        labels = [_ENDING.sub("", name) or name for name in longer]
    with without_collector():  # nothing here is cyclic either
        lacking = _lacking(a, b)
        by_ops = bool(lacking)
        work_a, work_b = (
            work_of(trace, label, step_by, by_ops=by_ops)
            for trace, label in zip((a, b), labels, strict=True)
        )
        return compared(work_a, work_b, lacking)


def _lacking(a: Trace, b: Trace) -> str:
    """`A` or `B` if its file alone has no GPU events although its calls launch GPU
    work, as one that was cut before them; else nothing."""
    if len(a.gpu_rows) and lacks_gpu_events(b):
        return "B"
    return "A" if len(b.gpu_rows) and lacks_gpu_events(a) else ""


def compared(work_a: Work, work_b: Work, lacking: str = "") -> Diff:
    """The same for the work of some steps of two traces, or of one; `lacking` is the
    side, `A` or `B`, whose GPU events are not in its file."""
    evidence = comparable(*in_common(work_a, work_b))
    of_a, of_b = settled(evidence.a, evidence.b)
    programs = ProgramPlaces(of_a), ProgramPlaces(of_b)
    aligned = align(of_a, of_b, (programs[0].at, programs[1].at))
    groups = [found for lanes in aligned for found in group(of_a, of_b, lanes)]
    groups = moved(of_a, of_b, groups)
    groups = by_region(*programs, groups) + surplus(of_a, of_b, aligned)
    step = step_change(of_a, of_b, groups)
    once = outlier_steps.once(of_a, of_b, groups)
    of_a, of_b = settled(of_a, of_b, [step for _, step in once if step is not None])
    renamed = renamed_at_places(of_a, of_b, groups, evidence.renamed, evidence.swapped)
    renamed_dispatch = renamed_labels(of_a, of_b, renamed)
    rows = (
        *explain.rows(of_a, of_b, groups, programs),
        *outlier_steps.in_parts(
            of_a,
            of_b,
            [*outlier_work.rows(of_a, of_b, groups), *(row for row, _ in once)],
        ),
        *dispatch.rows(of_a, of_b, around(of_a, of_b, aligned), renamed_dispatch),
    )
    on_cpu = not (work_a.gpu or work_b.gpu)
    side_a, side_b = side(of_a, on_cpu), side(of_b, on_cpu)
    devices = other_devices(side_a, side_b)
    sums = accounting(step, side_a, side_b, rows)
    every_note = notes(
        of_a, of_b, groups, devices, step, sums, evidence, renamed, renamed_dispatch
    )
    said = tuple(dict.fromkeys(every_note))
    judged = verdict(step, side_a, side_b)
    if lacking:
        judged = Verdict(Answer.CANNOT_TELL, f"{lacking} {LACKING}")
    return told(
        Diff(work_a.label, work_b.label, step, judged, rows, said, sums, side_a, side_b)
    )


def side(items: WorkItems, on_cpu: bool) -> DiffSide:
    """The figures of one trace: means over its usual steps, which add up to these
    steps.

    `on_cpu`: neither trace has GPU events, so dispatch on the CPU is part of the sum.
    """
    work, usual = items.work, items.usual
    rows = (
        work.trace.gpu_rows
        if work.gpu
        else _top_rows(work.trace)
        if on_cpu
        else work.row
    )
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


def accounting(
    step: StepChange, a: DiffSide, b: DiffSide, rows: Iterable[Row]
) -> Accounting:
    """Integers throughout, so that the sum closes exactly."""
    of_rows = sum(row.change_ns for row in rows if row.counts)
    idle = b.idle_ns - a.idle_ns
    overlap = a.overlap_ns - b.overlap_ns
    later, earlier = a.later_ns - b.later_ns, b.earlier_ns - a.earlier_ns
    odd = b.odd_ns - a.odd_ns
    rest = step.change_ns - of_rows - idle - overlap - later - earlier - odd
    return Accounting(step.change_ns, of_rows, idle, rest, overlap, later, earlier, odd)


def _beyond(work: Work, rows: Rows, usual: Rows) -> tuple[int, int]:
    """Means over the usual steps: how long a step's own work ran after it, and other
    work in it.

    On a GPU, a step's own work is what its calls launched, unless steps are stretches
    of the GPU's time; there and on a CPU, what began in it. In a trace without steps,
    all work is its own.
    """
    trace, windows = work.trace, work.windows
    if windows.whole or not len(usual):
        return 0, 0
    calls = trace.launch[rows] if work.gpu and not windows.of_gpu else rows
    step_of = np.where(calls >= 0, windows.index_of(trace.start[calls]), -1)
    later, earlier = [], []
    for number in usual.tolist():
        begin, end = windows.start[number], windows.end[number]
        here = np.clip(trace.end[rows], begin, end) - np.clip(
            trace.start[rows], begin, end
        )
        mine = step_of == number
        later.append((trace.dur[rows] - here)[mine].sum())
        earlier.append(here[~mine].sum())
    return int(mean(np.array(later))), int(mean(np.array(earlier)))


def _top_rows(trace: Trace) -> Rows:
    ops = np.array([t.layer is Layer.OPS for t in trace.tracks] or [False])
    return np.flatnonzero(ops[trace.track] & (trace.parent < 0))


BASE = "baseTimeNanoseconds"
LEAST = 8
"""A piece was interrupted that lies farther above the median of that piece in all steps
than the first quarter of its times lies below, and by more than one part in so many."""


def step_change(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> StepChange:
    """The medians over the steps used, and the interval of their ratio.

    Where the steps of both took turns, each is compared with its neighbor, and what
    became slower or faster over time counts for nothing; else the drift of each run
    widens the interval.
    """
    of_a, of_b = a.work.windows.dur, b.work.windows.dur
    a_ns = int(median(of_a)) if len(of_a) else None
    b_ns = int(median(of_b)) if len(of_b) else None
    if not a_ns or b_ns is None:
        return StepChange(a_ns, b_ns, None, None, None)
    (ns_a, share_a), (ns_b, share_b) = _undisturbed(a, b, groups)
    turns = _take_turns(a.work, b.work)
    interval = (paired_interval if turns else ratio_interval)(ns_a, ns_b)
    return StepChange(a_ns, b_ns, *interval, turns, share_a, share_b)


def limits_of(ns: Int64s) -> Int64s:
    """The most that each piece takes where nothing interrupts it; `ns` as in `_cut`."""
    if not len(ns):
        return np.zeros(ns.shape[1], dtype=np.int64)
    quarter, middle = np.percentile(ns, [25, 50], axis=0, method="lower").astype(
        np.int64
    )
    return np.asarray(middle + np.maximum(middle - quarter, middle // LEAST))


def _undisturbed(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> Iterator[tuple[Int64s, float]]:
    """Of each side the durations of its steps less interruptions (ns), and the share of
    all time that these were: what a piece took is counted up to what is usual for it.

    The same kernel or op on both sides is cut at one limit, the higher one of the two:
    with a limit of its own, which is known no better than the noise allows, each side
    would be off in all of its steps alike. A step whose work is not the usual one
    counts as it is.
    """
    cuts = _cut(a), _cut(b)
    limits = [limits_of(ns) for ns, _ in cuts]
    if all(len(ns) for ns, _ in cuts):
        one, other = pairs = pairs_of(groups)
        pairs = pairs[:, a.exact[one] == b.exact[other]]
        # with what comes before all work
        in_a, in_b = (
            np.append(at[of], 0) for (_, at), of in zip(cuts, pairs, strict=True)
        )
        limits[0][in_a] = limits[1][in_b] = np.maximum(limits[0][in_a], limits[1][in_b])
    for of, (ns, _), limit in zip((a, b), cuts, limits, strict=True):
        durations, whole = of.work.windows.dur, int(of.work.windows.dur.sum())
        excess = np.maximum(ns - limit, 0).sum(axis=1)
        if len(ns):
            durations[of.alike] -= excess
        yield durations, int(excess.sum()) / whole if whole else 0.0


def _cut(items: WorkItems) -> tuple[Int64s, Rows]:
    """The steps alike (ns), cut where their pieces of work begin, and the column of
    each item: [steps, pieces + 1], the first column what comes before all work; rows
    add up to steps. No steps where pieces come in another order in some step, or begin
    outside of it."""
    work, size = items.work, len(items)
    nothing = np.zeros((0, size + 1), dtype=np.int64), np.arange(1, size + 1)
    if not len(items.alike) or not size:
        return nothing
    spans = [work.of_window(step) for step in items.alike.tolist()]
    begins = np.stack([work.trace.start[work.row[span]] for span in spans])
    orders = np.argsort(begins, axis=1, kind="stable")
    if (orders != orders[0]).any():
        return nothing
    first, last = work.windows.start[items.alike], work.windows.end[items.alike]
    ns: Int64s = np.diff(np.column_stack([first, begins[:, orders[0]], last]), axis=1)
    return nothing if (ns < 0).any() else (ns, np.argsort(orders[0]) + 1)


def _take_turns(a: Work, b: Work) -> bool:
    """Did the n-th step of both sides run next to each other, in either order, for
    every n?

    So it is when both were taken out of one profile; never when the traces are of two
    processes, whose steps would overlap, or of two clocks.
    """
    one, other = a.windows, b.windows
    if len(one) != len(other) or len(one) < 2 or one.whole or other.whole:
        return False
    if a.trace.keys.get(BASE) != b.trace.keys.get(BASE):  # when their clocks began
        return False
    within = (one.end <= other.start) | (other.end <= one.start)
    last, first = np.maximum(one.end, other.end), np.minimum(one.start, other.start)
    return bool(within.all() and (last[:-1] <= first[1:]).all())


def verdict(step: StepChange, a: DiffSide, b: DiffSide) -> Verdict:
    """Faster or slower when the interval of the ratio excludes 1, else no difference.

    There is no verdict between different devices, because that is no change of the
    program, nor with fewer than FEW_STEPS steps on a side.
    """
    if reason := _reason(step, a, b):
        return Verdict(Answer.CANNOT_TELL, reason)
    if not step.shown:
        return Verdict(Answer.NO_DIFFERENCE)
    return Verdict(Answer.FASTER if (step.high or 0) < 1 else Answer.SLOWER)


def other_devices(a: DiffSide, b: DiffSide) -> str:
    """`A100 -> H100`; "" where both ran on the same, or a file does not say."""
    if not (a.items and b.items) or (a.gpu == b.gpu and not (a.devices and b.devices)):
        return ""
    before, after = (
        (", ".join(side.devices) or "a GPU") if side.gpu else "CPU only"
        for side in (a, b)
    )
    return f"{before} -> {after}" if before != after else ""


def _reason(step: StepChange, a: DiffSide, b: DiffSide) -> str:
    empty = [name for name, side in (("A", a), ("B", b)) if not side.items]
    if empty:
        return f"there is no work in the steps of {' and '.join(empty)}"
    if devices := other_devices(a, b):
        return f"the devices differ ({devices})"
    least = FEW_ROUNDS if step.turns else FEW_STEPS
    if min(a.steps, b.steps) < least:
        turns = " that take turns" if step.turns else ""
        return f"it takes at least {least} steps{turns} on each side (A has {a.steps}, B {b.steps})"
    return "" if step.low is not None else "the steps of a side take no time"
