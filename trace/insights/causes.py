"""Which slices of CPU threads the idle time of the devices is due to."""

from __future__ import annotations

import numpy as np

from fusetui.trace.insights.account import accounts
from fusetui.trace.insights.cover import Cover, cover_of, innermost, without
from fusetui.trace.insights.facts import Facts
from fusetui.trace.insights.host import LAYERS, Threads, together
from fusetui.trace.insights.idle import Idle, Int64s, Rows, on_line
from fusetui.trace.model.columns import Trace


def idle_causes(trace: Trace) -> tuple[Rows, Int64s] | None:
    """Rows of CPU threads, and how long (ns) a device waited for a launch while each of them was
    the innermost slice of the launching thread: a row may occur several times, and time in which
    only an annotation was recorded is left out. None if no launch call is known.
    """
    facts = Facts(accounts(trace))
    if not facts.has_launches:
        return None
    found = [
        part
        for idle in facts.idle
        for line in facts.accounts.threads
        for part in _on(line, _waiting(trace, line, idle))
    ]
    none = np.empty(0, dtype=np.int64)
    rows = np.concatenate([none, *(rows for rows, _ in found)]).astype(np.intp)
    return rows, np.concatenate([none, *(ns for _, ns in found)])


def _waiting(trace: Trace, line: Threads, idle: Idle) -> Cover:
    """The host parts of the gaps of a device, as times of the threads that launched then."""
    places, begin, _ = on_line(trace, line, idle)
    until = line.on_line(idle.track(trace)[places], idle.called[places])
    late = until > begin
    return cover_of(begin[late], until[late])


def _on(line: Threads, waiting: Cover) -> list[tuple[Rows, Int64s]]:
    found = []
    for kinds in LAYERS[:-1]:  # without annotations
        touching = [line.slices(kind).touching(*waiting) for kind in kinds]
        rows, start, end = together(touching).columns
        if len(rows):
            times, place = innermost(start, end)
            inside = place[:-1] >= 0
            ns = waiting.within(times[:-1][inside], times[1:][inside])
            found.append((rows[place[:-1][inside]], ns))
            waiting = without(waiting, cover_of(start, end))
    return found
