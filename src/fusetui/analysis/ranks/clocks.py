"""Which ranks share a clock, how far the clocks of hosts are apart, and how far that is
known.

Ranks of one host share its clock, unless their collectives contradict that. A
synchronous collective cannot end on any rank before it has started on all: with t the
time of a host's clock and o its offset, end_i - o_i >= start_j - o_j for all i and j.
Every collective bounds the offsets so, from both sides. Within these bounds the ends
decide, which are nearly the same moment everywhere. Where there are too few of them,
the offset is the middle of what the bounds leave, and half the width its uncertainty.

The offset of a host is the median of the differences of its ends from those of the
hosts that are known already. The spread of what is left, as 1.4826 times its median
absolute deviation, is the uncertainty. Only where no constant offsets satisfy all
bounds do clocks drift: then the differences over time are a line whose slope is the
median of the slopes between pairs half the window apart (Theil's abridged method,
1950). A slope above MAX_DRIFT_NS_PER_S is not that of a clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import SYNCHRONOUS
from fusetui.analysis.ranks.matching import Matched, run_bounds
from fusetui.analysis.ranks.model import ClockSource, RankSummary
from fusetui.trace.model.arrays import Flags, Floats, Int64s, Rows, ordinals

NAMES = frozenset({"all_reduce", "reduce_scatter", "barrier"})
ON_ONE_HOST_NS = 2_000.0
"""On one host, times of GPUs are converted to its clock about this exactly: the ends of
one collective lie as close together on eight V100. Moments that lie closer together are
not told apart, and of no host is the offset known better."""
SCALE = 1.4826  # a normal distribution's standard deviation is this many times its MAD
FEWEST = 4  # collectives, for an offset, and at either end for a drift
ROUNDS = 16  # how many groups the way to a host, or a bound, may pass through
MAX_DRIFT_NS_PER_S = 200_000.0
"""Of one clock against another: 200 us a second. A quartz errs by up to 100 parts per
million, and two of them may err in opposite directions."""


class Ends(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [hosts]: offsets at `at_ns` (nan if not known), their uncertainty
    in ns, and drifts in ns per second, 0 where they do not exceed the spread."""

    offset: Floats
    half: Floats
    drift: Floats
    at_ns: int

    @property
    def known(self) -> Flags:
        return ~np.isnan(self.offset)


def ends_of(
    matched: Matched, host: Rows, hosts: int, zero: int, may_drift: bool
) -> Ends:
    """The offsets of all hosts that meet `zero`, directly or through others; and
    drifts, if clocks `may_drift`."""
    rows = np.flatnonzero(np.repeat(matched.named(NAMES), matched.counts))
    at_ns = int(matched.start[rows].min()) if len(rows) else 0
    offset, half, drift = (
        np.full(hosts, np.nan),
        np.full(hosts, np.inf),
        np.zeros(hosts),
    )
    found = Ends(offset, half, drift, at_ns)
    if hosts:
        offset[zero] = half[zero] = 0.0
    if hosts < 2 or not len(rows):
        return found
    ranks = len(matched.ranks)
    key = matched.of_row[rows] * ranks + host[matched.rank[rows]]
    distinct, which = np.unique(key, return_inverse=True)
    end = _medians((matched.end[rows] - at_ns).astype(np.float64), which, len(distinct))
    for _ in range(ROUNDS):
        before = found.known
        _extend(distinct // ranks, distinct % ranks, end, found, may_drift)
        if (found.known == before).all():
            break
    return found


def _extend(
    collective: Rows, host: Rows, end: Floats, found: Ends, may_drift: bool
) -> None:
    """Adds the hosts that share enough collectives with known ones to `found`, in
    place. Given is an end per collective and host, the median of its ranks, in ns after
    the first."""
    known = found.known[host]
    there = end - np.nan_to_num(found.offset)[host] - found.drift[host] * end / 1e9
    center = _medians(there[known], collective[known], int(collective.max()) + 1)
    new = np.flatnonzero(~known & ~np.isnan(center[collective]))
    host, time = host[new], end[new]
    apart = time - center[collective[new]]
    hosts = len(found.offset)
    enough = np.bincount(host, minlength=hosts) >= FEWEST
    slope = _slopes(apart, time, host, hosts)
    spread, height = _residuals(apart - slope[host] * time, host, hosts)
    first, last = np.full(hosts, np.inf), np.full(hosts, -np.inf)
    np.minimum.at(first, host, time)
    np.maximum.at(last, host, time)
    with np.errstate(invalid="ignore"):
        flat = ~(
            np.abs(slope) * (last - first) > 2 * np.maximum(spread, ON_ONE_HOST_NS)
        )
    flat |= np.abs(slope) * 1e9 > MAX_DRIFT_NS_PER_S
    flat |= not may_drift
    spread_flat, height_flat = _residuals(apart, host, hosts)
    slope, spread, height = (
        np.where(flat, level, sloped)
        for level, sloped in (
            (0.0, slope),
            (spread_flat, spread),
            (height_flat, height),
        )
    )
    inherited = float(found.half[found.known].max())
    found.offset[enough] = height[enough]
    found.half[enough] = np.maximum(spread[enough], ON_ONE_HOST_NS) + inherited
    found.drift[enough] = slope[enough] * 1e9


def _slopes(apart: Floats, time: Floats, host: Rows, hosts: int) -> Floats:
    """The median slope between points of a host that lie half of its points apart; 0
    for none."""
    order = np.lexsort((time, host))
    counts = np.bincount(host)[host[order]]
    place, step = ordinals(host[order]), counts // 2
    begins = np.flatnonzero((place + step < counts) & (step > 0))
    a, b = order[begins], order[begins + step[begins]]
    moved = time[b] > time[a]
    a, b = a[moved], b[moved]
    return np.nan_to_num(
        _medians((apart[b] - apart[a]) / (time[b] - time[a]), host[a], hosts)
    )


def _residuals(rest: Floats, host: Rows, hosts: int) -> tuple[Floats, Floats]:
    """The scaled median absolute deviation, and the median, of each host; nan for
    none."""
    height = _medians(rest, host, hosts)
    return SCALE * _medians(np.abs(rest - height[host]), host, hosts), height


def _medians(values: Floats, group: Rows, groups: int) -> Floats:
    """The median of each group; nan where it is empty."""
    order, ordered = np.lexsort((values, group)), np.sort(group)
    bounds = run_bounds(ordered)
    first, last = bounds[:-1], bounds[1:] - 1
    found = np.full(groups, np.nan)
    middle = values[order[(first + last) // 2]] + values[order[(first + last + 1) // 2]]
    found[ordered[first]] = middle / 2
    return found


SLACK_NS = 20_000.0
"""On one host, clocks of GPUs are converted at least this exactly; what contradicts
itself by more is matched wrongly, or of two hosts."""


class HostClocks(msgspec.Struct, frozen=True, eq=False):
    """Clocks of their own, and the ranks (indices) that go by them."""

    # as recorded, `host 1` where guessed, `rank 3` where not known
    names: tuple[str, ...]
    of_rank: Rows
    why: str  # why ranks of one host are known to share it; the end of a sentence
    guessed: bool
    # by how much times of one host contradict each other, below SLACK_NS
    apart_ns: float
    contradiction: str  # how times of one host contradict each other; "" if they do not


def hosts_of(matched: Matched, rows: Rows) -> HostClocks:
    """The hosts of the ranks; `rows` are those of synchronous collectives."""
    ranks = matched.ranks
    if all(one.host for one in ranks):
        names = tuple(dict.fromkeys(one.host for one in ranks))
        of_rank = np.array([names.index(one.host) for one in ranks], dtype=np.intp)
        apart, which = _apart(matched, rows, of_rank)
        told = _contradiction(matched, which) if apart > SLACK_NS else ""
        why = "all ranks ran on one host"
        return HostClocks(names, of_rank, why, False, min(apart, SLACK_NS), told)
    guess = _guessed(ranks)
    if guess is not None:
        apart, _ = _apart(matched, rows, guess.of_rank)
        if apart <= SLACK_NS:
            return msgspec.structs.replace(guess, apart_ns=apart)
    names = tuple(f"rank {one.rank}" for one in ranks)
    return HostClocks(names, np.arange(len(ranks)), "", False, 0.0, "")


def _guessed(ranks: Sequence[RankSummary]) -> HostClocks | None:
    """By the devices that each machine lists: the ranks fill one machine after
    another."""
    listed = {one.devices for one in ranks}
    size = max((one.world_size for one in ranks), default=0)
    each = min(listed, default=0)
    if each < 1 or not size:
        return None
    devices = [one.device for one in ranks]
    if size <= each:
        if -1 in devices or len(set(devices)) < len(devices):
            return None
        why = f"the job has {size} ranks, and this machine {each} devices"
        return HostClocks(
            ("host 0",), np.zeros(len(ranks), dtype=np.intp), why, True, 0.0, ""
        )
    if each == 1 or len(listed) > 1 or devices != [one.rank % each for one in ranks]:
        return None
    numbers, of_rank = np.unique(
        [one.rank // each for one in ranks], return_inverse=True
    )
    why = f"each machine has {each} devices, and ranks use them in turn"
    return HostClocks(
        tuple(f"host {n}" for n in numbers.tolist()), of_rank, why, True, 0.0, ""
    )


def _apart(matched: Matched, rows: Rows, host: Rows) -> tuple[float, Rows]:
    """How long before its last start on a host a collective ended there, at most; and
    both rows."""
    key = matched.of_row[rows] * len(matched.ranks) + host[matched.rank[rows]]
    by_start = rows[np.lexsort((matched.start[rows], key))]
    by_end = rows[np.lexsort((matched.end[rows], key))]
    bounds = run_bounds(np.sort(key))
    last, first = by_start[bounds[1:] - 1], by_end[bounds[:-1]]
    apart = matched.start[last] - matched.end[first]
    if apart.max(initial=0) <= 0:
        return 0.0, first
    worst = int(np.argmax(apart))
    return float(apart[worst]), np.array([first[worst], last[worst]])


def _contradiction(matched: Matched, rows: Rows) -> str:
    ended, started = (matched.ranks[matched.rank[row]] for row in rows)
    name = matched.names[matched.of_row[rows[0]]]
    return (
        f"ranks {ended.rank} and {started.rank} ran on one host ({ended.host}), and yet one {name} "
        f"ends on rank {ended.rank} before it starts on rank {started.rank}: collectives are "
        "matched wrongly, or two hosts have this name"
    )


# a drift is measured between the first and the last quarter of the collectives
QUARTERS = 4


class Clocks(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [ranks], in ns. A time of rank i on the common clock is t -
    used_i - drift_i * (t - at_ns) / 1e9; the common clock is that of the reference."""

    reference: int  # index of the rank
    hosts: HostClocks
    by: tuple[ClockSource, ...]  # of each host: what its offset is from; "" for nothing
    used: Floats
    half: Floats  # the uncertainty; inf if nothing bounds the offset
    drift: Floats  # ns per second, 0 where none was found or constant offsets suffice
    at_ns: int
    # ns: on one host, earlier and later are not told apart below this; ON_ONE_HOST_NS,
    # or by how much times of the host contradict each other, if that is more
    resolution: float
    refused: str  # why times of ranks cannot be compared at all; "" if they can
    contradicted: tuple[str, ...]  # hosts whose ends lie outside their bounds

    @property
    def shared(self) -> str:
        """Why all clocks are one; "" if they are not."""
        return self.hosts.why if len(self.hosts.names) == 1 else ""

    def common(self, rank: Rows, times: Int64s) -> Int64s:
        """Times of ranks (indices), as int64 ns of the common clock."""
        drifted = self.drift[rank] * ((times - self.at_ns) / 1e9)
        return times - np.rint(self.used[rank] + drifted).astype(np.int64)

    def resolution_of(self, one: Rows, other: Rows) -> Floats:
        """What the order of two moments on two ranks may be wrong by."""
        host = self.hosts.of_rank
        apart = np.where(one == other, 0.0, self.half[one] + self.half[other])
        found: Floats = np.where(
            (host[one] == host[other]) & (one != other), self.resolution, apart
        )
        return found


def clocks_of(matched: Matched) -> Clocks:
    """The clocks of the given ranks, from their synchronous collectives alone."""
    rows = np.flatnonzero(np.repeat(matched.named(SYNCHRONOUS), matched.counts))
    hosts = hosts_of(matched, rows)
    # The reference is the rank that took part in the most of them, the first of such
    # ranks.
    reference = int(
        np.argmax(np.bincount(matched.rank[rows], minlength=len(matched.ranks) or 1))
    )
    zero = int(hosts.of_rank[reference]) if len(hosts.of_rank) else 0
    ends = ends_of(matched, hosts.of_rank, len(hosts.names), zero, may_drift=False)
    drift = ends.drift
    low, high = _interval(matched, rows, hosts, zero, drift, ends.at_ns)
    constant_offsets_suffice = bool((low <= high).all())
    if not constant_offsets_suffice:
        ends = ends_of(matched, hosts.of_rank, len(hosts.names), zero, may_drift=True)
        drift = np.where(ends.known, ends.drift, _drift(matched, rows, hosts, zero))
        low, high = _interval(matched, rows, hosts, zero, drift, ends.at_ns)
    offset, half, by, outside = _decided(ends, low, high, zero)
    refused = hosts.contradiction
    if not refused and not (low <= high + 2 * SLACK_NS).all():
        refused = (
            "the clocks contradict each other: no offsets of clocks explain all collectives, nor "
            f"do drifts of up to {MAX_DRIFT_NS_PER_S / 1e3:.0f} us a second, so some of them are "
            "matched wrongly, or a clock was set meanwhile"
        )
    return Clocks(
        reference=reference,
        hosts=hosts,
        by=by,
        used=np.nan_to_num(offset)[hosts.of_rank],
        half=half[hosts.of_rank],
        drift=drift[hosts.of_rank],
        at_ns=ends.at_ns,
        resolution=max(ON_ONE_HOST_NS, hosts.apart_ns),
        refused=refused,
        contradicted=tuple(hosts.names[n] for n in np.flatnonzero(outside).tolist()),
    )


def _decided(
    ends: Ends, low: Floats, high: Floats, zero: int
) -> tuple[Floats, Floats, tuple[ClockSource, ...], Flags]:
    """The offset of each host, its uncertainty and where both are from; and where the
    ends contradict the bounds, which then decide alone."""
    bounded = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        offset = np.where(bounded, (low + high) / 2, np.nan)
        half = np.where(bounded, np.abs(high - low) / 2, np.inf)
        inside = (ends.offset >= low - ends.half) & (ends.offset <= high + ends.half)
    precise = ends.known & inside & (ends.half < half)
    offset[precise] = np.clip(ends.offset[precise], low[precise], high[precise])
    half[precise] = ends.half[precise]
    by = np.where(precise, "ends", np.where(bounded, "bounds", "")).tolist()
    if by:
        offset[zero] = half[zero] = 0.0
        by[zero] = "reference"
    return offset, half, tuple(by), ends.known & ~inside


def _interval(
    matched: Matched,
    rows: Rows,
    hosts: HostClocks,
    zero: int,
    drift: Floats,
    at_ns: int,
) -> tuple[Floats, Floats]:
    """The lowest and the highest offset of each host that all these rows leave."""
    low, high = np.full(len(hosts.names), -np.inf), np.full(len(hosts.names), np.inf)
    if len(low):
        low[zero] = high[zero] = 0.0
    if not len(rows) or len(low) < 2:
        return low, high
    host = hosts.of_rank[matched.rank[rows]]
    # Differences of times are small, times are not: floats hold only the former
    # exactly.
    begin = int(matched.start[rows].min())
    slope = drift[host] / 1e9
    start = (matched.start[rows] - begin) - slope * (matched.start[rows] - at_ns)
    end = (matched.end[rows] - begin) - slope * (matched.end[rows] - at_ns)
    bounds = run_bounds(matched.of_row[rows])
    first, counts = bounds[:-1], np.diff(bounds)
    for _ in range(ROUNDS):
        before = low.copy(), high.copy()
        latest = np.repeat(np.minimum.reduceat(high[host] - start, first), counts)
        np.minimum.at(high, host, end + latest)
        soonest = np.repeat(np.maximum.reduceat(low[host] - end, first), counts)
        np.maximum.at(low, host, start + soonest)
        low[zero] = high[zero] = 0.0
        settled = np.array_equal(before[0], low) and np.array_equal(before[1], high)
        if settled or (low > high).any():  # what contradicts itself only grows worse
            break
    return low, high


def _drift(matched: Matched, rows: Rows, hosts: HostClocks, zero: int) -> Floats:
    """The drift of each clock (ns per second) where it exceeds what both ends leave
    open, and is one that clocks have."""
    none = np.zeros(len(hosts.names))
    which = matched.of_row[rows]
    distinct = np.unique(which)
    few = len(distinct) // QUARTERS
    if few < FEWEST:
        return none
    early, late = rows[which <= distinct[few - 1]], rows[which >= distinct[-few]]
    bounds = [_interval(matched, some, hosts, zero, none, 0) for some in (early, late)]
    middles = [(low + high) / 2 for low, high in bounds]
    halves = [np.abs(high - low) / 2 for low, high in bounds]
    at = [
        int(np.mean(matched.start[some] - matched.start[rows[0]]))
        for some in (early, late)
    ]
    with np.errstate(invalid="ignore"):
        moved = middles[1] - middles[0]
        found = np.abs(moved) > halves[0] + halves[1]
    seconds = max((at[1] - at[0]) / 1e9, 1e-9)
    drift = np.where(found & np.isfinite(moved), moved / seconds, 0.0)
    return np.where(np.abs(drift) > MAX_DRIFT_NS_PER_S, 0.0, drift)
