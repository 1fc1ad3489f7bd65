"""Determines which ranks share a clock, and the offsets between the clocks of hosts.

Ranks of one host share its clock, unless their collectives contradict that.

Between hosts, collectives tell the *offset* of each clock from that of a reference
host. A synchronous collective cannot end on any rank before it has started on all of
them. With the offsets o_i and o_j of two hosts, end_i - o_i >= start_j - o_j. So every
collective bounds the offsets from both sides. Within these bounds the ends of
collectives decide, because they are nearly the same moment everywhere. Where there are
too few of them, the offset is the middle of the bounds, and half of their distance is
its uncertainty.

By ends, the offset of a host is the median difference between its ends and those of the
hosts that are already known. The spread of these differences is the uncertainty: 1.4826
times their median absolute deviation.

Clocks are taken to drift only if no constant offsets satisfy all bounds. Then a line is
laid through the differences over time. Its slope is the median of the slopes between
pairs of points that lie half the window apart (Theil's abridged method, 1950). A slope
above MAX_DRIFT_NS_PER_S is not that of a clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import SYNCHRONOUS
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.model import NO_DEVICE, ClockSource, RankSummary
from fusetui.trace.model.arrays import (
    Flags,
    Floats,
    Int64s,
    Rows,
    begins_runs,
    distinct,
    distinct_rows,
    group_numbers,
    ordinals,
    reduce_groups,
    run_bounds,
)
from fusetui.trace.model.quantiles import medians_of_groups

ENDING_TOGETHER = frozenset({"all_reduce", "reduce_scatter", "barrier"})
"""Collectives whose ends are nearly the same moment on all ranks."""
ON_ONE_HOST_NS = 2_000.0
"""On one host, times of GPUs are converted to its clock about this exactly: the ends of
one collective lie as close together on eight V100. Moments that lie closer together are
not told apart, and of no host is the offset known better."""
SCALE = 1.4826  # a normal distribution's standard deviation is this many times its MAD
MIN_COLLECTIVES = 4
"""An offset is measured from at least so many collectives; a drift from at least so many
at the begin of the recording and so many at its end."""
MAX_GROUPS_BETWEEN = 16
"""A host may be compared with the reference through other hosts, each of which shares a
process group with the next one. The way passes through at most so many groups."""
MAX_DRIFT_NS_PER_S = 200_000.0
"""Of one clock against another: 200 us a second. A quartz errs by up to 100 parts per
million, and two of them may err in opposite directions."""


class Ends(msgspec.Struct, frozen=True, eq=False):
    """What the ends of collectives tell about the clock of each host.

    Arrays have one entry per host. The *offset* of a clock is by how many ns it is
    ahead of the clock of the reference host.
    """

    offset: Floats  # ns at the time `at_ns`; nan if it is not known
    uncertainty: Floats  # ns; inf if the offset is not known
    drift: Floats  # ns per second; 0 unless it exceeds the spread
    at_ns: int  # the time at which no clock has drifted

    @property
    def known(self) -> Flags:
        """The hosts whose offset is known."""
        return ~np.isnan(self.offset)


class _HostEnds(msgspec.Struct, frozen=True, eq=False):
    """When collectives ended on hosts.

    There is one entry for each collective and each host on which it ran. If several
    ranks of the host took part, it is the median of their ends.
    """

    collective: Rows  # the index of the collective
    host: Rows  # the index of the host
    time: Floats  # ns after the first start of all

    def take(self, selection: Flags | Rows) -> _HostEnds:
        """Return some of the ends: those at these indices, or those that are flagged.

        Each entry is when one collective ended on one host.
        """
        return _HostEnds(
            collective=self.collective[selection],
            host=self.host[selection],
            time=self.time[selection],
        )


class _FittedLines(msgspec.Struct, frozen=True, eq=False):
    """A robust line through the differences of the ends of each host over time.

    Arrays have one entry per host, nan for a host without ends.
    """

    slope: Floats  # ns per ns
    height: Floats  # ns at time 0
    spread: Floats  # ns: the scaled median absolute deviation from the line


def estimate_offsets_by_ends(
    matched: Matched, host: Rows, hosts: int, reference_host: int, may_drift: bool
) -> Ends:
    """Estimate the offsets of the clocks of hosts from the ends of collectives.

    These ends are nearly the same moment on all ranks: if an all-reduce ends at 100 us
    on the clock of the reference host and at 130 us on that of another one, the other
    clock is 30 us ahead. A host is known if it shares enough collectives with the
    reference host, or with other hosts that are known.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        host: The index of the host of each rank.
        hosts: How many hosts there are.
        reference_host: The host whose offset is 0.
        may_drift: Whether to estimate drifts too.
    """
    ends_together = matched.mark_named(ENDING_TOGETHER)
    rows = np.flatnonzero(matched.for_each_row(ends_together))
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

    # Each round adds the hosts that share collectives with the hosts known so far.
    host_ends = _find_ends_on_hosts(matched, rows, host, ends.at_ns)
    for _ in range(MAX_GROUPS_BETWEEN):
        known_before = ends.known
        _add_hosts_with_known_partners(host_ends, ends, may_drift)
        added_none = (ends.known == known_before).all()
        if added_none:  # then further rounds would add none either
            break
    return ends


def _find_ends_on_hosts(
    matched: Matched, rows: Rows, host: Rows, at_ns: int
) -> _HostEnds:
    """Return when collectives ended on each host, the median of its ranks.

    Args:
        matched: The collectives of the job.
        rows: The rows of `matched` to use: each is one rank's part in a collective.
        host: The index of the host of each rank.
        at_ns: The time from which ends are counted.
    """
    collective_of_row = matched.collective_of_row[rows]
    host_of_row = host[matched.rank[rows]]
    first_of_pair, pair_of_row = distinct_rows((collective_of_row, host_of_row))
    end_of_row = (matched.end[rows] - at_ns).astype(np.float64)
    return _HostEnds(
        collective=collective_of_row[first_of_pair],
        host=host_of_row[first_of_pair],
        time=medians_of_groups(end_of_row, pair_of_row, len(first_of_pair)),
    )


def _add_hosts_with_known_partners(
    host_ends: _HostEnds, ends: Ends, may_drift: bool
) -> None:
    """Estimate the hosts that share enough collectives with known hosts.

    The offset of such a host is the median difference between its ends and the median
    end on the known hosts. To its own uncertainty the largest of the known hosts is
    added.

    Args:
        host_ends: The ends of all collectives on all hosts.
        ends: The hosts known so far. The new ones are added in place.
        may_drift: Whether to estimate drifts too.
    """
    # Convert the ends on known hosts to the clock of the reference host.
    is_known = ends.known[host_ends.host]
    offset_ns = np.nan_to_num(ends.offset)[host_ends.host]
    drifted_ns = ends.drift[host_ends.host] * host_ends.time / 1e9
    common_time = host_ends.time - offset_ns - drifted_ns

    # The median end of each collective on known hosts; nan if it ran on none of them.
    known_end = medians_of_groups(
        common_time[is_known],
        host_ends.collective[is_known],
        int(host_ends.collective.max()) + 1,
    )

    # Compare with it when the same collective ended on hosts that are not known yet.
    ran_on_known = ~np.isnan(known_end[host_ends.collective])
    new_ends = host_ends.take(np.flatnonzero(~is_known & ran_on_known))
    later_ns = new_ends.time - known_end[new_ends.collective]
    hosts = len(ends.offset)
    lines = _fit_lines(new_ends, later_ns, hosts, may_drift)

    inherited_ns = float(ends.uncertainty[ends.known].max())
    uncertainty_ns = np.maximum(lines.spread, ON_ONE_HOST_NS) + inherited_ns
    has_enough = np.bincount(new_ends.host, minlength=hosts) >= MIN_COLLECTIVES
    ends.offset[has_enough] = lines.height[has_enough]
    ends.uncertainty[has_enough] = uncertainty_ns[has_enough]
    ends.drift[has_enough] = lines.slope[has_enough] * 1e9  # per second


def _fit_lines(
    host_ends: _HostEnds, difference: Floats, hosts: int, may_drift: bool
) -> _FittedLines:
    """Lay a line through the differences of each host over time.

    A line is flat unless clocks may drift, its slope exceeds the spread, and the slope
    is one that clocks have.

    Args:
        host_ends: The ends of the hosts.
        difference: By how many ns each of these ends is later than on known hosts.
        hosts: How many hosts there are.
        may_drift: Whether clocks may drift.
    """
    host = host_ends.host
    flat_height = medians_of_groups(difference, host, hosts)
    flat_spread = _measure_spreads(difference, flat_height, host)

    slope = _estimate_slopes(difference, host_ends.time, host, hosts)
    without_slope = difference - slope[host] * host_ends.time
    sloped_height = medians_of_groups(without_slope, host, hosts)
    sloped_spread = _measure_spreads(without_slope, sloped_height, host)

    # A slope counts if the clock drifts further than the points scatter around it.
    # A host without ends has an infinite duration, and 0 times infinity is nan.
    with np.errstate(invalid="ignore"):
        drifted_ns = np.abs(slope) * _measure_durations(host_ends, hosts)
        exceeds_spread = drifted_ns > 2 * np.maximum(sloped_spread, ON_ONE_HOST_NS)
    is_slope_of_a_clock = np.abs(slope) * 1e9 <= MAX_DRIFT_NS_PER_S
    is_sloped = exceeds_spread & is_slope_of_a_clock & may_drift
    return _FittedLines(
        slope=np.where(is_sloped, slope, 0.0),
        height=np.where(is_sloped, sloped_height, flat_height),
        spread=np.where(is_sloped, sloped_spread, flat_spread),
    )


def _measure_durations(host_ends: _HostEnds, hosts: int) -> Floats:
    """Return the ns from the first to the last end of each host; -inf without ends."""
    first_end = np.full(hosts, np.inf)
    last_end = np.full(hosts, -np.inf)
    np.minimum.at(first_end, host_ends.host, host_ends.time)
    np.maximum.at(last_end, host_ends.host, host_ends.time)
    return np.asarray(last_end - first_end)


def _estimate_slopes(
    difference: Floats, time: Floats, host: Rows, hosts: int
) -> Floats:
    """Estimate the slope of the differences of each host over time.

    It is the median of the slopes between pairs of points. The partner of a point is
    the one that follows after half of the host's points: of 6 points, the pairs are 1
    and 4, 2 and 5, and 3 and 6.

    Args:
        difference: The difference at each point, in ns.
        time: The time of each point, in ns.
        host: The index of the host of each point.
        hosts: How many hosts there are.

    Returns:
        ns per ns for each host; 0 for a host with fewer than two points.
    """
    # Sort the points by host, then by time.
    order = np.lexsort((time, host))
    host = host[order]
    time = time[order]
    difference = difference[order]

    points_of_host = np.bincount(host, minlength=hosts)[host]
    half = points_of_host // 2
    has_partner = (ordinals(host) + half < points_of_host) & (half > 0)
    early = np.flatnonzero(has_partner)
    late = early + half[early]

    # Points of one moment have no slope.
    is_later = time[late] > time[early]
    early = early[is_later]
    late = late[is_later]
    slope = (difference[late] - difference[early]) / (time[late] - time[early])
    return np.nan_to_num(medians_of_groups(slope, host[early], hosts))


def _measure_spreads(values: Floats, center: Floats, host: Rows) -> Floats:
    """Return the scaled median absolute deviation of the values of each host.

    E.g. the values 1, 3 and 8 of a host, with the center 3, lie 2, 0 and 5 from it. The
    median is 2, and the spread 1.4826 (SCALE) times that.

    Args:
        values: The values of all hosts.
        center: The center of each host's values.
        host: The index of the host of each value.

    Returns:
        One spread per host, nan for a host without values.
    """
    deviations = np.abs(values - center[host])
    median_deviation = medians_of_groups(deviations, host, len(center))
    return SCALE * median_deviation


SLACK_NS = 20_000.0
"""On one host, clocks of GPUs are converted at least this exactly; what contradicts
itself by more is matched wrongly, or of two hosts."""


class HostClocks(msgspec.Struct, frozen=True, eq=False):
    """The hosts of a job, each with a clock of its own."""

    # as recorded, `host 1` where guessed, `rank 3` where not known
    names: tuple[str, ...]
    host_of_rank: Rows  # the index of the host of each rank
    # why ranks of one host are known to share its clock, as the end of a sentence
    shared_because: str
    guessed: bool  # whether the hosts were guessed, because they were not recorded
    # by how many ns times of one host contradict each other, at most SLACK_NS
    contradiction_ns: float
    contradiction: str  # how times of one host contradict each other; "" if they do not


class _Contradiction(msgspec.Struct, frozen=True):
    """A collective that ended on one rank before it started on another of its host."""

    contradiction_ns: float  # from that end to that start
    ended: int  # row of Matched of the rank on which it ended
    started: int  # row of Matched of the rank on which it started


def determine_hosts(matched: Matched, rows: Rows) -> HostClocks:
    """Determine the hosts of the ranks.

    They are recorded, or guessed from the numbers of devices, or else every rank counts
    as a host of its own.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        rows: The rows of synchronous collectives, whose times may contradict that ranks
            share a clock.
    """
    if all(summary.host for summary in matched.ranks):
        return _collect_recorded_hosts(matched, rows)

    guess = _guess_hosts(matched.ranks)
    if guess is not None:
        worst = _find_worst_contradiction(matched, rows, guess.host_of_rank)
        contradiction_ns = worst.contradiction_ns if worst else 0.0
        if contradiction_ns <= SLACK_NS:
            return msgspec.structs.replace(guess, contradiction_ns=contradiction_ns)

    return HostClocks(
        names=tuple(f"rank {summary.rank}" for summary in matched.ranks),
        host_of_rank=np.arange(len(matched.ranks)),
        shared_because="",
        guessed=False,
        contradiction_ns=0.0,
        contradiction="",
    )


def _collect_recorded_hosts(matched: Matched, rows: Rows) -> HostClocks:
    """Return the hosts that the traces name, and whether their times fit together.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        rows: The rows of synchronous collectives.
    """
    hosts = [summary.host for summary in matched.ranks]
    names = tuple(dict.fromkeys(hosts))
    host_of_rank = np.array([names.index(host) for host in hosts], dtype=np.intp)

    worst = _find_worst_contradiction(matched, rows, host_of_rank)
    contradiction_ns = worst.contradiction_ns if worst else 0.0
    contradiction = ""
    if worst is not None and contradiction_ns > SLACK_NS:
        contradiction = _describe_contradiction(matched, worst)
    return HostClocks(
        names=names,
        host_of_rank=host_of_rank,
        shared_because="all ranks ran on one machine",
        guessed=False,
        contradiction_ns=min(contradiction_ns, SLACK_NS),
        contradiction=contradiction,
    )


def _guess_hosts(ranks: Sequence[RankSummary]) -> HostClocks | None:
    """Guess the hosts from the number of devices that each machine lists.

    The guess is that ranks fill one machine after another: with 8 devices each, ranks 0
    to 7 are on host 0, and ranks 8 to 15 on host 1. Returns None if the devices of the
    ranks do not fit that, or if the size of the job is unknown.
    """
    device_counts = {summary.devices for summary in ranks}
    job_size = max((summary.world_size for summary in ranks), default=0)
    per_host = min(device_counts, default=0)
    if per_host < 1 or not job_size:
        return None
    if job_size <= per_host:
        return _guess_one_host(ranks, job_size, per_host)

    # With one device each, a number of devices says nothing about machines.
    all_list_equally_many = len(device_counts) == 1
    are_assigned_in_order = all(
        summary.device == summary.rank % per_host for summary in ranks
    )
    if per_host == 1 or not all_list_equally_many or not are_assigned_in_order:
        return None

    host_numbers = [summary.rank // per_host for summary in ranks]
    distinct_numbers = sorted(set(host_numbers))
    host_of_rank = [distinct_numbers.index(number) for number in host_numbers]
    return HostClocks(
        names=tuple(f"host {number}" for number in distinct_numbers),
        host_of_rank=np.array(host_of_rank, dtype=np.intp),
        shared_because=(
            f"each machine has {per_host} devices, assigned to ranks in order"
        ),
        guessed=True,
        contradiction_ns=0.0,
        contradiction="",
    )


def _guess_one_host(
    ranks: Sequence[RankSummary], size: int, devices: int
) -> HostClocks | None:
    """Guess that a whole job ran on one host, because it fits on one.

    Args:
        ranks: The ranks that are given.
        size: The number of ranks of the job.
        devices: The number of devices of the machine.

    Returns:
        The one host. None if a device is unknown, or if two ranks name the same one,
        because then they are on two machines.
    """
    distinct_devices = {summary.device for summary in ranks}
    some_device_is_unknown = NO_DEVICE in distinct_devices
    some_share_a_device = len(distinct_devices) < len(ranks)
    if some_device_is_unknown or some_share_a_device:
        return None
    return HostClocks(
        names=("host 0",),
        host_of_rank=np.zeros(len(ranks), dtype=np.intp),
        shared_because=(
            f"all {size} ranks of the job fit on this machine, which has {devices} "
            "devices"
        ),
        guessed=True,
        contradiction_ns=0.0,
        contradiction="",
    )


def _find_worst_contradiction(
    matched: Matched, rows: Rows, host: Rows
) -> _Contradiction | None:
    """Find the collective that ended longest before its last start on the same host.

    E.g. if one rank of a host ends an all-reduce at 50 us, and another one starts it at
    80 us, they contradict each other by 30 us.

    Args:
        matched: The collectives of the job.
        rows: The rows of `matched` to look at: each is one rank's part in a collective.
        host: The index of the host of each rank.

    Returns:
        The contradiction; None if no collective ends before its last start.
    """
    # Sort the rows of each collective on each host by start, and again by end.
    collective = matched.collective_of_row[rows]
    host_of_row = host[matched.rank[rows]]
    order_by_start = np.lexsort((matched.start[rows], host_of_row, collective))
    order_by_end = np.lexsort((matched.end[rows], host_of_row, collective))
    by_start = rows[order_by_start]
    by_end = rows[order_by_end]

    # Both have the rows of one collective and host at the same positions.
    bounds = run_bounds(collective[order_by_start], host_of_row[order_by_start])
    first_position = bounds[:-1]
    last_position = bounds[1:] - 1
    first_ended = by_end[first_position]
    last_started = by_start[last_position]
    contradiction_ns = matched.start[last_started] - matched.end[first_ended]
    if contradiction_ns.max(initial=0) <= 0:
        return None

    worst = int(np.argmax(contradiction_ns))
    return _Contradiction(
        contradiction_ns=float(contradiction_ns[worst]),
        ended=int(first_ended[worst]),
        started=int(last_started[worst]),
    )


def _describe_contradiction(matched: Matched, worst: _Contradiction) -> str:
    """Describe how the times of two ranks of one host contradict each other.

    The text completes a sentence that says why times cannot be compared. It begins in
    lower case and has no full stop at its end.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        worst: The rows of a collective that ends on one rank before it starts on
            another.
    """
    name = matched.names[matched.collective_of_row[worst.ended]]
    ended_rank = matched.rank_at(worst.ended)
    started_rank = matched.rank_at(worst.started)
    return (
        f"one {name} ends on rank {ended_rank.rank} before it starts on rank "
        f"{started_rank.rank}, both on machine {ended_rank.host}. Either collectives are "
        "matched incorrectly, or two machines have this name"
    )


QUARTERS = 4
"""A drift is measured between the first and the last quarter of the collectives."""


class Clocks(msgspec.Struct, frozen=True, eq=False):
    """The clocks of all ranks, relative to that of the reference rank.

    Arrays have one entry per rank. A time t of rank i on the common clock is
    t - offset_i - drift_i * (t - at_ns) / 1e9. The common clock is that of the
    reference.
    """

    reference: int  # index of the rank
    hosts: HostClocks
    # of each host: what its offset is from; "" for nothing
    offset_sources: tuple[ClockSource, ...]
    offset: Floats  # ns; 0 if nothing bounds it
    uncertainty: Floats  # ns; inf if nothing bounds the offset
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
        return self.hosts.shared_because if len(self.hosts.names) == 1 else ""

    def to_common_clock(self, rank: Rows, times: Int64s) -> Int64s:
        """Convert times on the clocks of ranks to the clock that all ranks share.

        E.g. a time of 100 ns, on a clock that is 30 ns ahead and does not drift, is 70
        ns.

        Args:
            rank: The index of the rank of each time.
            times: The times, in ns of the rank's clock.
        """
        seconds = (times - self.at_ns) / 1e9
        ahead_ns = self.offset[rank] + self.drift[rank] * seconds
        return times - np.rint(ahead_ns).astype(np.int64)

    def resolution_of(self, ranks: Rows, other_ranks: Rows) -> Floats:
        """Measure how far two moments must lie apart for their order to be certain.

        Args:
            ranks: The index of the rank of one moment of each pair.
            other_ranks: The index of the rank of the other one.

        Returns:
            ns for each pair; 0 if both moments are of the same rank.
        """
        host = self.hosts.host_of_rank
        is_same_rank = ranks == other_ranks
        is_same_host = host[ranks] == host[other_ranks]
        ns_between_hosts = self.uncertainty[ranks] + self.uncertainty[other_ranks]
        ns_between_ranks = np.where(is_same_host, self.resolution, ns_between_hosts)
        return np.where(is_same_rank, 0.0, ns_between_ranks)


class _Spans(msgspec.Struct, frozen=True, eq=False):
    """When collectives ran on hosts, in ns.

    There is one row for each rank's part in a collective; the rows of a collective are
    neighbors.
    """

    host: Rows  # per row
    start: Floats  # per row
    end: Floats  # per row
    collective: Rows  # per row: the number of its collective, from 0 on, ascending
    first: Rows  # per collective: the first of its rows


class _Bounds(msgspec.Struct, frozen=True, eq=False):
    """The lowest and the highest offset of each host that collectives allow.

    Arrays have one entry per host, in ns; infinite where there is no bound.
    """

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

    @property
    def has_both(self) -> Flags:
        """Which hosts have a lowest and a highest offset."""
        return np.isfinite(self.low) & np.isfinite(self.high)

    def contradict(self, slack_ns: float = 0.0) -> bool:
        """Return whether the lowest offset of some host is above its highest one.

        Args:
            slack_ns: How far each bound may be off.
        """
        is_possible = self.low <= self.high + 2 * slack_ns
        return not bool(is_possible.all())

    def set_to_0(self, host: int) -> None:
        """Set both bounds of a host to 0, in place. Does nothing if there are no
        hosts."""
        if len(self.low):
            self.low[host] = 0.0
            self.high[host] = 0.0

    def narrow(self, spans: _Spans) -> None:
        """Narrow the bounds of each host by those of the other hosts, in place.

        A collective cannot end on any host before it has started on all of them. On the
        common clock, end_i - o_i >= start_j - o_j for all of its hosts i and j, whose
        clocks are ahead by o_i and o_j. So

            o_i <= end_i + min over j of (o_j - start_j)
            o_j >= start_j + max over i of (o_i - end_i)

        Args:
            spans: The starts and ends of the collectives; one row for each rank's part
                in one.
        """
        high_minus_start = self.high[spans.host] - spans.start
        least_of_collective = reduce_groups(np.minimum, high_minus_start, spans.first)
        least_of_row = least_of_collective[spans.collective]
        np.minimum.at(self.high, spans.host, spans.end + least_of_row)

        low_minus_end = self.low[spans.host] - spans.end
        most_of_collective = reduce_groups(np.maximum, low_minus_end, spans.first)
        most_of_row = most_of_collective[spans.collective]
        np.maximum.at(self.low, spans.host, spans.start + most_of_row)


class _Offsets(msgspec.Struct, frozen=True, eq=False):
    """The offset that was decided on for each host; arrays have one entry per host."""

    offset: Floats  # ns; nan if nothing bounds it
    uncertainty: Floats
    offset_sources: tuple[ClockSource, ...]
    contradicted: Flags  # whether the ends contradict the bounds, which then decide


def estimate_clocks(matched: Matched) -> Clocks:
    """Estimate how far the clocks of all ranks are apart.

    It uses the collectives that cannot end on any rank before they have started on all
    (SYNCHRONOUS). The clock of the rank that took part in the most of them is the
    reference, whose offset is 0; of several such ranks it is the first one.
    """
    is_synchronous = matched.mark_named(SYNCHRONOUS)
    rows = np.flatnonzero(matched.for_each_row(is_synchronous))
    hosts = determine_hosts(matched, rows)
    host_of_rank = hosts.host_of_rank

    reference = 0
    reference_host = 0
    if len(matched.ranks):
        rows_of_rank = np.bincount(matched.rank[rows], minlength=len(matched.ranks))
        reference = int(np.argmax(rows_of_rank))
        reference_host = int(host_of_rank[reference])

    measured = _measure_clocks(matched, rows, hosts, reference_host)
    decided = _decide_offsets(measured.ends, measured.bounds, reference_host)
    contradicted_hosts = np.flatnonzero(decided.contradicted).tolist()
    return Clocks(
        reference=reference,
        hosts=hosts,
        offset_sources=decided.offset_sources,
        offset=np.nan_to_num(decided.offset)[host_of_rank],
        uncertainty=decided.uncertainty[host_of_rank],
        drift=measured.drift[host_of_rank],
        at_ns=measured.ends.at_ns,
        resolution=max(ON_ONE_HOST_NS, hosts.contradiction_ns),
        refused=hosts.contradiction or _explain_refusal(measured.bounds),
        contradicted=tuple(hosts.names[host] for host in contradicted_hosts),
    )


class _Measured(msgspec.Struct, frozen=True, eq=False):
    """What collectives tell about the clocks of the hosts."""

    ends: Ends
    bounds: _Bounds
    drift: Floats  # ns per second of each host


def _measure_clocks(
    matched: Matched, rows: Rows, hosts: HostClocks, reference_host: int
) -> _Measured:
    """Estimate offsets by ends and by bounds, with drifts only if they are needed.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        rows: The rows of synchronous collectives.
        hosts: The hosts of the ranks.
        reference_host: The host whose offset is 0.
    """
    host_count = len(hosts.names)
    ends = estimate_offsets_by_ends(
        matched, hosts.host_of_rank, host_count, reference_host, may_drift=False
    )
    drift = ends.drift
    bounds = _bound_offsets(matched, rows, hosts, reference_host, drift, ends.at_ns)
    if not bounds.contradict():
        return _Measured(ends=ends, bounds=bounds, drift=drift)

    # Constant offsets cannot be right, so try again with clocks that drift.
    ends = estimate_offsets_by_ends(
        matched, hosts.host_of_rank, host_count, reference_host, may_drift=True
    )
    drift_by_bounds = _estimate_drift(matched, rows, hosts, reference_host)
    drift = np.where(ends.known, ends.drift, drift_by_bounds)
    bounds = _bound_offsets(matched, rows, hosts, reference_host, drift, ends.at_ns)
    return _Measured(ends=ends, bounds=bounds, drift=drift)


def _explain_refusal(bounds: _Bounds) -> str:
    """Explain why times of ranks cannot be compared; "" if they can.

    They cannot if the bounds of some host contradict each other by more than SLACK_NS.
    """
    if not bounds.contradict(SLACK_NS):
        return ""
    return (
        "the clocks contradict each other. Neither clock offsets nor drifts of up to "
        f"{MAX_DRIFT_NS_PER_S / 1e3:.0f} us per second explain all collectives. Either some are "
        "matched incorrectly, or a clock was set during the recording"
    )


def _decide_offsets(ends: Ends, bounds: _Bounds, reference_host: int) -> _Offsets:
    """Decide on the offset of each host.

    The ends of collectives decide if they lie within the bounds and are more precise.
    Otherwise the middle of the bounds does. If a bound is missing too, the offset is
    nan.

    Args:
        ends: The offsets that the ends of collectives tell.
        bounds: The lowest and the highest offset of each host that is possible.
        reference_host: The host whose offset is 0.
    """
    # Start with the bounds.
    has_bounds = bounds.has_both
    offset = np.where(has_bounds, bounds.middle, np.nan)
    sources = np.where(has_bounds, "bounds", "")
    # unknown offsets and bounds are nan or infinite, and no comparison holds for nan
    with np.errstate(invalid="ignore"):
        uncertainty = np.where(has_bounds, bounds.half_width, np.inf)
        is_above_low = ends.offset >= bounds.low - ends.uncertainty
        is_below_high = ends.offset <= bounds.high + ends.uncertainty

    # Replace them by the ends where those are better.
    is_inside = is_above_low & is_below_high
    is_more_precise = ends.uncertainty < uncertainty
    is_by_ends = ends.known & is_inside & is_more_precise
    offset_by_ends = np.clip(ends.offset, bounds.low, bounds.high)
    offset[is_by_ends] = offset_by_ends[is_by_ends]
    uncertainty[is_by_ends] = ends.uncertainty[is_by_ends]
    sources[is_by_ends] = "ends"

    offset_sources: list[ClockSource] = sources.tolist()
    if offset_sources:
        offset[reference_host] = 0.0
        uncertainty[reference_host] = 0.0
        offset_sources[reference_host] = "reference"
    return _Offsets(
        offset=offset,
        uncertainty=uncertainty,
        offset_sources=tuple(offset_sources),
        contradicted=ends.known & ~is_inside,
    )


def _bound_offsets(
    matched: Matched,
    rows: Rows,
    hosts: HostClocks,
    reference_host: int,
    drift: Floats,
    at_ns: int,
) -> _Bounds:
    """Compute the lowest and the highest offset of each host that collectives allow.

    A bound passes from host to host through at most MAX_GROUPS_BETWEEN collectives.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        rows: The rows of synchronous collectives.
        hosts: The hosts of the ranks.
        reference_host: The host whose offset is 0.
        drift: The drift of each host, in ns per second since `at_ns`.
        at_ns: The time at which no clock has drifted.
    """
    host_count = len(hosts.names)
    bounds = _Bounds(low=np.full(host_count, -np.inf), high=np.full(host_count, np.inf))
    bounds.set_to_0(reference_host)
    if not len(rows) or host_count < 2:
        return bounds

    spans = _measure_spans(matched, rows, hosts, drift, at_ns)
    for _ in range(MAX_GROUPS_BETWEEN):
        low_before = bounds.low.copy()
        high_before = bounds.high.copy()
        bounds.narrow(spans)
        bounds.set_to_0(reference_host)

        same_low = np.array_equal(low_before, bounds.low)
        same_high = np.array_equal(high_before, bounds.high)
        is_settled = same_low and same_high
        # Bounds that contradict each other would only go on to drift apart.
        if is_settled or bounds.contradict():
            break
    return bounds


def _measure_spans(
    matched: Matched, rows: Rows, hosts: HostClocks, drift: Floats, at_ns: int
) -> _Spans:
    """Compute when collectives ran, on the clocks of their hosts without their drift.

    Args:
        matched: The collectives of the job.
        rows: The rows of `matched` to use: each is one rank's part in a collective.
        hosts: The hosts of the ranks.
        drift: The drift of each host, in ns per second since `at_ns`.
        at_ns: The time at which no clock has drifted.
    """
    start = matched.start[rows]
    end = matched.end[rows]
    host = hosts.host_of_rank[matched.rank[rows]]
    drift_per_ns = drift[host] / 1e9

    # Times are counted from the first one, because floats hold small times exactly, but
    # not the ns since 1970.
    first_ns = int(start.min())
    begins_collective = begins_runs(matched.collective_of_row[rows])
    return _Spans(
        host=host,
        start=(start - first_ns) - drift_per_ns * (start - at_ns),
        end=(end - first_ns) - drift_per_ns * (end - at_ns),
        collective=group_numbers(begins_collective),
        first=np.flatnonzero(begins_collective),
    )


def _estimate_drift(
    matched: Matched, rows: Rows, hosts: HostClocks, reference_host: int
) -> Floats:
    """Estimate the drift of each host's clock from the bounds of its offset.

    The bounds in the first quarter of the collectives are compared with those in the
    last quarter: an offset of 10 us there and of 40 us 2 s later is a drift of 15 us
    per second.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        rows: The rows of synchronous collectives.
        hosts: The hosts of the ranks.
        reference_host: The host whose offset is 0.

    Returns:
        ns per second of each host. 0 if the drift does not exceed what the bounds leave
        open, if no clock drifts so much, or if a quarter has too few collectives.
    """
    no_drift = np.zeros(len(hosts.names))
    collective = matched.collective_of_row[rows]
    distinct_collectives = distinct(collective)
    per_quarter = len(distinct_collectives) // QUARTERS
    if per_quarter < MIN_COLLECTIVES:
        return no_drift

    last_of_first_quarter = distinct_collectives[per_quarter - 1]
    first_of_last_quarter = distinct_collectives[-per_quarter]
    first_rows = rows[collective <= last_of_first_quarter]
    last_rows = rows[collective >= first_of_last_quarter]
    first_bounds = _bound_offsets(
        matched, first_rows, hosts, reference_host, no_drift, at_ns=0
    )
    last_bounds = _bound_offsets(
        matched, last_rows, hosts, reference_host, no_drift, at_ns=0
    )

    # bounds may be infinite, and the difference of two infinite ones is nan
    with np.errstate(invalid="ignore"):
        drifted_ns = last_bounds.middle - first_bounds.middle
        uncertain_ns = first_bounds.half_width + last_bounds.half_width
        is_measured = (np.abs(drifted_ns) > uncertain_ns) & np.isfinite(drifted_ns)
    # at least 1 ns, so that nothing is divided by 0
    seconds = max(_measure_ns_between(matched, first_rows, last_rows) / 1e9, 1e-9)
    drift = np.where(is_measured, drifted_ns / seconds, 0.0)
    is_drift_of_a_clock = np.abs(drift) <= MAX_DRIFT_NS_PER_S
    return np.where(is_drift_of_a_clock, drift, 0.0)


def _measure_ns_between(matched: Matched, rows: Rows, later_rows: Rows) -> int:
    """Return the whole ns from the mean start of some rows to that of later rows."""
    reference_ns = matched.start[rows[0]]
    mean_ns = int(np.mean(matched.start[rows] - reference_ns))
    later_mean_ns = int(np.mean(matched.start[later_rows] - reference_ns))
    return later_mean_ns - mean_ns
