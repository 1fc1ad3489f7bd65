"""Computes the diff of two traces: how much longer a step takes, how sure that is, the
verdict, and a sum that closes. The change of the step is that of its rows, of idle
time, and of what is left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff import dispatch, explain, outlier_steps, outlier_work
from fusetui.analysis.diff.align import AlignedLanes, align
from fusetui.analysis.diff.dispatch import dispatch_ns_by_step
from fusetui.analysis.diff.evidence import Evidence, comparable
from fusetui.analysis.diff.groups import WorkGroup, paired_items
from fusetui.analysis.diff.items import WorkItems, with_usual_steps
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
from fusetui.analysis.diff.program_places import ProgramPlaces
from fusetui.analysis.diff.regions import by_region
from fusetui.analysis.diff.renamed_dispatch import renamed_labels
from fusetui.analysis.diff.renamed_work import renamed_at_places
from fusetui.analysis.diff.rules import group, moved
from fusetui.analysis.diff.statistics import (
    FEW_ROUNDS,
    FEW_STEPS,
    mean,
    median_of_usual_work,
    paired_interval,
    ratio_interval,
)
from fusetui.analysis.diff.story import with_summary
from fusetui.analysis.diff.surplus import rows_for_surplus_blocks, surplus_groups
from fusetui.analysis.diff.work import (
    Work,
    lacks_gpu_events,
    with_common_steps,
    work_of,
)
from fusetui.analysis.questions.busy import any_busy_ns
from fusetui.analysis.why.causes import idle_by_cause
from fusetui.own_memory import without_collector
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import without_credentials
from fusetui.trace.layout.devices import device_names
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import median

NO_GPU_EVENTS = (
    "launches GPU work, but its file has no GPU events: both sides are compared by"
    " their CPU ops"
)
_ENDINGS = lazy_pattern(r"(\.pt)?(\.trace)?(\.json)?(\.gz|\.zst)?\Z")


def diff(a: Trace, b: Trace, *, step_by: str | None = None) -> Diff:
    """What changed from A to B, why, and whether it is more than noise.

    Times compare a step of B with a step of A; `step.ratio` is B / A, below 1 when B is
    faster. `step_by`: annotations that match this regular expression or plain text are
    the steps of both; raises NoStepsError if one has none.
    """
    label_a, label_b = _labels(a, b)
    with without_collector():  # nothing here is cyclic either
        lacking = _side_without_gpu_events(a, b)
        by_ops = bool(lacking)
        work_a = work_of(a, label_a, step_by, by_ops=by_ops)
        work_b = work_of(b, label_b, step_by, by_ops=by_ops)
        return compared(work_a, work_b, lacking)


def _labels(a: Trace, b: Trace) -> tuple[str, str]:
    """The names of both files without their endings; with the folder that each is in
    where that alone tells them apart."""
    path_a = without_credentials(a.report.path)
    path_b = without_credentials(b.report.path)
    label_a = _without_endings(os.path.basename(path_a))
    label_b = _without_endings(os.path.basename(path_b))
    in_folder_a = os.path.join(*path_a.split(os.sep)[-2:])
    in_folder_b = os.path.join(*path_b.split(os.sep)[-2:])
    if label_a == label_b and in_folder_a != in_folder_b:
        return _without_endings(in_folder_a), _without_endings(in_folder_b)
    return label_a, label_b


def _without_endings(name: str) -> str:
    """`run` for `run.pt.trace.json.gz`; the name itself if nothing else is left."""
    return _ENDINGS.sub("", name) or name


def _side_without_gpu_events(a: Trace, b: Trace) -> str:
    """`A` or `B` if its file alone has no GPU events although its calls launch GPU
    work, as a file does that was cut off before them; else ""."""
    if len(a.gpu_rows) and lacks_gpu_events(b):
        return "B"
    if len(b.gpu_rows) and lacks_gpu_events(a):
        return "A"
    return ""


def compared(work_a: Work, work_b: Work, lacking: str = "") -> Diff:
    """The diff of the work of some steps of two traces, or of one.

    `lacking` is the side, `A` or `B`, whose GPU events are not in its file; "" for
    none.
    """
    common = with_common_steps(work_a, work_b)
    evidence = comparable(common.a, common.b)
    matched = _matched(evidence)
    a = matched.a
    b = matched.b
    groups = matched.groups

    renamed = renamed_at_places(a, b, groups, evidence.renamed, evidence.swapped)
    renamed_dispatch = renamed_labels(a, b, renamed)
    rows = _rows(matched, renamed_dispatch)
    on_cpu = not (work_a.gpu or work_b.gpu)
    side_a = side_figures(a, on_cpu)
    side_b = side_figures(b, on_cpu)
    sums = accounting(matched.step, side_a, side_b, rows)
    devices = other_devices(side_a, side_b)
    every_note = notes(
        a,
        b,
        groups,
        devices,
        matched.step,
        sums,
        evidence,
        renamed,
        renamed_dispatch,
    )
    result = Diff(
        a=work_a.label,
        b=work_b.label,
        step=matched.step,
        verdict=_verdict_with_lacking(matched.step, side_a, side_b, lacking),
        rows=rows,
        notes=tuple(dict.fromkeys(every_note)),  # each once
        accounting=sums,
        side_a=side_a,
        side_b=side_b,
    )
    return with_summary(result)


class _Matched(msgspec.Struct, frozen=True, eq=False):
    """The work of both sides, and what of it is the same."""

    a: WorkItems
    b: WorkItems
    places_a: ProgramPlaces
    places_b: ProgramPlaces
    lanes: Sequence[AlignedLanes]
    groups: list[WorkGroup]
    step: StepChange
    outliers: list[outlier_steps.SingleStepOutlier]


def _matched(evidence: Evidence) -> _Matched:
    """Matches the work of both sides. Their usual steps are without those in which
    something else happened (outliers), but the change of the step is that of all."""
    a, b = with_usual_steps(evidence.a, evidence.b)
    places_a = ProgramPlaces(a)
    places_b = ProgramPlaces(b)
    lanes = align(a, b, places_a.starred_places, places_b.starred_places)
    groups = _groups(places_a, places_b, lanes)
    step = step_change(a, b, groups)
    outliers = outlier_steps.single_step_outliers(a, b, groups)
    unusual_steps = []
    for outlier in outliers:
        if outlier.unusual_step is not None:
            unusual_steps.append(outlier.unusual_step)
    a, b = with_usual_steps(a, b, unusual_steps)
    return _Matched(
        a=a,
        b=b,
        places_a=places_a,
        places_b=places_b,
        lanes=lanes,
        groups=groups,
        step=step,
        outliers=outliers,
    )


def _rows(matched: _Matched, renamed_dispatch: Mapping[str, str]) -> tuple[Row, ...]:
    """All rows of a diff: those of work in usual steps, those of single steps, and
    those of dispatch. `renamed_dispatch`: of `renamed_labels`."""
    a = matched.a
    b = matched.b
    groups = matched.groups
    of_single_steps = outlier_work.rows(a, b, groups)
    of_single_steps += [outlier.row for outlier in matched.outliers]
    for_surplus = rows_for_surplus_blocks(a, b, matched.lanes)
    return (
        *explain.rows(a, b, groups, (matched.places_a, matched.places_b)),
        *outlier_steps.with_joined_parts(a, b, of_single_steps),
        *dispatch.rows(a, b, for_surplus, renamed_dispatch),
    )


def _verdict_with_lacking(
    step: StepChange, a: DiffSide, b: DiffSide, lacking: str
) -> Verdict:
    """The verdict; none where the GPU events of the side `lacking` are not there."""
    if lacking:
        reason = f"{lacking} {NO_GPU_EVENTS}"
        return Verdict(answer=Answer.CANNOT_TELL, reason=reason)
    return verdict(step, a, b)


def _groups(
    a: ProgramPlaces, b: ProgramPlaces, aligned: Sequence[AlignedLanes]
) -> list[WorkGroup]:
    """What does the same work on both sides, and what only one side does: every item of
    both sides is in exactly one group. Groups are found within two aligned lanes first,
    then anywhere, then by the parts of the program; those of repeated blocks are
    last."""
    groups: list[WorkGroup] = []
    for lanes in aligned:
        groups += group(a.items, b.items, lanes)
    groups = moved(a.items, b.items, groups)
    groups = by_region(a, b, groups)
    return groups + surplus_groups(a.items, b.items, aligned)


def side_figures(items: WorkItems, on_cpu: bool) -> DiffSide:
    """The figures of one trace: means over its usual steps, which add up to these
    steps.

    `on_cpu`: neither trace has GPU events, so dispatch on the CPU is part of the sum.
    """
    work = items.work
    times = _step_times(items, on_cpu)
    devices = tuple(dict.fromkeys(device_names(items.trace))) if work.gpu else ()
    work_ns = int(items.ns.sum())
    dispatch_ns = (
        int(mean(dispatch_ns_by_step(items)[items.usual_steps])) if on_cpu else 0
    )
    crossing = _crossing_work(work, _busy_rows(work, on_cpu), items.usual_steps)
    spent_ns = work_ns + dispatch_ns + crossing.earlier_ns - crossing.later_ns
    return DiffSide(
        label=work.label,
        gpu=work.gpu,
        devices=devices,
        steps=len(work.windows),
        items=len(items),
        work_ns=work_ns,
        busy_ns=times.busy_ns,
        idle_ns=times.idle_ns,
        cpu_ns=times.cpu_ns,
        dispatch_ns=dispatch_ns,
        overlap_ns=spent_ns - times.busy_ns,
        later_ns=crossing.later_ns,
        earlier_ns=crossing.earlier_ns,
        odd_ns=_odd_ns(items),
        usual=tuple(items.usual_steps.tolist()),
        idle=times.idle_by_cause,
    )


class _StepTimes(msgspec.Struct, frozen=True):
    """What happens in the usual steps of a side: means, in ns."""

    busy_ns: int  # while any work runs: of the GPU, if there is one
    idle_ns: int  # the rest of the step
    cpu_ns: int  # while any CPU op runs
    idle_by_cause: dict[str, int]  # of a GPU


def _step_times(items: WorkItems, on_cpu: bool) -> _StepTimes:
    """The times of the usual steps of a side; see `side_figures`."""
    work = items.work
    trace = items.trace
    begins = work.windows.start[items.usual_steps]
    ends = work.windows.end[items.usual_steps]
    busy_rows = _busy_rows(work, on_cpu)
    busy_ns = int(mean(any_busy_ns(trace, busy_rows, begins, ends)))
    idle_ns = int(mean(work.windows.dur[items.usual_steps])) - busy_ns
    cpu_ns = int(mean(any_busy_ns(trace, _top_op_rows(trace), begins, ends)))
    return _StepTimes(
        busy_ns=busy_ns,
        idle_ns=idle_ns,
        cpu_ns=cpu_ns,
        idle_by_cause=idle_by_cause(trace, begins, ends, idle_ns) if work.gpu else {},
    )


def _busy_rows(work: Work, on_cpu: bool) -> Rows:
    """The rows of what keeps a side busy: GPU events; without a GPU on this side its
    pieces of work, without one on both (`on_cpu`) the outermost CPU ops."""
    if work.gpu:
        return work.trace.gpu_rows
    return _top_op_rows(work.trace) if on_cpu else work.row


def _odd_ns(items: WorkItems) -> int:
    """How much the steps that differ from the usual ones move the median step (ns); 0
    without steps."""
    step_ns = items.work.windows.dur
    if not len(step_ns):
        return 0
    return int(np.median(step_ns) - median_of_usual_work(step_ns, items.plain_steps))


def accounting(
    step: StepChange, a: DiffSide, b: DiffSide, rows: Iterable[Row]
) -> Accounting:
    """The change of the step as a sum of changes (ns), which closes exactly: all are
    whole numbers. `rows`: all rows of the diff."""
    rows_ns = sum(row.change_ns for row in rows if row.counts)
    idle_ns = b.idle_ns - a.idle_ns
    # more overlap, and more work after the end of the step, make the step shorter
    overlap_ns = a.overlap_ns - b.overlap_ns
    later_ns = a.later_ns - b.later_ns
    earlier_ns = b.earlier_ns - a.earlier_ns
    odd_ns = b.odd_ns - a.odd_ns
    explained_ns = rows_ns + idle_ns + overlap_ns + later_ns + earlier_ns + odd_ns
    return Accounting(
        step_ns=step.change_ns,
        rows_ns=rows_ns,
        idle_ns=idle_ns,
        not_explained_ns=step.change_ns - explained_ns,
        overlap_ns=overlap_ns,
        later_ns=later_ns,
        earlier_ns=earlier_ns,
        odd_ns=odd_ns,
    )


class _CrossingWork(msgspec.Struct, frozen=True):
    """Work that crosses the boundaries of a step: means over the usual steps, in ns."""

    later_ns: int  # of the step's own work, after its end
    earlier_ns: int  # of the work of other steps, in it


def _crossing_work(work: Work, rows: Rows, usual: Rows) -> _CrossingWork:
    """How much of the work in `rows` crosses the boundaries of the usual steps; none
    where the whole trace is one step."""
    trace = work.trace
    windows = work.windows
    if windows.is_whole_trace or not len(usual):
        return _CrossingWork(later_ns=0, earlier_ns=0)
    step_of_row = _steps_of_rows(work, rows)
    later_ns = []  # of each usual step
    earlier_ns = []
    for step in usual.tolist():
        begin = windows.start[step]
        end = windows.end[step]
        start_inside = np.clip(trace.start[rows], begin, end)
        end_inside = np.clip(trace.end[rows], begin, end)
        inside_ns = end_inside - start_inside
        outside_ns = trace.dur[rows] - inside_ns
        is_own = step_of_row == step
        later_ns.append(outside_ns[is_own].sum())
        earlier_ns.append(inside_ns[~is_own].sum())
    return _CrossingWork(
        later_ns=int(mean(np.array(later_ns))),
        earlier_ns=int(mean(np.array(earlier_ns))),
    )


def _steps_of_rows(work: Work, rows: Rows) -> Rows:
    """The step that each of these rows is the work of, -1 for none. On a GPU, that is
    the step whose calls launched it, unless steps are intervals of the GPU's time;
    there and on a CPU, the step in which it began."""
    trace = work.trace
    by_launch = work.gpu and not work.windows.is_gpu_time
    placed_by = trace.launch[rows] if by_launch else rows
    step_at_start = work.windows.step_of_calls(trace.start[placed_by])
    return np.where(placed_by >= 0, step_at_start, -1)


def _top_op_rows(trace: Trace) -> Rows:
    """The rows of the CPU ops that no other op is around."""
    is_of_ops = [track.layer is Layer.OPS for track in trace.tracks]
    on_ops_layer = np.array(is_of_ops or [False])[trace.track]
    return np.flatnonzero(on_ops_layer & (trace.parent < 0))


CLOCK_BASE_KEY = "baseTimeNanoseconds"
"""The key of a trace that says when the clock of its process began."""


def step_change(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> StepChange:
    """The median lengths of the steps of both sides, and the interval of their ratio;
    no ratio where A has no steps or they take no time, or where B has none.

    Where the steps of both took turns, each is compared with its neighbor, and what
    became slower or faster over time counts for nothing; else the drift of each run
    widens the interval.
    """
    windows_a = a.work.windows
    windows_b = b.work.windows
    a_ns = median(windows_a.dur) if len(windows_a) else None
    b_ns = median(windows_b.dur) if len(windows_b) else None
    if not a_ns or b_ns is None:
        return StepChange(
            a_ns=a_ns,
            b_ns=b_ns,
            ratio=None,
            low=None,
            high=None,
            length_a=windows_a.length,
            length_b=windows_b.length,
        )
    undisturbed_a, undisturbed_b = _undisturbed(a, b, groups)
    turns = _take_turns(a.work, b.work)
    interval_of = paired_interval if turns else ratio_interval
    interval = interval_of(undisturbed_a.durations_ns, undisturbed_b.durations_ns)
    return StepChange(
        a_ns=a_ns,
        b_ns=b_ns,
        ratio=interval.ratio,
        low=interval.low,
        high=interval.high,
        drift_a=interval.drift_a,
        drift_b=interval.drift_b,
        turns=turns,
        interrupted_a=undisturbed_a.interrupted_share,
        interrupted_b=undisturbed_b.interrupted_share,
        length_a=windows_a.length,
        length_b=windows_b.length,
    )


MIN_EXCESS_DIVISOR = 8
"""A piece of work may take longer than its median by at least one part in so many of
the median before it counts as interrupted."""


def limits_of(ns: Int64s) -> Int64s:
    """The most that each piece of work takes where nothing interrupts it (ns); shape
    [pieces]. `ns` has the shape [steps, pieces]; without steps, all limits are 0.

    That is the median of all steps, and on top of it as much as the first quartile is
    below it, but at least the MIN_EXCESS_DIVISOR-th part of it.
    """
    if not len(ns):
        return np.zeros(ns.shape[1], dtype=np.int64)
    percentiles = np.percentile(ns, [25, 50], axis=0, method="lower").astype(np.int64)
    quartile, median_ns = percentiles
    margin = np.maximum(median_ns - quartile, median_ns // MIN_EXCESS_DIVISOR)
    return np.asarray(median_ns + margin)


class _Undisturbed(msgspec.Struct, frozen=True, eq=False):
    """The steps of a side as if nothing had interrupted them."""

    durations_ns: Int64s  # shape [steps]
    interrupted_share: float  # of the time of all steps, that of interruptions


def _undisturbed(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> tuple[_Undisturbed, _Undisturbed]:
    """The steps of A and of B without interruptions: what a piece of work took counts
    up to its limit (`limits_of`).

    The same kernel or op on both sides has one limit, the higher one of the two: with a
    limit of its own, which is known no better than the noise allows, each side would be
    off in all of its steps alike. A step whose work is not the usual one counts as it
    is.
    """
    pieces_a = _pieces(a)
    pieces_b = _pieces(b)
    limits_a = limits_of(pieces_a.ns)
    limits_b = limits_of(pieces_b.ns)
    if len(pieces_a.ns) and len(pieces_b.ns):
        items_a, items_b = paired_items(groups)
        is_same_work = a.exact_keys[items_a] == b.exact_keys[items_b]
        # column 0 is what comes before all work
        columns_a = np.append(pieces_a.column_of_item[items_a[is_same_work]], 0)
        columns_b = np.append(pieces_b.column_of_item[items_b[is_same_work]], 0)
        higher = np.maximum(limits_a[columns_a], limits_b[columns_b])
        limits_a[columns_a] = higher
        limits_b[columns_b] = higher
    return (
        _without_interruptions(a, pieces_a, limits_a),
        _without_interruptions(b, pieces_b, limits_b),
    )


def _without_interruptions(
    items: WorkItems, pieces: _Pieces, limits: Int64s
) -> _Undisturbed:
    """The steps of a side without what the pieces of the steps alike took beyond their
    limits (ns, of shape [pieces + 1])."""
    durations_ns = items.work.windows.dur
    total_ns = int(durations_ns.sum())
    excess_ns = np.maximum(pieces.ns - limits, 0).sum(axis=1)  # of each step alike
    if len(pieces.ns):
        durations_ns[items.alike_steps] -= excess_ns
    interrupted_share = int(excess_ns.sum()) / total_ns if total_ns else 0.0
    return _Undisturbed(durations_ns=durations_ns, interrupted_share=interrupted_share)


class _Pieces(msgspec.Struct, frozen=True, eq=False):
    """The steps alike, cut where their pieces of work begin."""

    ns: Int64s
    """The time from the begin of each piece to that of the next; shape [steps, pieces +
    1]. The first column is the time before the first piece, and each row adds up to its
    step. There are no steps (shape [0, pieces + 1]) if they cannot be cut alike."""
    column_of_item: Rows  # shape [items]


def _pieces(items: WorkItems) -> _Pieces:
    """The pieces of the steps alike of a side: no steps where the pieces begin in
    another order in one of them, or outside of their step."""
    work = items.work
    size = len(items)
    no_steps = _Pieces(
        ns=np.zeros((0, size + 1), dtype=np.int64),
        column_of_item=np.arange(1, size + 1),
    )
    if not len(items.alike_steps) or not size:
        return no_steps
    spans = [work.slice_of_window(step) for step in items.alike_steps.tolist()]
    begins = np.stack([work.trace.start[work.row[span]] for span in spans])
    orders = np.argsort(begins, axis=1, kind="stable")
    order = orders[0]
    if (orders != order).any():
        return no_steps
    step_begins = work.windows.start[items.alike_steps]
    step_ends = work.windows.end[items.alike_steps]
    cuts = np.column_stack([step_begins, begins[:, order], step_ends])
    ns: Int64s = np.diff(cuts, axis=1)
    if (ns < 0).any():
        return no_steps
    return _Pieces(ns=ns, column_of_item=np.argsort(order) + 1)


def _take_turns(a: Work, b: Work) -> bool:
    """Whether the steps of both sides took turns: both first steps ran before both second
    ones, and so on, in either order and without overlapping.

    So it is when both sides were taken out of one profile. It is not when the traces
    are of two processes, whose steps would overlap, or of two clocks, or where a side
    has fewer than two steps.
    """
    steps_a = a.windows
    steps_b = b.windows
    if steps_a.is_whole_trace or steps_b.is_whole_trace:
        return False
    if len(steps_a) != len(steps_b) or len(steps_a) < 2:
        return False
    if a.trace.keys.get(CLOCK_BASE_KEY) != b.trace.keys.get(CLOCK_BASE_KEY):
        return False
    is_apart = (steps_a.end <= steps_b.start) | (steps_b.end <= steps_a.start)
    round_begins = np.minimum(steps_a.start, steps_b.start)
    round_ends = np.maximum(steps_a.end, steps_b.end)
    return bool(is_apart.all() and (round_ends[:-1] <= round_begins[1:]).all())


def verdict(step: StepChange, a: DiffSide, b: DiffSide) -> Verdict:
    """Faster or slower where the interval of the ratio excludes 1, else no difference;
    or that it cannot be told, with the reason (`_reason_for_no_verdict`)."""
    reason = _reason_for_no_verdict(step, a, b)
    if reason:
        return Verdict(answer=Answer.CANNOT_TELL, reason=reason)
    if not step.shown:
        return Verdict(answer=Answer.NO_DIFFERENCE)
    is_faster = step.high is not None and step.high < 1
    return Verdict(answer=Answer.FASTER if is_faster else Answer.SLOWER)


def other_devices(a: DiffSide, b: DiffSide) -> str:
    """`A100 -> H100`; "" where both ran on the same, or a file does not name them."""
    if not a.items or not b.items:
        return ""
    if a.gpu == b.gpu and not (a.devices and b.devices):
        return ""
    before = _device_text(a)
    after = _device_text(b)
    return f"{before} -> {after}" if before != after else ""


def _device_text(side: DiffSide) -> str:
    """The names of the devices of a side, or what stands for them."""
    if not side.gpu:
        return "CPU only"
    return ", ".join(side.devices) or "a GPU"


def _reason_for_no_verdict(step: StepChange, a: DiffSide, b: DiffSide) -> str:
    """Why the step times cannot be judged; "" if they can. They are not between
    different devices, because these are no change of the program, nor with fewer than
    FEW_STEPS steps on a side (FEW_ROUNDS where the steps took turns)."""
    empty_sides = [name for name, side in (("A", a), ("B", b)) if not side.items]
    if empty_sides:
        return f"the steps of {' and '.join(empty_sides)} have no work"
    devices = other_devices(a, b)
    if devices:
        return f"the devices differ ({devices})"
    min_steps = FEW_ROUNDS if step.turns else FEW_STEPS
    if min(a.steps, b.steps) < min_steps:
        steps = "alternating steps" if step.turns else "steps"
        counts = f"A {a.steps}, B {b.steps}"
        return f"needs at least {min_steps} {steps} per trace ({counts})"
    if step.low is None:
        return "the steps of a side take no time"
    return ""
