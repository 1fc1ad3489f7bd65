"""The slices that represent a part of the program: module calls and annotations.

If stacks are recorded, torch names a module call by its class and a number, `nn.Module:
Qwen2MLP_3` (torch/csrc/autograd/profiler_python.cpp). Annotations come from
record_function.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int32s,
    Int64s,
    Integers,
    Rows,
    distinct,
    last_at_or_before,
)
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
    """Whether a name is that of an nn.Module call, as torch records it."""
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
    """Return the module calls and the annotations on CPU threads.

    Annotations that are no part of the program are left out: steps of the profiler, and
    collectives of torch.distributed.
    """
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
    """Whether an annotation names a part of the program: not a step of the profiler,
    nor a collective."""
    is_step = annotation.startswith(STEP_PREFIX)
    return not is_step and COLLECTIVE.match(annotation) is None


def frames(trace: Trace, line: ThreadLine, wanted: Flags | None = None) -> Spans:
    """Return the Python frames of functions, without those of modules.

    Args:
        trace: The trace.
        line: Its threads.
        wanted: For each name of the trace whether frames with it are wanted; all are if
            left out.
    """
    is_wanted = ~trace.named(is_module)[:-1]  # of each name
    if wanted is not None:
        is_wanted &= wanted
    rows = python_rows(trace)
    return Spans(trace, line, rows[is_wanted[trace.name[rows]]])


def python_rows(trace: Trace) -> Rows:
    """The rows of all Python frames on CPU threads, of functions and of modules."""
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
        """Choose the form of positions: times, or numbers of times if times are so far
        apart that the line would be longer than MAX_LINE_LENGTH."""
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
        """Return the positions on the line at which slices begin and end.

        In a trace from 0 to 99 ns, a slice from 20 to 30 ns is at 20 to 30 on the first
        thread, and at 120 to 130 on the second.

        Args:
            rows: The slices.
        """
        trace = self._trace
        thread = trace.thread_of_track[trace.track[rows]].astype(np.int64)
        begin_of_thread = thread * self._positions_per_thread
        start = begin_of_thread + self._position_in_thread(trace.start[rows])
        end = begin_of_thread + self._position_in_thread(trace.end[rows])
        return start, end

    def _position_in_thread(self, times: Int64s) -> Int64s:
        """The position of each time within its thread: ns since the begin, or the
        number of the time among all."""
        if self._distinct_times is None:
            return times - self._begin_ns
        return np.searchsorted(self._distinct_times, times)


class Spans:
    """Slices of CPU threads that are parts of the program: modules, annotations or
    Python frames.

    They are sorted by thread, then start, then descending duration, then row. The index
    of a span is its place in that order; `rows` has the row of the trace of each.
    """

    def __init__(self, trace: Trace, line: ThreadLine, rows: Integers) -> None:
        """Sort the slices.

        Args:
            trace: The trace.
            line: Its threads.
            rows: The slices, all on CPU threads, in any order.
        """
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
        """The index of the innermost other span around each span; -1 for none."""
        before = np.arange(len(self)) - 1
        last_position = np.maximum(self._end - 1, self._start)
        return self._reach.last(before, last_position)

    @cached_property
    def place_of(self) -> Int32s:
        """For each row of the trace its index among the spans; -1 if it is none.

        Of the spans with the rows 7 and 3, in this order, row 3 has the index 1.
        """
        index_of_row = np.full(self._rows_of_trace, -1, dtype=np.int32)
        index_of_row[self.rows] = np.arange(len(self), dtype=np.int32)
        return index_of_row

    def around(self, rows: Integers) -> Rows:
        """Find the innermost span that is, or contains, each row.

        A slice that only touches a span (it ends where the span begins, or begins where
        it ends) is not in it, unless one of the two has no length.

        Args:
            rows: Rows of CPU threads; -1 gives -1.

        Returns:
            The index of a span for each row; -1 for none.
        """
        around = np.full(len(rows), -1, dtype=np.intp)
        known = np.flatnonzero(rows != NO_ROW)
        if not len(self) or not len(known):
            return around
        known_rows = rows[known]
        start, end = self._line.bounds(known_rows)
        last_begun = last_at_or_before(self._start, start)
        last_position = np.maximum(end - 1, start)
        containing = self._reach.last(last_begun, last_position)
        itself = self.place_of[known_rows]
        around[known] = np.where(itself >= 0, itself, containing)
        return around

    def rows_at(self, indices: Rows) -> Int32s:
        """The row of the trace of the span with each index; -1 gives -1."""
        if not len(self):
            return np.full(len(indices), -1, dtype=np.int32)
        return np.where(indices >= 0, self.rows[indices], np.int32(-1))

    @cached_property
    def depth(self) -> Rows:
        """The number of spans around each span, at any distance."""
        # Each round doubles how far `above` reaches: the parent, the second span
        # around, the fourth. `depth` counts the spans up to there, so the number of
        # rounds is the logarithm of the depth. The last element stands for no span.
        above = np.append(self.parent, -1)
        depth = (above >= 0).astype(np.intp)
        while (above >= 0).any():
            depth += depth[above]
            above = above[above]
        return depth[:-1]

    @cached_property
    def end_place(self) -> Rows:
        """For each span the index after the last span that begins in it.

        So the spans inside span n, and itself, are those from n to before end_place[n].
        """
        begun_before_end = np.searchsorted(self._start, self._end, side="left")
        return np.maximum(begun_before_end, np.arange(len(self)) + 1)

    def self_ns(self, amount: Int64s) -> Int64s:
        """Subtract from the amount of each span those of the spans directly inside it.

        A span of 100 ns with two of 30 ns in it has 40. Spans that overlap each other
        may leave less than nothing; then it is 0.

        Args:
            amount: The amount of each span.
        """
        inner = np.flatnonzero(self.parent >= 0)
        self_amount = amount.copy()
        np.subtract.at(self_amount, self.parent[inner], amount[inner])
        return np.maximum(self_amount, 0)

    @cached_property
    def _reach(self) -> EnclosingIndex:
        """A search tree over the ends of the spans, to find what encloses a position."""
        return EnclosingIndex(self._end)


def are_on_cpu(trace: Trace, rows: Integers) -> Flags:
    """A flag for each of these rows: whether it lies on a CPU thread."""
    is_cpu_track = [track.layer in ON_CPU for track in trace.tracks]
    return np.array(is_cpu_track, dtype=np.bool_)[trace.track[rows]]
