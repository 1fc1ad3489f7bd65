"""Finds kernels and idle time that changed in a single step.

It compares two traces whose steps vary alike, as those of two copies of one recording
do. Then a kernel that takes longer in a single step of one side was changed there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.groups import WorkGroup, collect_paired_items
from fusetui.analysis.diff.instances import IN_PARTS, adds_up_to
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import ONLY, Row, RowKind, RowShare, make_row
from fusetui.analysis.diff.outlier_work import collect_rows_by_step
from fusetui.analysis.diff.statistics import FLOOR_NS, FLOOR_PERCENT, detect_tick_ns
from fusetui.analysis.questions.busy import measure_any_busy_ns
from fusetui.text.figures import change
from fusetui.trace.model.arrays import NO_ROW, Flags, Int64s, Rows, distinct, summed
from fusetui.trace.model.intervals import Cover, pieces
from fusetui.trace.model.quantiles import lower_quantile, medians
from fusetui.trace.model.sorted_arrays import positions_of

MIN_DISTANCE_RATIO = 4
"""A step stands out where the two sides are more than this many times as far apart as
in any other step."""

COMMON_PERCENTILE = 99
"""They also have to be MIN_DISTANCE_RATIO times as far apart as this percentile of all
kernels in the other steps."""

MIN_STEPS = 3
"""Fewer steps do not show what is usual; in all but one of them both sides do the same
work."""

MIN_IDLE_SHARE = 0.01
MIN_IDLE_SHARE_BESIDE_WORK = 0.03
"""Idle time is reported when it changed by this share of a step; the latter in a step
that does other work too, whose launches take some time: in a step of 0.5 ms, a copy
costs 2 %."""

SHARE_OF_KERNELS, MIN_RATIO_OF_SPREADS = 0.75, 4
"""Both sides vary alike where the differences of this share of the kernels vary this
many times less than their times do."""

MAX_KERNELS = 5
"""At most this many kernels are reported."""


class SingleStepOutlier(msgspec.Struct, frozen=True):
    """What took a different time in one step than in all others."""

    row: Row
    unusual_step: int | None
    """The index of that step, if the two sides vary alike in the others, as two copies
    of one recording do: then it is not a usual step."""


def find_single_step_outliers(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[SingleStepOutlier]:
    """Find kernels and idle time that changed in one step only.

    Nothing is found unless A and B have equally many steps and vary alike from step to
    step. The n-th steps of two separate runs have nothing in common but chance.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        groups: Which items do the same work.
    """
    steps = len(a.steps)
    if steps < MIN_STEPS or len(b.steps) != steps:
        return []
    usual_on_both = np.intersect1d(a.same_work_steps, b.same_work_steps)
    if len(usual_on_both) < MIN_STEPS - 1:
        return []
    if not _do_sides_vary_alike(a, b, groups, usual_on_both):
        return []

    outliers = _find_outlying_kernels(a, b, groups)
    idle_outlier = _find_outlying_idle_time(a, b)
    if idle_outlier is not None:
        outliers.append(idle_outlier)
    return outliers


def join_divided_kernels(a: WorkItems, b: WorkItems, rows: Sequence[Row]) -> list[Row]:
    """Join two rows of single steps that are about one kernel that was divided.

    If a kernel is several kernels in one step, one part of it has a row as a faster
    kernel, and the other parts, of the same name under the same op, have a row of added
    work. The two become one row.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        rows: The rows of single steps.

    Returns:
        The rows. Those of faster and slower kernels, and the joined ones, are last.
    """
    kernel_rows: list[Row] = []
    joined: list[Row] = []
    for row in rows:
        if row.kind in (RowKind.FASTER, RowKind.SLOWER):
            kernel_rows.append(row)
        else:
            joined.append(row)

    for kernel in kernel_rows:
        candidates = [
            row for row in joined if _are_parts_of_one_kernel(a, b, kernel, row)
        ]
        if candidates:
            other_parts = candidates[0]
            joined.remove(other_parts)
            joined.append(_make_row_of_divided_kernel(kernel, other_parts))
        else:
            joined.append(kernel)
    return joined


def _make_row_of_divided_kernel(first_part: Row, other_parts: Row) -> Row:
    """Make one row of a kernel that one trace divides, from the two rows of its parts.

    Names, times, counts and rows of the trace are those of both rows together. The row
    is SPLIT if B has more kernels than A, else FUSED. It is not part of the sum.
    """
    a_count = first_part.a_count + other_parts.a_count
    b_count = first_part.b_count + other_parts.b_count
    return Row(
        kind=RowKind.SPLIT if b_count > a_count else RowKind.FUSED,
        op=first_part.op,
        a=first_part.a + other_parts.a,
        b=first_part.b + other_parts.b,
        a_ns=first_part.a_ns + other_parts.a_ns,
        b_ns=first_part.b_ns + other_parts.b_ns,
        a_count=a_count,
        b_count=b_count,
        why=f"{other_parts.why}: {IN_PARTS}",
        counts=False,
        a_median_ns=first_part.a_median_ns + other_parts.a_median_ns,
        b_median_ns=first_part.b_median_ns + other_parts.b_median_ns,
        a_rows=first_part.a_rows + other_parts.a_rows,
        b_rows=first_part.b_rows + other_parts.b_rows,
    )


def _are_parts_of_one_kernel(
    a: WorkItems, b: WorkItems, kernel: Row, others: Row
) -> bool:
    """Return whether two rows are about the parts of one divided kernel.

    All parts have to be of one name, under one op. Together they have to be as long as
    the kernel is in the other trace.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        kernel: The row of a kernel that is faster or slower in one step.
        others: The row of work that A or B has in addition in one step.
    """
    if others.b and not others.a:  # B divides the kernel
        trace = b.trace
        whole_ns = kernel.a_ns
        first_part_ns = kernel.b_ns
        first_part_rows = kernel.b_rows
        other_rows = others.b_rows
        other_count = others.b_count
    elif others.a and not others.b:  # A divides it
        trace = a.trace
        whole_ns = kernel.b_ns
        first_part_ns = kernel.a_ns
        first_part_rows = kernel.a_rows
        other_rows = others.a_rows
        other_count = others.a_count
    else:
        return False

    rows = [*first_part_rows, *other_rows]
    # Work that is missing in the step has no rows of it.
    if len(rows) != 1 + other_count:
        return False
    ops_and_names = {(trace.op[row], trace.name[row]) for row in rows}
    if len(ops_and_names) != 1:
        return False

    other_parts_ns = trace.dur[[*other_rows]].tolist()
    return adds_up_to([first_part_ns, *other_parts_ns], whole_ns)


class _PairedTimes(msgspec.Struct, frozen=True, eq=False):
    """The times of paired kernels in every step; a pair is a column."""

    items_a: Rows  # the item of A of each pair
    items_b: Rows
    rows_a: Rows  # rows of the trace of A, [steps, pairs]; NO_ROW if the step lacks it
    rows_b: Rows
    before: Int64s  # ns in A, [steps, pairs]; its median time where a side lacks it
    after: Int64s
    is_missing: Flags  # [steps, pairs]: one of the sides lacks the kernel


def _collect_paired_times(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> _PairedTimes:
    """Collect the times of the kernels that are paired one to one, in every step.

    Where A or B lacks a kernel in a step, the median times stand for it on both.
    """
    items_a, items_b = collect_paired_items(groups)
    rows_a = collect_rows_by_step(a, b)[:, items_a]
    rows_b = collect_rows_by_step(b, a)[:, items_b]
    is_missing = (rows_a == NO_ROW) | (rows_b == NO_ROW)
    median_a = np.array(a.median_times)[items_a]
    median_b = np.array(b.median_times)[items_b]
    return _PairedTimes(
        items_a=items_a,
        items_b=items_b,
        rows_a=rows_a,
        rows_b=rows_b,
        before=np.where(is_missing, median_a, a.trace.dur[rows_a]),
        after=np.where(is_missing, median_b, b.trace.dur[rows_b]),
        is_missing=is_missing,
    )


def _find_outlying_kernels(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[SingleStepOutlier]:
    """Find the kernels whose times in A and B are far apart in one step only.

    Where a step lacks a kernel, its median time stands for it. A distance counts if it
    is larger than noise explains (`_compute_min_distance`).

    Returns:
        At most MAX_KERNELS kernels, the farthest apart first.
    """
    items_a, _ = collect_paired_items(groups)
    if not len(items_a):
        return []

    times = _collect_paired_times(a, b, groups)
    outliers = _find_outliers(times.before, times.after, times.is_missing)
    tick_ns = detect_tick_ns(a.samples, b.samples)
    min_distance_ns = _compute_min_distance(times.before, times.after, tick_ns)
    far_pairs = np.flatnonzero(outliers.apart_ns > min_distance_ns)
    farthest_first = far_pairs[np.argsort(-outliers.apart_ns[far_pairs], kind="stable")]

    kernels = []
    for pair in farthest_first[:MAX_KERNELS].tolist():
        step = int(outliers.step[pair])
        row = _make_row_of_kernel(a, b, times, pair, step)
        unusual_step = step if outliers.vary_alike[pair] else None
        kernels.append(SingleStepOutlier(row=row, unusual_step=unusual_step))
    return kernels


def _make_row_of_kernel(
    a: WorkItems, b: WorkItems, times: _PairedTimes, pair: int, step: int
) -> Row:
    """Make the row of a kernel that is faster or slower in one step.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        times: The times of all paired kernels.
        pair: The index of the pair.
        step: The index of the step.
    """
    item_a = int(times.items_a[pair])
    item_b = int(times.items_b[pair])
    in_a = _describe_item_in_step(a, item_a, int(times.rows_a[step, pair]))
    in_b = _describe_item_in_step(b, item_b, int(times.rows_b[step, pair]))
    where = f"{ONLY} {b.steps.labels[step]}"
    return make_row(
        kind=RowKind.FASTER if in_b.ns < in_a.ns else RowKind.SLOWER,
        op=a.op_names[item_a],
        a=in_a,
        b=in_b,
        why=f"{where}: {change(in_a.ns, in_b.ns)} time",
        counts=False,
    )


def _compute_min_distance(before: Int64s, after: Int64s, tick_ns: int) -> Int64s:
    """Return how far from the usual change a kernel must be in a step to be reported.

    That is the largest of: FLOOR_PERCENT of its longest time, FLOOR_NS, a tick of the
    clock, and MIN_DISTANCE_RATIO times as far as COMMON_PERCENTILE of all kernels are
    from it in other steps.

    Args:
        before: Times in A in ns, [steps, kernels].
        after: Times in B in ns, with the same shape.
        tick_ns: The tick of the clock.

    Returns:
        A distance in ns for each kernel.
    """
    longest_ns = np.maximum(before, after).max(axis=0)
    floor_ns = np.maximum(longest_ns * FLOOR_PERCENT // 100, FLOOR_NS)
    # Of each kernel, leave out the step in which it is the farthest.
    sorted_distances = np.sort(
        _measure_distance_from_usual_change(before, after), axis=0
    )
    common_ns = int(np.percentile(sorted_distances[:-1], COMMON_PERCENTILE))
    min_ns = max(tick_ns, MIN_DISTANCE_RATIO * common_ns)
    return np.asarray(np.maximum(floor_ns, min_ns))


def _describe_item_in_step(items: WorkItems, item: int, row: int) -> RowShare:
    """Return the name, time and row of a kernel in one step.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        item: The index of the kernel among the items.
        row: The row of the trace that has the kernel in this step.
    """
    return RowShare(
        names=(items.names[item],),
        ns=int(items.trace.dur[row]),
        count=1,
        median_ns=items.median_times[item],
        rows=(row,),
    )


def _do_sides_vary_alike(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup], steps: Rows
) -> bool:
    """Return whether the kernels of A and B vary alike from step to step.

    They do if the times of most kernels vary far more than the differences between A
    and B. That is so if both were made from one recording.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        groups: Which items do the same work.
        steps: Indices of the steps that do the usual work in both.

    Returns:
        False too if no kernels are paired.
    """
    items_a, items_b = collect_paired_items(groups)
    # `samples` has a row for each step that does the usual work of its trace.
    before = a.samples[np.isin(a.same_work_steps, steps)][:, items_a]
    after = b.samples[np.isin(b.same_work_steps, steps)][:, items_b]
    if not before.size:
        return False
    spread_of_differences = _measure_spread(after - before)
    spread_of_times = _measure_spread(before)
    return MIN_RATIO_OF_SPREADS * spread_of_differences <= spread_of_times


def _measure_spread(samples: Int64s) -> float:
    """Return the range (ns) within which SHARE_OF_KERNELS of the columns stay.

    Args:
        samples: Times or differences in ns, [steps, kernels].
    """
    # np.ptp is the difference between the greatest and the least.
    ranges = np.ptp(samples, axis=0)
    return lower_quantile(ranges, SHARE_OF_KERNELS)


class _Outliers(msgspec.Struct, frozen=True, eq=False):
    """The step of each column of samples in which the two sides are farthest apart."""

    # How far beyond the usual change (`_measure_distance_from_usual_change`) they are; 0 if the
    # step does not stand out.
    apart_ns: Int64s
    step: Rows
    vary_alike: Flags  # in the other steps, one side varies as the other does


def _find_outliers(before: Int64s, after: Int64s, is_unknown: Flags) -> _Outliers:
    """Find the step of each column in which A and B are farthest apart.

    The step stands out if they are MIN_DISTANCE_RATIO times as far apart as in any
    other step. Unless they vary alike in the others, the distance also has to be larger
    than either varies there.

    Args:
        before: Times of A in ns, [steps, columns].
        after: Times of B in ns, with the same shape.
        is_unknown: Where a time is unknown and the usual time is in its place. No step
            stands out by that.
    """
    apart_ns = np.where(
        is_unknown, 0, _measure_distance_from_usual_change(before, after)
    )
    step = apart_ns.argmax(axis=0)
    sorted_apart_ns = np.sort(apart_ns, axis=0)
    farthest_ns = sorted_apart_ns[-1]
    second_ns = sorted_apart_ns[-2]

    # A column of indices against a row of steps: flags of shape [steps, columns].
    step_indices = np.arange(len(apart_ns))[:, None]
    is_other_step = step_indices != step
    range_before_ns = _measure_range_in_steps(before, is_other_step)
    range_after_ns = _measure_range_in_steps(after, is_other_step)
    range_ns = np.maximum(range_before_ns, range_after_ns)

    # One side varies with the other: what remains is at most 1 % of the range.
    vary_alike = 100 * second_ns <= range_ns
    is_far = farthest_ns > MIN_DISTANCE_RATIO * second_ns
    is_beyond_range = vary_alike | (farthest_ns > range_ns)
    return _Outliers(
        apart_ns=np.where(is_far & is_beyond_range, farthest_ns, 0),
        step=step,
        vary_alike=vary_alike,
    )


def _measure_range_in_steps(samples: Int64s, is_counted: Flags) -> Int64s:
    """Return the range of each column within some steps.

    Args:
        samples: Times in ns, [steps, columns].
        is_counted: Whether a sample counts, with the same shape.
    """
    # Medians take the place of the other samples: they widen no range.
    counted = np.where(is_counted, samples, np.median(samples, axis=0))
    return np.asarray(np.ptp(counted, axis=0))


def _measure_distance_from_usual_change(before: Int64s, after: Int64s) -> Int64s:
    """Return how far each time of B is from what its column usually changes to.

    The usual change of a column is the median difference of its steps (whole ns). Where
    the median ratio is more than FLOOR_PERCENT from 1, a time may also follow that
    ratio. Then the smaller of the two distances counts. What takes 1.3 times as long
    takes more ns longer in a slow step.

        >>> before, after = np.array([[10], [10], [10]]), np.array([[10], [10], [90]])
        >>> _measure_distance_from_usual_change(before, after).tolist()
        [[0], [0], [80]]

    Args:
        before: Times of A in ns, [steps, columns].
        after: Times of B in ns, with the same shape.

    Returns:
        Distances in ns, with the same shape.
    """
    differences = after - before
    usual_difference = medians(differences)
    distance_by_difference = np.abs(differences - usual_difference)

    usual_ratio = np.median(after / np.maximum(before, 1), axis=0)
    expected_ns = np.rint(before * usual_ratio).astype(np.int64)
    distance_by_ratio = np.abs(after - expected_ns)

    has_ratio = np.abs(usual_ratio - 1) > FLOOR_PERCENT / 100
    smaller_distance = np.minimum(distance_by_difference, distance_by_ratio)
    return np.asarray(np.where(has_ratio, smaller_distance, distance_by_difference))


class _IdleTimes(msgspec.Struct, frozen=True, eq=False):
    """The idle time of the steps that do the usual work on one side at least.

    Arrays have one entry per such step.
    """

    step: Rows  # its index
    before: Int64s  # idle time in A, ns
    after: Int64s  # idle time in B, ns
    # The idle time in B without what the difference of its work explains.
    after_without_work: Int64s
    is_usual: Flags  # the step does the usual work on both sides


def _measure_idle_times(a: WorkItems, b: WorkItems) -> _IdleTimes:
    """Measure the idle time of the steps that do the usual work in A or in B.

    The idle time of B is given twice: as it is, and without what the difference of its
    work explains.
    """
    every_step = np.arange(len(a.steps))
    is_usual_a = np.isin(every_step, a.same_work_steps)
    is_usual_b = np.isin(every_step, b.same_work_steps)
    idle_a = _measure_idle_time_by_step(a)
    idle_b = _measure_idle_time_by_step(b)
    change_by_work = _explain_idle_change_by_work(a, b, idle_b - idle_a)
    idle_b_without_work = idle_b - change_by_work

    steps = np.flatnonzero(is_usual_a | is_usual_b)
    return _IdleTimes(
        step=steps,
        before=idle_a[steps],
        after=idle_b[steps],
        after_without_work=idle_b_without_work[steps],
        is_usual=(is_usual_a & is_usual_b)[steps],
    )


def _find_outlying_idle_time(a: WorkItems, b: WorkItems) -> SingleStepOutlier | None:
    """Find the one step whose idle time in A and B is far apart, if there is one.

    Only steps that do the usual work in A or B are considered. The change has to be a
    certain share of the median step. That share is larger where only one of the two
    does the usual work.

    Returns:
        None if no step stands out by its idle time.
    """
    idle_times = _measure_idle_times(a, b)
    before = idle_times.before
    after = idle_times.after_without_work
    # One column each, in which every time is known.
    is_unknown = np.zeros((len(before), 1), dtype=np.bool_)
    outliers = _find_outliers(before[:, None], after[:, None], is_unknown)
    (apart_ns,) = outliers.apart_ns.tolist()
    (position,) = outliers.step.tolist()  # among the steps that are considered
    (vary_alike,) = outliers.vary_alike.tolist()

    is_usual = idle_times.is_usual[position]
    min_share = MIN_IDLE_SHARE if is_usual else MIN_IDLE_SHARE_BESIDE_WORK
    min_ns = int(min_share * np.median(a.steps.dur))
    change_ns = abs(int(after[position] - before[position]))
    if min(apart_ns, change_ns) <= min_ns:
        return None

    step = int(idle_times.step[position])
    row = _make_row_of_idle_time(
        a_ns=int(idle_times.before[position]),
        b_ns=int(idle_times.after[position]),
        step_label=b.steps.labels[step],
    )
    return SingleStepOutlier(row=row, unusual_step=step if vary_alike else None)


def _make_row_of_idle_time(*, a_ns: int, b_ns: int, step_label: str) -> Row:
    """Make the row of idle time that is longer or shorter in one step."""
    return make_row(
        kind=RowKind.ADDED if b_ns > a_ns else RowKind.REMOVED,
        op="idle",
        a=RowShare(names=("idle",), ns=a_ns),
        b=RowShare(names=("idle",), ns=b_ns),
        why=f"{ONLY} {step_label}",
        counts=False,
    )


def _explain_idle_change_by_work(
    a: WorkItems, b: WorkItems, change_ns: Int64s
) -> Int64s:
    """Return how much of the change of idle time the change of work explains.

    Work that is gone or faster leaves a gap of at most its time, and additional work
    fills one. Take a kernel of 30 ns that is gone in B and a new one of 5 ns. They
    explain any change of the idle time from -5 to 30 ns, and no more of a larger one.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        change_ns: The change of the idle time of each step, B minus A.

    Returns:
        The explained part of the change of each step in ns.
    """
    keys = distinct(
        np.concatenate([a.exact_keys_of_all_steps, b.exact_keys_of_all_steps])
    )
    change_of_work_ns = _measure_work_by_key(b, keys) - _measure_work_by_key(a, keys)
    gone_ns = np.maximum(-change_of_work_ns, 0).sum(axis=1)
    added_ns = np.maximum(change_of_work_ns, 0).sum(axis=1)
    return np.asarray(np.clip(change_ns, -added_ns, gone_ns))


def _measure_work_by_key(items: WorkItems, keys: Int64s) -> Int64s:
    """Return how long each kind of kernel runs within each step (ns).

    A kind is one kernel under one op. It does not matter which step launched the
    kernel, because idle time is counted in the same way.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        keys: One number per kind, ascending: all of the trace, and maybe others.

    Returns:
        Times in ns, [steps, keys].
    """
    work = items.work
    trace = work.trace
    steps = work.steps
    runs = Cover(trace.start[work.row], trace.end[work.row])
    begins_and_ends = Cover(steps.start, steps.end)
    # Each run is cut where a step begins or ends.
    inside, run_of_piece = pieces(runs, begins_and_ends)
    ns = inside.end - inside.start
    step = steps.index_of(inside.start)
    key_index = positions_of(keys, items.exact_keys_of_all_steps[run_of_piece])
    return summed((step, key_index), ns, shape=(len(steps), len(keys)))


def _measure_idle_time_by_step(items: WorkItems) -> Int64s:
    """Return the time of each step during which no GPU event runs (ns).

    Without a GPU, it is the time during which no piece of work runs.
    """
    work = items.work
    steps = work.steps
    rows = work.trace.gpu_rows if work.gpu else work.row
    return steps.dur - measure_any_busy_ns(work.trace, rows, steps.start, steps.end)
