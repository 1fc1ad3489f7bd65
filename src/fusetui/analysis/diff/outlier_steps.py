"""Kernels and idle time that changed in one step only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from fusetui.analysis.diff.groups import WorkGroup, pairs_of
from fusetui.analysis.diff.instances import IN_PARTS, adds_up_to
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import ONLY, Row, RowKind, RowShare, row_of
from fusetui.analysis.diff.outlier_work import rows_of
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
    """Kernels and idle time that changed in one step only, if both sides have equally
    many steps and vary alike: the n-th steps of two runs have nothing in common but
    chance."""
    steps = len(a.work.windows)
    if steps < MIN_STEPS or len(b.work.windows) != steps:
        return []
    usual_on_both = np.intersect1d(a.alike, b.alike)
    if len(usual_on_both) < MIN_STEPS - 1:
        return []
    if not _vary_alike(a, b, groups, usual_on_both):
        return []
    return [*_outlying_kernels(a, b, groups), *_outlying_idle_time(a, b)]


def in_parts(a: WorkItems, b: WorkItems, rows: Sequence[Row]) -> list[Row]:
    """One row for a kernel that is several of the same name in one step: of these, one
    is faster in that step, and the others are more work, under one op and as long
    together as the one before."""
    timed = [row for row in rows if row.kind in (RowKind.FASTER, RowKind.SLOWER)]
    joined = [row for row in rows if row not in timed]
    for kernel in timed:
        parts = next((row for row in joined if _are_parts(a, b, kernel, row)), None)
        if parts is None:
            joined.append(kernel)
            continue
        before, after = _sum_of(kernel, parts, "a"), _sum_of(kernel, parts, "b")
        kind = RowKind.SPLIT if after.count > before.count else RowKind.FUSED
        joined.remove(parts)
        why = f"{parts.why}: {IN_PARTS}"
        joined.append(row_of(kind, kernel.op, before, after, why, counts=False))
    return joined


def _are_parts(a: WorkItems, b: WorkItems, kernel: Row, others: Row) -> bool:
    """Whether the kernels that one step has more belong to this one, on the side that
    has them."""
    if bool(others.a) == bool(others.b):
        return False
    side = "b" if others.b else "a"
    trace = (b if others.b else a).trace
    rows = [*getattr(kernel, f"{side}_rows"), *getattr(others, f"{side}_rows")]
    if len(rows) != 1 + max(others.a_count, others.b_count):
        return False  # what is missing, and so not of this step
    if len({(trace.op[row], trace.name[row]) for row in rows}) != 1:
        return False
    other_parts = trace.dur[rows[1:]].tolist()
    if side == "b":
        return adds_up_to([kernel.b_ns, *other_parts], kernel.a_ns)
    return adds_up_to([kernel.a_ns, *other_parts], kernel.b_ns)


def _sum_of(kernel: Row, others: Row, side: str) -> RowShare:
    def both(field: str) -> Any:
        return getattr(kernel, f"{side}_{field}") + getattr(others, f"{side}_{field}")

    names = getattr(kernel, side) + getattr(others, side)
    return RowShare(
        names=names,
        ns=both("ns"),
        count=both("count"),
        median_ns=both("median_ns"),
        rows=both("rows"),
    )


def _outlying_kernels(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[SingleStepOutlier]:
    """Kernels that took more or less time in one step of one side than in all
    others."""
    items_a, items_b = pairs_of(groups)
    if not len(items_a):
        return []
    rows_a = rows_of(a, b)[:, items_a]
    rows_b = rows_of(b, a)[:, items_b]
    is_missing = (rows_a < 0) | (rows_b < 0)
    before = np.where(is_missing, np.array(a.medians)[items_a], a.trace.dur[rows_a])
    after = np.where(is_missing, np.array(b.medians)[items_b], b.trace.dur[rows_b])
    outliers = _outliers(before, after, is_missing)
    longest_ns = np.maximum(before, after).max(axis=0)
    floor_ns = np.maximum(longest_ns * FLOOR_PERCENT // 100, FLOOR_NS)
    in_other_steps = np.sort(_apart(before, after), axis=0)[:-1]
    common_ns = int(np.percentile(in_other_steps, COMMON_PERCENTILE))
    min_ns = max(resolution(a.samples, b.samples), MIN_DISTANCE_RATIO * common_ns)
    is_far = outliers.apart_ns > np.maximum(floor_ns, min_ns)
    farthest_first = np.argsort(-outliers.apart_ns, kind="stable")
    reported = farthest_first[is_far[farthest_first]][:MAX_KERNELS]
    kernels = []
    for pair in reported.tolist():
        step = int(outliers.step[pair])
        item_a, item_b = int(items_a[pair]), int(items_b[pair])
        in_a = _run_of(a, item_a, int(rows_a[step, pair]))
        in_b = _run_of(b, item_b, int(rows_b[step, pair]))
        kind = RowKind.FASTER if in_b.ns < in_a.ns else RowKind.SLOWER
        where = f"{ONLY} {b.work.windows.labels[step]}"
        why = f"{where}: {change(in_a.ns, in_b.ns)} time"
        row = row_of(kind, a.op_names[item_a], in_a, in_b, why, counts=False)
        unusual_step = step if outliers.vary_alike[pair] else None
        kernels.append(SingleStepOutlier(row=row, unusual_step=unusual_step))
    return kernels


def _run_of(items: WorkItems, item: int, row: int) -> RowShare:
    """An item as it ran in one step; `row` is that of its event there."""
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
    """Whether the times of most kernels vary far more than their differences between
    the two sides do. `steps` do the usual work on both sides."""
    items_a, items_b = pairs_of(groups)
    before = a.samples[np.isin(a.alike, steps)][:, items_a]
    after = b.samples[np.isin(b.alike, steps)][:, items_b]
    if not before.size:
        return False
    differences_spread = _spread(after - before)
    times_spread = _spread(before)
    return bool(MIN_RATIO_OF_SPREADS * differences_spread <= times_spread)


def _spread(samples: Int64s) -> float:
    """The range within which SHARE_OF_KERNELS of the columns vary."""
    ranges = np.ptp(samples, axis=0)
    return lower_quantile(ranges, SHARE_OF_KERNELS)


class _Outliers(msgspec.Struct, frozen=True, eq=False):
    """For each column of samples, the step in which the two sides are farthest
    apart."""

    apart_ns: Int64s  # beyond what they are in all steps; 0 where no step stands out
    step: Rows
    vary_alike: Flags  # whether the two sides do in the other steps


def _outliers(before: Int64s, after: Int64s, is_unknown: Flags) -> _Outliers:
    """The outliers of samples (ns), of shape [steps, columns]. None where other steps
    are nearly as far apart, or vary as much on one side. No step stands out by a sample
    that is unknown, in whose place the usual time is."""
    apart_ns = np.where(is_unknown, 0, _apart(before, after))
    step = apart_ns.argmax(axis=0)
    ordered = np.sort(apart_ns, axis=0)
    farthest, second = ordered[-1], ordered[-2]
    is_other_step = np.arange(len(apart_ns))[:, None] != step
    others_vary = np.maximum(
        _range_in(before, is_other_step), _range_in(after, is_other_step)
    )
    vary_alike = 100 * second <= others_vary  # one side varies with the other
    stands_out = farthest > MIN_DISTANCE_RATIO * second
    stands_out &= vary_alike | (farthest > others_vary)
    return _Outliers(
        apart_ns=np.where(stands_out, farthest, 0), step=step, vary_alike=vary_alike
    )


def _range_in(samples: Int64s, steps: Flags) -> Int64s:
    """By how much each column varies in some of its steps; both of shape [steps,
    columns]."""
    in_steps = np.where(steps, samples, np.median(samples, axis=0))
    return np.asarray(np.ptp(in_steps, axis=0))


def _apart(before: Int64s, after: Int64s) -> Int64s:
    """How far a change is from that in most steps (ns), as a difference or as a ratio,
    whichever it is closer to: what takes 1.3 times as long takes much longer in a step
    in which it is slow."""
    differences = after - before
    usual_difference = medians(differences)
    by_difference = np.abs(differences - usual_difference)
    usual_ratio = np.median(after / np.maximum(before, 1), axis=0)
    expected_ns = np.rint(before * usual_ratio).astype(np.int64)
    by_ratio = np.abs(after - expected_ns)
    has_ratio = np.abs(usual_ratio - 1) > FLOOR_PERCENT / 100
    closer = np.minimum(by_difference, by_ratio)
    return np.asarray(np.where(has_ratio, closer, by_difference))


def _outlying_idle_time(a: WorkItems, b: WorkItems) -> list[SingleStepOutlier]:
    """Idle time that only one step has, of those that do the usual work on one side at
    least. Work that is gone or faster leaves a gap, and more work fills one: that is no
    change of its own."""
    all_steps = np.arange(len(a.work.windows))
    is_usual_a, is_usual_b = np.isin(all_steps, a.alike), np.isin(all_steps, b.alike)
    steps = np.flatnonzero(is_usual_a | is_usual_b)
    before, after = _idle(a)[steps], _idle(b)[steps]
    kinds = np.unique(np.concatenate([a.every, b.every]))
    less_ns = (_by_kind(a, kinds) - _by_kind(b, kinds))[steps]
    gone_ns = np.clip(less_ns, 0, None).sum(axis=1)
    added_ns = np.clip(-less_ns, 0, None).sum(axis=1)
    by_work_ns = np.clip(after - before, -added_ns, gone_ns)
    is_unknown = np.zeros((len(steps), 1), dtype=np.bool_)
    outliers = _outliers(before[:, None], (after - by_work_ns)[:, None], is_unknown)
    place = int(outliers.step[0])
    step = int(steps[place])
    does_usual_work = is_usual_a[step] and is_usual_b[step]
    share = MIN_IDLE_SHARE if does_usual_work else MIN_IDLE_SHARE_BESIDE_WORK
    min_ns = int(share * np.median(a.work.windows.dur))
    a_ns, b_ns = int(before[place]), int(after[place])
    change_ns = b_ns - int(by_work_ns[place]) - a_ns
    if outliers.apart_ns[0] <= min_ns or abs(change_ns) <= min_ns:
        return []
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


def _by_kind(items: WorkItems, kinds: Int64s) -> Int64s:
    """How long each kind of work runs within each step (ns), whichever step launched
    it: so idle time is counted too. Shape [steps, kinds]."""
    work, trace = items.work, items.work.trace
    windows = work.windows
    runs = Cover(trace.start[work.row], trace.end[work.row])
    inside, piece = pieces(runs, Cover(windows.start, windows.end))
    step = windows.index_of(inside.start)
    kind = np.searchsorted(kinds, items.every[piece])
    shape = (len(windows), len(kinds))
    return summed((step, kind), inside.end - inside.start, shape)


def _idle(items: WorkItems) -> Int64s:
    """The idle time of each step (ns)."""
    work, windows = items.work, items.work.windows
    rows = work.trace.gpu_rows if work.gpu else work.row
    return windows.dur - any_busy_ns(work.trace, rows, windows.start, windows.end)
