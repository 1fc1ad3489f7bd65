"""Compares two traces: how much longer a step takes, with which certainty, and why.

The change of the step is the sum of the changes of its rows, of idle time, and of a few
smaller terms. The sum closes exactly (`Accounting`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff import dispatch, explain, outlier_steps, outlier_work
from fusetui.analysis.diff.align import AlignedLanes, align
from fusetui.analysis.diff.dispatch import measure_dispatch_by_step
from fusetui.analysis.diff.evidence import Evidence, make_sides_comparable
from fusetui.analysis.diff.groups import WorkGroup, collect_paired_items
from fusetui.analysis.diff.items import WorkItems, choose_usual_steps
from fusetui.analysis.diff.model import (
    Accounting,
    Answer,
    Diff,
    DiffSide,
    Row,
    StepChange,
    Verdict,
)
from fusetui.analysis.diff.notes import write_notes
from fusetui.analysis.diff.program_places import ProgramPlaces
from fusetui.analysis.diff.regions import group_by_region
from fusetui.analysis.diff.renamed_dispatch import pair_renamed_labels
from fusetui.analysis.diff.renamed_work import find_renamed_ops
from fusetui.analysis.diff.rules import group_lanes, pair_moved_work
from fusetui.analysis.diff.statistics import (
    MIN_ROUNDS_FOR_VERDICT,
    MIN_STEPS_FOR_VERDICT,
    compute_median_of_usual_work,
    estimate_paired_interval,
    estimate_ratio_interval,
    mean,
)
from fusetui.analysis.diff.story import add_summary
from fusetui.analysis.diff.surplus import (
    flag_rows_of_surplus_blocks,
    group_surplus_blocks,
)
from fusetui.analysis.diff.work import (
    NO_STEP,
    Work,
    collect_work,
    keep_common_steps,
    lacks_gpu_events,
)
from fusetui.analysis.questions.busy import measure_any_busy_ns
from fusetui.analysis.why.causes import measure_idle_by_cause
from fusetui.own_memory import without_collector
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import without_credentials
from fusetui.trace.layout.devices import device_names
from fusetui.trace.model.arrays import NO_ROW, Int64s, Rows, rank_of_each
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import median

NO_GPU_EVENTS = (
    "launches GPU work, but its file has no GPU events, so both traces are compared "
    "by CPU ops"
)
_ENDINGS = lazy_pattern(r"(\.pt)?(\.trace)?(\.json)?(\.gz|\.zst)?\Z")

CLOCK_BASE_KEY = "baseTimeNanoseconds"
"""The key of a trace that says when the clock of its process began."""

MIN_EXCESS_DIVISOR = 8
"""A piece of work may take longer than its median by at least the median divided by
this before it counts as interrupted."""


def diff(a: Trace, b: Trace, *, step_by: str | None = None) -> Diff:
    """Compare two traces: what changed from A to B, why, and whether it is real.

    Times are those of a step. `step.ratio` is B / A, so it is below 1 when B is faster.

    Args:
        a: The trace to compare with.
        b: The trace that is judged.
        step_by: Annotations that match this regular expression or plain text are the
            steps of both traces.

    Raises:
        NoStepsError: If a trace has no annotation that matches `step_by`.
    """
    label_a, label_b = _make_labels(a, b)
    # A diff leaves no cycles of objects behind, so the collector would only take time.
    with without_collector():
        side_without_events = _find_side_without_gpu_events(a, b)
        by_ops = bool(side_without_events)
        work_a = collect_work(a, label_a, step_by, by_ops=by_ops)
        work_b = collect_work(b, label_b, step_by, by_ops=by_ops)
        return compare_work(work_a, work_b, side_without_events)


def _make_labels(a: Trace, b: Trace) -> tuple[str, str]:
    """Return short names for two traces, from the names of their files without endings.

    If the files have the same name in two folders, the folders are part of the names:
    `old/run` and `new/run`.
    """
    path_a = without_credentials(a.report.path)
    path_b = without_credentials(b.report.path)
    label_a = _remove_endings(os.path.basename(path_a))
    label_b = _remove_endings(os.path.basename(path_b))
    if label_a != label_b:
        return label_a, label_b

    last_folder_a = os.path.basename(os.path.dirname(path_a))
    last_folder_b = os.path.basename(os.path.dirname(path_b))
    with_folder_a = os.path.join(last_folder_a, os.path.basename(path_a))
    with_folder_b = os.path.join(last_folder_b, os.path.basename(path_b))
    if with_folder_a == with_folder_b:
        return label_a, label_b
    return _remove_endings(with_folder_a), _remove_endings(with_folder_b)


def _remove_endings(name: str) -> str:
    """Return `run` for `run.pt.trace.json.gz`; the name itself if nothing remains."""
    return _ENDINGS.sub("", name) or name


def _find_side_without_gpu_events(a: Trace, b: Trace) -> str:
    """Return which of two traces alone lacks the GPU events that its calls launch.

    A file that was cut off before its GPU events lacks them.

    Returns:
        `A` or `B`; "" if neither or both lack them.
    """
    if len(a.gpu_rows) and lacks_gpu_events(b):
        return "B"
    if len(b.gpu_rows) and lacks_gpu_events(a):
        return "A"
    return ""


def compare_work(work_a: Work, work_b: Work, side_without_events: str = "") -> Diff:
    """Compare the work of steps of two traces, or of different steps of one trace.

    Args:
        work_a: The work of side A.
        work_b: The work of side B.
        side_without_events: The side, `A` or `B`, whose GPU events are not in its file;
            "" for none.
    """
    common = keep_common_steps(work_a, work_b)
    evidence = make_sides_comparable(common.a, common.b)
    matched = _match_work(evidence)
    a = matched.a
    b = matched.b
    groups = matched.groups

    renamed = find_renamed_ops(a, b, groups, evidence.renamed, evidence.swapped)
    renamed_dispatch = pair_renamed_labels(a, b, renamed)
    rows = _make_rows(matched, renamed_dispatch)

    is_cpu_only = not (work_a.gpu or work_b.gpu)
    side_a = compute_side_figures(a, is_cpu_only)
    side_b = compute_side_figures(b, is_cpu_only)
    sums = add_up_changes(matched.step, side_a, side_b, rows)
    every_note = write_notes(
        a,
        b,
        groups=groups,
        devices=describe_device_change(side_a, side_b),
        step=matched.step,
        sums=sums,
        evidence=evidence,
        renamed=renamed,
        renamed_dispatch=renamed_dispatch,
    )
    result = Diff(
        a=work_a.label,
        b=work_b.label,
        step=matched.step,
        verdict=_judge_unless_events_missing(
            matched.step, side_a, side_b, side_without_events
        ),
        rows=rows,
        notes=tuple(dict.fromkeys(every_note)),  # each once
        accounting=sums,
        side_a=side_a,
        side_b=side_b,
    )
    return add_summary(result)


class _MatchedWork(msgspec.Struct, frozen=True, eq=False):
    """The work of both sides, and which of it is the same."""

    a: WorkItems
    b: WorkItems
    places_a: ProgramPlaces
    places_b: ProgramPlaces
    lanes: Sequence[AlignedLanes]
    groups: list[WorkGroup]
    step: StepChange
    outliers: list[outlier_steps.SingleStepOutlier]


def _match_work(evidence: Evidence) -> _MatchedWork:
    """Match the work of two traces, and choose the usual steps of both.

    A step in which one kernel or the idle time changed by chance (an outlier) is no
    usual step. The change of the step is computed before outliers are left out, so it
    is that of all steps.
    """
    a, b = choose_usual_steps(evidence.a, evidence.b)
    places_a = ProgramPlaces(a)
    places_b = ProgramPlaces(b)
    lanes = align(a, b, places_a.starred_places, places_b.starred_places)
    groups = _group_work(places_a, places_b, lanes)
    step = compare_median_steps(a, b, groups)

    outliers = outlier_steps.find_single_step_outliers(a, b, groups)
    unusual_steps = []
    for outlier in outliers:
        if outlier.unusual_step is not None:
            unusual_steps.append(outlier.unusual_step)
    a_without_outliers, b_without_outliers = choose_usual_steps(a, b, unusual_steps)
    return _MatchedWork(
        a=a_without_outliers,
        b=b_without_outliers,
        places_a=places_a,
        places_b=places_b,
        lanes=lanes,
        groups=groups,
        step=step,
        outliers=outliers,
    )


def _make_rows(
    matched: _MatchedWork, renamed_dispatch: Mapping[str, str]
) -> tuple[Row, ...]:
    """Make all rows of a comparison of two traces.

    A row says what changed in one part of the work. The rows of work in usual steps
    come first, then those of single steps, then those of dispatch (overhead on the
    CPU).

    Args:
        matched: The work of both traces, and which of it is the same.
        renamed_dispatch: {label in B: label in A} of ops that compute nothing and were
            renamed.
    """
    a = matched.a
    b = matched.b
    groups = matched.groups
    single_step_rows = outlier_work.make_rows(a, b, groups)
    single_step_rows += [outlier.row for outlier in matched.outliers]
    rows_for_surplus = flag_rows_of_surplus_blocks(a, b, matched.lanes)
    return (
        *explain.make_rows(a, b, groups, matched.places_a, matched.places_b),
        *outlier_steps.join_divided_kernels(a, b, single_step_rows),
        *dispatch.make_rows(a, b, rows_for_surplus, renamed_dispatch),
    )


def _judge_unless_events_missing(
    step: StepChange, a: DiffSide, b: DiffSide, side_without_events: str
) -> Verdict:
    """Judge whether B is faster than A, unless a trace lacks its GPU events.

    In that case the answer is that it cannot be told. `side_without_events` is the
    trace that lacks them, `A` or `B`; "" for none.
    """
    if side_without_events:
        reason = f"{side_without_events} {NO_GPU_EVENTS}"
        return Verdict(answer=Answer.CANNOT_TELL, reason=reason)
    return judge_change(step, a, b)


def _group_work(
    a: ProgramPlaces, b: ProgramPlaces, aligned: Sequence[AlignedLanes]
) -> list[WorkGroup]:
    """Group the kernels and copies of two traces that do the same work.

    An item is a kernel or copy of the representative step of a trace; each item is in
    exactly one group. Groups are searched within two aligned lanes (streams or threads)
    first, then anywhere, then by the parts of the program. The groups of blocks that
    only one trace repeats are last.

    Args:
        a: The items of A, and where the program launches them.
        b: The same of B.
        aligned: The pairs of lanes of both traces.
    """
    groups: list[WorkGroup] = []
    for lanes in aligned:
        groups += group_lanes(a.items, b.items, lanes)
    groups = pair_moved_work(a.items, b.items, groups)
    groups = group_by_region(a, b, groups)
    return groups + group_surplus_blocks(a.items, b.items, aligned)


def compute_side_figures(items: WorkItems, is_cpu_only: bool) -> DiffSide:
    """Compute the figures of one of the two traces: means over its usual steps.

    The figures add up to the mean length of a step. All times are in ns.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        is_cpu_only: Whether neither trace has GPU events. Then dispatch on the CPU is part
            of the sum.
    """
    work = items.work
    step_times = _measure_step_times(items, is_cpu_only)
    devices = tuple(dict.fromkeys(device_names(items.trace))) if work.gpu else ()

    work_ns = int(items.mean_ns.sum())
    dispatch_ns = 0
    if is_cpu_only:
        ns_by_step = measure_dispatch_by_step(items)
        dispatch_ns = int(mean(ns_by_step[items.usual_steps]))
    busy_rows = _select_busy_rows(work, is_cpu_only)
    crossing_work = _measure_crossing_work(work, busy_rows, items.usual_steps)
    # What ran in the step; where it took longer than the step was busy, it overlapped.
    spent_ns = work_ns + dispatch_ns + crossing_work.earlier_ns - crossing_work.later_ns
    return DiffSide(
        label=work.label,
        gpu=work.gpu,
        devices=devices,
        steps=len(work.steps),
        items=len(items),
        work_ns=work_ns,
        busy_ns=step_times.busy_ns,
        idle_ns=step_times.idle_ns,
        cpu_ns=step_times.cpu_ns,
        dispatch_ns=dispatch_ns,
        overlap_ns=spent_ns - step_times.busy_ns,
        later_ns=crossing_work.later_ns,
        earlier_ns=crossing_work.earlier_ns,
        odd_ns=_measure_effect_of_odd_steps(items),
        usual=tuple(items.usual_steps.tolist()),
        idle=step_times.idle_by_cause,
    )


class _StepTimes(msgspec.Struct, frozen=True):
    """How the time of the usual steps of a side is used: means in ns."""

    busy_ns: int  # while any work runs: of the GPU, if there is one
    idle_ns: int  # the rest of the step
    cpu_ns: int  # while any CPU op runs
    idle_by_cause: dict[str, int]  # {cause: ns} of a GPU, else empty


def _measure_step_times(items: WorkItems, is_cpu_only: bool) -> _StepTimes:
    """Measure how the time of the usual steps of a trace is used.

    The result has means in ns: while any work runs, the idle rest, and while any CPU op
    runs. It also has the idle time of the GPU by cause.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        is_cpu_only: Whether neither of the compared traces has GPU events.
    """
    work = items.work
    trace = items.trace
    begins = work.steps.start[items.usual_steps]
    ends = work.steps.end[items.usual_steps]

    busy_rows = _select_busy_rows(work, is_cpu_only)
    busy_ns = int(mean(measure_any_busy_ns(trace, busy_rows, begins, ends)))
    idle_ns = int(mean(work.steps.dur[items.usual_steps])) - busy_ns
    cpu_ns = int(
        mean(measure_any_busy_ns(trace, _find_outermost_ops(trace), begins, ends))
    )
    return _StepTimes(
        busy_ns=busy_ns,
        idle_ns=idle_ns,
        cpu_ns=cpu_ns,
        idle_by_cause=measure_idle_by_cause(trace, begins, ends, idle_ns)
        if work.gpu
        else {},
    )


def _select_busy_rows(work: Work, is_cpu_only: bool) -> Rows:
    """Return the rows of the events during which a trace counts as busy.

    These are its GPU events. If only the other trace has a GPU, they are the pieces of
    work of this trace. If neither has (`is_cpu_only`), they are the outermost CPU ops.
    """
    if work.gpu:
        return work.trace.gpu_rows
    return _find_outermost_ops(work.trace) if is_cpu_only else work.row


def _measure_effect_of_odd_steps(items: WorkItems) -> int:
    """Return how much the steps with other work than usual move the median step (ns).

    The result is positive if they make the median longer, and 0 without steps.
    """
    step_ns = items.steps.dur
    if not len(step_ns):
        return 0
    return int(
        np.median(step_ns) - compute_median_of_usual_work(step_ns, items.plain_steps)
    )


def add_up_changes(
    step: StepChange, a: DiffSide, b: DiffSide, rows: Iterable[Row]
) -> Accounting:
    """Write the change of the step as a sum of changes, B minus A.

    The terms are those of the rows, idle time, overlap, work across the boundaries of
    steps, and odd steps. What they leave is `not_explained_ns`. All terms are whole ns,
    so the sum closes exactly.

    Args:
        step: The change of the median step.
        a: The figures of A.
        b: The figures of B.
        rows: All rows of the diff; those with `counts` are in the sum.
    """
    rows_ns = sum(row.change_ns for row in rows if row.counts)
    idle_ns = b.idle_ns - a.idle_ns
    # More overlap, and more work after the end of the step, make the step shorter.
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
    earlier_ns: int  # of the work of other steps, within this step


def _measure_crossing_work(work: Work, rows: Rows, usual_steps: Rows) -> _CrossingWork:
    """Measure how much work crosses the boundaries of the usual steps of a trace.

    Returns two means per step in ns: the own work of a step outside of its time, and
    the work of other steps inside it. Both are 0 if the whole trace is one step.

    Args:
        work: The kernels and copies of the trace by step.
        rows: The rows of the events that keep it busy.
        usual_steps: The indices of its usual steps.
    """
    trace = work.trace
    steps = work.steps
    if steps.is_whole_trace or not len(usual_steps):
        return _CrossingWork(later_ns=0, earlier_ns=0)

    step_of_row = _find_step_of_rows(work, rows)
    later_by_step = []
    earlier_by_step = []
    for step in usual_steps.tolist():
        begin = steps.start[step]
        end = steps.end[step]
        start_inside = np.clip(trace.start[rows], begin, end)
        end_inside = np.clip(trace.end[rows], begin, end)
        inside_ns = end_inside - start_inside
        outside_ns = trace.dur[rows] - inside_ns
        is_own = step_of_row == step
        later_by_step.append(outside_ns[is_own].sum())
        earlier_by_step.append(inside_ns[~is_own].sum())
    return _CrossingWork(
        later_ns=int(mean(np.array(later_by_step))),
        earlier_ns=int(mean(np.array(earlier_by_step))),
    )


def _find_step_of_rows(work: Work, rows: Rows) -> Rows:
    """Return the index of the step that each row is the work of, or NO_STEP.

    On a GPU, it is the step whose calls launched the event. On a CPU, it is the step in
    which the event began. That holds also where steps are measured by the time of the
    GPU.
    """
    trace = work.trace
    by_launch = work.gpu and not work.steps.is_gpu_time
    # The start of these rows decides to which step `rows` belong.
    deciding_rows = trace.launch[rows] if by_launch else rows
    step_at_start = work.steps.step_of_calls(trace.start[deciding_rows])
    return np.where(deciding_rows != NO_ROW, step_at_start, NO_STEP)


def _find_outermost_ops(trace: Trace) -> Rows:
    """Return the rows of the CPU ops that are not inside another slice."""
    is_track_of_ops = [track.layer is Layer.OPS for track in trace.tracks]
    is_op = np.array(is_track_of_ops, dtype=np.bool_)[trace.track]
    is_outermost = trace.parent == NO_ROW
    return np.flatnonzero(is_op & is_outermost)


def compare_median_steps(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> StepChange:
    """Compare the median steps of two traces, with the interval of their ratio.

    If the steps of A and B alternate in time, each step is compared with its neighbor.
    A drift of both over time then has no effect. Otherwise the drift of each trace
    widens the interval.

    Returns:
        A change without a ratio if A has no steps or steps that take no time, or if B
        has no steps.
    """
    steps_a = a.steps
    steps_b = b.steps
    a_ns = median(steps_a.dur) if len(steps_a) else None
    b_ns = median(steps_b.dur) if len(steps_b) else None
    if not a_ns or b_ns is None:
        return StepChange(
            a_ns=a_ns,
            b_ns=b_ns,
            ratio=None,
            low=None,
            high=None,
            length_a=steps_a.length,
            length_b=steps_b.length,
        )

    undisturbed_a, undisturbed_b = _remove_interruptions(a, b, groups)
    turns = _do_steps_alternate(a.work, b.work)
    estimate_interval = estimate_paired_interval if turns else estimate_ratio_interval
    interval = estimate_interval(undisturbed_a.durations_ns, undisturbed_b.durations_ns)
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
        length_a=steps_a.length,
        length_b=steps_b.length,
    )


def compute_time_limits(ns: Int64s) -> Int64s:
    """Return how long each kernel takes at most if nothing interrupts it (ns).

    The limit is as far above the median of all steps as the first quartile is below it.
    It is at least the median divided by MIN_EXCESS_DIVISOR above it.

        >>> compute_time_limits(np.array([[80], [90], [100], [110], [900]])).tolist()  # one kernel
        [112]

    Args:
        ns: The time of each kernel in each step in ns, [steps, kernels].

    Returns:
        One limit per kernel in ns; all are 0 without steps.
    """
    if not len(ns):
        return np.zeros(ns.shape[1], dtype=np.int64)
    quartiles = np.percentile(ns, [25, 50], axis=0, method="lower")
    first_quartile, median_ns = quartiles.astype(np.int64)
    spread = median_ns - first_quartile
    least_margin = median_ns // MIN_EXCESS_DIVISOR
    return np.asarray(median_ns + np.maximum(spread, least_margin))


class _UndisturbedSteps(msgspec.Struct, frozen=True, eq=False):
    """The steps of a side as if nothing had interrupted them."""

    durations_ns: Int64s  # one per step
    interrupted_share: float  # the share of the time of all steps in interruptions


def _remove_interruptions(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> tuple[_UndisturbedSteps, _UndisturbedSteps]:
    """Return the lengths of the steps of A and of B as if nothing had interrupted them.

    The time of a kernel counts up to its limit, the longest time that it takes
    undisturbed. The same kernel has one limit in both traces, the higher one. Two
    separate limits would differ by noise, which would shift all steps of a trace alike.
    A step that does other work than usual counts in full.
    """
    cut_steps_a = _cut_steps_at_kernels(a)
    cut_steps_b = _cut_steps_at_kernels(b)
    limits_a = compute_time_limits(cut_steps_a.ns)
    limits_b = compute_time_limits(cut_steps_b.ns)

    if len(cut_steps_a.ns) and len(cut_steps_b.ns):
        items_a, items_b = collect_paired_items(groups)
        is_same_work = a.exact_keys[items_a] == b.exact_keys[items_b]
        # Column 0 is the time before all work of a step.
        columns_a = np.append(cut_steps_a.column_of_item[items_a[is_same_work]], 0)
        columns_b = np.append(cut_steps_b.column_of_item[items_b[is_same_work]], 0)
        higher_limits = np.maximum(limits_a[columns_a], limits_b[columns_b])
        limits_a[columns_a] = higher_limits
        limits_b[columns_b] = higher_limits
    return (
        _shorten_steps(a, cut_steps_a, limits_a),
        _shorten_steps(b, cut_steps_b, limits_b),
    )


def _shorten_steps(
    items: WorkItems, cut_steps: _CutSteps, limits: Int64s
) -> _UndisturbedSteps:
    """Shorten the steps of a trace by the time in which kernels were interrupted.

    That is the time which they took beyond their limits. Only steps that do the usual
    work are shortened.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        cut_steps: These steps, cut where their kernels begin.
        limits: The longest undisturbed time of each column of `cut_steps.ns`, in ns.
    """
    durations_ns = items.steps.dur
    total_ns = int(durations_ns.sum())
    if not len(cut_steps.ns) or not total_ns:
        return _UndisturbedSteps(durations_ns=durations_ns, interrupted_share=0.0)

    excess_by_step = np.maximum(cut_steps.ns - limits, 0).sum(axis=1)
    shortened_ns = durations_ns.copy()
    shortened_ns[items.same_work_steps] -= excess_by_step
    return _UndisturbedSteps(
        durations_ns=shortened_ns,
        interrupted_share=int(excess_by_step.sum()) / total_ns,
    )


class _CutSteps(msgspec.Struct, frozen=True, eq=False):
    """The steps of a trace that do the usual work, cut where their kernels begin."""

    ns: Int64s
    """The time from the begin of each kernel to that of the next, [steps, kernels + 1].
    The first column is the time before the first kernel, so that each row adds up to
    the step. There are no steps, [0, kernels + 1], if their kernels begin in
    different orders."""
    column_of_item: Rows  # the column of `ns` that each item has


def _cut_steps_at_kernels(items: WorkItems) -> _CutSteps:
    """Cut the steps of a trace that do the usual work where their kernels begin.

    Each row of the result has the time from the begin of each kernel to that of the
    next. It has no rows if the steps cannot be compared kernel by kernel: kernels begin
    in another order in one of them, or outside of their step.
    """
    work = items.work
    size = len(items)
    no_steps = _CutSteps(
        ns=np.zeros((0, size + 1), dtype=np.int64),
        column_of_item=np.arange(1, size + 1),
    )
    if not len(items.same_work_steps) or not size:
        return no_steps

    rows_by_step = []
    for step in items.same_work_steps.tolist():
        rows_by_step.append(work.row[work.slice_of_step(step)])
    begins = work.trace.start[np.stack(rows_by_step)]  # [steps, kernels]
    orders = np.argsort(begins, axis=1, kind="stable")
    order = orders[0]
    if (orders != order).any():
        return no_steps

    step_begins = work.steps.start[items.same_work_steps]
    step_ends = work.steps.end[items.same_work_steps]
    cuts = np.column_stack([step_begins, begins[:, order], step_ends])
    ns: Int64s = np.diff(cuts, axis=1)
    if (ns < 0).any():
        return no_steps
    # Column 0 is the time before all kernels.
    return _CutSteps(ns=ns, column_of_item=rank_of_each(order) + 1)


def _do_steps_alternate(a: Work, b: Work) -> bool:
    """Return whether the steps of two traces alternate in time.

    They do if both first steps ran before both second ones, and so on, in either order
    and without overlapping. So it is when both were taken out of one profile. The
    result is False for traces of two clocks, for different numbers of steps, and for
    fewer than two steps.
    """
    steps_a = a.steps
    steps_b = b.steps
    if steps_a.is_whole_trace or steps_b.is_whole_trace:
        return False
    if len(steps_a) != len(steps_b) or len(steps_a) < 2:
        return False
    if a.trace.keys.get(CLOCK_BASE_KEY) != b.trace.keys.get(CLOCK_BASE_KEY):
        return False

    are_disjoint = (steps_a.end <= steps_b.start) | (steps_b.end <= steps_a.start)
    round_begins = np.minimum(steps_a.start, steps_b.start)
    round_ends = np.maximum(steps_a.end, steps_b.end)
    return bool(are_disjoint.all() and (round_ends[:-1] <= round_begins[1:]).all())


def judge_change(step: StepChange, a: DiffSide, b: DiffSide) -> Verdict:
    """Judge whether B is faster than A.

    It is faster or slower if the confidence interval of the ratio excludes 1; otherwise
    there is no difference. If the times cannot be judged, the answer is CANNOT_TELL,
    with the reason.
    """
    reason = _explain_missing_verdict(step, a, b)
    if reason:
        return Verdict(answer=Answer.CANNOT_TELL, reason=reason)
    if not step.shown:
        return Verdict(answer=Answer.NO_DIFFERENCE)
    is_faster = step.high is not None and step.high < 1
    return Verdict(answer=Answer.FASTER if is_faster else Answer.SLOWER)


def describe_device_change(a: DiffSide, b: DiffSide) -> str:
    """Say that the two traces ran on different devices: `A100 -> H100`.

    Returns "" if both ran on the same devices, if a file does not name them, or if one
    of them did no work.
    """
    if not a.items or not b.items:
        return ""
    if a.gpu == b.gpu and not (a.devices and b.devices):
        return ""
    before = _describe_devices(a)
    after = _describe_devices(b)
    return f"{before} -> {after}" if before != after else ""


def _describe_devices(side: DiffSide) -> str:
    """Return the names of the devices of a trace: `A100, H100`.

    It is `CPU only` without a GPU, and `a GPU` if the file does not name it.
    """
    if not side.gpu:
        return "CPU only"
    return ", ".join(side.devices) or "a GPU"


def _explain_missing_verdict(step: StepChange, a: DiffSide, b: DiffSide) -> str:
    """Say why the times of the steps cannot be judged; "" if they can.

    Different devices are no change of the program, so they are not judged. Nor are
    fewer than MIN_STEPS_FOR_VERDICT steps on a side (MIN_ROUNDS_FOR_VERDICT where the
    steps took turns).
    """
    empty_sides = [name for name, side in (("A", a), ("B", b)) if not side.items]
    if empty_sides:
        return f"the steps of {' and '.join(empty_sides)} contain no work"

    devices = describe_device_change(a, b)
    if devices:
        return f"the devices differ ({devices})"

    min_steps = MIN_ROUNDS_FOR_VERDICT if step.turns else MIN_STEPS_FOR_VERDICT
    if min(a.steps, b.steps) < min_steps:
        steps = "alternating steps" if step.turns else "steps"
        counts = f"A {a.steps}, B {b.steps}"
        return f"needs at least {min_steps} {steps} per trace ({counts})"
    if step.low is None:
        return "the steps of one trace take no time"
    return ""
