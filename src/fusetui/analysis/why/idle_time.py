"""Describe the longest gaps, and prepare the idle time of devices for the timeline.

The first half lists gaps with what is known about each. The second half cuts all idle
time of a device into intervals of one reason each, so that a few binary searches tell
how much of each reason any window holds.

What covered most of an interval of a thread's time is the innermost slice that covers
more than half of it. If there is none, it is the first slice of the name that was
innermost for the longest time, if that is at least a tenth of the interval; of several
such names, the one that was innermost first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.devices import (
    AFTER,
    HOST,
    Devices,
    Gaps,
    Reasons,
    name_reasons,
)
from fusetui.analysis.why.model import IDLE, Gap
from fusetui.analysis.why.thread_activity import (
    Slices,
    ThreadActivity,
    Threads,
    find_waiting_calls,
    group_calls_by_axis,
)
from fusetui.trace.model.arrays import (
    NO_ROW,
    Int64s,
    Rows,
    at,
    begins_runs,
    distinct_rows,
    last_at_or_before,
    ordinals,
    prefix_sums,
)
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.intervals import (
    NO_INTERVAL,
    Cover,
    EnclosingIndex,
    joined,
    outside,
    pieces,
)
from fusetui.trace.model.sorted_arrays import BEFORE_ALL, count_until, slices_of_ids
from fusetui.trace.program.regions import MODULE_PREFIX, is_module

MAX_GAPS_LISTED: Final = 100
"""How many gaps are listed, unless all are asked for."""


class LongestGaps(msgspec.Struct, frozen=True):
    """The longest gaps of some devices together, the longest first."""

    gaps: tuple[Gap, ...]
    """The longest first."""
    count: int
    """How many gaps there are in all."""
    rows: tuple[GapRows, ...]
    """The rows behind each of `gaps`."""


class GapRows(NamedTuple):
    """The rows of the trace behind a gap."""

    event: int
    """The event that ends the gap."""
    launch: int
    """The call that launched it; -1 if it is not known."""


class _GapWithRows(NamedTuple):
    """A gap as it is listed, and the rows behind it."""

    gap: Gap
    rows: GapRows


def list_longest_gaps(
    devices_by_axis: Sequence[Devices],
    most: int | None = MAX_GAPS_LISTED,
    window: tuple[int, int] | None = None,
) -> LongestGaps:
    """List the longest gaps of all devices together.

    Args:
        devices_by_axis: The devices, by time axis.
        most: How many gaps are listed; None for all.
        window: The begin and end, in ns of the file, of the part that counts; None for
            all. A gap across its border counts with the part inside.
    """
    candidates: list[_GapWithRows] = []
    count = 0
    for devices in devices_by_axis:
        gaps, reasons = devices.find_idle_time(window)
        count += len(gaps)

        # No other gap of this axis can be among the longest of all axes.
        longest = _choose_longest_gaps(gaps, most)
        described = describe_gaps(devices, gaps, reasons, longest)
        events = gaps.event[longest].tolist()
        launches = gaps.launch[longest].tolist()
        for gap, event, launch in zip(described, events, launches, strict=True):
            rows = GapRows(event=event, launch=launch)
            candidates.append(_GapWithRows(gap=gap, rows=rows))

    candidates.sort(key=_rank_by_length)
    listed = candidates[:most]
    return LongestGaps(
        gaps=tuple(candidate.gap for candidate in listed),
        count=count,
        rows=tuple(candidate.rows for candidate in listed),
    )


def _rank_by_length(candidate: _GapWithRows) -> tuple[int, int]:
    """Return the key that sorts gaps by length, the longest first.

    Of gaps with equal lengths, the one that starts first comes first.
    """
    return -candidate.gap.dur_ns, candidate.gap.start_ns


def _choose_longest_gaps(gaps: Gaps, most: int | None) -> Rows:
    """Choose the longest gaps, the longest first; of equal ones the earliest first.

    Args:
        most: How many gaps are chosen; None for all.

    Returns:
        Indices into the gaps.
    """
    length_ns = gaps.end - gaps.begin

    # Sort only gaps that may be chosen: a trace may have a million of them.
    candidates = np.arange(len(gaps))
    if most is not None and most < len(gaps):
        least_ns = np.partition(length_ns, -most)[-most]
        candidates = np.flatnonzero(length_ns >= least_ns)  # more than `most` if tied

    order = np.lexsort((gaps.begin[candidates], -length_ns[candidates]))
    return candidates[order][:most]


def describe_gaps(
    devices: Devices, all_gaps: Gaps, reasons: Reasons, selected: Rows
) -> list[Gap]:
    """Describe some gaps of an axis of devices.

    Args:
        all_gaps: All gaps.
        reasons: How long each of `all_gaps` lasted for which reason.
        selected: The gaps to describe, as indices into `all_gaps`.

    Returns:
        One record for each of `selected`, in their order.
    """
    trace = devices.trace
    gaps = all_gaps.select(selected)
    device_of_gap = devices.find_device_indices(gaps.event)
    ns_of_reasons = np.stack([ns_of_gap[selected] for ns_of_gap in reasons])
    ns_by_gap = ns_of_reasons.T  # [gaps, IDLE]
    waiting_call = _find_waits_at_begin(devices, gaps)
    cover = _find_coverings(devices, gaps)

    described = []
    for index in range(len(gaps)):
        device = devices.identities[device_of_gap[index]]
        described.append(
            Gap(
                device=exact_id(device.pid),
                start_ns=int(gaps.begin[index]) - trace.begin_ns,
                dur_ns=int(gaps.end[index] - gaps.begin[index]),
                idle=name_reasons(ns_by_gap[index].tolist()),
                previous=_get_name(trace, gaps.before[index]),
                next=_get_name(trace, gaps.event[index]) or "",
                op=_get_name(trace, cover.op[index]),
                annotation=_get_name(trace, cover.annotation[index]),
                module=_get_module_name(trace, cover.module[index]),
                frame=_get_name(trace, cover.frame[index]),
                drained_by=_get_name(trace, waiting_call[index]),
            )
        )

    return described


def _find_waits_at_begin(devices: Devices, gaps: Gaps) -> Rows:
    """Find the call in which the launching thread waited when each gap began.

    A gap whose next event was launched already gets none.

    Returns:
        The innermost call that waits for the device, as a row; -1 for none.
    """
    is_launched_later = devices.trace.start[gaps.launch] > gaps.begin
    late_launch = np.where(is_launched_later, gaps.launch, NO_ROW)
    return find_waiting_calls(devices.trace, devices.threads, late_launch, gaps.begin)


def _get_name(trace: Trace, row: np.integer) -> str | None:
    """Return the name of a row of the trace, None for NO_ROW."""
    return None if row == NO_ROW else trace.name_of(int(row))


def _get_module_name(trace: Trace, row: np.integer) -> str | None:
    """Return the module of a row without the profiler's prefix, None for NO_ROW."""
    name = _get_name(trace, row)
    return name.removeprefix(MODULE_PREFIX) if name else None


class Covering(msgspec.Struct, frozen=True, eq=False):
    """What covered most of each of some intervals; arrays of shape [intervals].

    All are rows of the trace, NO_ROW for none.
    """

    op: Rows
    annotation: Rows
    module: Rows
    frame: Rows

    @classmethod
    def nothing(cls, intervals: int) -> Covering:
        """Make the record of intervals that nothing covers, to be filled in place."""

        def no_rows() -> Rows:
            return np.full(intervals, NO_ROW, dtype=np.intp)

        return cls(
            op=no_rows(), annotation=no_rows(), module=no_rows(), frame=no_rows()
        )

    def fill(self, intervals: Rows, cover: Covering) -> None:
        """Replace what covers some of the intervals, in place.

        Args:
            intervals: The indices of these intervals.
            cover: What covers each of them.
        """
        self.op[intervals] = cover.op
        self.annotation[intervals] = cover.annotation
        self.module[intervals] = cover.module
        self.frame[intervals] = cover.frame


def _find_coverings(devices: Devices, gaps: Gaps) -> Covering:
    """Find which op, annotation, module and frame covered most of each gap.

    Only the part of a gap counts until its launch call began. If the call had begun
    before the gap, the result is what covered most of the part of the call inside the
    gap.
    """
    is_launched_late = gaps.call_begin > gaps.begin
    begin = np.where(is_launched_late, gaps.begin, gaps.call_begin)
    end = np.where(is_launched_late, gaps.call_begin, gaps.call_end)

    coverings = Covering.nothing(len(gaps))
    for threads, gap_indices, on_axis in group_calls_by_axis(
        devices.trace, devices.threads, gaps.launch, end > begin
    ):
        cover = find_covering(devices.trace, threads, on_axis(begin), on_axis(end))
        coverings.fill(gap_indices, cover)

    return coverings


class Pieces(NamedTuple):
    """Pieces of idle time of one reason; arrays of shape [pieces]."""

    device: NDArray[np.integer]
    """The index of the device of each piece on its axis."""
    start: Int64s
    """In ns of the file, as are the ends."""
    end: Int64s


class ReasonTimes(msgspec.Struct, frozen=True, eq=False):
    """When a device was idle for one reason, as sorted and disjoint intervals."""

    name: str  # a key of IDLE
    start: Int64s  # of each interval, in ns of the file; shape [n]
    end: Int64s  # likewise
    ns_before_each: (
        Int64s  # ns of all intervals before each, then the total; shape [n + 1]
    )

    def measure_before(self, times: Int64s) -> Int64s:
        """Measure how long the device was idle for this reason before each of some
        times.

        Args:
            times: In ns of the file, in any order.

        Returns:
            ns, of the shape of `times`; 0 before the first such interval.
        """
        last_begun = last_at_or_before(self.start, times)
        has_begun = last_begun != BEFORE_ALL
        interval = np.where(has_begun, last_begun, 0)

        # All intervals before the last one, and of the last one the part until then.
        ns_of_last = np.minimum(times, self.end[interval]) - self.start[interval]
        return np.where(has_begun, self.ns_before_each[interval] + ns_of_last, 0)


class IdleTime(msgspec.Struct, frozen=True, eq=False):
    """The idle time of one device, from the beginning of the trace to its end."""

    device: Id
    reasons: tuple[ReasonTimes, ...]  # those that the device has
    begin: Int64s  # of each gap, in order of time; ns of the file
    end: Int64s  # likewise
    longest: Rows  # indices of the longest gaps, the longest first
    longest_gaps: tuple[Gap, ...]  # what is known about each of these

    def measure_between_edges(self, edges: Int64s) -> Int64s:
        """Measure how long the device was idle for each reason between some edges.

        The timeline asks for the columns of the screen.

        Args:
            edges: Ascending times, in ns of the file.

        Returns:
            ns, of shape [reasons, edges - 1].
        """
        idle_ns = np.zeros((len(self.reasons), len(edges) - 1), dtype=np.int64)
        for index, reason in enumerate(self.reasons):
            idle_ns[index] = np.diff(reason.measure_before(edges))

        return idle_ns

    def measure_window(self, begin: int, end: int) -> dict[str, int]:
        """Return how long the device was idle in a window, by reason, without zeros.

        Args:
            begin: In ns of the file.
            end: Likewise.
        """
        only_window = np.array([begin, end])
        ns_of_reasons = self.measure_between_edges(only_window)[:, 0].tolist()
        ns_by_name = {}
        for reason, ns in zip(self.reasons, ns_of_reasons, strict=True):
            if ns:
                ns_by_name[reason.name] = ns

        return ns_by_name

    def find_gap_at(self, time: int) -> int:
        """Return the index of the gap at a time (ns of the file), NO_INTERVAL for none."""
        gaps = Cover(self.begin, self.end)
        return int(gaps.place_of(np.array([time]))[0])


def prepare_idle_times(devices: Devices) -> tuple[IdleTime, ...]:
    """Prepare the idle time of each device of an axis.

    Returns one record for each device, in the order of `devices.named`. It has the gaps
    of the device, its longest gaps with what is known about them, and when it was idle
    for which reason.
    """
    gaps = devices.gaps
    device_of_gap = devices.find_device_indices(gaps.event)
    longest = _choose_longest_of_each(gaps, device_of_gap)
    described = tuple(describe_gaps(devices, gaps, devices.reasons, longest))
    reasons = _find_reason_times(devices)

    # Both the gaps and the longest of them lie one device after the other.
    gaps_of_devices = slices_of_ids(device_of_gap, len(devices))
    longest_of_devices = slices_of_ids(device_of_gap[longest], len(devices))
    idle_times = []
    for index, device in enumerate(devices.identities):
        own_gaps = gaps_of_devices[index]
        own_longest = longest_of_devices[index]
        idle_times.append(
            IdleTime(
                device=device.pid,
                reasons=reasons[index],
                begin=gaps.begin[own_gaps],
                end=gaps.end[own_gaps],
                longest=longest[own_longest] - own_gaps.start,
                longest_gaps=described[own_longest],
            )
        )

    return tuple(idle_times)


def _choose_longest_of_each(gaps: Gaps, device_of_gap: NDArray[np.integer]) -> Rows:
    """Choose the MAX_GAPS_LISTED longest gaps of each device.

    Args:
        device_of_gap: The index of the device of each gap, ascending.

    Returns:
        Indices into the gaps, one device after the other; of each device the longest
        gap first, and of equal ones the earliest.
    """
    # Gaps of a device are in order of time, and the sort keeps that of equal lengths.
    negative_length = gaps.begin - gaps.end
    by_length = grouped(device_of_gap, then_by=negative_length).order
    rank_in_device = ordinals(device_of_gap)
    longest: Rows = by_length[rank_in_device < MAX_GAPS_LISTED]

    return longest


def _find_reason_times(devices: Devices) -> list[tuple[ReasonTimes, ...]]:
    """Find when each device was idle for which reason.

    Returns one tuple for each device, with a record for each reason that the device
    has, in the order of IDLE.
    """
    times_of_devices: list[list[ReasonTimes]] = [[] for _ in devices.identities]
    for name, all_pieces in zip(IDLE, _cut_idle_time(devices), strict=True):
        for device, times in _collect_times_of_devices(name, all_pieces):
            times_of_devices[device].append(times)

    return [tuple(of_device) for of_device in times_of_devices]


def _cut_idle_time(devices: Devices) -> list[list[Pieces]]:
    """Cut all idle time of the devices of an axis into pieces of one reason each.

    It goes from the begin of the trace to its end, so it includes the time before the
    first event of a device and after the last.

    Returns:
        Records of pieces for each reason, in the order of IDLE.
    """
    trace = devices.trace
    gaps = devices.find_gaps_with_lead(trace.begin_ns)
    device = devices.find_device_indices(gaps.event)

    pieces_of_reasons: list[list[Pieces]] = [[] for _ in IDLE]
    for reason, interval in devices.find_reason_intervals(gaps).items():
        holds = interval.holds
        pieces_of_reasons[reason].append(
            Pieces(
                device=device[holds],
                start=interval.begin[holds],
                end=interval.end[holds],
            )
        )

    for activity, wait_pieces in _cut_waits_for_launches(devices, gaps):
        pieces_of_reasons[HOST + activity].append(wait_pieces)

    after_last_event = Pieces(
        device=np.arange(len(devices)),
        start=devices.end_ns,
        end=np.full(len(devices), trace.end_ns),
    )
    pieces_of_reasons[AFTER].append(after_last_event)
    return pieces_of_reasons


def _cut_waits_for_launches(
    devices: Devices, gaps: Gaps
) -> Iterator[tuple[int, Pieces]]:
    """Yield the time until the launch call of each gap, cut into pieces of one
    activity.

    The activity is that of the thread that launches the event after the gap. Each
    result is the index of a ThreadActivity and the pieces of that activity, in ns of
    the file.
    """
    device_of_gap = devices.find_device_indices(gaps.event)
    is_launched_late = gaps.call_begin > gaps.begin
    for threads, gap_indices, on_axis in group_calls_by_axis(
        devices.trace, devices.threads, gaps.launch, is_launched_late
    ):
        waits = Cover(on_axis(gaps.begin), on_axis(gaps.call_begin))
        device = device_of_gap[gap_indices]
        axis_to_file_ns = gaps.begin[gap_indices] - waits.start

        recorded_covers = threads.covers
        unrecorded = outside(joined(*recorded_covers))
        for activity, cover in enumerate((*recorded_covers, unrecorded)):
            parts, wait_of_part = pieces(waits, cover)
            to_file_ns = axis_to_file_ns[wait_of_part]
            parts_in_file = Pieces(
                device=device[wait_of_part],
                start=parts.start + to_file_ns,
                end=parts.end + to_file_ns,
            )
            yield activity, parts_in_file


def _collect_times_of_devices(
    name: str, all_pieces: Sequence[Pieces]
) -> Iterator[tuple[int, ReasonTimes]]:
    """Yield when each device was idle for one reason, from the pieces of that time.

    Args:
        name: The reason, as a key of IDLE.
        all_pieces: The pieces, in any order.

    Yields:
        The index of each device that has pieces, and its times; adjacent pieces become
        one interval.
    """
    if not all_pieces:
        return

    merged = _merge_pieces(all_pieces)
    by_device = grouped(merged.device)
    for device, members in zip(
        by_device.keys.tolist(), by_device.members_of_each(), strict=True
    ):
        start = merged.start[members]
        end = merged.end[members]
        before = prefix_sums(end - start)
        yield (
            device,
            ReasonTimes(name=name, start=start, end=end, ns_before_each=before),
        )


def _merge_pieces(all_pieces: Sequence[Pieces]) -> Pieces:
    """Sort pieces by device and start, and merge those of a device that are adjacent.

    Empty pieces are dropped. There must be at least one record.
    """
    device = np.concatenate([record.device for record in all_pieces])
    start = np.concatenate([record.start for record in all_pieces])
    end = np.concatenate([record.end for record in all_pieces])

    is_not_empty = start < end
    device = device[is_not_empty]
    start = start[is_not_empty]
    end = end[is_not_empty]

    order = np.lexsort((start, device))
    device = device[order]
    start = start[order]
    end = end[order]

    # Each run of adjacent pieces goes from its first start to its last end.
    is_apart = (start[1:] != end[:-1]) | (device[1:] != device[:-1])
    is_first = np.append(True, is_apart)[: len(start)]
    is_last = np.append(is_apart, True)[: len(start)]

    return Pieces(device=device[is_first], start=start[is_first], end=end[is_last])


MIN_COVERING_DIVISOR: Final = 10
"""A name that covers less than this fraction (1 / n) of an interval says nothing about
it."""
MAX_DEPTH: Final = 2000
"""How many slices around one moment are examined; Python itself allows 1,000 frames."""


def find_covering(
    trace: Trace, threads: Threads, begin: Int64s, end: Int64s
) -> Covering:
    """Find what covered most of each of some intervals on an axis of threads.

    Args:
        begin: The begins of the intervals, as times on the axis.
        end: Their ends; shape of `begin`.
    """

    def touching(kind: ThreadActivity) -> Slices:
        return threads.find_slices(kind).select_touching(begin, end)

    ops = touching(ThreadActivity.OP)
    annotations = touching(ThreadActivity.ANNOTATION)
    frames = touching(ThreadActivity.PYTHON)
    are_modules = trace.matching(frames.rows, is_module)

    return Covering(
        op=find_longest_slices(trace, ops, begin, end),
        annotation=find_longest_slices(trace, annotations, begin, end),
        module=find_longest_slices(trace, frames.select(are_modules), begin, end),
        frame=find_longest_slices(trace, frames.select(~are_modules), begin, end),
    )


def find_longest_slices(
    trace: Trace, slices: Slices, begin: Int64s, end: Int64s
) -> Rows:
    """Find the slice that covered most of each of some intervals.

    A slice that covers more than half of an interval is chosen, the innermost of
    several. If there is none, the times of slices with one name are added up, each time
    counted for its innermost slice, and a slice of the name with the most is chosen.

    Args:
        slices: The slices from which one is chosen.
        begin: The begins of the intervals, as times on the axis.
        end: Their ends; shape of `begin`.

    Returns:
        A row of the trace for each interval; NO_ROW if there is no slice, or none that
        matters (see _find_longest_names).
    """
    if not len(slices.rows) or not len(begin):
        return np.full(len(begin), NO_ROW, dtype=np.intp)

    rows = _find_majority_slices(slices, begin, end)
    undecided = np.flatnonzero(rows == NO_ROW)
    if len(undecided):
        begin_of_undecided = begin[undecided]
        end_of_undecided = end[undecided]
        touching = slices.select_touching(begin_of_undecided, end_of_undecided)
        rows[undecided] = _find_longest_names(
            trace, touching, begin_of_undecided, end_of_undecided
        )

    return rows


def _find_majority_slices(slices: Slices, begin: Int64s, end: Int64s) -> Rows:
    """Find the innermost slice that covers more than half of each interval.

    Such a slice covers the middle of the interval. So the slices around the middle are
    tried from the inside outward, at most MAX_DEPTH of them.

    Returns:
        A row of the trace for each interval, -1 for none.
    """
    middle = begin + (end - begin) // 2
    enclosing_slices = EnclosingIndex(slices.end)
    last_begun = last_at_or_before(slices.start, middle)
    candidate = enclosing_slices.last(last_begun, middle)

    for _ in range(MAX_DEPTH):
        inside_begin = np.maximum(slices.start[candidate], begin)
        inside_end = np.minimum(slices.end[candidate], end)
        covers_most = 2 * (inside_end - inside_begin) > end - begin
        undecided = np.flatnonzero((candidate != NO_INTERVAL) & ~covers_most)
        if not len(undecided):
            break

        next_outward = enclosing_slices.last(
            candidate[undecided] - 1, middle[undecided]
        )
        candidate[undecided] = next_outward
    else:  # the slices lie too deep in each other
        candidate[undecided] = NO_INTERVAL

    return at(slices.rows, candidate, missing=NO_ROW)


def _find_longest_names(
    trace: Trace, slices: Slices, begin: Int64s, end: Int64s
) -> Rows:
    """Find the name that was innermost in each interval for the longest time.

    Returns:
        For each interval the first slice of that name which was innermost in it, as a
        row. It is -1 if the name takes less than 1 / MIN_COVERING_DIVISOR of the
        interval. Of several such names the one counts that was innermost first.
    """
    rows = np.full(len(begin), NO_ROW, dtype=np.intp)
    if not len(slices.rows):
        return rows

    names = _NamesInIntervals.collect(trace, slices, Cover(begin, end))
    if not len(names.row):
        return rows

    # For each interval the longest name, and of equal ones the first to be innermost.
    best_first = np.lexsort((names.first_ns, -names.total_ns, names.interval))
    is_best = begins_runs(names.interval[best_first])
    best = best_first[is_best]

    interval = names.interval[best]
    interval_ns = (end - begin)[interval]
    is_enough = MIN_COVERING_DIVISOR * names.total_ns[best] >= interval_ns
    rows[interval[is_enough]] = names.row[best[is_enough]]
    return rows


class _NamesInIntervals(NamedTuple):
    """The names of slices that were innermost in some intervals; shape [names].

    Each name occurs once for each interval.
    """

    interval: Rows
    """The index of the interval."""
    row: Rows
    """The first slice of the name that was innermost in the interval, as a row."""
    first_ns: Int64s
    """When it first was innermost, as a time on the axis."""
    total_ns: Int64s
    """How long slices of the name were innermost in the interval, in ns."""

    @classmethod
    def collect(
        cls, trace: Trace, slices: Slices, intervals: Cover
    ) -> _NamesInIntervals:
        """Add up how long each name was innermost in each interval.

        The slices are cut at the edges of the intervals, and only the part counts in
        which a slice is the innermost one. There must be at least one slice.
        """
        # Cut the innermost parts of slices at the edges of the intervals.
        parts = slices.cut_innermost_parts()
        inside, interval = pieces(intervals, Cover(parts.start, parts.end))
        # A piece lies in the part after all those that end before the piece begins.
        row = parts.rows[count_until(parts.end, inside.start)]

        # Pieces are in order of time, and grouping keeps this order.
        _, interval_and_name = distinct_rows((interval, trace.name[row]))
        groups = grouped(interval_and_name)
        first_piece = groups.first
        return cls(
            interval=interval[first_piece],
            row=row[first_piece],
            first_ns=inside.start[first_piece],
            total_ns=groups.sums(inside.end - inside.start),
        )
