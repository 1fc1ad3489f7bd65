"""How far the clocks of the ranks are apart, and how far that is known.

A synchronous collective cannot end on any rank before it has started on all. With t the time of
a rank's clock and o its offset, end_i - o_i >= start_j - o_j for all i and j. Every collective
bounds the offsets so, from both sides; the offset is the middle of what all of them leave, and half
the width its uncertainty. An interval at either end of the window shows whether a clock drifts.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.ranks.matching import Matched
from fusetui.trace.ranks.model import RankSummary

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

UNBOUNDED = np.inf
ROUNDS = 16  # how many groups a bound may pass through
ENDS = 4  # a drift is measured between the first and the last quarter of the collectives
FEWEST = 4  # collectives at either end, for a drift
CONVERTED_NS = 2_000.0
"""On one host, times of GPUs are converted to its clock about this exactly: the ends of one
collective lie as close together on eight V100. Less is assumed where they lie closer still."""


class Clocks(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [ranks], in ns. A time of rank i on the common clock is
    t - used_i - drift_i * (t - at_ns) / 1e9; the common clock is that of the reference."""

    reference: int  # index of the rank
    offset: Floats  # the middle of the interval; nan if nothing bounds it
    half: Floats  # half the width; inf if nothing bounds it
    used: Floats
    drift: Floats  # ns per second, 0 where none was found
    at_ns: int
    feasible: bool  # whether one offset and drift per rank explain all collectives
    shared: str  # why the clocks are taken to be one; "" if they are not
    resolution: float  # ns: earlier and later are not told apart below this

    def common(self, rank: Rows, times: Int64s) -> Int64s:
        """Times of ranks (indices), as int64 ns of the common clock."""
        drifted = self.drift[rank] * ((times - self.at_ns) / 1e9)
        found: Int64s = times - np.rint(self.used[rank] + drifted).astype(np.int64)
        return found

    def resolution_of(self, one: Rows, other: Rows) -> Floats:
        """What the order of two moments on two ranks may be wrong by."""
        if self.shared:
            return np.full(len(one), self.resolution)
        found: Floats = np.where(one == other, 0.0, self.half[one] + self.half[other])
        return found


def clocks_of(matched: Matched) -> Clocks:
    """The clocks of the given ranks, from their synchronous collectives alone."""
    ranks = len(matched.ranks)
    rows = np.flatnonzero(np.repeat(matched.synchronous, matched.counts))
    reference = _reference(matched, rows)
    low, high = _interval(matched, rows, reference, np.zeros(ranks), 0)
    one = _one_clock(matched.ranks, low, high)
    drift, at_ns = np.zeros(ranks), 0
    if not one:
        drift, at_ns = _drift(matched, rows, reference)
        if drift.any():
            low, high = _interval(matched, rows, reference, drift, at_ns)
    bounded = np.isfinite(low) & np.isfinite(high)
    middle = np.full(ranks, np.nan)
    middle[bounded] = (low[bounded] + high[bounded]) / 2
    half = np.where(bounded, np.abs(high - low) / 2, UNBOUNDED)
    return Clocks(
        reference=reference,
        offset=middle,
        half=half,
        used=np.zeros(ranks) if one else np.nan_to_num(middle),
        drift=drift,
        at_ns=at_ns,
        feasible=bool((low <= high).all()),
        shared=one,
        resolution=min(_spread_of_ends(matched), CONVERTED_NS) if one else 0.0,
    )


def _reference(matched: Matched, rows: Rows) -> int:
    """The rank that took part in the most synchronous collectives, the first of them."""
    counts = np.bincount(matched.rank[rows], minlength=max(len(matched.ranks), 1))
    return int(np.argmax(counts))


def _interval(
    matched: Matched, rows: Rows, reference: int, drift: Floats, at_ns: int
) -> tuple[Floats, Floats]:
    """The lowest and the highest offset of each rank that all these rows leave."""
    low = np.full(len(matched.ranks), -UNBOUNDED)
    high = np.full(len(matched.ranks), UNBOUNDED)
    if not len(low):
        return low, high
    low[reference] = high[reference] = 0.0
    if not len(rows):
        return low, high
    rank = matched.rank[rows]
    # Differences of times are small, times are not: floats hold only the former exactly.
    zero = int(matched.start[rows].min())
    slope = drift[rank] / 1e9
    start = (matched.start[rows] - zero) - slope * (matched.start[rows] - at_ns)
    end = (matched.end[rows] - zero) - slope * (matched.end[rows] - at_ns)
    first = np.flatnonzero(np.diff(matched.of_row[rows], prepend=-1))
    counts = np.diff(np.append(first, len(rows)))
    for _ in range(ROUNDS):
        before = low.copy(), high.copy()
        latest = np.repeat(np.minimum.reduceat(high[rank] - start, first), counts)
        np.minimum.at(high, rank, end + latest)
        soonest = np.repeat(np.maximum.reduceat(low[rank] - end, first), counts)
        np.maximum.at(low, rank, start + soonest)
        low[reference] = high[reference] = 0.0
        settled = np.array_equal(before[0], low) and np.array_equal(before[1], high)
        if settled or (low > high).any():  # what contradicts itself only grows worse
            break
    return low, high


def _drift(matched: Matched, rows: Rows, reference: int) -> tuple[Floats, int]:
    """The drift of each clock (ns per second) where it exceeds what both ends leave open, and the
    time at which the offsets hold."""
    none = np.zeros(len(matched.ranks)), 0
    which = matched.of_row[rows]
    distinct = np.unique(which)
    few = len(distinct) // ENDS
    if few < FEWEST:
        return none
    early, late = rows[which <= distinct[few - 1]], rows[which >= distinct[-few]]
    bounds = [_interval(matched, some, reference, none[0], 0) for some in (early, late)]
    middles = [(low + high) / 2 for low, high in bounds]
    halves = [np.abs(high - low) / 2 for low, high in bounds]
    at = [int(np.mean(matched.start[some] - matched.start[rows[0]])) for some in (early, late)]
    with np.errstate(invalid="ignore"):
        moved = middles[1] - middles[0]
        found = np.abs(moved) > halves[0] + halves[1]
    seconds = max((at[1] - at[0]) / 1e9, 1e-9)
    drift = np.where(found & np.isfinite(moved), moved / seconds, 0.0)
    return drift, int(matched.start[rows[0]]) + at[0]


def _spread_of_ends(matched: Matched) -> float:
    """How far the ends of one collective are apart on its ranks, the median of all."""
    if not len(matched):
        return 0.0
    first = matched.first[:-1]
    spread = np.maximum.reduceat(matched.end, first) - np.minimum.reduceat(matched.end, first)
    return float(np.median(spread))


def _one_clock(ranks: tuple[RankSummary, ...], low: Floats, high: Floats) -> str:
    """Why all ranks share a clock, if their collectives allow it; else ""."""
    if not ((low <= 0) & (high >= 0)).all():
        return ""
    hosts = {one.host for one in ranks}
    if len(hosts) == 1 and "" not in hosts:
        return "all ranks ran on one host"
    devices = [one.device for one in ranks]
    size = max((one.world_size for one in ranks), default=0)
    listed = min((one.devices for one in ranks), default=0)
    if 0 < size <= listed and -1 not in devices and len(set(devices)) == len(devices):
        return f"the job has {size} ranks, and this machine {listed} devices"
    return ""
