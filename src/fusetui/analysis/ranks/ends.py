"""Offsets of clocks from the ends of synchronous collectives, which are nearly the same moment on
all hosts.

Of each host the differences of its ends from those of the hosts that are known already, over time:
a line whose slope is the median of the slopes between pairs half the window apart (Theil's
abridged method, 1950) and whose height is the median of what is left. The spread of the residuals,
as 1.4826 times their median absolute deviation, is the uncertainty.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.outliers import SCALE
from fusetui.trace.model.arrays import Flags, Floats, Rows

NAMES = frozenset({"all_reduce", "reduce_scatter", "barrier"})
FEWEST = 4  # collectives, for an offset
LEAST_NS = 2_000.0  # no offset is known better: see clocks
ROUNDS = 16  # how many groups the way to a host may pass through


class Ends(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [hosts]: offsets at `at_ns` (nan if not known), their uncertainty in ns, and
    drifts in ns per second, 0 where they do not exceed the spread."""

    offset: Floats
    half: Floats
    drift: Floats
    at_ns: int

    @property
    def known(self) -> Flags:
        return ~np.isnan(self.offset)


class _Points(msgspec.Struct, frozen=True, eq=False):
    """An end per collective and host, the median of its ranks; `end` in ns after the first."""

    collective: Rows
    host: Rows
    end: Floats


def ends_of(matched: Matched, host: Rows, hosts: int, zero: int) -> Ends:
    """The offsets of all hosts that meet `zero`, directly or through others."""
    rows = np.flatnonzero(np.repeat(matched.named(NAMES), matched.counts))
    at_ns = int(matched.start[rows].min()) if len(rows) else 0
    offset, half, drift = np.full(hosts, np.nan), np.full(hosts, np.inf), np.zeros(hosts)
    found = Ends(offset, half, drift, at_ns)
    if hosts:
        offset[zero] = half[zero] = 0.0
    if hosts < 2 or not len(rows):
        return found
    ranks = len(matched.ranks)
    key = matched.of_row[rows] * ranks + host[matched.rank[rows]]
    distinct, which = np.unique(key, return_inverse=True)
    end = _medians((matched.end[rows] - at_ns).astype(np.float64), which, len(distinct))
    points = _Points(distinct // ranks, distinct % ranks, end)
    for _ in range(ROUNDS):
        before = found.known
        _extend(points, found, len(matched))
        if found.known.all() or (found.known == before).all():
            break
    return found


def _extend(points: _Points, found: Ends, collectives: int) -> None:
    """Adds the hosts that share enough collectives with known ones to `found`, in place."""
    known = found.known[points.host]
    there = points.end - np.nan_to_num(found.offset)[points.host]
    there -= found.drift[points.host] * points.end / 1e9
    center = _medians(there[known], points.collective[known], collectives)
    new = np.flatnonzero(~known & ~np.isnan(center[points.collective]))
    host, time = points.host[new], points.end[new]
    apart = time - center[points.collective[new]]
    hosts = len(found.offset)
    enough = np.bincount(host, minlength=hosts) >= FEWEST
    slope = _slopes(apart, time, host, hosts)
    spread, height = _residuals(apart - slope[host] * time, host, hosts)
    window = _largest(time, host, hosts) + _largest(-time, host, hosts)
    with np.errstate(invalid="ignore"):
        flat = ~(np.abs(slope) * window > 2 * np.maximum(spread, LEAST_NS))
    spread_flat, height_flat = _residuals(apart, host, hosts)
    slope, spread, height = (
        np.where(flat, level, sloped)
        for level, sloped in ((0.0, slope), (spread_flat, spread), (height_flat, height))
    )
    inherited = float(found.half[found.known].max())
    found.offset[enough] = height[enough]
    found.half[enough] = np.maximum(spread[enough], LEAST_NS) + inherited
    found.drift[enough] = slope[enough] * 1e9


def _slopes(apart: Floats, time: Floats, host: Rows, hosts: int) -> Floats:
    """The median slope between points of a host that lie half of its points apart; 0 for none."""
    order = np.lexsort((time, host))
    counts = np.bincount(host, minlength=hosts)
    first = np.cumsum(counts) - counts
    place = np.arange(len(order)) - np.repeat(first, counts)
    step = np.repeat(counts // 2, counts)
    begins = np.flatnonzero((place + step < np.repeat(counts, counts)) & (step > 0))
    a, b = order[begins], order[begins + step[begins]]
    moved = time[b] > time[a]
    a, b = a[moved], b[moved]
    return np.nan_to_num(_medians((apart[b] - apart[a]) / (time[b] - time[a]), host[a], hosts))


def _residuals(rest: Floats, host: Rows, hosts: int) -> tuple[Floats, Floats]:
    """The scaled median absolute deviation, and the median, of each host; nan for none."""
    height = _medians(rest, host, hosts)
    return SCALE * _medians(np.abs(rest - height[host]), host, hosts), height


def _medians(values: Floats, group: Rows, groups: int) -> Floats:
    """The median of each group; nan where it is empty."""
    order = np.lexsort((values, group))
    counts = np.bincount(group, minlength=groups)
    first = np.cumsum(counts) - counts
    full = counts > 0
    found = np.full(groups, np.nan)
    low, high = (first + (counts - 1) // 2)[full], (first + counts // 2)[full]
    found[full] = (values[order[low]] + values[order[high]]) / 2
    return found


def _largest(values: Floats, group: Rows, groups: int) -> Floats:
    found = np.full(groups, -np.inf)
    np.maximum.at(found, group, values)
    return found
