"""Kernels and idle time that changed in one step only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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

# times as far from the others as they are from each other is a step that is odd
SHARP = 4
# and SHARP times as far as this percentile of the differences of all kernels elsewhere
COMMON = 99
# steps show what is usual; in all but one of them both sides do the same work
LEAST = 3

IDLE, IDLE_BESIDE = 0.01, 0.03
"""Idle time is told when it changed by this share of a step; the latter in a step that
does other work too, whose launches take some: in a step of 0.5 ms, a copy costs 2 %."""

MOST, TOGETHER = 0.75, 4
"""Both sides vary alike where differences of so many kernels vary by so much less than
times."""

SHOWN = 5  # at most this many such kernels are reported


Odd = tuple[Row, int | None]
"""What took a different time in one step than in all others; and that step, if in the
others the two sides vary alike, as two copies of one recording do: then it is not a
usual one."""


def once(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[Odd]:
    """Kernels and idle time that changed in one step only, if both sides have equally
    many steps and vary alike: the n-th steps of two runs have nothing in common but
    chance."""
    steps, common = len(a.work.windows), np.intersect1d(a.alike, b.alike)
    if not LEAST <= steps == len(b.work.windows) or len(common) < LEAST - 1:
        return []
    if not _vary_alike(a, b, groups, common):
        return []
    return [*_kernels_once(a, b, groups), *_idle_once(a, b)]


def in_parts(a: WorkItems, b: WorkItems, rows: Sequence[Row]) -> list[Row]:
    """One row for a kernel that is several of the same name in one step: of these, one
    is faster in that step, and the others are more work, under one op and as long
    together as the one before."""
    timed = [row for row in rows if row.kind in (RowKind.FASTER, RowKind.SLOWER)]
    left = [row for row in rows if row not in timed]
    for one in timed:
        parts = next((row for row in left if _are_parts(a, b, one, row)), None)
        if parts is None:
            left.append(one)
            continue
        before, after = _sum_of(one, parts, "a"), _sum_of(one, parts, "b")
        kind = RowKind.SPLIT if after.count > before.count else RowKind.FUSED
        left.remove(parts)
        why = f"{parts.why}: {IN_PARTS}"
        left.append(row_of(kind, one.op, before, after, why, counts=False))
    return left


def _are_parts(a: WorkItems, b: WorkItems, one: Row, others: Row) -> bool:
    """Whether the kernels that one step has more belong to this one, on the side that
    has them."""
    if bool(others.a) == bool(others.b):
        return False
    side = "b" if others.b else "a"
    trace = (b if others.b else a).trace
    rows = [*getattr(one, f"{side}_rows"), *getattr(others, f"{side}_rows")]
    if len(rows) != 1 + max(others.a_count, others.b_count):
        return False  # what is missing, and so not of this step
    if len({(trace.op[row], trace.name[row]) for row in rows}) != 1:
        return False
    whole, part = (one.a_ns, one.b_ns) if side == "b" else (one.b_ns, one.a_ns)
    return adds_up_to([part, *trace.dur[rows[1:]].tolist()], whole)


def _sum_of(one: Row, others: Row, side: str) -> RowShare:
    def both(field: str) -> Any:
        return getattr(one, f"{side}_{field}") + getattr(others, f"{side}_{field}")

    names = getattr(one, side) + getattr(others, side)
    return RowShare(names, both("ns"), both("count"), both("median_ns"), both("rows"))


def _kernels_once(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[Odd]:
    """Kernels that took more or less time in one step of one side than in all
    others."""
    one, other = pairs_of(groups)
    if not len(one):
        return []
    rows_a, rows_b = (
        rows_of(*sides)[:, of] for sides, of in (((a, b), one), ((b, a), other))
    )
    lacking = (rows_a < 0) | (rows_b < 0)
    before = np.where(lacking, np.array(a.medians)[one], a.trace.dur[rows_a])
    after = np.where(lacking, np.array(b.medians)[other], b.trace.dur[rows_b])
    apart, step, paired = _outliers(before, after, lacking)
    floor = np.maximum(
        np.maximum(before, after).max(axis=0) * FLOOR_PERCENT // 100, FLOOR_NS
    )
    away = np.sort(_apart(before, after), axis=0)[:-1]
    least = max(
        resolution(a.samples, b.samples), SHARP * int(np.percentile(away, COMMON))
    )
    far = np.flatnonzero(apart > np.maximum(floor, least))
    far = far[np.argsort(-apart[far], kind="stable")][:SHOWN]
    found = []
    for n, number in zip(far.tolist(), step[far].tolist(), strict=True):
        ends = (
            (a, int(one[n]), int(rows_a[number, n])),
            (b, int(other[n]), int(rows_b[number, n])),
        )
        mine, theirs = (
            RowShare(
                (of.names[item],), int(of.trace.dur[row]), 1, of.medians[item], (row,)
            )
            for of, item, row in ends
        )
        why = (
            f"{ONLY} {b.work.windows.labels[number]}: {change(mine.ns, theirs.ns)} time"
        )
        kind = RowKind.FASTER if theirs.ns < mine.ns else RowKind.SLOWER
        row = row_of(kind, a.op_names[ends[0][1]], mine, theirs, why, counts=False)
        found.append((row, number if paired[n] else None))
    return found


def _vary_alike(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup], steps: Rows
) -> bool:
    """In the steps that do the usual work on both sides."""
    pairs = zip((a, b), pairs_of(groups), strict=True)
    before, after = (
        of.samples[np.isin(of.alike, steps)][:, items] for of, items in pairs
    )
    if not before.size:
        return False
    apart, times = (
        np.quantile(np.ptp(of, axis=0), MOST, method="lower")
        for of in (after - before, before)
    )
    return bool(TOGETHER * apart <= times)


def _outliers(
    before: Int64s, after: Int64s, unknown: Flags
) -> tuple[Int64s, Rows, Flags]:
    """Per column, of samples [steps, columns]: how far the two sides are apart, beyond
    what they are in all steps, in the step in which they are farthest apart; 0 where
    other steps are nearly as far apart, or vary as much on one side. Also that step,
    and whether the two sides vary alike in the other steps. No step stands out by a
    sample that is `unknown`, which is the usual time instead."""
    away = _apart(before, after)
    away = np.where(unknown, 0, away)
    step = away.argmax(axis=0)
    ordered = np.sort(away, axis=0)
    others = np.arange(len(away))[:, None] != step
    varies = [
        np.ptp(np.where(others, side, np.median(side, axis=0)), axis=0)
        for side in (before, after)
    ]
    # one side varies with the other
    followed = 100 * ordered[-2] <= np.maximum(*varies)
    sharp = ordered[-1] > SHARP * ordered[-2]
    sharp &= followed | (ordered[-1] > np.maximum(*varies))
    return np.where(sharp, ordered[-1], 0), step, followed


def _apart(before: Int64s, after: Int64s) -> Int64s:
    """How far a change is from that in most steps (ns), as a difference or as a ratio,
    whichever it is closer to: what takes 1.3 times as long takes much longer in a step
    in which it is slow."""
    differences = after - before
    away = np.abs(differences - np.median(differences, axis=0).astype(np.int64))
    ratio = np.median(after / np.maximum(before, 1), axis=0)
    changed = np.abs(ratio - 1) > FLOOR_PERCENT / 100
    scaled = np.abs(after - np.rint(before * ratio).astype(np.int64))
    return np.asarray(np.where(changed, np.minimum(away, scaled), away))


def _idle_once(a: WorkItems, b: WorkItems) -> list[Odd]:
    """Idle time that only one step has, of those that do the usual work on one side at
    least. Work that is gone or faster leaves a gap, and more work fills one: that is no
    change of its own."""
    usual = [np.isin(np.arange(len(side.work.windows)), side.alike) for side in (a, b)]
    steps = np.flatnonzero(usual[0] | usual[1])
    before, after = _idle(a)[steps], _idle(b)[steps]
    kinds = np.unique(np.concatenate([a.every, b.every]))
    less = (_by_kind(a, kinds) - _by_kind(b, kinds))[steps]
    gone, more = (np.clip(of, 0, None).sum(axis=1) for of in (less, -less))
    filled = np.clip(after - before, -more, gone)
    known = np.zeros((len(steps), 1), dtype=np.bool_)
    apart, place, paired = _outliers(before[:, None], (after - filled)[:, None], known)
    number = int(steps[place[0]])
    share = IDLE if usual[0][number] and usual[1][number] else IDLE_BESIDE
    least = int(share * np.median(a.work.windows.dur))
    a_ns, b_ns, gap = (int(of[place[0]]) for of in (before, after, filled))
    if apart[0] <= least or abs(b_ns - gap - a_ns) <= least:
        return []
    why = f"{ONLY} {b.work.windows.labels[number]}"
    kind = RowKind.ADDED if b_ns > a_ns else RowKind.REMOVED
    shares = RowShare(("idle",), a_ns), RowShare(("idle",), b_ns)
    return [
        (
            row_of(kind, "idle", *shares, why, counts=False),
            number if paired[0] else None,
        )
    ]


def _by_kind(items: WorkItems, kinds: Int64s) -> Int64s:
    """The time that each step spends on each kind of work; shape [steps, kinds]."""
    where = items.work.window, np.searchsorted(kinds, items.every)
    return summed(where, items.work.ns, (len(items.work.windows), len(kinds)))


def _idle(items: WorkItems) -> Int64s:
    work, windows = items.work, items.work.windows
    rows = work.trace.gpu_rows if work.gpu else work.row
    return windows.dur - any_busy_ns(work.trace, rows, windows.start, windows.end)
