"""The slices that name a part of the program: module calls and annotations.

If stacks are recorded, torch names a module call by its class and a number, `nn.Module:
Qwen2MLP_3` (torch/csrc/autograd/profiler_python.cpp). Annotations come from
record_function.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fusetui.text.patterns import late
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Integers, Rows, distinct
from fusetui.trace.model.categories import CPU_LAYERS, STEP_PREFIX, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Reach
from fusetui.trace.model.joined import rows_there

MODULE_PREFIX = "nn.Module: "
COLLECTIVE = late(r"(?:nccl|rccl|gloo|mpi|ucc|xccl|hccl|mccl|c10d):")
"""Annotations of torch.distributed: they last as long as the collective, whatever their
thread does meanwhile, so they are not parts of the program."""

NUMBER = late(r"_[0-9]+\Z")
INDEX = late(r"(?<![A-Za-z0-9=])[0-9]+(?![A-Za-z0-9])")


def is_module(name: str) -> bool:
    return name.startswith(MODULE_PREFIX)


def label_of(name: str, expanded: bool = False) -> str:
    """The label of a region: without torch's prefix and, unless `expanded`, with `*`
    for indices.

    >>> label_of("nn.Module: Qwen2MLP_3"), label_of("layers.12.mlp"), label_of("Conv2d fp16")
    ('Qwen2MLP_*', 'layers.*.mlp', 'Conv2d fp16')
    """
    plain = name.removeprefix(MODULE_PREFIX)
    if expanded:
        return plain
    return NUMBER.sub("_*", plain) if is_module(name) else INDEX.sub("*", plain)


def regions(trace: Trace, line: ThreadLine) -> Spans:
    """All regions of the CPU threads."""
    parts = trace.named(
        lambda name: not name.startswith(STEP_PREFIX) and COLLECTIVE.match(name) is None
    )
    notes = np.flatnonzero(trace.source_role == Role.ANNOTATION)
    calls = np.flatnonzero(trace.named(is_module)[trace.name])
    calls = calls[trace.source_role[calls] == Role.PYTHON]
    rows = np.concatenate((notes[parts[trace.name[notes]]], calls))
    return Spans(trace, line, rows[cpu_rows(trace, rows)])


def frames(trace: Trace, line: ThreadLine, wanted: Flags | None = None) -> Spans:
    """The Python frames of functions, without those of modules; `wanted`: only frames
    with these names, shape [names]."""
    chosen = trace.named(lambda name: not is_module(name))
    if wanted is not None:
        chosen[:-1] &= wanted[: len(trace.names)]
    rows = python_rows(trace)
    return Spans(trace, line, rows[chosen[trace.name[rows]]])


def python_rows(trace: Trace) -> Rows:
    """The Python frames of functions and of modules."""
    rows = rows_there(trace, Role.PYTHON)
    return rows[cpu_rows(trace, rows)]


FARTHEST = 1 << 62
ON_CPU = (*CPU_LAYERS, Layer.CAPTURED)


class ThreadLine:
    """All threads of a trace one after the other, so that a single search serves all of
    them."""

    def __init__(self, trace: Trace) -> None:
        self._thread = trace.thread_of_track.astype(np.int64)
        self._trace = trace
        self._times: Int64s | None = None
        self._begin, end = trace.reach_ns
        self._length = end - self._begin + 1
        # centuries apart: count the times instead
        if self._length * len(trace.tracks) > FARTHEST:
            self._times = distinct(np.concatenate((trace.start, trace.end)))
            self._length = len(self._times)

    def bounds(self, rows: Integers) -> tuple[Int64s, Int64s]:
        """The positions on the line at which the slices begin and end."""
        trace, counted = self._trace, self._times
        times = np.stack((trace.start[rows], trace.end[rows]))
        inside = (
            times - self._begin if counted is None else np.searchsorted(counted, times)
        )
        start, end = self._thread[trace.track[rows]] * self._length + inside
        return start, end


class Spans:
    """The slices of `rows`, all of CPU threads, in the order (thread, start, -duration,
    row)."""

    def __init__(self, trace: Trace, line: ThreadLine, rows: Integers) -> None:
        start, end = line.bounds(rows)
        order = np.lexsort((rows, -end, start))
        self.rows: Int32s = rows[order].astype(np.int32)
        self._line = line
        self._size = len(trace)
        self._start, self._end = start[order], end[order]

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def parent(self) -> Rows:
        """For each span the index of the innermost other span around it, or -1."""
        return self._reach.last(
            np.arange(len(self)) - 1, np.maximum(self._end - 1, self._start)
        )

    @cached_property
    def place_of(self) -> Int32s:
        """For each row of the trace its index among the spans, or -1; shape
        [slices]."""
        place = np.full(self._size, -1, dtype=np.int32)
        place[self.rows] = np.arange(len(self), dtype=np.int32)
        return place

    def around(self, rows: Integers) -> Rows:
        """The index of the innermost span that is, or contains, each row; -1 for none,
        and for -1.

        A slice that ends where a span begins or begins where it ends is not in it,
        unless they have no length.
        """
        found = np.full(len(rows), -1, dtype=np.intp)
        known = np.flatnonzero(rows >= 0)
        if not len(self) or not len(known):
            return found
        asked = rows[known]
        start, end = self._line.bounds(asked)
        until = np.searchsorted(self._start, start, side="right") - 1
        inner = self._reach.last(until, np.maximum(end - 1, start))
        own = self.place_of[asked]
        found[known] = np.where(own >= 0, own, inner)
        return found

    def rows_at(self, places: Rows) -> Int32s:
        """The rows of the trace at these places; -1 stays -1."""
        if not len(self):
            return np.full(len(places), -1, dtype=np.int32)
        return np.where(places >= 0, self.rows[places], np.int32(-1))

    @cached_property
    def depth(self) -> Rows:
        """The number of spans around each one."""
        over = np.append(self.parent, -1)  # the last element stands for none
        depth = (over >= 0).astype(np.intp)
        while (over >= 0).any():
            depth += depth[over]
            over = over[over]
        return depth[:-1]

    @cached_property
    def end_place(self) -> Rows:
        """For each span the index after the last one that begins in it."""
        ends = np.searchsorted(self._start, self._end, side="left")
        return np.maximum(ends, np.arange(len(self)) + 1)

    def self_ns(self, amount: Int64s) -> Int64s:
        """The amounts (shape [spans]) minus those of the spans directly inside each; at
        least 0, as annotations may overlap each other."""
        inner = np.flatnonzero(self.parent >= 0)
        own = amount.copy()
        np.subtract.at(own, self.parent[inner], amount[inner])
        return np.maximum(own, 0)

    @cached_property
    def _reach(self) -> Reach:
        return Reach(self._end)


def cpu_rows(trace: Trace, rows: Integers) -> Flags:
    """Of each of `rows`: does it lie on a CPU thread."""
    of_track = np.array([t.layer in ON_CPU for t in trace.tracks] or [False])
    return of_track[trace.track[rows]]
