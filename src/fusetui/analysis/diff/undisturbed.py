"""How long steps took but for what interrupted them, such as another program on the core."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.groups import Group
from fusetui.analysis.diff.items import Items

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]

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
    pairs = [(g.a[0], g.b[0]) for g in groups if len(g.a) == len(g.b) == 1]
    one, other = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
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
