"""The slices that represent a part of the program: module calls and annotations.

If stacks are recorded, torch names a module call by its class and a number, `nn.Module:
Qwen2MLP_3` (torch/csrc/autograd/profiler_python.cpp). Annotations come from
record_function.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Integers, Rows, distinct
from fusetui.trace.model.categories import CPU_LAYERS, STEP_PREFIX, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import EnclosingIndex
from fusetui.trace.model.joined import rows_there

MODULE_PREFIX = "nn.Module: "
COLLECTIVE = lazy_pattern(r"(?:nccl|rccl|gloo|mpi|ucc|xccl|hccl|mccl|c10d):")
"""Annotations of torch.distributed: they last as long as the collective, whatever their
thread does meanwhile, so they are not parts of the program."""

NUMBER_OF_MODULE = lazy_pattern(r"_[0-9]+\Z")
"""torch's number at the end of the name of a module call."""
INDEX = lazy_pattern(r"(?<![A-Za-z0-9=])[0-9]+(?![A-Za-z0-9])")
"""A number in an annotation that stands alone, as in `layers.12.mlp`."""


def is_module(name: str) -> bool:
    return name.startswith(MODULE_PREFIX)


def label_of(name: str, expanded: bool = False) -> str:
    """The label of a region: without torch's prefix and, unless `expanded`, with `*`
    for indices.

    >>> label_of("nn.Module: Qwen2MLP_3"), label_of("layers.12.mlp"), label_of("Conv2d fp16")
    ('Qwen2MLP_*', 'layers.*.mlp', 'Conv2d fp16')
    """
    label = name.removeprefix(MODULE_PREFIX)
    if expanded:
        return label
    if is_module(name):
        return NUMBER_OF_MODULE.sub("_*", label)
    return INDEX.sub("*", label)


def regions(trace: Trace, line: ThreadLine) -> Spans:
    """All regions of the CPU threads: annotations and module calls."""
    names_part = trace.named(_names_part_of_program)
    names_module = trace.named(is_module)
    annotations = np.flatnonzero(trace.source_role == Role.ANNOTATION)
    parts = annotations[names_part[trace.name[annotations]]]
    with_module_name = np.flatnonzero(names_module[trace.name])
    is_python = trace.source_role[with_module_name] == Role.PYTHON
    module_calls = with_module_name[is_python]
    rows = np.concatenate((parts, module_calls))
    return Spans(trace, line, rows[are_on_cpu(trace, rows)])


def _names_part_of_program(annotation: str) -> bool:
    is_step = annotation.startswith(STEP_PREFIX)
    return not is_step and COLLECTIVE.match(annotation) is None


def frames(trace: Trace, line: ThreadLine, wanted: Flags | None = None) -> Spans:
    """The Python frames of functions, without those of modules; `wanted`: only frames
    with these names, shape [names]."""
    is_wanted = ~trace.named(is_module)[:-1]  # of each name
    if wanted is not None:
        is_wanted &= wanted
    rows = python_rows(trace)
    return Spans(trace, line, rows[is_wanted[trace.name[rows]]])


def python_rows(trace: Trace) -> Rows:
    """The Python frames of functions and of modules."""
    rows = rows_there(trace, Role.PYTHON)
    return rows[are_on_cpu(trace, rows)]


MAX_LINE_LENGTH = 1 << 62  # positions that fit into 64 bits, with room for sums
ON_CPU = (*CPU_LAYERS, Layer.CAPTURED)
"""The layers of CPU threads, and of what was captured on them."""


class ThreadLine:
    """All threads of a trace one after the other on one line of positions, so that a
    single search serves all of them.

    Within its thread, the position of a time is the ns since the begin of the trace;
    or, where the line would be too long for that because times are centuries apart, the
    number of the time among all distinct times.
    """

    def __init__(self, trace: Trace) -> None:
        """A position is a time, or, if that would make the line too long, its number
        among the distinct times of the trace."""
        self._trace = trace
        self._begin_ns, end_ns = trace.reach_ns
        self._distinct_times: Int64s | None = None
        self._positions_per_thread = end_ns - self._begin_ns + 1
        length = self._positions_per_thread * len(trace.tracks)
        if length > MAX_LINE_LENGTH:
            times = np.concatenate((trace.start, trace.end))
            self._distinct_times = distinct(times)
            self._positions_per_thread = len(self._distinct_times)

    def bounds(self, rows: Integers) -> tuple[Int64s, Int64s]:
        """The positions on the line at which the slices begin and end."""
        trace = self._trace
        thread = trace.thread_of_track[trace.track[rows]].astype(np.int64)
        begin_of_thread = thread * self._positions_per_thread
        start = begin_of_thread + self._position_in_thread(trace.start[rows])
        end = begin_of_thread + self._position_in_thread(trace.end[rows])
        return start, end

    def _position_in_thread(self, times: Int64s) -> Int64s:
        if self._distinct_times is None:
            return times - self._begin_ns
        return np.searchsorted(self._distinct_times, times)


class Spans:
    """The slices of `rows`, all of CPU threads, in the order (thread, start, -duration,
    row)."""

    def __init__(self, trace: Trace, line: ThreadLine, rows: Integers) -> None:
        """The spans of these rows, in order of the line, outer ones first."""
        start, end = line.bounds(rows)
        order = np.lexsort((rows, -end, start))
        self.rows: Int32s = rows[order].astype(np.int32)
        self._line = line
        self._rows_of_trace = len(trace)
        self._start = start[order]  # positions on the line
        self._end = end[order]

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def parent(self) -> Rows:
        """For each span the index of the innermost other span around it, or -1."""
        before = np.arange(len(self)) - 1
        last_position = np.maximum(self._end - 1, self._start)
        return self._reach.last(before, last_position)

    @cached_property
    def place_of(self) -> Int32s:
        """For each row of the trace its index among the spans, or -1; shape
        [slices]."""
        place = np.full(self._rows_of_trace, -1, dtype=np.int32)
        place[self.rows] = np.arange(len(self), dtype=np.int32)
        return place

    def around(self, rows: Integers) -> Rows:
        """The index of the innermost span that is, or contains, each row; -1 for none,
        and for -1.

        A slice that ends where a span begins or begins where it ends is not in it,
        unless they have no length.
        """
        place = np.full(len(rows), -1, dtype=np.intp)
        known = np.flatnonzero(rows >= 0)
        if not len(self) or not len(known):
            return place
        known_rows = rows[known]
        start, end = self._line.bounds(known_rows)
        last_begun = np.searchsorted(self._start, start, side="right") - 1
        last_position = np.maximum(end - 1, start)
        containing = self._reach.last(last_begun, last_position)
        itself = self.place_of[known_rows]
        place[known] = np.where(itself >= 0, itself, containing)
        return place

    def rows_at(self, places: Rows) -> Int32s:
        """The rows of the trace at these places; -1 stays -1."""
        if not len(self):
            return np.full(len(places), -1, dtype=np.int32)
        return np.where(places >= 0, self.rows[places], np.int32(-1))

    @cached_property
    def depth(self) -> Rows:
        """The number of spans around each one."""
        # Each round doubles how far `above` reaches: the parent, its parent, the one
        # two above that. `depth` has the levels up to there. The last element stands
        # for none.
        above = np.append(self.parent, -1)
        depth = (above >= 0).astype(np.intp)
        while (above >= 0).any():
            depth += depth[above]
            above = above[above]
        return depth[:-1]

    @cached_property
    def end_place(self) -> Rows:
        """For each span the index after the last one that begins in it."""
        begun_before_end = np.searchsorted(self._start, self._end, side="left")
        return np.maximum(begun_before_end, np.arange(len(self)) + 1)

    def self_ns(self, amount: Int64s) -> Int64s:
        """The amounts (shape [spans]) minus those of the spans directly inside each; at
        least 0, as annotations may overlap each other."""
        inner = np.flatnonzero(self.parent >= 0)
        self_amount = amount.copy()
        np.subtract.at(self_amount, self.parent[inner], amount[inner])
        return np.maximum(self_amount, 0)

    @cached_property
    def _reach(self) -> EnclosingIndex:
        return EnclosingIndex(self._end)


def are_on_cpu(trace: Trace, rows: Integers) -> Flags:
    """Which of these rows lie on a CPU thread; shape of `rows`."""
    is_cpu_track = [track.layer in ON_CPU for track in trace.tracks]
    return np.array(is_cpu_track, dtype=np.bool_)[trace.track[rows]]
