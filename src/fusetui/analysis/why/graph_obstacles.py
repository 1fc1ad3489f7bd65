"""Find calls between the launches of a step that cannot be part of a CUDA graph.

That is a wait for the device, or the data loader.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.questions.loaders import find_loader_calls
from fusetui.analysis.why.backward_threads import number_thread_pairs
from fusetui.analysis.why.causes import find_heaviest_call
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.thread_activity import COPIES_LATER, ThreadActivity
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.steps import Steps
from fusetui.trace.model.arrays import NO_ROW, Int64s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.intervals import NO_INTERVAL
from fusetui.trace.model.sorted_arrays import is_in, positions_of

OUTSIDE_OF_STEPS = -1
"""Stands for a step and thread where a row lies in no step."""

_PLAIN_NAME = lazy_pattern(r"[A-Za-z0-9_:.]{1,100}")
"""Matches names that may be part of a remedy, in which braces have a meaning."""


class GraphObstacle(msgspec.Struct, frozen=True):
    """What lies most often between the launches of kernels that one graph would replay."""

    name: str
    """The name of the call and of the op around it; "" for the data loader."""
    steps: int
    """In how many steps an obstacle lies; 0 in a trace without steps."""
    of_steps: int
    """How many steps launch kernels."""


def find_graph_obstacle(facts: Facts) -> GraphObstacle | None:
    """Find what keeps the kernels of a step from being captured in one CUDA graph.

    It is a wait for the device between two launches, else a data loader. Without steps,
    the kernels of the whole time count. A wait before the first kernel or after the
    last one is no obstacle.

    Returns:
        None if nothing keeps them out.
    """
    trace = facts.trace
    launches = _list_kernel_launches(facts)
    if not len(launches):
        return None

    intervals = _LaunchIntervals.find(facts, launches)

    name = ""
    all_waits = np.flatnonzero(facts.accounts.kinds == ThreadActivity.SYNC)
    obstacles = intervals.select_rows_within(facts, all_waits)
    if len(obstacles):
        name = _name_most_frequent(facts.trace, obstacles)
    else:
        obstacles = intervals.select_rows_within(facts, find_loader_calls(trace))

    if not len(obstacles):
        return None

    return GraphObstacle(
        name=name,
        steps=_count_steps(facts.steps, trace.start[obstacles]),
        of_steps=_count_steps(facts.steps, trace.start[launches]),
    )


def _list_kernel_launches(facts: Facts) -> Rows:
    """Return the calls that launched kernels, each once, in the order of the trace."""
    trace = facts.trace
    kernels = facts.gpu_rows[trace.role[facts.gpu_rows] == Role.KERNEL]
    launches = distinct(trace.launch[kernels].astype(np.int64))
    known: Rows = launches[launches != NO_ROW].astype(np.intp)
    return known


def _count_steps(steps: Steps, times_ns: Int64s) -> int:
    """Count the steps that hold any of some times (ns of the file); 0 without steps."""
    if not len(steps):
        return 0
    step_of_time = steps.at(times_ns)
    is_in_step = step_of_time != NO_INTERVAL
    return len(distinct(step_of_time[is_in_step]))


class _LaunchIntervals(msgspec.Struct, frozen=True, eq=False):
    """The intervals in which one thread launches the kernels of one step.

    Each goes from the first to the last launch, in ns of the file; shape [intervals].
    """

    key: Int64s
    """The step and the thread of each, ascending; see _number_steps_and_threads."""
    first_ns: Int64s
    last_ns: Int64s

    @classmethod
    def find(cls, facts: Facts, launches: Rows) -> _LaunchIntervals:
        """Find the time from the first to the last launch, for each step and thread.

        Args:
            launches: The calls that launch, as rows of the trace; at least one.
        """
        launched_ns = facts.trace.start[launches]
        key = _number_steps_and_threads(facts, launches)
        by_key = grouped(key, then_by=launched_ns)
        launched_in_order = launched_ns[by_key.order]
        first = by_key.begins[:-1]
        last = by_key.begins[1:] - 1

        return cls(
            key=by_key.keys,
            first_ns=launched_in_order[first],
            last_ns=launched_in_order[last],
        )

    def select_rows_within(self, facts: Facts, rows: Rows) -> Rows:
        """Return the rows that lie between the launches of their step and thread.

        They start after the first and before the last launch of the interval.
        """
        key = _number_steps_and_threads(facts, rows)
        has_interval = is_in(self.key, key) & (key != OUTSIDE_OF_STEPS)
        candidates = rows[has_interval]
        interval = positions_of(self.key, key[has_interval])

        start = facts.trace.start[candidates]
        is_after_first = start > self.first_ns[interval]
        is_before_last = start < self.last_ns[interval]
        within: Rows = candidates[is_after_first & is_before_last]
        return within


def _number_steps_and_threads(facts: Facts, rows: Rows) -> Int64s:
    """Return one number for the step and the thread of each row.

    It is equal for rows of the same step and thread, and OUTSIDE_OF_STEPS for a row
    outside of all steps. Without steps it is the number of the thread. A thread and
    that of autograd's engine which works for it count as one.
    """
    trace = facts.trace
    thread_of_row = trace.thread_of(rows)
    thread = number_thread_pairs(trace)[thread_of_row].astype(np.int64)
    if not len(facts.steps):
        return thread

    step = facts.steps.at(trace.start[rows]).astype(np.int64)
    more_than_threads = len(trace.tracks) + 1  # so no two pairs have one number
    step_and_thread = step * more_than_threads + thread
    return np.where(step != NO_INTERVAL, step_and_thread, OUTSIDE_OF_STEPS)


def _name_most_frequent(trace: Trace, calls: Rows) -> str:
    """Name the most frequent of some calls: `cudaStreamSynchronize (aten::item)`.

    The op around most calls of that name is added, if there is one. Copies that may
    return at once count only if there is nothing else.
    """
    blocking = calls[~trace.matching(calls, COPIES_LATER.search)]
    if len(blocking):
        calls = blocking

    most_frequent = find_heaviest_call(
        trace, calls, np.ones(len(calls), dtype=np.int64)
    )
    call_text = _keep_plain_name(most_frequent.name) or "a call that waits"
    op_text = _keep_plain_name(most_frequent.op or "")
    return f"{call_text} ({op_text})" if op_text else call_text


def _keep_plain_name(name: str) -> str:
    """Return a name, or "" if it has characters that a remedy must not have."""
    return name if _PLAIN_NAME.fullmatch(name) else ""
