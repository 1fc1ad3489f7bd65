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


def longest_gaps(
    lines: Sequence[Devices],
    most: int | None = LONGEST,
    window: tuple[int, int] | None = None,
) -> LongestGaps:
    """The longest gaps of all devices together (None: all). `window`: what lies in
    [begin, end), in ns of the file; a gap across its border counts with the part
    inside, as in the account."""
    described: list[tuple[Gap, tuple[int, int]]] = []
    count = 0
    for line in lines:
        gaps, reasons = line.idle_in(window)
        count += len(gaps)
        longest = _longest_places(gaps, most)
        events = gaps.event[longest].tolist()
        launches = gaps.launch[longest].tolist()
        rows = zip(events, launches, strict=True)
        described += zip(told_of(line, gaps, reasons, longest), rows, strict=True)
    described.sort(key=lambda gap_and_rows: _by_length(gap_and_rows[0]))
    described = described[:most]
    return LongestGaps(
        gaps=tuple(gap for gap, _ in described),
        count=count,
        rows=tuple(rows for _, rows in described),
    )


def _by_length(gap: Gap) -> tuple[int, int]:
    return -gap.dur_ns, gap.start_ns


def _longest_places(gaps: Gaps, most: int | None) -> Rows:
    """The places of the longest gaps, the longest first, then the first."""
    length_ns = gaps.end - gaps.begin
    least_ns = 0
    if most is not None and most < len(gaps):
        least_ns = np.partition(length_ns, -most)[-most]
    among = np.flatnonzero(length_ns >= least_ns)
    order = np.lexsort((gaps.begin[among], -length_ns[among]))
    return among[order][:most]


def told_of(line: Devices, every: Gaps, reasons: Reasons, which: Rows) -> list[Gap]:
    """What is known about some of these gaps, by their places and with their
    reasons."""
    trace = line.trace
    gaps = every.only(which)
    launched_later = trace.start[gaps.launch] > gaps.begin
    late_launch = np.where(launched_later, gaps.launch, -1)
    drained_by = waiting_calls_at(trace, line.threads, late_launch, gaps.begin)
    cover = _explained(line, gaps)
    reason_ns = np.stack([column[which] for column in reasons]).T.tolist()
    numbers = line.number(gaps.event).tolist()
    start_ns = (gaps.begin - trace.begin_ns).tolist()
    dur_ns = (gaps.end - gaps.begin).tolist()

    def name_of(row: np.integer) -> str | None:
        return trace.name_of(int(row)) if row >= 0 else None

    described = []
    for place, number in enumerate(numbers):
        reasons_of_gap = zip(IDLE, reason_ns[place], strict=True)
        module = name_of(cover.module[place])
        described.append(
            Gap(
                device=exact_id(line.named[number].pid),
                start_ns=start_ns[place],
                dur_ns=dur_ns[place],
                idle={reason: ns for reason, ns in reasons_of_gap if ns},
                previous=name_of(gaps.before[place]),
                next=name_of(gaps.event[place]) or "",
                op=name_of(cover.op[place]),
                annotation=name_of(cover.annotation[place]),
                module=module.removeprefix(MODULE_PREFIX) if module else None,
                frame=name_of(cover.frame[place]),
                drained_by=name_of(drained_by[place]),
            )
        )
    return described


class Covering(msgspec.Struct, frozen=True, eq=False):
    """What covered most of some stretches of time: rows, -1 for none; arrays of shape
    [stretches]."""

    op: Rows
    annotation: Rows
    module: Rows
    frame: Rows


def _explained(line: Devices, gaps: Gaps) -> Covering:
    """What covered most of the host part of gaps; for a gap without one, of the launch
    call that was running."""
    has_host_part = gaps.called > gaps.begin
    begin = np.where(has_host_part, gaps.begin, gaps.called)
    end = np.where(has_host_part, gaps.called, gaps.returned)
    nothing = np.full(len(gaps), -1, dtype=np.intp)
    found = Covering(
        op=nothing,
        annotation=nothing.copy(),
        module=nothing.copy(),
        frame=nothing.copy(),
    )
    for threads, own, placed in launching(
        line.trace, line.threads, gaps.launch, end > begin
    ):
        cover = covering(line.trace, threads, placed(begin), placed(end))
        found.op[own] = cover.op
        found.annotation[own] = cover.annotation
        found.module[own] = cover.module
        found.frame[own] = cover.frame
    return found


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
        place = np.searchsorted(self.start, times, side="right") - 1
        inside = np.maximum(place, 0)
        part = np.minimum(times, self.end[inside]) - self.start[inside]
        return np.where(place < 0, 0, self.before[inside] + part)


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
        the file); shape [reasons, edges - 1]."""
        found = [np.diff(reason.until(edges)) for reason in self.reasons]
        return np.array(found, dtype=np.int64).reshape(len(found), len(edges) - 1)

    def over(self, begin: int, end: int) -> dict[str, int]:
        amounts = self.within(np.array([begin, end]))[:, 0].tolist()
        return {
            reason.name: ns
            for reason, ns in zip(self.reasons, amounts, strict=True)
            if ns
        }

    def gap_at(self, time: int) -> int:
        """The index of the gap at a time (ns of the file), -1 for none."""
        place = int(np.searchsorted(self.begin, time, side="right")) - 1
        return place if place >= 0 and time < int(self.end[place]) else -1


def idle_times(line: Devices) -> tuple[IdleTime, ...]:
    """The idle time of each device of a line."""
    gaps = line.gaps
    number = line.number(gaps.event)
    edges = np.arange(len(line) + 1)
    first_gap = number.searchsorted(edges)
    longest = np.lexsort((gaps.begin, gaps.begin - gaps.end, number))
    rank = np.arange(len(longest)) - first_gap[number]
    longest = longest[rank < LONGEST]
    first_told = number[longest].searchsorted(edges)
    told = tuple(told_of(line, gaps, line.reasons, longest))
    reasons = _reasons(line)
    idle_times = []
    for device, named in enumerate(line.named):
        of_gaps = slice(first_gap[device], first_gap[device + 1])
        of_told = slice(first_told[device], first_told[device + 1])
        idle_times.append(
            IdleTime(
                device=named.pid,
                reasons=reasons[device],
                begin=gaps.begin[of_gaps],
                end=gaps.end[of_gaps],
                longest=longest[of_told] - first_gap[device],
                told=told[of_told],
            )
        )
    return tuple(idle_times)


def _reasons(line: Devices) -> list[tuple[ReasonTimes, ...]]:
    """The reasons of each device, in the order of IDLE."""
    trace = line.trace
    pieces_of_reason: list[list[Pieces]] = [[] for _ in IDLE]
    for gaps in (line.lead(trace.begin_ns), line.gaps):
        number = line.number(gaps.event)
        for reason, stretch in line.stretches(gaps).items():
            which = stretch.holds
            pieces_of_reason[reason].append(
                Pieces(number[which], stretch.begin[which], stretch.end[which])
            )
        for kind, found in _host_pieces(line, gaps):
            pieces_of_reason[HOST + kind].append(found)
    ends = np.full(len(line), trace.end_ns)
    pieces_of_reason[AFTER].append(Pieces(np.arange(len(line)), line.end_ns, ends))
    reasons: list[list[ReasonTimes]] = [[] for _ in line.named]
    for name, found_pieces in zip(IDLE, pieces_of_reason, strict=True):
        for device, times in _of_each(name, found_pieces):
            reasons[device].append(times)
    return [tuple(of_device) for of_device in reasons]


def _host_pieces(line: Devices, gaps: Gaps) -> Iterator[tuple[int, Pieces]]:
    """The pieces of the host parts of gaps, by the ThreadActivity of what the thread did."""
    number = line.number(gaps.event)
    has_host_part = gaps.called > gaps.begin
    for threads, own, placed in launching(
        line.trace, line.threads, gaps.launch, has_host_part
    ):
        waiting = Cover(placed(gaps.begin), placed(gaps.called))
        to_file_ns = gaps.begin[own] - waiting.start
        unrecorded = outside(joined(*threads.covers))
        for kind, cover in enumerate((*threads.covers, unrecorded)):
            inside, gap = pieces(waiting, cover)
            yield (
                kind,
                Pieces(
                    number=number[own[gap]],
                    start=inside.start + to_file_ns[gap],
                    end=inside.end + to_file_ns[gap],
                ),
            )


def _of_each(name: str, every: Sequence[Pieces]) -> Iterator[tuple[int, ReasonTimes]]:
    """Stretches from pieces in any order, for each device that has any; adjacent pieces
    become one."""
    if not every:
        return
    number = np.concatenate([part.number for part in every])
    start = np.concatenate([part.start for part in every])
    end = np.concatenate([part.end for part in every])
    order = np.lexsort((start, number))
    order = order[(start < end)[order]]
    number = number[order]
    start = start[order]
    end = end[order]
    is_apart = (start[1:] != end[:-1]) | (number[1:] != number[:-1])
    is_first = np.append(True, is_apart)[: len(start)]
    is_last = np.append(is_apart, True)[: len(start)]
    number = number[is_first]
    start = start[is_first]
    end = end[is_last]
    edges = np.flatnonzero(np.diff(number, prepend=-1, append=-1))
    for first, last in pairwise(edges.tolist()):
        own = slice(first, last)
        before = np.concatenate(([0], np.cumsum((end - start)[own])))
        yield (
            int(number[first]),
            ReasonTimes(name=name, start=start[own], end=end[own], before=before),
        )


SHARES_OF_A_STRETCH: Final = 10
"""A name that covers less than a tenth of a stretch says nothing about it."""
MAX_DEPTH: Final = 2000
"""How many slices around one moment are examined; Python itself allows 1,000 frames."""


def covering(trace: Trace, line: Threads, begin: Int64s, end: Int64s) -> Covering:
    """The op, the annotation, the module and the frame that covered most of each
    stretch [begin, end) of a line of time (ns)."""

    def touching(kind: ThreadActivity) -> Slices:
        return line.slices(kind).touching(begin, end)

    frames = touching(ThreadActivity.PYTHON)
    are_modules = trace.matching(frames.rows, is_module)
    return Covering(
        op=most_of(trace, touching(ThreadActivity.OP), begin, end),
        annotation=most_of(trace, touching(ThreadActivity.ANNOTATION), begin, end),
        module=most_of(trace, frames.only(are_modules), begin, end),
        frame=most_of(trace, frames.only(~are_modules), begin, end),
    )


def most_of(trace: Trace, slices: Slices, begin: Int64s, end: Int64s) -> Rows:
    """The row that covered most of each stretch, -1 for none; shape of `begin`."""
    rows = np.full(len(begin), -1, dtype=np.intp)
    if len(slices.rows) and len(begin):
        rows[:] = _more_than_half(slices, begin, end)
        rest = np.flatnonzero(rows < 0)
        if len(rest):
            touching = slices.touching(begin[rest], end[rest])
            rows[rest] = _longest_name(trace, touching, begin[rest], end[rest])
    return rows


def _more_than_half(slices: Slices, begin: Int64s, end: Int64s) -> Rows:
    """A slice that covers more than half of a stretch covers its middle."""
    middle = begin + (end - begin) // 2
    reach = EnclosingIndex(slices.end)
    place = reach.last(slices.start.searchsorted(middle, side="right") - 1, middle)
    for _ in range(MAX_DEPTH):
        inside_end = np.minimum(slices.end[place], end)
        inside_ns = inside_end - np.maximum(slices.start[place], begin)
        is_short = (place >= 0) & (2 * inside_ns <= end - begin)
        short = np.flatnonzero(is_short)
        if not len(short):
            return np.append(slices.rows, -1)[place]
        place[short] = reach.last(place[short] - 1, middle[short])
    place[short] = -1
    return np.append(slices.rows, -1)[place]


def _longest_name(trace: Trace, slices: Slices, begin: Int64s, end: Int64s) -> Rows:
    """By the time for which slices of one name are the innermost ones of each
    stretch."""
    rows = np.full(len(begin), -1, dtype=np.intp)
    if not len(slices.rows):
        return rows
    parts = slices.parts()
    inside, stretch = pieces(Cover(begin, end), Cover(parts.start, parts.end))
    row = parts.rows[parts.end.searchsorted(inside.start, side="right")]
    by_name = np.lexsort((trace.name[row], stretch))
    stretch = stretch[by_name]
    row = row[by_name]
    start = inside.start[by_name]
    ns = (inside.end - inside.start)[by_name]
    is_other_name = (np.diff(stretch) != 0) | (np.diff(trace.name[row]) != 0)
    first = np.concatenate(([0], np.flatnonzero(is_other_name) + 1))[: len(row)]
    if not len(first):
        return rows
    total_ns = np.add.reduceat(ns, first)
    length_ns = (end - begin)[stretch[first]]
    is_enough = SHARES_OF_A_STRETCH * total_ns >= length_ns
    first = first[is_enough]
    # The largest, and the first of those, is assigned last.
    by_size = np.lexsort((-start[first], total_ns[is_enough]))
    rows[stretch[first][by_size]] = row[first][by_size]
    return rows
