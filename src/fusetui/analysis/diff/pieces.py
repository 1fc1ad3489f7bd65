"""The work of a trace: GPU events by step, or CPU ops by step in traces without a GPU."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.diff.windows import Windows, windows, without_odd
from fusetui.analysis.questions.computing import computing_ops
from fusetui.gpu.kinds import is_collective
from fusetui.text.figures import count, plural
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import covered_until, union


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
    ns: Int64s  # its duration

    def only(self, windows: list[int]) -> Work:
        """The work of some of its windows."""
        if len(windows) == len(self.windows):
            return self
        renumbered = np.full(len(self.windows), -1, dtype=np.intp)
        renumbered[windows] = np.arange(len(windows))
        window = renumbered[self.window]
        kept = window >= 0
        left_out = plural(len(self.windows) - len(windows), "step")
        note = f"{self.label}: {left_out} left out, as on the other side"
        used = self.windows.only(np.array(windows, dtype=np.intp), note)
        columns = {of: getattr(self, of)[kept] for of in ("row", "lane", "op", "ns")}
        return replace(self, windows=used, window=window[kept], **columns)

    def of_window(self, number: int) -> slice:
        first, last = np.searchsorted(self.window, [number, number + 1])
        return slice(int(first), int(last))


def in_common(a: Work, b: Work) -> tuple[Work, Work]:
    """Of two traces with equally many steps: the steps that both use. A step left out on one side
    has nothing to be compared with."""
    if a.windows.all_found != b.windows.all_found or not (len(a.windows) and len(b.windows)):
        return a, b
    common = set(a.windows.all_places) & set(b.windows.all_places)
    if not common:
        return a, b
    found = [w.only([n for n, p in enumerate(w.windows.all_places) if p in common]) for w in (a, b)]
    return found[0], found[1]


def work_of(trace: Trace, label: str, step_by: str | None = None) -> Work:
    """The work of a trace in its steps; `label` is its name in notes. Raises NoStepsError."""
    gpu = len(trace.gpu_rows) > 0
    found = windows(trace, label, step_by)
    ops = computing_ops(trace) if not gpu else trace.gpu_rows
    rows, times = _gpu_rows(trace, found) if gpu else (ops, trace.start[ops])
    inside = found.index_of(times)
    if found.whole:
        inside = np.zeros(len(rows), dtype=np.intp)
    if gpu and not found.whole:
        note = _left_out(trace, inside, found.of_gpu)
        found = found.only(np.arange(len(found)), f"{label}: {note}" if note else "")
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
    return Work(trace, label, gpu, used, rows, window[order], lane[order], op, trace.dur[rows])


def _gpu_rows(trace: Trace, found: Windows) -> tuple[Rows, Int64s]:
    """GPU rows and the time that places each in a window: that of its launch call, or its own."""
    rows = trace.gpu_rows
    if found.whole or found.of_gpu:
        return rows, trace.start[rows]
    rows = rows[trace.launch[rows] >= 0]
    return rows, trace.start[trace.launch[rows]]


def _left_out(trace: Trace, inside: Rows, of_gpu: bool) -> str:
    """How many GPU events belong to no step, and why: they ran outside all passes, or nothing tells
    when they were launched."""
    if of_gpu:
        left, why = int((inside < 0).sum()), "lie outside the passes of the model"
    else:
        left = int((trace.launch[trace.gpu_rows] < 0).sum())
        why = "belong to no step, because their launch was not recorded"
    return f"{count(left)} of {count(len(trace.gpu_rows))} GPU events {why}" if left else ""


def _lanes(trace: Trace) -> Rows:
    """The number of the thread or stream of each track; sub-rows share that of their lane."""
    numbers: dict[tuple[object, object], int] = {}
    found = [numbers.setdefault((t.pid, t.tid), len(numbers)) for t in trace.tracks]
    return np.array(found or [0], dtype=np.intp)


def behind_compute(trace: Trace, rows: Rows) -> Int64s:
    """How long any kernel computes during each of these GPU events (ns), in the shape of `rows`; 0
    for kernels that compute."""
    computes, starts, ends = _compute(trace)
    if computes[rows].all():
        return np.zeros(rows.shape, dtype=np.int64)
    flat = rows.ravel()
    until = covered_until(starts, ends, trace.end[flat])
    behind = until - covered_until(starts, ends, trace.start[flat])
    return np.where(computes[flat], 0, behind).reshape(rows.shape)


def _compute(trace: Trace) -> tuple[Flags, Int64s, Int64s]:
    """Which rows are kernels that do not communicate, and the union of their times."""
    kernels = trace.rows_of(Role.KERNEL)
    named = np.zeros(len(trace.names), dtype=np.bool_)
    for number in np.unique(trace.name[kernels]).tolist():
        named[number] = not is_collective(trace.names[number])
    kernels = kernels[named[trace.name[kernels]]]
    computes = np.zeros(len(trace), dtype=np.bool_)
    computes[kernels] = True
    return computes, *union(trace.start[kernels], trace.end[kernels])
