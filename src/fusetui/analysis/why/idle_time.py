"""The longest gaps and what is known of each; and all idle time of a device as
stretches of one reason each, so that how much of each any window holds takes a few
binary searches.

What covered most of a stretch of a thread's time is the innermost slice that covers
more than half of it. If there is none, it is the first slice of the name that was
innermost for the longest time, if that is at least a tenth of it; of several such
names, the one that was innermost first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.devices import AFTER, HOST, Devices, Gaps, Reasons
from fusetui.analysis.why.model import IDLE, Gap
from fusetui.analysis.why.thread_activity import (
    Slices,
    ThreadActivity,
    Threads,
    launching,
    waiting_calls_at,
)
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.intervals import Cover, EnclosingIndex, joined, outside, pieces
from fusetui.trace.program.regions import MODULE_PREFIX, is_module

LONGEST: Final = 100
"""The number of gaps that are reported, unless all are asked for."""


class LongestGaps(msgspec.Struct, frozen=True):
    """The longest gaps of some devices together, and the rows behind them."""

    gaps: tuple[Gap, ...]
    """The longest first."""
    count: int
    """How many gaps there are in all."""
    rows: tuple[tuple[int, int], ...]
    """Of each of `gaps` the GPU event that ends it, and the call that launched that; -1
    for none."""


class _GapWithRows(NamedTuple):
    gap: Gap
    rows: tuple[int, int]
    """See LongestGaps.rows."""


def longest_gaps(
    lines: Sequence[Devices],
    most: int | None = LONGEST,
    window: tuple[int, int] | None = None,
) -> LongestGaps:
    """The longest gaps of all devices together, `most` of them (None: all). `window`:
    what lies in [begin, end), in ns of the file; a gap across its border counts with
    the part inside, as in the account."""
    candidates: list[_GapWithRows] = []
    count = 0
    for line in lines:
        gaps, reasons = line.idle_in(window)
        count += len(gaps)
        longest = _longest_places(gaps, most)
        events = gaps.event[longest].tolist()
        launches = gaps.launch[longest].tolist()
        for place, gap in enumerate(described_gaps(line, gaps, reasons, longest)):
            candidates.append(_GapWithRows(gap, (events[place], launches[place])))
    candidates.sort(key=_by_length)
    kept = candidates[:most]
    return LongestGaps(
        gaps=tuple(candidate.gap for candidate in kept),
        count=count,
        rows=tuple(candidate.rows for candidate in kept),
    )


def _by_length(candidate: _GapWithRows) -> tuple[int, int]:
    """The order of gaps: the longest first, then the earliest."""
    return -candidate.gap.dur_ns, candidate.gap.start_ns


def _longest_places(gaps: Gaps, most: int | None) -> Rows:
    """The places of the `most` longest gaps (None: all), the longest first; of equal
    ones the earliest first."""
    length_ns = gaps.end - gaps.begin
    least_ns = 0
    if most is not None and most < len(gaps):
        least_ns = np.partition(length_ns, -most)[-most]
    long_enough = np.flatnonzero(length_ns >= least_ns)  # more than `most` if tied
    order = np.lexsort((gaps.begin[long_enough], -length_ns[long_enough]))
    return long_enough[order][:most]


def described_gaps(
    line: Devices, every: Gaps, reasons: Reasons, which: Rows
) -> list[Gap]:
    """What is known about the gaps at the places `which` of `every`, in this order.
    `reasons`: those of `every`."""
    trace = line.trace
    gaps = every.only(which)
    waits = _waits_at_begin(line, gaps)
    cover = _explained(line, gaps)
    reason_ns = np.stack([column[which] for column in reasons]).T.tolist()
    numbers = line.number(gaps.event).tolist()
    start_ns = (gaps.begin - trace.begin_ns).tolist()
    dur_ns = (gaps.end - gaps.begin).tolist()
    described = []
    for place, number in enumerate(numbers):
        described.append(
            Gap(
                device=exact_id(line.named[number].pid),
                start_ns=start_ns[place],
                dur_ns=dur_ns[place],
                idle=_by_reason(reason_ns[place]),
                previous=_name_of(trace, gaps.before[place]),
                next=_name_of(trace, gaps.event[place]) or "",
                op=_name_of(trace, cover.op[place]),
                annotation=_name_of(trace, cover.annotation[place]),
                module=_module_of(trace, cover.module[place]),
                frame=_name_of(trace, cover.frame[place]),
                drained_by=_name_of(trace, waits[place]),
            )
        )
    return described


def _waits_at_begin(line: Devices, gaps: Gaps) -> Rows:
    """The call inside which the launching thread waited for the device when each gap
    began, if its next event was not launched yet; -1 for none."""
    is_launched_later = line.trace.start[gaps.launch] > gaps.begin
    late_launch = np.where(is_launched_later, gaps.launch, -1)
    return waiting_calls_at(line.trace, line.threads, late_launch, gaps.begin)


def _by_reason(ns_in_order: Sequence[int]) -> dict[str, int]:
    """The times of a gap (ns, in the order of IDLE) by their reasons, without zeros."""
    by_reason = {}
    for reason, ns in zip(IDLE, ns_in_order, strict=True):
        if ns:
            by_reason[reason] = ns
    return by_reason


def _name_of(trace: Trace, row: np.integer) -> str | None:
    """The name of a row, None for -1."""
    return trace.name_of(int(row)) if row >= 0 else None


def _module_of(trace: Trace, row: np.integer) -> str | None:
    """The module of a row, without what the profiler puts before its name; None for
    -1."""
    name = _name_of(trace, row)
    return name.removeprefix(MODULE_PREFIX) if name else None


class Covering(msgspec.Struct, frozen=True, eq=False):
    """What covered most of some stretches of time: rows, -1 for none; arrays of shape
    [stretches]."""

    op: Rows
    annotation: Rows
    module: Rows
    frame: Rows

    @classmethod
    def nothing(cls, stretches: int) -> Covering:
        """Of so many stretches, all covered by nothing; to be filled in place."""

        def nothing() -> Rows:
            return np.full(stretches, -1, dtype=np.intp)

        return cls(
            op=nothing(), annotation=nothing(), module=nothing(), frame=nothing()
        )


def _explained(line: Devices, gaps: Gaps) -> Covering:
    """What covered most of the host part of each gap; of a gap without one, most of the
    launch call that was running."""
    has_host_part = gaps.call_begin > gaps.begin
    begin = np.where(has_host_part, gaps.begin, gaps.call_begin)
    end = np.where(has_host_part, gaps.call_begin, gaps.call_end)
    explained = Covering.nothing(len(gaps))
    for threads, places, on_line in launching(
        line.trace, line.threads, gaps.launch, end > begin
    ):
        cover = covering(line.trace, threads, on_line(begin), on_line(end))
        explained.op[places] = cover.op
        explained.annotation[places] = cover.annotation
        explained.module[places] = cover.module
        explained.frame[places] = cover.frame
    return explained


class Pieces(NamedTuple):
    """Pieces of idle time; arrays of shape [pieces], ns of the file."""

    number: NDArray[np.integer]
    """Of the device."""
    start: Int64s
    end: Int64s


class ReasonTimes(msgspec.Struct, frozen=True, eq=False):
    """When a device was idle for one reason; sorted, disjoint, ns of the file, shape
    [n]. `before`: how much lies before each, then the total; shape [n + 1]."""

    name: str  # a key of IDLE
    start: Int64s
    end: Int64s
    before: Int64s

    def until(self, times: Int64s) -> Int64s:
        """For how long the device was idle for this reason before each time (ns of the
        file); ns, of the shape of `times`."""
        last_begun = np.searchsorted(self.start, times, side="right") - 1
        place = np.maximum(last_begun, 0)
        of_last_ns = np.minimum(times, self.end[place]) - self.start[place]
        until_ns = self.before[place] + of_last_ns
        return np.where(last_begun < 0, 0, until_ns)


class IdleTime(msgspec.Struct, frozen=True, eq=False):
    """The idle time of one device, from the beginning of the trace to its end. `begin`
    and `end` are its gaps in order of time; `longest` are indices among them, the
    longest first, and `told` is what is known about each of these."""

    device: Id
    reasons: tuple[ReasonTimes, ...]
    begin: Int64s
    end: Int64s
    longest: Rows
    told: tuple[Gap, ...]

    def within(self, edges: Int64s) -> Int64s:
        """How long it was idle for each of `reasons` between successive edges (ns of
        the file); ns, of shape [reasons, edges - 1]."""
        idle_ns = np.zeros((len(self.reasons), len(edges) - 1), dtype=np.int64)
        for place, reason in enumerate(self.reasons):
            idle_ns[place] = np.diff(reason.until(edges))
        return idle_ns

    def over(self, begin: int, end: int) -> dict[str, int]:
        """How long it was idle in [begin, end) (ns of the file), by reason, without
        zeros."""
        amounts_ns = self.within(np.array([begin, end]))[:, 0].tolist()
        by_reason = {}
        for reason, ns in zip(self.reasons, amounts_ns, strict=True):
            if ns:
                by_reason[reason.name] = ns
        return by_reason

    def gap_at(self, time: int) -> int:
        """The index of the gap at a time (ns of the file), -1 for none."""
        last_begun = int(np.searchsorted(self.begin, time, side="right")) - 1
        if last_begun < 0 or time >= int(self.end[last_begun]):
            return -1
        return last_begun


def idle_times(line: Devices) -> tuple[IdleTime, ...]:
    """The idle time of each device of a line."""
    gaps = line.gaps
    device_of_gap = line.number(gaps.event)
    edges = np.arange(len(line) + 1)
    first_gap = device_of_gap.searchsorted(edges)
    longest = _longest_of_each(gaps, device_of_gap, first_gap)
    first_longest = device_of_gap[longest].searchsorted(edges)
    told = tuple(described_gaps(line, gaps, line.reasons, longest))
    reasons = _reasons(line)
    idle_times = []
    for device, named in enumerate(line.named):
        of_device = slice(first_gap[device], first_gap[device + 1])
        longest_of_device = slice(first_longest[device], first_longest[device + 1])
        idle_times.append(
            IdleTime(
                device=named.pid,
                reasons=reasons[device],
                begin=gaps.begin[of_device],
                end=gaps.end[of_device],
                longest=longest[longest_of_device] - first_gap[device],
                told=told[longest_of_device],
            )
        )
    return tuple(idle_times)


def _longest_of_each(
    gaps: Gaps, device_of_gap: NDArray[np.integer], first_gap: Rows
) -> Rows:
    """The places of the LONGEST longest gaps of each device, one device after the
    other; of each the longest first, and of equal ones the earliest. `first_gap`: of
    each device."""
    by_length = np.lexsort((gaps.begin, gaps.begin - gaps.end, device_of_gap))
    rank = np.arange(len(by_length)) - first_gap[device_of_gap]
    longest: Rows = by_length[rank < LONGEST]
    return longest


def _reasons(line: Devices) -> list[tuple[ReasonTimes, ...]]:
    """For each device the times of each reason that it has, in the order of IDLE."""
    reasons: list[list[ReasonTimes]] = [[] for _ in line.named]
    for name, all_pieces in zip(IDLE, _pieces_by_reason(line), strict=True):
        for device, times in _times_of_each(name, all_pieces):
            reasons[device].append(times)
    return [tuple(of_device) for of_device in reasons]


def _pieces_by_reason(line: Devices) -> list[list[Pieces]]:
    """The pieces of all idle time of the devices, from the begin of the trace to its
    end, for each reason in the order of IDLE."""
    trace = line.trace
    by_reason: list[list[Pieces]] = [[] for _ in IDLE]
    for gaps in (line.lead(trace.begin_ns), line.gaps):
        number = line.number(gaps.event)
        for reason, stretch in line.stretches(gaps).items():
            holds = stretch.holds
            by_reason[reason].append(
                Pieces(
                    number=number[holds],
                    start=stretch.begin[holds],
                    end=stretch.end[holds],
                )
            )
        for activity, host_pieces in _host_pieces(line, gaps):
            by_reason[HOST + activity].append(host_pieces)
    after_last_event = Pieces(
        number=np.arange(len(line)),
        start=line.end_ns,
        end=np.full(len(line), trace.end_ns),
    )
    by_reason[AFTER].append(after_last_event)
    return by_reason


def _host_pieces(line: Devices, gaps: Gaps) -> Iterator[tuple[int, Pieces]]:
    """The pieces of the host parts of gaps, by the ThreadActivity of the thread that
    launches."""
    number = line.number(gaps.event)
    has_host_part = gaps.call_begin > gaps.begin
    for threads, gap_places, on_line in launching(
        line.trace, line.threads, gaps.launch, has_host_part
    ):
        host_parts = Cover(on_line(gaps.begin), on_line(gaps.call_begin))
        line_to_file_ns = gaps.begin[gap_places] - host_parts.start
        unrecorded = outside(joined(*threads.covers))
        for activity, cover in enumerate((*threads.covers, unrecorded)):
            inside, host_part = pieces(host_parts, cover)
            pieces_in_file = Pieces(
                number=number[gap_places[host_part]],
                start=inside.start + line_to_file_ns[host_part],
                end=inside.end + line_to_file_ns[host_part],
            )
            yield activity, pieces_in_file


def _times_of_each(
    name: str, all_pieces: Sequence[Pieces]
) -> Iterator[tuple[int, ReasonTimes]]:
    """The number of each device that has pieces of a reason, and its times: the pieces,
    which may come in any order, sorted, and adjacent ones as one."""
    if not all_pieces:
        return
    merged = _merged_pieces(all_pieces)
    edges = np.flatnonzero(np.diff(merged.number, prepend=-1, append=-1))
    for first, after_last in pairwise(edges.tolist()):
        start = merged.start[first:after_last]
        end = merged.end[first:after_last]
        before = np.concatenate(([0], np.cumsum(end - start)))
        times = ReasonTimes(name=name, start=start, end=end, before=before)
        yield int(merged.number[first]), times


def _merged_pieces(all_pieces: Sequence[Pieces]) -> Pieces:
    """All pieces by device and start, without empty ones; adjacent pieces of a device
    become one. There must be at least one record."""
    number = np.concatenate([part.number for part in all_pieces])
    start = np.concatenate([part.start for part in all_pieces])
    end = np.concatenate([part.end for part in all_pieces])
    order = np.lexsort((start, number))
    order = order[(start < end)[order]]
    number = number[order]
    start = start[order]
    end = end[order]
    is_apart = (start[1:] != end[:-1]) | (number[1:] != number[:-1])
    is_first = np.append(True, is_apart)[: len(start)]
    is_last = np.append(is_apart, True)[: len(start)]
    return Pieces(number=number[is_first], start=start[is_first], end=end[is_last])


SHARES_OF_A_STRETCH: Final = 10
"""A name that covers less than a tenth of a stretch says nothing about it."""
MAX_DEPTH: Final = 2000
"""How many slices around one moment are examined; Python itself allows 1,000 frames."""


def covering(trace: Trace, line: Threads, begin: Int64s, end: Int64s) -> Covering:
    """The op, the annotation, the module and the frame that covered most of each
    stretch [begin, end) of a line of time (ns)."""

    def touching(kind: ThreadActivity) -> Slices:
        return line.slices(kind).touching(begin, end)

    ops = touching(ThreadActivity.OP)
    annotations = touching(ThreadActivity.ANNOTATION)
    frames = touching(ThreadActivity.PYTHON)
    are_modules = trace.matching(frames.rows, is_module)
    return Covering(
        op=most_of(trace, ops, begin, end),
        annotation=most_of(trace, annotations, begin, end),
        module=most_of(trace, frames.only(are_modules), begin, end),
        frame=most_of(trace, frames.only(~are_modules), begin, end),
    )


def most_of(trace: Trace, slices: Slices, begin: Int64s, end: Int64s) -> Rows:
    """The row that covered most of each stretch [begin, end), -1 for none; shape of
    `begin`. See the head of this file."""
    if not len(slices.rows) or not len(begin):
        return np.full(len(begin), -1, dtype=np.intp)
    rows = _more_than_half(slices, begin, end)
    rest = np.flatnonzero(rows < 0)
    if len(rest):
        begin_of_rest = begin[rest]
        end_of_rest = end[rest]
        touching = slices.touching(begin_of_rest, end_of_rest)
        rows[rest] = _longest_name(trace, touching, begin_of_rest, end_of_rest)
    return rows


def _more_than_half(slices: Slices, begin: Int64s, end: Int64s) -> Rows:
    """The row of the innermost slice that covers more than half of each stretch, -1 for
    none. Such a slice covers the middle of the stretch: those around the middle are
    tried from the inside, at most MAX_DEPTH of them."""
    middle = begin + (end - begin) // 2
    around = EnclosingIndex(slices.end)
    last_begun = slices.start.searchsorted(middle, side="right") - 1
    place = around.last(last_begun, middle)  # -1 for no slice
    for _ in range(MAX_DEPTH):
        inside_begin = np.maximum(slices.start[place], begin)
        inside_ns = np.minimum(slices.end[place], end) - inside_begin
        is_too_short = (place >= 0) & (2 * inside_ns <= end - begin)
        to_go_on = np.flatnonzero(is_too_short)
        if not len(to_go_on):
            return np.append(slices.rows, -1)[place]
        place[to_go_on] = around.last(place[to_go_on] - 1, middle[to_go_on])
    place[to_go_on] = -1
    return np.append(slices.rows, -1)[place]


def _longest_name(trace: Trace, slices: Slices, begin: Int64s, end: Int64s) -> Rows:
    """For each stretch the first slice of the name that was innermost in it for the
    longest time, -1 if that is less than 1 / SHARES_OF_A_STRETCH of it; of several such
    names the one that was innermost first."""
    rows = np.full(len(begin), -1, dtype=np.intp)
    if not len(slices.rows):
        return rows
    names = _NamesInStretches.of(trace, slices, Cover(begin, end))
    if not len(names.row):
        return rows
    length_ns = (end - begin)[names.stretch]
    is_enough = SHARES_OF_A_STRETCH * names.total_ns >= length_ns
    stretch = names.stretch[is_enough]
    row = names.row[is_enough]
    # Of several names of a stretch the last one is kept: the longest, of those the first.
    by_size = np.lexsort((-names.first_ns[is_enough], names.total_ns[is_enough]))
    rows[stretch[by_size]] = row[by_size]
    return rows


class _NamesInStretches(NamedTuple):
    """The names whose slices were innermost in some stretches, each once in each
    stretch; arrays of shape [names]."""

    stretch: Rows
    """The place of the stretch."""
    row: Rows
    """The first slice of the name that was innermost in the stretch."""
    first_ns: Int64s
    """When it first was; a place on the line."""
    total_ns: Int64s
    """For how long slices of the name were."""

    @classmethod
    def of(cls, trace: Trace, slices: Slices, stretches: Cover) -> _NamesInStretches:
        """The names of these slices, of which there is at least one."""
        parts = slices.parts()
        inside, stretch = pieces(stretches, Cover(parts.start, parts.end))
        row = parts.rows[parts.end.searchsorted(inside.start, side="right")]
        by_name = np.lexsort((trace.name[row], stretch))
        stretch = stretch[by_name]
        row = row[by_name]
        start = inside.start[by_name]
        length_ns = inside.end[by_name] - start
        is_other_stretch = np.diff(stretch) != 0
        is_other_name = np.diff(trace.name[row]) != 0
        changes = np.flatnonzero(is_other_stretch | is_other_name) + 1
        first = np.concatenate(([0], changes))[: len(row)]  # none without a piece
        total_ns = length_ns[:0]
        if len(first):
            total_ns = np.add.reduceat(length_ns, first)
        return cls(stretch[first], row[first], start[first], total_ns)
