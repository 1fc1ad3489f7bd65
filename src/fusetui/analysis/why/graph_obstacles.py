"""What lies between the launches of a step and cannot be part of a CUDA graph: a wait
for the device, or the data loader."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.questions.loaders import loader_rows
from fusetui.analysis.why.backward_threads import with_one_lead
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.thread_activity import COPIES_LATER, ThreadActivity
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Int64s, Rows, distinct
from fusetui.trace.model.categories import Role

_PLAIN_NAME = lazy_pattern(r"[A-Za-z0-9_:.]{1,100}")
"""A name that may be part of a remedy, in which braces have a meaning."""


class GraphObstacle(msgspec.Struct, frozen=True):
    """What lies most often between the launches of kernels that one graph would
    replay."""

    name: str
    """That of the call and of the op around it; "" for the data loader."""
    steps: int
    """In how many steps any such thing lies; 0 where there are no steps."""
    of_steps: int
    """How many steps launch kernels."""


def graph_obstacle(facts: Facts) -> GraphObstacle | None:
    """What keeps the kernels of a step out of one graph, or where there are no steps,
    those of the whole time; None if nothing does. A wait before the first kernel or
    after the last one is none."""
    trace = facts.trace
    kernels = facts.gpu_rows[trace.role[facts.gpu_rows] == Role.KERNEL]
    launches = distinct(trace.launch[kernels].astype(np.int64))
    launches = launches[launches >= 0].astype(np.intp)
    if not len(launches):
        return None
    ranges, range_of_launch = np.unique(_ranges(facts, launches), return_inverse=True)
    launched_ns = trace.start[launches]
    first_ns = np.full(len(ranges), trace.end_ns)
    np.minimum.at(first_ns, range_of_launch, launched_ns)
    last_ns = np.full(len(ranges), trace.begin_ns)
    np.maximum.at(last_ns, range_of_launch, launched_ns)

    def between(rows: Rows) -> Rows:
        """Those that start after the first and before the last launch of their
        range."""
        wanted = _ranges(facts, rows)
        place = np.minimum(ranges.searchsorted(wanted), len(ranges) - 1)
        start = trace.start[rows]
        is_between = (ranges[place] == wanted) & (wanted >= 0)
        is_between &= (start > first_ns[place]) & (start < last_ns[place])
        inside: Rows = rows[is_between]
        return inside

    waits = between(np.flatnonzero(facts.accounts.kinds == ThreadActivity.SYNC))
    obstacles = waits if len(waits) else between(loader_rows(trace))
    if not len(obstacles):
        return None
    has_steps = len(facts.spans) > 0
    steps = distinct(facts.spans.at(trace.start[obstacles]).astype(np.int64))
    launching = distinct(facts.spans.at(launched_ns).astype(np.int64))
    return GraphObstacle(
        name=_most_frequent(facts, waits) if len(waits) else "",
        steps=int(np.count_nonzero(steps >= 0)) if has_steps else 0,
        of_steps=int(np.count_nonzero(launching >= 0)) if has_steps else 0,
    )


def _ranges(facts: Facts, rows: Rows) -> Int64s:
    """A number for the step and the thread of each row; -1 outside of steps, where
    there are any. A thread and that of autograd's engine count as one."""
    trace = facts.trace
    thread = with_one_lead(trace)[trace.thread_of_track[trace.track[rows]]]
    thread = thread.astype(np.int64)
    if not len(facts.spans):
        return thread
    step = facts.spans.at(trace.start[rows]).astype(np.int64)
    threads = len(trace.tracks) + 1
    return np.where(step >= 0, step * threads + thread, -1)


def _most_frequent(facts: Facts, calls: Rows) -> str:
    """`cudaStreamSynchronize (aten::item)`: the name that most of some calls have, and
    the op around most of these. Copies that may return at once come last."""
    trace = facts.trace
    blocking = calls[~trace.matching(calls, COPIES_LATER.search)]
    if len(blocking):
        calls = blocking
    name = int(np.bincount(trace.name[calls]).argmax())
    own = calls[trace.name[calls] == name]
    op = int(np.bincount(trace.op[own] + 1).argmax()) - 1
    called = _plain(trace.names[name]) or "a call that waits"
    of_op = _plain(trace.name_of(op)) if op >= 0 else ""
    return f"{called} ({of_op})" if of_op else called


def _plain(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else ""
