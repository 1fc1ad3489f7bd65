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

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.devices import AFTER, HOST, Devices, Gaps, Reasons
from fusetui.analysis.why.host import Host, Slices, Threads, launching, running
from fusetui.analysis.why.model import IDLE, Gap
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id, exact_id
from fusetui.trace.model.intervals import Cover, Reach, joined, outside, pieces
from fusetui.trace.program.regions import MODULE_PREFIX, is_module

LONGEST = 100  # the number of gaps that are reported, unless all are asked for


def longest_gaps(
    lines: Sequence[Devices],
    most: int | None = LONGEST,
    window: tuple[int, int] | None = None,
) -> tuple[tuple[Gap, ...], int, tuple[tuple[int, int], ...]]:
    """The longest gaps of all devices together (None: all), how many there are, and of
    each of those told the rows of the event that ends it and of that event's launch
    (-1: none). `window`: what lies in [begin, end), in ns of the file; a gap across its
    border counts with the part inside, as in the account."""
    found: list[tuple[Gap, tuple[int, int]]] = []
    number = 0
    for line in lines:
        gaps, why = line.idle_in(window)
        number += len(gaps)
        lasted, least = gaps.end - gaps.begin, 0
        if most is not None and most < len(gaps):
            least = np.partition(lasted, -most)[-most]
        among = np.flatnonzero(lasted >= least)
        which = among[np.lexsort((gaps.begin[among], -lasted[among]))][:most]
        rows = zip(gaps.event[which].tolist(), gaps.launch[which].tolist(), strict=True)
        found += zip(told_of(line, gaps, why, which), rows, strict=True)
    found.sort(key=lambda one: (-one[0].dur_ns, one[0].start_ns))
    return (
        tuple(gap for gap, _ in found[:most]),
        number,
        tuple(rows for _, rows in found[:most]),
    )


def told_of(line: Devices, every: Gaps, why: Reasons, which: Rows) -> list[Gap]:
    """What is known about some of these gaps, by their places and with their
    reasons."""
    trace, gaps = line.trace, every.only(which)
    late = np.where(trace.start[gaps.launch] > gaps.begin, gaps.launch, -1)
    drained = running(trace, line.threads, late, gaps.begin)
    named = (gaps.before, gaps.event, *_explained(line, gaps), drained)
    previous, next_, op, annotation, module, frame, drained_by = (
        [trace.name_of(row) if row >= 0 else None for row in own.tolist()]
        for own in named
    )
    reasons = np.stack([column[which] for column in why]).T.tolist()
    columns = (
        [
            exact_id(line.named[number].pid)
            for number in line.number(gaps.event).tolist()
        ],
        (gaps.begin - trace.begin_ns).tolist(),
        (gaps.end - gaps.begin).tolist(),
        [
            {name: ns for name, ns in zip(IDLE, own, strict=True) if ns}
            for own in reasons
        ],
        previous,
        [name or "" for name in next_],
        op,
        annotation,
        [name.removeprefix(MODULE_PREFIX) if name else None for name in module],
        frame,
        drained_by,
    )
    return [Gap(*fields) for fields in zip(*columns, strict=True)]


def _explained(line: Devices, gaps: Gaps) -> Rows:
    """The rows that covered most of the host part of gaps; for a gap without one, of
    the launch call that was running."""
    waits = gaps.called > gaps.begin
    first = np.where(waits, gaps.begin, gaps.called)
    last = np.where(waits, gaps.called, gaps.returned)
    found = np.full((4, len(gaps)), -1, dtype=np.intp)
    for threads, own, placed in launching(
        line.trace, line.threads, gaps.launch, last > first
    ):
        found[:, own] = covering(line.trace, threads, placed(first), placed(last))
    return found


Pieces = tuple[NDArray[np.integer], Int64s, Int64s]
"""Numbers of devices or gaps, starts and ends in ns of the file."""


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
    gaps = line.gaps
    number, numbers = line.number(gaps.event), np.arange(len(line) + 1)
    order = np.lexsort((gaps.begin, gaps.begin - gaps.end, number))
    gap = number.searchsorted(numbers)
    order = order[np.arange(len(order)) - gap[number] < LONGEST]
    told, own = (
        tuple(told_of(line, gaps, line.reasons, order)),
        number[order].searchsorted(numbers),
    )
    reasons = _reasons(line)
    return tuple(
        IdleTime(
            device=named.pid,
            reasons=reasons[n],
            begin=gaps.begin[gap[n] : gap[n + 1]],
            end=gaps.end[gap[n] : gap[n + 1]],
            longest=order[own[n] : own[n + 1]] - gap[n],
            told=told[own[n] : own[n + 1]],
        )
        for n, named in enumerate(line.named)
    )


def _reasons(line: Devices) -> list[tuple[ReasonTimes, ...]]:
    trace = line.trace
    found: list[list[Pieces]] = [[] for _ in IDLE]
    for gaps in (line.lead(trace.begin_ns), line.gaps):
        number, waits = line.number(gaps.event), gaps.called > gaps.begin
        for reason, (which, start, end) in line.stretches(gaps).items():
            found[reason].append((number[which], start[which], end[which]))
        for threads, own, placed in launching(
            line.trace, line.threads, gaps.launch, waits
        ):
            waiting = Cover(placed(gaps.begin), placed(gaps.called))
            back = gaps.begin[own] - waiting.start
            for kind, cover in enumerate(
                (*threads.covers, outside(joined(*threads.covers)))
            ):
                (start, end, _), place = pieces(waiting, cover)
                piece = number[own[place]], start + back[place], end + back[place]
                found[HOST + kind].append(piece)
    found[AFTER].append(
        (np.arange(len(line)), line.end_ns, np.full(len(line), trace.end_ns))
    )
    reasons: list[list[ReasonTimes]] = [[] for _ in line.named]
    for name, those in zip(IDLE, found, strict=True):
        for n, times in _of_each(name, those):
            reasons[n].append(times)
    return [tuple(own) for own in reasons]


def _of_each(name: str, found: Sequence[Pieces]) -> Iterator[tuple[int, ReasonTimes]]:
    """Stretches from pieces in any order, for each device that has any; adjacent pieces
    become one."""
    if not found:
        return
    number, start, end = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.lexsort((start, number))
    order = order[(start < end)[order]]
    number, start, end = number[order], start[order], end[order]
    new = (start[1:] != end[:-1]) | (number[1:] != number[:-1])
    first, last = np.append(True, new)[: len(start)], np.append(new, True)[: len(start)]
    number, start, end = number[first], start[first], end[last]
    lasted = end - start
    for a, b in pairwise(
        np.flatnonzero(np.diff(number, prepend=-1, append=-1)).tolist()
    ):
        before = np.concatenate(([0], np.cumsum(lasted[a:b])))
        yield int(number[a]), ReasonTimes(name, start[a:b], end[a:b], before)


LEAST = 10  # a name that covers less than 1 / LEAST of a stretch says nothing about it

# how many slices around one moment are examined; Python itself allows 1,000 frames
DEEPEST = 2000


def covering(trace: Trace, line: Threads, begin: Int64s, end: Int64s) -> Rows:
    """The op, the annotation, the module and the frame that covered most of each
    stretch [begin, end) of a line of time (ns): rows of shape [4, stretches], -1 for
    none."""
    kinds = (Host.OP, Host.ANNOTATION, Host.PYTHON)
    *others, frames = (line.slices(kind).touching(begin, end) for kind in kinds)
    calls = trace.matching(frames.rows, is_module)
    every = (*others, frames.only(calls), frames.only(~calls))
    return np.stack([most_of(trace, slices, begin, end) for slices in every])


def most_of(trace: Trace, slices: Slices, begin: Int64s, end: Int64s) -> Rows:
    """The row that covered most of each stretch, -1 for none; shape of `begin`."""
    found = np.full(len(begin), -1, dtype=np.intp)
    if len(slices.rows) and len(begin):
        found[:] = _more_than_half(slices, begin, end)
        rest = np.flatnonzero(found < 0)
        if len(rest):
            few = slices.touching(begin[rest], end[rest])
            found[rest] = _longest_name(trace, few, begin[rest], end[rest])
    return found


def _more_than_half(slices: Slices, begin: Int64s, end: Int64s) -> Rows:
    """A slice that covers more than half of a stretch covers its middle."""
    middle = begin + (end - begin) // 2
    reach = Reach(slices.end)
    place = reach.last(slices.start.searchsorted(middle, side="right") - 1, middle)
    for _ in range(DEEPEST):
        inside = np.minimum(slices.end[place], end) - np.maximum(
            slices.start[place], begin
        )
        short = np.flatnonzero((place >= 0) & (2 * inside <= end - begin))
        if not len(short):
            return np.append(slices.rows, -1)[place]
        place[short] = reach.last(place[short] - 1, middle[short])
    place[short] = -1
    return np.append(slices.rows, -1)[place]


def _longest_name(trace: Trace, slices: Slices, begin: Int64s, end: Int64s) -> Rows:
    """By the time for which slices of one name are the innermost ones of each
    stretch."""
    found = np.full(len(begin), -1, dtype=np.intp)
    if not len(slices.rows):
        return found
    parts = slices.parts()
    inside, stretch = pieces(Cover(begin, end), Cover(parts.start, parts.end))
    row = parts.rows[parts.end.searchsorted(inside.start, side="right")]
    order = np.lexsort((trace.name[row], stretch))
    stretch, row, start, ns = (
        column[order]
        for column in (stretch, row, inside.start, inside.end - inside.start)
    )
    new = (np.diff(stretch) != 0) | (np.diff(trace.name[row]) != 0)
    first = np.concatenate(([0], np.flatnonzero(new) + 1))[: len(row)]
    if not len(first):
        return found
    total = np.add.reduceat(ns, first)
    enough = LEAST * total >= (end - begin)[stretch[first]]
    first, total = first[enough], total[enough]
    # The largest, and the first of those, is assigned last.
    by_size = np.lexsort((-start[first], total))
    found[stretch[first][by_size]] = row[first][by_size]
    return found
