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
from fusetui.trace.model.quantiles import medians_of_groups

ENDING_TOGETHER = frozenset({"all_reduce", "reduce_scatter", "barrier"})
"""Collectives whose ends are nearly the same moment on all ranks."""
ON_ONE_HOST_NS = 2_000.0
"""On one host, times of GPUs are converted to its clock about this exactly: the ends of
one collective lie as close together on eight V100. Moments that lie closer together are
not told apart, and of no host is the offset known better."""
SCALE = 1.4826  # a normal distribution's standard deviation is this many times its MAD
MIN_COLLECTIVES = 4
"""For an offset, and at either end of the recording for a drift."""
MAX_GROUPS_BETWEEN = 16
"""The way to a host, or a bound, may pass through so many groups."""
MAX_DRIFT_NS_PER_S = 200_000.0
"""Of one clock against another: 200 us a second. A quartz errs by up to 100 parts per
million, and two of them may err in opposite directions."""


class Ends(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [hosts]: offsets at `at_ns` (nan if not known), their uncertainty
    in ns, and drifts in ns per second, 0 where they do not exceed the spread."""

    offset: Floats
    uncertainty: Floats  # inf where the offset is not known
    drift: Floats
    at_ns: int

    @property
    def known(self) -> Flags:
        """Of which hosts the offset is known."""
        return ~np.isnan(self.offset)


class _HostEnds(msgspec.Struct, frozen=True, eq=False):
    """When collectives ended on hosts: for each collective and each host on which it
    ran, the median of the ranks there; arrays of shape [ends]."""

    collective: Rows
    host: Rows
    time: Floats  # ns after the first start of all

    def take(self, which: Flags | Rows) -> _HostEnds:
        """The ends at these places, or where the flag is set."""
        return _HostEnds(
            collective=self.collective[which],
            host=self.host[which],
            time=self.time[which],
        )


class _Lines(msgspec.Struct, frozen=True, eq=False):
    """A robust line through the differences of the ends of each host; arrays of shape
    [hosts], nan for none. ns, and ns per ns."""

    slope: Floats
    height: Floats
    spread: Floats  # the scaled median absolute deviation from the line


def ends_of(
    matched: Matched, host: Rows, hosts: int, reference_host: int, may_drift: bool
) -> Ends:
    """The offsets, from the ends of collectives, of all hosts that share enough of them
    with the host of the reference, directly or through other hosts; and drifts, if
    clocks `may_drift`. `host`: the number of the host of each rank, below `hosts`. The
    offset of `reference_host` is 0."""
    rows = np.flatnonzero(np.repeat(matched.named(ENDING_TOGETHER), matched.counts))
    ends = Ends(
        offset=np.full(hosts, np.nan),
        uncertainty=np.full(hosts, np.inf),
        drift=np.zeros(hosts),
        at_ns=int(matched.start[rows].min()) if len(rows) else 0,
    )
    if hosts:
        ends.offset[reference_host] = 0.0
        ends.uncertainty[reference_host] = 0.0
    if hosts < 2 or not len(rows):
        return ends
    on_hosts = _ends_on_hosts(matched, rows, host, ends.at_ns)
    for _ in range(MAX_GROUPS_BETWEEN):
        known_before = ends.known
        _extend(on_hosts, ends, may_drift)
        if (ends.known == known_before).all():
            break
    return ends


def _ends_on_hosts(matched: Matched, rows: Rows, host: Rows, at_ns: int) -> _HostEnds:
    """The ends at these rows of Matched, in ns after `at_ns`. `host`: of each rank."""
    max_hosts = len(matched.ranks)
    key = matched.of_row[rows] * max_hosts + host[matched.rank[rows]]
    distinct, place = np.unique(key, return_inverse=True)
    end = (matched.end[rows] - at_ns).astype(np.float64)
    return _HostEnds(
        collective=distinct // max_hosts,
        host=distinct % max_hosts,
        time=medians_of_groups(end, place, len(distinct)),
    )


def _extend(on_hosts: _HostEnds, ends: Ends, may_drift: bool) -> None:
    """Adds the hosts that share at least MIN_COLLECTIVES with known hosts to `ends`, in
    place: each by the differences of its ends from the median of the known hosts, with
    the largest uncertainty of these added to its own."""
    is_known = ends.known[on_hosts.host]
    offset = np.nan_to_num(ends.offset)[on_hosts.host]
    drifted = ends.drift[on_hosts.host] * on_hosts.time / 1e9
    common_time = on_hosts.time - offset - drifted
    # of each collective the median end on the known hosts; nan where it ran on none
    center = medians_of_groups(
        common_time[is_known],
        on_hosts.collective[is_known],
        int(on_hosts.collective.max()) + 1,
    )
    meets_known = ~np.isnan(center[on_hosts.collective])
    new = on_hosts.take(np.flatnonzero(~is_known & meets_known))
    hosts = len(ends.offset)
    lines = _lines(new, new.time - center[new.collective], hosts, may_drift)
    inherited_ns = float(ends.uncertainty[ends.known].max())
    is_enough = np.bincount(new.host, minlength=hosts) >= MIN_COLLECTIVES
    uncertainty = np.maximum(lines.spread, ON_ONE_HOST_NS) + inherited_ns
    ends.offset[is_enough] = lines.height[is_enough]
    ends.uncertainty[is_enough] = uncertainty[is_enough]
    ends.drift[is_enough] = lines.slope[is_enough] * 1e9


def _lines(on_hosts: _HostEnds, apart: Floats, hosts: int, may_drift: bool) -> _Lines:
    """The line through the points (time, apart) of each host. `apart`: by how many ns
    each end is later than on the known hosts. A line is flat unless clocks may drift,
    and its slope exceeds the spread and is one that clocks have."""
    host = on_hosts.host
    slope = _slopes(apart, on_hosts.time, host, hosts)
    above_slope = apart - slope[host] * on_hosts.time
    height = medians_of_groups(above_slope, host, hosts)
    spread = _spreads(above_slope, height, host)
    flat_height = medians_of_groups(apart, host, hosts)
    flat_spread = _spreads(apart, flat_height, host)

    with np.errstate(invalid="ignore"):
        moved_ns = np.abs(slope) * _durations(on_hosts, hosts)
        exceeds_spread = moved_ns > 2 * np.maximum(spread, ON_ONE_HOST_NS)
    is_of_a_clock = np.abs(slope) * 1e9 <= MAX_DRIFT_NS_PER_S
    is_sloped = exceeds_spread & is_of_a_clock & may_drift
    return _Lines(
        slope=np.where(is_sloped, slope, 0.0),
        height=np.where(is_sloped, height, flat_height),
        spread=np.where(is_sloped, spread, flat_spread),
    )


def _durations(on_hosts: _HostEnds, hosts: int) -> Floats:
    """How long it is from the first to the last end of each host (ns); -inf for a host
    without ends."""
    first = np.full(hosts, np.inf)
    last = np.full(hosts, -np.inf)
    np.minimum.at(first, on_hosts.host, on_hosts.time)
    np.maximum.at(last, on_hosts.host, on_hosts.time)
    return np.asarray(last - first)


def _slopes(apart: Floats, time: Floats, host: Rows, hosts: int) -> Floats:
    """For each host the median slope, in ns per ns, between points that lie half of its
    points apart in time; 0 for a host with fewer than two points."""
    by_time = np.lexsort((time, host))
    host_by_time = host[by_time]
    points = np.bincount(host)[host_by_time]  # of the host of each
    place = ordinals(host_by_time)  # among the points of its host
    half_of_points = points // 2
    has_partner = (place + half_of_points < points) & (half_of_points > 0)
    first_of_pair = np.flatnonzero(has_partner)
    early = by_time[first_of_pair]
    late = by_time[first_of_pair + half_of_points[first_of_pair]]
    is_later = time[late] > time[early]
    early = early[is_later]
    late = late[is_later]
    slope = (apart[late] - apart[early]) / (time[late] - time[early])
    return np.nan_to_num(medians_of_groups(slope, host[early], hosts))


def _spreads(rest: Floats, height: Floats, host: Rows) -> Floats:
    """The scaled median absolute deviation of each host from its `height`; nan for
    none."""
    return SCALE * medians_of_groups(np.abs(rest - height[host]), host, len(height))


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


class _Contradiction(msgspec.Struct, frozen=True):
    """Two ranks of one host, of which one ended a collective before the other one
    started it."""

    apart_ns: float
    ended: int  # row of Matched
    started: int


def hosts_of(matched: Matched, rows: Rows) -> HostClocks:
    """The hosts of the ranks; `rows` are those of synchronous collectives."""
    if all(summary.host for summary in matched.ranks):
        return _recorded_hosts(matched, rows)
    guess = _guessed_hosts(matched.ranks)
    if guess is not None:
        worst = _worst_contradiction(matched, rows, guess.of_rank)
        apart_ns = worst.apart_ns if worst else 0.0
        if apart_ns <= SLACK_NS:
            return msgspec.structs.replace(guess, apart_ns=apart_ns)
    return HostClocks(
        names=tuple(f"rank {summary.rank}" for summary in matched.ranks),
        of_rank=np.arange(len(matched.ranks)),
        why="",
        guessed=False,
        apart_ns=0.0,
        contradiction="",
    )


def _recorded_hosts(matched: Matched, rows: Rows) -> HostClocks:
    """The hosts that all summaries name; `rows` are those of synchronous collectives,
    whose times may contradict that ranks of one name share a clock."""
    hosts = [summary.host for summary in matched.ranks]
    names = tuple(dict.fromkeys(hosts))
    of_rank = np.array([names.index(host) for host in hosts], dtype=np.intp)
    worst = _worst_contradiction(matched, rows, of_rank)
    apart_ns = worst.apart_ns if worst else 0.0
    contradiction = ""
    if worst is not None and apart_ns > SLACK_NS:
        contradiction = _contradiction_text(matched, worst)
    return HostClocks(
        names=names,
        of_rank=of_rank,
        why="all ranks ran on one host",
        guessed=False,
        apart_ns=min(apart_ns, SLACK_NS),
        contradiction=contradiction,
    )


def _guessed_hosts(ranks: Sequence[RankSummary]) -> HostClocks | None:
    """The hosts, if the ranks fill one machine after another, by the number of devices
    that each machine lists; None where the devices of the ranks do not fit that, or
    nothing says the size of the job."""
    listed = {summary.devices for summary in ranks}
    size = max((summary.world_size for summary in ranks), default=0)
    per_host = min(listed, default=0)
    if per_host < 1 or not size:
        return None
    if size <= per_host:
        return _guessed_host(ranks, size, per_host)
    if per_host == 1 or len(listed) > 1:
        return None
    if any(summary.device != summary.rank % per_host for summary in ranks):
        return None
    host_numbers = [summary.rank // per_host for summary in ranks]
    numbers, of_rank = np.unique(host_numbers, return_inverse=True)
    return HostClocks(
        names=tuple(f"host {number}" for number in numbers.tolist()),
        of_rank=of_rank,
        why=f"each machine has {per_host} devices, and ranks use them in turn",
        guessed=True,
        apart_ns=0.0,
        contradiction="",
    )


def _guessed_host(
    ranks: Sequence[RankSummary], size: int, devices: int
) -> HostClocks | None:
    """The one host of a job of `size` ranks that fits on a machine with so many
    devices; None where two ranks are of one device, or of a device that is not
    known."""
    device_of_rank = [summary.device for summary in ranks]
    if -1 in device_of_rank or len(set(device_of_rank)) < len(ranks):
        return None
    return HostClocks(
        names=("host 0",),
        of_rank=np.zeros(len(ranks), dtype=np.intp),
        why=f"the job has {size} ranks, and this machine {devices} devices",
        guessed=True,
        apart_ns=0.0,
        contradiction="",
    )


def _worst_contradiction(
    matched: Matched, rows: Rows, host: Rows
) -> _Contradiction | None:
    """Where a collective ended longest before its last start on the same host; None if
    it does nowhere."""
    key = matched.of_row[rows] * len(matched.ranks) + host[matched.rank[rows]]
    by_start = rows[np.lexsort((matched.start[rows], key))]
    by_end = rows[np.lexsort((matched.end[rows], key))]
    bounds = run_bounds(np.sort(key))
    last_started = by_start[bounds[1:] - 1]
    first_ended = by_end[bounds[:-1]]
    apart_ns = matched.start[last_started] - matched.end[first_ended]
    if apart_ns.max(initial=0) <= 0:
        return None
    worst = int(np.argmax(apart_ns))
    return _Contradiction(
        apart_ns=float(apart_ns[worst]),
        ended=int(first_ended[worst]),
        started=int(last_started[worst]),
    )


def _contradiction_text(matched: Matched, worst: _Contradiction) -> str:
    """A contradiction as the rest of a sentence."""
    ended = matched.ranks[matched.rank[worst.ended]]
    started = matched.ranks[matched.rank[worst.started]]
    name = matched.names[matched.of_row[worst.ended]]
    return (
        f"one {name} ends on rank {ended.rank} before it starts on rank {started.rank}, both on "
        f"the host {ended.host}. Collectives are matched wrongly, or two hosts have this name"
    )


QUARTERS = 4
"""A drift is measured between the first and the last quarter of the collectives."""


class Clocks(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [ranks], in ns. A time of rank i on the common clock is t -
    offset_i - drift_i * (t - at_ns) / 1e9; the common clock is that of the
    reference."""

    reference: int  # index of the rank
    hosts: HostClocks
    by: tuple[ClockSource, ...]  # of each host: what its offset is from; "" for nothing
    offset: Floats  # 0 if nothing bounds it
    uncertainty: Floats  # inf if nothing bounds the offset
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
        return times - np.rint(self.offset[rank] + drifted).astype(np.int64)

    def resolution_of(self, ranks: Rows, other_ranks: Rows) -> Floats:
        """By how many ns two moments, one on each of two ranks (indices), must differ
        for their order to be certain; 0 for a rank and itself."""
        host = self.hosts.of_rank
        is_same_rank = ranks == other_ranks
        is_same_host = host[ranks] == host[other_ranks]
        between_hosts = self.uncertainty[ranks] + self.uncertainty[other_ranks]
        resolution = np.where(is_same_host, self.resolution, between_hosts)
        return np.where(is_same_rank, 0.0, resolution)


class _Spans(msgspec.Struct, frozen=True, eq=False):
    """When collectives ran on hosts; arrays of shape [rows], in ns. The rows of a
    collective are neighbors."""

    host: Rows
    start: Floats
    end: Floats
    first: Rows  # where the rows of each collective begin; shape [collectives]
    counts: Rows  # how many rows it has; shape [collectives]


class _Bounds(msgspec.Struct, frozen=True, eq=False):
    """The lowest and the highest offset of each host that collectives leave; arrays of
    shape [hosts] in ns, infinite for none."""

    low: Floats
    high: Floats

    @property
    def middle(self) -> Floats:
        """The middle of both bounds; nan or infinite where one of them is missing."""
        with np.errstate(invalid="ignore"):
            return (self.low + self.high) / 2

    @property
    def half_width(self) -> Floats:
        """Half of the distance of both bounds: the uncertainty of the middle."""
        return np.abs(self.high - self.low) / 2

    def contradict(self, slack_ns: float = 0.0) -> bool:
        """Whether for some host no offset is left, give or take so much at both
        sides."""
        return not bool((self.low <= self.high + 2 * slack_ns).all())

    def fix(self, host: int) -> None:
        """Sets the offset of a host, the reference, to 0, in place; does nothing if
        there are no hosts."""
        self.low[host : host + 1] = 0.0
        self.high[host : host + 1] = 0.0

    def narrow(self, spans: _Spans) -> None:
        """Narrows the bounds in place, by the bounds of the other hosts of each
        collective.

        end_i - o_i >= start_j - o_j for all hosts i and j of a collective, so
        o_i <= end_i + min_j(o_j - start_j) and o_j >= start_j + max_i(o_i - end_i).
        """
        beyond_start = self.high[spans.host] - spans.start
        least_beyond_start = np.minimum.reduceat(beyond_start, spans.first)
        high_of_row = spans.end + np.repeat(least_beyond_start, spans.counts)
        np.minimum.at(self.high, spans.host, high_of_row)
        beyond_end = self.low[spans.host] - spans.end
        most_beyond_end = np.maximum.reduceat(beyond_end, spans.first)
        low_of_row = spans.start + np.repeat(most_beyond_end, spans.counts)
        np.maximum.at(self.low, spans.host, low_of_row)


class _Offsets(msgspec.Struct, frozen=True, eq=False):
    """What is decided of each host; arrays of shape [hosts]."""

    offset: Floats  # nan if nothing bounds it
    uncertainty: Floats
    by: tuple[ClockSource, ...]
    contradicted: Flags  # whether the ends contradict the bounds, which then decide


def clocks_of(matched: Matched) -> Clocks:
    """The clocks of the given ranks, from their synchronous collectives alone."""
    rows = np.flatnonzero(np.repeat(matched.named(SYNCHRONOUS), matched.counts))
    hosts = hosts_of(matched, rows)
    # the reference is the rank that took part in the most of them, the first of such
    # ranks
    taken_part = np.bincount(matched.rank[rows], minlength=len(matched.ranks) or 1)
    reference = int(np.argmax(taken_part))
    reference_host = int(hosts.of_rank[reference]) if len(hosts.of_rank) else 0
    measured = _measured(matched, rows, hosts, reference_host)
    decided = _decided(measured.ends, measured.bounds, reference_host)
    contradicted = np.flatnonzero(decided.contradicted).tolist()
    return Clocks(
        reference=reference,
        hosts=hosts,
        by=decided.by,
        offset=np.nan_to_num(decided.offset)[hosts.of_rank],
        uncertainty=decided.uncertainty[hosts.of_rank],
        drift=measured.drift[hosts.of_rank],
        at_ns=measured.ends.at_ns,
        resolution=max(ON_ONE_HOST_NS, hosts.apart_ns),
        refused=hosts.contradiction or _refusal(measured.bounds),
        contradicted=tuple(hosts.names[host] for host in contradicted),
    )


class _Measured(msgspec.Struct, frozen=True, eq=False):
    """What collectives say about the clocks of the hosts."""

    ends: Ends
    bounds: _Bounds
    drift: Floats  # shape [hosts], ns per second


def _measured(
    matched: Matched, rows: Rows, hosts: HostClocks, reference_host: int
) -> _Measured:
    """The offsets by ends and by bounds, with drifts only where no constant offsets
    suffice. `rows` are those of synchronous collectives."""
    count = len(hosts.names)
    ends = ends_of(matched, hosts.of_rank, count, reference_host, may_drift=False)
    drift = ends.drift
    bounds = _bounds(matched, rows, hosts, reference_host, drift, ends.at_ns)
    if bounds.contradict():
        ends = ends_of(matched, hosts.of_rank, count, reference_host, may_drift=True)
        drift_by_bounds = _drift(matched, rows, hosts, reference_host)
        drift = np.where(ends.known, ends.drift, drift_by_bounds)
        bounds = _bounds(matched, rows, hosts, reference_host, drift, ends.at_ns)
    return _Measured(ends=ends, bounds=bounds, drift=drift)


def _refusal(bounds: _Bounds) -> str:
    """Why times of ranks cannot be compared: their bounds contradict each other by more
    than SLACK_NS; "" if they do not."""
    if not bounds.contradict(SLACK_NS):
        return ""
    return (
        "the clocks contradict each other. Neither offsets of clocks nor drifts of up to "
        f"{MAX_DRIFT_NS_PER_S / 1e3:.0f} us a second explain all collectives. Some of them are "
        "matched wrongly, or a clock was set meanwhile"
    )


def _decided(ends: Ends, bounds: _Bounds, reference_host: int) -> _Offsets:
    """The offset of each host: from the ends where they are within the bounds and more
    precise, else the middle of the bounds; nan where one of these is missing."""
    is_bounded = np.isfinite(bounds.low) & np.isfinite(bounds.high)
    offset = np.where(is_bounded, bounds.middle, np.nan)
    with np.errstate(invalid="ignore"):
        uncertainty = np.where(is_bounded, bounds.half_width, np.inf)
        is_above_low = ends.offset >= bounds.low - ends.uncertainty
        is_below_high = ends.offset <= bounds.high + ends.uncertainty
    is_inside = is_above_low & is_below_high
    is_by_ends = ends.known & is_inside & (ends.uncertainty < uncertainty)
    offset[is_by_ends] = np.clip(
        ends.offset[is_by_ends], bounds.low[is_by_ends], bounds.high[is_by_ends]
    )
    uncertainty[is_by_ends] = ends.uncertainty[is_by_ends]
    by = np.where(is_by_ends, "ends", np.where(is_bounded, "bounds", "")).tolist()
    if by:
        offset[reference_host] = 0.0
        uncertainty[reference_host] = 0.0
        by[reference_host] = "reference"
    return _Offsets(
        offset=offset,
        uncertainty=uncertainty,
        by=tuple(by),
        contradicted=ends.known & ~is_inside,
    )


def _bounds(
    matched: Matched,
    rows: Rows,
    hosts: HostClocks,
    reference_host: int,
    drift: Floats,
    at_ns: int,
) -> _Bounds:
    """The lowest and the highest offset of each host that the synchronous collectives
    at these rows of Matched leave; both are 0 for the host of the reference. `drift`:
    of each host, in ns per second since `at_ns`. Bounds pass from host to host through
    at most MAX_GROUPS_BETWEEN collectives."""
    bounds = _Bounds(
        low=np.full(len(hosts.names), -np.inf), high=np.full(len(hosts.names), np.inf)
    )
    bounds.fix(reference_host)
    if not len(rows) or len(hosts.names) < 2:
        return bounds
    spans = _spans(matched, rows, hosts, drift, at_ns)
    for _ in range(MAX_GROUPS_BETWEEN):
        low_before = bounds.low.copy()
        high_before = bounds.high.copy()
        bounds.narrow(spans)
        bounds.fix(reference_host)
        same_low = np.array_equal(low_before, bounds.low)
        same_high = np.array_equal(high_before, bounds.high)
        is_settled = same_low and same_high
        # what contradicts itself only grows worse
        if is_settled or bounds.contradict():
            break
    return bounds


def _spans(
    matched: Matched, rows: Rows, hosts: HostClocks, drift: Floats, at_ns: int
) -> _Spans:
    """When the collectives at these rows of Matched started and ended, on the clocks of
    their hosts without the drift since `at_ns`."""
    host = hosts.of_rank[matched.rank[rows]]
    # Differences of times are small, times are not: floats hold only the former
    # exactly.
    first_ns = int(matched.start[rows].min())
    drifted = drift[host] / 1e9
    start = matched.start[rows]
    end = matched.end[rows]
    runs = run_bounds(matched.of_row[rows])
    return _Spans(
        host=host,
        start=(start - first_ns) - drifted * (start - at_ns),
        end=(end - first_ns) - drifted * (end - at_ns),
        first=runs[:-1],
        counts=np.diff(runs),
    )


def _drift(
    matched: Matched, rows: Rows, hosts: HostClocks, reference_host: int
) -> Floats:
    """The drift of the clock of each host in ns per second, from the bounds of its
    offset in the first and the last quarter of the collectives at these rows. 0 where
    it does not exceed what these bounds leave open, is none that clocks have, or a
    quarter has too few collectives."""
    no_drift = np.zeros(len(hosts.names))
    collective = matched.of_row[rows]
    distinct = np.unique(collective)
    in_a_quarter = len(distinct) // QUARTERS
    if in_a_quarter < MIN_COLLECTIVES:
        return no_drift
    first_rows = rows[collective <= distinct[in_a_quarter - 1]]
    last_rows = rows[collective >= distinct[-in_a_quarter]]
    first = _bounds(matched, first_rows, hosts, reference_host, no_drift, at_ns=0)
    last = _bounds(matched, last_rows, hosts, reference_host, no_drift, at_ns=0)
    with np.errstate(invalid="ignore"):
        moved_ns = last.middle - first.middle
        open_ns = first.half_width + last.half_width
        is_measured = (np.abs(moved_ns) > open_ns) & np.isfinite(moved_ns)
    seconds = max(_ns_between(matched, first_rows, last_rows) / 1e9, 1e-9)
    drift = np.where(is_measured, moved_ns / seconds, 0.0)
    is_of_a_clock = np.abs(drift) <= MAX_DRIFT_NS_PER_S
    return np.where(is_of_a_clock, drift, 0.0)


def _ns_between(matched: Matched, rows: Rows, later_rows: Rows) -> int:
    """How long it is from the mean start of some rows of Matched to that of later ones
    (whole ns)."""
    since_ns = matched.start[rows[0]]
    mean_ns = int(np.mean(matched.start[rows] - since_ns))
    later_mean_ns = int(np.mean(matched.start[later_rows] - since_ns))
    return later_mean_ns - mean_ns
