"""How much longer a step of B takes than one of A, how sure that is, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.groups import WorkGroup, pairs_of
from fusetui.analysis.diff.items import Items
from fusetui.analysis.diff.model import Answer, DiffSide, StepChange, Verdict
from fusetui.analysis.diff.statistics import (
    FEW_ROUNDS,
    FEW_STEPS,
    median,
    paired_interval,
    ratio_interval,
)
from fusetui.analysis.diff.work import Work
from fusetui.trace.model.arrays import Int64s, Rows

BASE = "baseTimeNanoseconds"
LEAST = 8
"""A piece was interrupted that lies farther above the median of that piece in all steps than the
first quarter of its times lies below, and by more than one part in so many."""


def step_change(a: Items, b: Items, groups: Sequence[WorkGroup]) -> StepChange:
    """The medians over the steps used, and the interval of their ratio.

    Where the steps of both took turns, each is compared with its neighbor, and what became slower
    or faster over time counts for nothing; else the drift of each run widens the interval.
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


class Cut(msgspec.Struct, frozen=True, eq=False):
    """The steps alike, cut where their pieces of work begin: `ns` is [steps, pieces + 1], the first
    column what comes before all work; rows add up to steps. `column` is that of each item."""

    ns: Int64s
    column: Rows

    @property
    def limits(self) -> Int64s:
        """The most that each piece takes where nothing interrupts it."""
        if not len(self.ns):
            return np.zeros(self.ns.shape[1], dtype=np.int64)
        percentiles = np.percentile(self.ns, [25, 50], axis=0, method="lower")
        quarter, middle = percentiles.astype(np.int64)
        return np.asarray(middle + np.maximum(middle - quarter, middle // LEAST))


def _undisturbed(a: Items, b: Items, groups: Sequence[WorkGroup]) -> Iterator[tuple[Int64s, float]]:
    """Of each side the durations of its steps less interruptions (ns), and the share of all time
    that these were: what a piece took is counted up to what is usual for it.

    The same kernel or op on both sides is cut at one limit, the higher one of the two: with a limit
    of its own, which is known no better than the noise allows, each side would be off in all of its
    steps alike. A step whose work is not the usual one counts as it is.
    """
    cuts = _cut(a), _cut(b)
    limits = [cut.limits for cut in cuts]
    if all(len(cut.ns) for cut in cuts):
        one, other = pairs_of(groups)
        same = a.exact[one] == b.exact[other]
        # with what comes before all work
        in_a, in_b = (
            np.append(cuts[0].column[one[same]], 0),
            np.append(cuts[1].column[other[same]], 0),
        )
        limits[0][in_a] = limits[1][in_b] = np.maximum(limits[0][in_a], limits[1][in_b])
    for items, cut, limit in zip((a, b), cuts, limits, strict=True):
        durations, whole = items.work.windows.dur, int(items.work.windows.dur.sum())
        excess = np.maximum(cut.ns - limit, 0).sum(axis=1)
        if len(cut.ns):
            durations[items.alike] -= excess
        yield durations, int(excess.sum()) / whole if whole else 0.0


def _cut(items: Items) -> Cut:
    """No steps where pieces come in another order in some step, or begin outside of it."""
    work, size = items.work, len(items)
    nothing = Cut(np.zeros((0, size + 1), dtype=np.int64), np.arange(1, size + 1))
    if not len(items.alike) or not size:
        return nothing
    spans = [work.of_window(step) for step in items.alike.tolist()]
    begins = np.stack([work.trace.start[work.row[span]] for span in spans])
    orders = np.argsort(begins, axis=1, kind="stable")
    if (orders != orders[0]).any():
        return nothing
    first, last = work.windows.start[items.alike], work.windows.end[items.alike]
    edges = np.column_stack([first, begins[:, orders[0]], last])
    ns: Int64s = np.diff(edges, axis=1)
    column = np.empty(size, dtype=np.intp)
    column[orders[0]] = np.arange(1, size + 1)
    return nothing if (ns < 0).any() else Cut(ns, column)


def _take_turns(a: Work, b: Work) -> bool:
    """Did the n-th step of both sides run next to each other, in either order, for every n?

    So it is when both were taken out of one profile; never when the traces are of two processes,
    whose steps would overlap, or of two clocks.
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

    There is no verdict between different devices, because that is no change of the program, nor
    with fewer than FEW_STEPS steps on a side.
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
        (", ".join(side.devices) or "a GPU") if side.gpu else "CPU only" for side in (a, b)
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
