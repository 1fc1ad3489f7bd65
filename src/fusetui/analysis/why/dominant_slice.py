"""Which op, annotation, module and Python frame covered most of some stretches of a thread's time.

It is the innermost slice that covers more than half of the stretch. If there is none, it is the
first slice of the name that was innermost for the longest time, if that is at least a tenth of it;
of several such names, the one that was innermost first.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.why.host import Host, Slices, Threads, matching
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, Reach, pieces
from fusetui.trace.program.regions import is_module

LEAST = 10
"""A name that covers less than 1 / LEAST of a stretch says nothing about it."""

DEEPEST = 2000
"""How many slices around one moment are examined; Python itself allows 1,000 frames."""


class Covering(msgspec.Struct, frozen=True, eq=False):
    """Rows of shape [stretches], -1 for none."""

    op: Rows
    annotation: Rows
    module: Rows
    frame: Rows


def covering(trace: Trace, line: Threads, begin: Int64s, end: Int64s) -> Covering:
    """What covered most of each stretch [begin, end) of a line of time (ns)."""
    frames = line.slices(Host.PYTHON)
    calls = matching(trace, frames.rows, is_module)
    return Covering(
        op=most_of(trace, line.slices(Host.OP), begin, end),
        annotation=most_of(trace, line.slices(Host.ANNOTATION), begin, end),
        module=most_of(trace, frames.only(calls), begin, end),
        frame=most_of(trace, frames.only(~calls), begin, end),
    )


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
        inside = np.minimum(slices.end[place], end) - np.maximum(slices.start[place], begin)
        short = np.flatnonzero((place >= 0) & (2 * inside <= end - begin))
        if not len(short):
            return np.append(slices.rows, -1)[place]
        place[short] = reach.last(place[short] - 1, middle[short])
    place[short] = -1
    return np.append(slices.rows, -1)[place]


def _longest_name(trace: Trace, slices: Slices, begin: Int64s, end: Int64s) -> Rows:
    """By the time for which slices of one name are the innermost ones of each stretch."""
    found = np.full(len(begin), -1, dtype=np.intp)
    if not len(slices.rows):
        return found
    parts = slices.parts()
    inside, stretch = pieces(Cover(begin, end), Cover(parts.start, parts.end))
    row = parts.rows[parts.end.searchsorted(inside.start, side="right")]
    order = np.lexsort((trace.name[row], stretch))
    stretch, row, start, ns = (
        column[order] for column in (stretch, row, inside.start, inside.end - inside.start)
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
