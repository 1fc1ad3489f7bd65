"""How much longer a step of B takes than one of A, how sure that is, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np

from fusetui.analysis.diff.groups import Group, pairs_of
from fusetui.analysis.diff.items import Items
from fusetui.analysis.diff.model import Answer, Side, StepChange, Verdict
from fusetui.analysis.diff.pieces import Work
from fusetui.analysis.diff.statistics import FEW_STEPS, drift, median, ratio_interval, wider
from fusetui.analysis.diff.windows import Windows
from fusetui.trace.model.columns import Floats, Int64s, Rows


def step_change(a: Items, b: Items, groups: Sequence[Group]) -> StepChange:
    """The medians over the steps used, and the interval of their ratio.

    Where the steps of both took turns, each is compared with its neighbor, and what became slower
    or faster over time counts for nothing; else the drift of each run widens the interval.
    """
    of_a, of_b = a.work.windows.dur, b.work.windows.dur
    a_ns = int(median(of_a)) if len(of_a) else None
    b_ns = int(median(of_b)) if len(of_b) else None
    if not a_ns or b_ns is None:
        return StepChange(a_ns, b_ns, None, None, None)
    times = undisturbed(a, b, groups)
    found = _of_turns(*times) if take_turns(a.work, b.work) else _of_runs(*times)
    return StepChange(
        a_ns, b_ns, *found, interrupted_a=times[0].interrupted, interrupted_b=times[1].interrupted
    )


def _of_runs(a: Times, b: Times) -> tuple[float, float | None, float | None, float, float, bool]:
    ratio = int(median(b.ns)) / max(1, int(median(a.ns)))
    found = ratio_interval(a.ns, b.ns)
    if found is None:
        return ratio, None, None, 0.0, 0.0, False
    low, high = min(found.low, ratio), max(found.high, ratio)
    return ratio, low, high, found.drift_a, found.drift_b, False


def _of_turns(a: Times, b: Times) -> tuple[float, float | None, float | None, float, float, bool]:
    logs = log_ratios(a.ns, b.ns)
    found = signed_rank_interval(logs)
    drifts = drift(a.ns), drift(b.ns)
    if found is None:
        ratio = float(np.exp(np.median(logs))) if len(logs) else 1.0
        return ratio, None, None, *drifts, True
    low, center, high = found
    by = wider(logs)
    low, high = center + (low - center) * by, center + (high - center) * by
    return math.exp(center), math.exp(low), math.exp(high), *drifts, True


LEAST = 8
"""A piece was interrupted that lies farther above the median of that piece in all steps than the
first quarter of its times lies below, and by more than one part in so many."""


class Times(msgspec.Struct, frozen=True, eq=False):
    """Of each step used: its duration less interruptions (ns); and the share of all time that
    these were."""

    ns: Int64s
    interrupted: float


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
        found: Int64s = middle + np.maximum(middle - quarter, middle // LEAST)
        return found


def undisturbed(a: Items, b: Items, groups: Sequence[Group]) -> tuple[Times, Times]:
    """What a piece took is counted up to what is usual for it.

    The same kernel or op on both sides is cut at one limit, the higher one of the two: with a limit
    of its own, which is known no better than the noise allows, each side would be off in all of its
    steps alike. A step whose work is not the usual one counts as it is.
    """
    cuts = _cut(a), _cut(b)
    limits = [cut.limits for cut in cuts]
    same = _columns(a, b, cuts, groups)
    if all(len(cut.ns) for cut in cuts):
        common = np.maximum(limits[0][same[0]], limits[1][same[1]])
        for side, columns in zip(limits, same, strict=True):
            side[columns] = common
    return _less(a, cuts[0], limits[0]), _less(b, cuts[1], limits[1])


def _columns(
    a: Items, b: Items, cuts: tuple[Cut, Cut], groups: Sequence[Group]
) -> tuple[Rows, Rows]:
    """Of what comes before all work, and of the pairs that are the same kernel under the same
    op."""
    one, other = pairs_of(groups)
    same = a.exact[one] == b.exact[other]
    first = np.zeros(1, dtype=np.intp)
    of_a, of_b = cuts[0].column[one[same]], cuts[1].column[other[same]]
    return np.concatenate([first, of_a]), np.concatenate([first, of_b])


def _less(items: Items, cut: Cut, limits: Int64s) -> Times:
    durations: Int64s = items.work.windows.dur.copy()
    excess = np.maximum(cut.ns - limits, 0).sum(axis=1)
    if len(cut.ns):
        durations[items.alike] -= excess
    whole = int(items.work.windows.dur.sum())
    return Times(durations, int(excess.sum()) / whole if whole else 0.0)


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


FEW_ROUNDS = 6
"""With fewer the signed-rank test can reject nothing at 5 %: of five signs all are alike in 2 of 32
cases."""

EXACT = 100  # up to so many rounds the distribution is counted out; beyond, it is normal

TAIL = 0.025
Z = 1.959964

BASE = "baseTimeNanoseconds"  # the key of a file that says when its clock began


def take_turns(a: Work, b: Work) -> bool:
    """Did the n-th step of both sides run next to each other, in either order, for every n?

    So it is when both were taken out of one profile; never when the traces are of two processes,
    whose steps would overlap, or of two clocks.
    """
    one, other = a.windows, b.windows
    if len(one) != len(other) or len(one) < 2 or one.whole or other.whole:
        return False
    if a.trace.keys.get(BASE) != b.trace.keys.get(BASE):
        return False
    return _apart(one, other)


def _apart(a: Windows, b: Windows) -> bool:
    within = (a.end <= b.start) | (b.end <= a.start)
    between = np.maximum(a.end, b.end)[:-1] <= np.minimum(a.start, b.start)[1:]
    return bool(within.all() and between.all())


def log_ratios(a: Int64s, b: Int64s) -> Floats:
    """One for each round in which both took time."""
    known = (a > 0) & (b > 0)
    found: Floats = np.log(b[known] / a[known])
    return found


def signed_rank_interval(differences: Floats) -> tuple[float, float, float] | None:
    """The low end, the middle and the high end of the interval of 95 % for the center of paired
    differences: all shifts that Wilcoxon's signed-rank test does not reject. None with fewer than
    FEW_ROUNDS.

    It takes for granted only that a difference is as likely to be x as -x where nothing changed,
    which turns in random order see to, whatever the noise is. The middle is the estimate of Hodges
    and Lehmann, the median of the means of any two.
    (E. L. Lehmann, Nonparametrics, 1975: chapter 4)
    """
    count = rejected(len(differences))
    if not count:
        return None
    first, second = np.triu_indices(len(differences))
    means = np.sort((differences[first] + differences[second]) / 2)
    return float(means[count - 1]), float(np.median(means)), float(means[-count])


@cache
def rejected(size: int) -> int:
    """How many of the sorted means lie outside of the interval on either side."""
    if size > EXACT:
        total = size * (size + 1)
        return max(1, int(total / 4 - Z * math.sqrt(total * (2 * size + 1) / 24)))
    ways = np.ones(1)
    for rank in range(1, size + 1):  # the coefficients of the product of 1 + q ** rank
        more = np.zeros(len(ways) + rank)
        more[: len(ways)] += ways
        more[rank:] += ways
        ways = more
    return int(np.count_nonzero(np.cumsum(ways) / ways.sum() <= TAIL)) if size else 0


def verdict(step: StepChange, a: Side, b: Side) -> Verdict:
    """Faster or slower when the interval of the ratio excludes 1, else no difference.

    There is no verdict between different devices, because that is no change of the program, nor
    with fewer than FEW_STEPS steps on a side.
    """
    reason = _reason(step, a, b)
    if reason:
        return Verdict(Answer.CANNOT_TELL, reason)
    if not step.shown:
        return Verdict(Answer.NO_DIFFERENCE)
    return Verdict(Answer.FASTER if (step.high or 0) < 1 else Answer.SLOWER)


def other_devices(a: Side, b: Side) -> str:
    """`A100 -> H100`; "" where both ran on the same, or a file does not say."""
    if not (a.items and b.items) or (a.gpu == b.gpu and not (a.devices and b.devices)):
        return ""
    before, after = _devices(a), _devices(b)
    return f"{before} -> {after}" if before != after else ""


def _devices(side: Side) -> str:
    if not side.gpu:
        return "CPU only"
    return ", ".join(side.devices) or "a GPU"


def _reason(step: StepChange, a: Side, b: Side) -> str:
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
