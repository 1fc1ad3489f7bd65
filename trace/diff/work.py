"""The work of a trace: GPU events by step, or CPU ops by step in traces without a GPU."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.aggregates import self_ns
from fusetui.trace.categories import Role
from fusetui.trace.columns import Trace
from fusetui.trace.diff.names import is_compiler, is_metadata
from fusetui.trace.diff.windows import Windows, windows, without_odd
from fusetui.trace.format import count

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]

OWN_WORK = 0.5
"""An op that calls others does work of its own when this share of its time is its own."""


class Work(msgspec.Struct, frozen=True, eq=False):
    """Every piece of work in the windows used, sorted by (window, lane, start).

    Arrays have the shape [pieces]. A lane is a stream, or a CPU thread in traces without a GPU.
    """

    trace: Trace
    label: str
    gpu: bool
    windows: Windows
    row: Rows
    window: Rows
    lane: Rows
    op: Rows  # the row of the innermost CPU op, -1 for none
    ns: Int64s  # of a GPU event: its duration; of a CPU op: what no inner op took

    def of_window(self, number: int) -> slice:
        first, last = np.searchsorted(self.window, [number, number + 1])
        return slice(int(first), int(last))


def works(a: Trace, b: Trace, labels: tuple[str, str]) -> tuple[Work, Work]:
    """The work of two traces, by the same rule for both where neither has GPU events."""
    own = working_names(t for t in (a, b) if not len(t.gpu_rows))
    return _work(a, labels[0], own), _work(b, labels[1], own)


def working_names(traces: Iterable[Trace]) -> frozenset[str]:
    """CPU ops that do work of their own: those that compute something and mostly by themselves.

    Ops that only describe tensors, and what torch.compile wraps around a program, are dispatch.
    """
    own: dict[str, int] = {}
    total: dict[str, int] = {}
    for trace in traces:
        rows = trace.rows_of(Role.OP)
        sums = np.zeros((2, len(trace.names)), dtype=np.int64)
        np.add.at(sums[0], trace.name[rows], self_ns(trace)[rows])
        np.add.at(sums[1], trace.name[rows], trace.dur[rows])
        for number in np.unique(trace.name[rows]).tolist():
            name = trace.names[number]
            own[name] = own.get(name, 0) + int(sums[0, number])
            total[name] = total.get(name, 0) + int(sums[1, number])
    return frozenset(
        name
        for name in total
        if own[name] >= OWN_WORK * total[name] and not (is_metadata(name) or is_compiler(name))
    )


def working_ops(trace: Trace, own: frozenset[str]) -> Rows:
    """The rows of CPU ops of these names."""
    named = np.array([name in own for name in trace.names] or [False])
    rows = trace.rows_of(Role.OP)
    found: Rows = rows[named[trace.name[rows]]]
    return found


def _work(trace: Trace, label: str, own: frozenset[str]) -> Work:
    gpu = len(trace.gpu_rows) > 0
    found = windows(trace, label)
    rows, times = _gpu_rows(trace, found) if gpu else _cpu_rows(trace, own)
    inside = found.index_of(times)
    if found.whole:
        inside = np.zeros(len(rows), dtype=np.intp)
    found = _with_note(found, trace, gpu, label)
    items = np.bincount(inside[inside >= 0], minlength=len(found))
    used = without_odd(found, items, label)
    kept = np.searchsorted(found.start, used.start)
    renumbered = np.full(len(found) + 1, -1, dtype=np.intp)
    renumbered[kept] = np.arange(len(used))
    window = renumbered[inside]
    rows, window = rows[window >= 0], window[window >= 0]
    lane = _lanes(trace)[trace.track[rows]]
    order = np.lexsort((trace.order[rows], trace.start[rows], lane, window))
    rows = rows[order]
    op = trace.op[rows].astype(np.intp) if gpu else rows
    ns = trace.dur[rows] if gpu else self_ns(trace)[rows]
    return Work(trace, label, gpu, used, rows, window[order], lane[order], op, ns)


def _gpu_rows(trace: Trace, found: Windows) -> tuple[Rows, Int64s]:
    """GPU rows and the time that places each in a window: that of its launch call."""
    rows = trace.gpu_rows
    if found.whole:
        return rows, trace.start[rows]
    rows = rows[trace.launch[rows] >= 0]
    return rows, trace.start[trace.launch[rows]]


def _cpu_rows(trace: Trace, own: frozenset[str]) -> tuple[Rows, Int64s]:
    rows = working_ops(trace, own)
    return rows, trace.start[rows]


def _with_note(found: Windows, trace: Trace, gpu: bool, label: str) -> Windows:
    """Says how many GPU events belong to no step because their launch was not recorded."""
    unlinked = int((trace.launch[trace.gpu_rows] < 0).sum()) if gpu and not found.whole else 0
    if not unlinked:
        return found
    note = (
        f"{label}: {count(unlinked)} of {count(len(trace.gpu_rows))} GPU events belong to no step,"
        " because their launch was not recorded"
    )
    return found.only(np.arange(len(found)), note)


def _lanes(trace: Trace) -> Rows:
    """The number of the thread or stream of each track; sub-rows share that of their lane."""
    numbers: dict[tuple[object, object], int] = {}
    found = [numbers.setdefault((t.pid, t.tid), len(numbers)) for t in trace.tracks]
    return np.array(found or [0], dtype=np.intp)
