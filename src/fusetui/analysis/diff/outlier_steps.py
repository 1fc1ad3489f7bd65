"""Kernels and idle time that changed in one step only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.groups import WorkGroup, paired_items
from fusetui.analysis.diff.instances import IN_PARTS, adds_up_to
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import ONLY, Row, RowKind, RowShare, row_of
from fusetui.analysis.diff.outlier_work import rows_by_step
from fusetui.analysis.diff.statistics import FLOOR_NS, FLOOR_PERCENT, resolution
from fusetui.analysis.questions.busy import any_busy_ns
from fusetui.text.figures import change
from fusetui.trace.model.arrays import Flags, Int64s, Rows, summed
from fusetui.trace.model.intervals import Cover, pieces
from fusetui.trace.model.quantiles import lower_quantile, medians

MIN_DISTANCE_RATIO = 4
"""A step stands out where the two sides are more than so many times as far apart as in
any other step."""

COMMON_PERCENTILE = 99
"""And where they are MIN_DISTANCE_RATIO times as far apart as this percentile of all
kernels in the other steps."""

MIN_STEPS = 3
"""Fewer steps do not show what is usual; in all but one of them both sides do the same
work."""

MIN_IDLE_SHARE = 0.01
MIN_IDLE_SHARE_BESIDE_WORK = 0.03
"""Idle time is reported when it changed by this share of a step; the latter in a step
that does other work too, whose launches take some: in a step of 0.5 ms, a copy costs
2 %."""

SHARE_OF_KERNELS, MIN_RATIO_OF_SPREADS = 0.75, 4
"""Both sides vary alike where the differences of this share of the kernels vary by so
many times less than their times do."""

MAX_KERNELS = 5  # that are reported


class SingleStepOutlier(msgspec.Struct, frozen=True):
    """What took a different time in one step than in all others."""

    row: Row
    unusual_step: int | None
    """That step, if in the others the two sides vary alike, as two copies of one
    recording do: then it is not a usual one."""


def single_step_outliers(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[SingleStepOutlier]:
    """Kernels and idle time that changed in one step only. Empty unless both sides have
    equally many steps and vary alike from step to step (`_vary_alike`): the n-th steps
    of two separate runs have nothing in common but chance."""
    steps = len(a.work.windows)
    if steps < MIN_STEPS or len(b.work.windows) != steps:
        return []
    usual_on_both = np.intersect1d(a.alike_steps, b.alike_steps)
    if len(usual_on_both) < MIN_STEPS - 1:
        return []
    if not _vary_alike(a, b, groups, usual_on_both):
        return []
    return [*_outlying_kernels(a, b, groups), *_outlying_idle_time(a, b)]


def with_joined_parts(a: WorkItems, b: WorkItems, rows: Sequence[Row]) -> list[Row]:
    """The rows of single steps, where two of them become one if they are a kernel that
    was divided in one step: one part of it is a row of a faster kernel, and the other
    parts, of the same name under the same op, are a row of added work. The rows of
    faster and slower kernels, and those of two, come last."""
    timed = [row for row in rows if row.kind in (RowKind.FASTER, RowKind.SLOWER)]
    joined = [row for row in rows if row not in timed]
    for kernel in timed:
        parts = next((row for row in joined if _are_parts(a, b, kernel, row)), None)
        if parts is None:
            joined.append(kernel)
        else:
            joined.remove(parts)
            joined.append(_divided_kernel(kernel, parts))
    return joined


def _divided_kernel(kernel: Row, parts: Row) -> Row:
    """The row of a kernel that is divided on one side, from the rows of its first part
    and of its other parts."""
    before = _sum_of(_share_of(kernel, "a"), _share_of(parts, "a"))
    after = _sum_of(_share_of(kernel, "b"), _share_of(parts, "b"))
    kind = RowKind.SPLIT if after.count > before.count else RowKind.FUSED
    why = f"{parts.why}: {IN_PARTS}"
    return row_of(kind, kernel.op, before, after, why, counts=False)


def _are_parts(a: WorkItems, b: WorkItems, kernel: Row, others: Row) -> bool:
    """Whether the kernels of `others`, which one side has more in one step, and the
    kernel of the row `kernel` on that side are the parts of what that kernel is on the
    other side: of one name, under one op, and as long together."""
    if bool(others.a) == bool(others.b):
        return False  # no work of one side only
    divided, whole, trace = ("b", "a", b.trace) if others.b else ("a", "b", a.trace)
    first_part = _share_of(kernel, divided)
    other_parts = _share_of(others, divided)
    rows = [*first_part.rows, *other_parts.rows]
    if len(rows) != 1 + max(others.a_count, others.b_count):
        return False  # the others are missing: they have no rows of this step
    if len({(trace.op[row], trace.name[row]) for row in rows}) != 1:
        return False
    parts_ns = [first_part.ns, *trace.dur[rows[1:]].tolist()]
    return adds_up_to(parts_ns, _share_of(kernel, whole).ns)


def _share_of(row: Row, side: str) -> RowShare:
    """What one side, `a` or `b`, has of a row, but for what is hidden."""
    if side == "a":
        return RowShare(
            names=row.a,
            ns=row.a_ns,
            count=row.a_count,
            median_ns=row.a_median_ns,
            rows=row.a_rows,
        )
    return RowShare(
        names=row.b,
        ns=row.b_ns,
        count=row.b_count,
        median_ns=row.b_median_ns,
        rows=row.b_rows,
    )


def _sum_of(one: RowShare, other: RowShare) -> RowShare:
    """Both shares together, but for what is hidden."""
    return RowShare(
        names=[*one.names, *other.names],
        ns=one.ns + other.ns,
        count=one.count + other.count,
        median_ns=one.median_ns + other.median_ns,
        rows=one.rows + other.rows,
    )


class _PairedTimes(msgspec.Struct, frozen=True, eq=False):
    """What each kernel that has a counterpart takes in each step of A and of B. Arrays
    of shape [pairs] or [steps, pairs], times in ns."""

    items_a: Rows
    items_b: Rows
    rows_a: Rows  # [steps, pairs]; -1 where the step lacks the kernel
    rows_b: Rows
    before: Int64s  # [steps, pairs]; the median time where a side lacks the kernel
    after: Int64s
    is_missing: Flags  # [steps, pairs]: a side lacks it


def _paired_times(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> _PairedTimes:
    """The times of the kernels that are pairs in these groups."""
    items_a, items_b = paired_items(groups)
    rows_a = rows_by_step(a, b)[:, items_a]
    rows_b = rows_by_step(b, a)[:, items_b]
    is_missing = (rows_a < 0) | (rows_b < 0)
    medians_a = np.array(a.medians)[items_a]
    medians_b = np.array(b.medians)[items_b]
    return _PairedTimes(
        items_a=items_a,
        items_b=items_b,
        rows_a=rows_a,
        rows_b=rows_b,
        before=np.where(is_missing, medians_a, a.trace.dur[rows_a]),
        after=np.where(is_missing, medians_b, b.trace.dur[rows_b]),
        is_missing=is_missing,
    )


def _outlying_kernels(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[SingleStepOutlier]:
    """The kernels, farthest apart first and at most MAX_KERNELS, whose times in A and B
    are farther apart in one step than in all others. Where a step lacks a kernel, its
    median time stands for it."""
    if not len(paired_items(groups)[0]):
        return []
    times = _paired_times(a, b, groups)
    outliers = _outliers(times.before, times.after, times.is_missing)
    tick_ns = resolution(a.samples, b.samples)
    least_ns = _least_distance(times.before, times.after, tick_ns)
    farthest_first = np.argsort(-outliers.apart_ns, kind="stable")
    is_far = outliers.apart_ns > least_ns
    reported = farthest_first[is_far[farthest_first]][:MAX_KERNELS]
    kernels = []
    for pair in reported.tolist():
        step = int(outliers.step[pair])
        row = _row_of_kernel(a, b, times, pair, step)
        unusual_step = step if outliers.vary_alike[pair] else None
        kernels.append(SingleStepOutlier(row=row, unusual_step=unusual_step))
    return kernels


def _row_of_kernel(
    a: WorkItems, b: WorkItems, times: _PairedTimes, pair: int, step: int
) -> Row:
    """The row of a kernel, a column of `times`, that is faster in one step, else slower."""
    item_a = int(times.items_a[pair])
    item_b = int(times.items_b[pair])
    in_a = _run_of(a, item_a, int(times.rows_a[step, pair]))
    in_b = _run_of(b, item_b, int(times.rows_b[step, pair]))
    kind = RowKind.FASTER if in_b.ns < in_a.ns else RowKind.SLOWER
    where = f"{ONLY} {b.work.windows.labels[step]}"
    why = f"{where}: {change(in_a.ns, in_b.ns)} time"
    return row_of(kind, a.op_names[item_a], in_a, in_b, why, counts=False)


def _least_distance(before: Int64s, after: Int64s, tick_ns: int) -> Int64s:
    """How far from the usual change (ns) the two sides of a kernel must be in a step
    that is reported; shape [kernels]. `before`, `after`: times of shape [steps,
    kernels].

    That is the largest of: FLOOR_PERCENT of its longest time, FLOOR_NS, a tick of the
    clock, and MIN_DISTANCE_RATIO times as far as COMMON_PERCENTILE of all kernels are
    from it in other steps.
    """
    longest_ns = np.maximum(before, after).max(axis=0)
    floor_ns = np.maximum(longest_ns * FLOOR_PERCENT // 100, FLOOR_NS)
    # of each kernel, but for the step in which it is the farthest
    in_other_steps = np.sort(_from_usual_change(before, after), axis=0)[:-1]
    common_ns = int(np.percentile(in_other_steps, COMMON_PERCENTILE))
    min_ns = max(tick_ns, MIN_DISTANCE_RATIO * common_ns)
    return np.asarray(np.maximum(floor_ns, min_ns))


def _run_of(items: WorkItems, item: int, row: int) -> RowShare:
    """The share of a row that an item has in one step; `row` is that of its event in
    that step."""
    return RowShare(
        names=(items.names[item],),
        ns=int(items.trace.dur[row]),
        count=1,
        median_ns=items.medians[item],
        rows=(row,),
    )


def _vary_alike(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup], steps: Rows
) -> bool:
    """Whether the times of most kernels vary far more from step to step than their
    differences between the two sides do. `steps`: those that do the usual work on both
    sides."""
    items_a, items_b = paired_items(groups)
    before = a.samples[np.isin(a.alike_steps, steps)][:, items_a]
    after = b.samples[np.isin(b.alike_steps, steps)][:, items_b]
    if not before.size:
        return False
    differences_spread = _spread(after - before)
    times_spread = _spread(before)
    return bool(MIN_RATIO_OF_SPREADS * differences_spread <= times_spread)


def _spread(samples: Int64s) -> float:
    """The range (ns) within which SHARE_OF_KERNELS of the columns stay; `samples` has
    the shape [steps, kernels]."""
    ranges = np.ptp(samples, axis=0)
    return lower_quantile(ranges, SHARE_OF_KERNELS)


class _Outliers(msgspec.Struct, frozen=True, eq=False):
    """For each column of samples, the step in which the two sides are farthest apart;
    arrays of shape [columns]."""

    # how far beyond the usual change (`_from_usual_change`); 0 where no step stands out
    apart_ns: Int64s
    step: Rows
    vary_alike: Flags  # in the other steps, one side varies as the other does


def _outliers(before: Int64s, after: Int64s, is_unknown: Flags) -> _Outliers:
    """The step of each column in which the two sides are farthest apart, and whether it
    stands out.

    It does if they are MIN_DISTANCE_RATIO times as far apart as in any other step and,
    unless they vary alike there, farther than either side varies. `before`, `after`:
    times of A and B, [steps, columns] in ns; where `is_unknown`, [steps, columns], the
    usual time is in place of an unknown one: no step stands out by that.
    """
    apart_ns = np.where(is_unknown, 0, _from_usual_change(before, after))
    step = apart_ns.argmax(axis=0)
    sorted_apart_ns = np.sort(apart_ns, axis=0)
    farthest_ns = sorted_apart_ns[-1]
    second_ns = sorted_apart_ns[-2]

    steps = np.arange(len(apart_ns))[:, None]
    is_other_step = steps != step
    range_before_ns = _range_in(before, is_other_step)
    range_after_ns = _range_in(after, is_other_step)
    range_ns = np.maximum(range_before_ns, range_after_ns)
    # one side varies with the other: what is left is at most 1 % of that
    vary_alike = 100 * second_ns <= range_ns
    is_far = farthest_ns > MIN_DISTANCE_RATIO * second_ns
    is_beyond_range = vary_alike | (farthest_ns > range_ns)
    return _Outliers(
        apart_ns=np.where(is_far & is_beyond_range, farthest_ns, 0),
        step=step,
        vary_alike=vary_alike,
    )


def _range_in(samples: Int64s, steps: Flags) -> Int64s:
    """The range of each column within the flagged steps, shape [columns]; `samples` and
    `steps` have the shape [steps, columns]."""
    # medians in place of the others: these widen no range
    in_steps = np.where(steps, samples, np.median(samples, axis=0))
    return np.asarray(np.ptp(in_steps, axis=0))


def _from_usual_change(before: Int64s, after: Int64s) -> Int64s:
    """How far `after` is from what the usual change of its column would make of
    `before` (ns); all of shape [steps, columns].

    The usual change of a column is the median difference of its steps (whole ns,
    fractions dropped). Where the median ratio is more than FLOOR_PERCENT from 1, a
    sample may also follow that ratio, and the smaller of the two distances counts: what
    takes 1.3 times as long takes more ns longer in a step in which it is slow.
    """
    differences = after - before
    usual_difference = medians(differences)
    by_difference = np.abs(differences - usual_difference)
    usual_ratio = np.median(after / np.maximum(before, 1), axis=0)
    expected_ns = np.rint(before * usual_ratio).astype(np.int64)
    by_ratio = np.abs(after - expected_ns)
    has_ratio = np.abs(usual_ratio - 1) > FLOOR_PERCENT / 100
    nearest = np.minimum(by_difference, by_ratio)
    return np.asarray(np.where(has_ratio, nearest, by_difference))


class _IdleTimes(msgspec.Struct, frozen=True, eq=False):
    """The idle time of the steps that do the usual work on one side at least; arrays of
    shape [these steps], in ns."""

    step: Rows
    before: Int64s
    after: Int64s
    # that of B without what is due to the difference of its work
    after_without_work: Int64s
    is_usual: Flags  # the step does the usual work on both sides


def _idle_times(a: WorkItems, b: WorkItems) -> _IdleTimes:
    """The idle times of both sides in the steps that at least one of them does as
    usual."""
    every_step = np.arange(len(a.work.windows))
    is_usual_a = np.isin(every_step, a.alike_steps)
    is_usual_b = np.isin(every_step, b.alike_steps)
    idle_a = _idle(a)
    idle_b = _idle(b)
    by_work = _idle_change_by_work(a, b, idle_b - idle_a)
    without_work = idle_b - by_work
    steps = np.flatnonzero(is_usual_a | is_usual_b)
    return _IdleTimes(
        step=steps,
        before=idle_a[steps],
        after=idle_b[steps],
        after_without_work=without_work[steps],
        is_usual=(is_usual_a & is_usual_b)[steps],
    )


def _outlying_idle_time(a: WorkItems, b: WorkItems) -> list[SingleStepOutlier]:
    """The one step, if any, whose idle time stands out, of the steps that do the usual
    work on one side at least; an empty list if there is none."""
    idle = _idle_times(a, b)
    before_column = idle.before[:, None]
    after_column = idle.after_without_work[:, None]
    is_unknown = np.zeros(before_column.shape, dtype=np.bool_)
    outliers = _outliers(before_column, after_column, is_unknown)
    place = int(outliers.step[0])
    step = int(idle.step[place])
    share = MIN_IDLE_SHARE if idle.is_usual[place] else MIN_IDLE_SHARE_BESIDE_WORK
    min_ns = int(share * np.median(a.work.windows.dur))
    change_ns = int(idle.after_without_work[place] - idle.before[place])
    if outliers.apart_ns[0] <= min_ns or abs(change_ns) <= min_ns:
        return []
    a_ns = int(idle.before[place])
    b_ns = int(idle.after[place])
    row = row_of(
        RowKind.ADDED if b_ns > a_ns else RowKind.REMOVED,
        "idle",
        RowShare(names=("idle",), ns=a_ns),
        RowShare(names=("idle",), ns=b_ns),
        f"{ONLY} {b.work.windows.labels[step]}",
        counts=False,
    )
    unusual_step = step if outliers.vary_alike[0] else None
    return [SingleStepOutlier(row=row, unusual_step=unusual_step)]


def _idle_change_by_work(a: WorkItems, b: WorkItems, change_ns: Int64s) -> Int64s:
    """How much of the change of the idle time of each step (`change_ns`, B less A) is
    because its work differs, in ns; shape [steps]. Work that is gone or faster leaves a
    gap of at most its time, and more work fills one: that is no change of its own."""
    exact_keys = np.concatenate([a.exact_keys_of_all_steps, b.exact_keys_of_all_steps])
    keys = np.unique(exact_keys)
    less_ns = _work_by_key(a, keys) - _work_by_key(b, keys)
    gone_ns = np.maximum(less_ns, 0).sum(axis=1)
    added_ns = np.maximum(-less_ns, 0).sum(axis=1)
    return np.asarray(np.clip(change_ns, -added_ns, gone_ns))


def _work_by_key(items: WorkItems, keys: Int64s) -> Int64s:
    """How long the work of each exact key runs within each step (ns); shape [steps,
    keys]. As with idle time, it does not matter which step launched it. `keys`: all
    exact keys of the side at least, ascending."""
    work = items.work
    trace = items.work.trace
    windows = work.windows
    runs = Cover(trace.start[work.row], trace.end[work.row])
    # each run is cut where a step begins or ends
    inside, piece = pieces(runs, Cover(windows.start, windows.end))
    step = windows.index_of(inside.start)
    number_of_key = np.searchsorted(keys, items.exact_keys_of_all_steps[piece])
    shape = (len(windows), len(keys))
    return summed((step, number_of_key), inside.end - inside.start, shape)


def _idle(items: WorkItems) -> Int64s:
    """The time of each step during which no GPU event runs (ns); without a GPU, no piece
    of its work. Shape [steps]."""
    work = items.work
    windows = items.work.windows
    rows = work.trace.gpu_rows if work.gpu else work.row
    return windows.dur - any_busy_ns(work.trace, rows, windows.start, windows.end)
