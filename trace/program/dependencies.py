"""Which nodes of a graph wait for which, as torch's CUPTI monitor records it: as flows from the end
of a node to the start of another, with ids of their own.

A flow names a stream and a time, not a node. An end at which several nodes end (or start) on that
stream tells none of them; such a flow is counted, and belongs to no pair.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int32s, Int64s
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import own_events
from fusetui.trace.model.report import never
from fusetui.trace.read.autograd import FlowEnd, read_flows

FLOW, FIRST = "ac2g", 1 << 40  # smaller ids are those of launches
NODES = ("graph_event_node", "graph_host_node")  # besides kernels, copies and sets
KEPT_AS = "dependencies"


class Dependencies(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [pairs], rows of the trace, in the order of the file."""

    before: Int32s  # a node
    after: Int32s  # a node of the same replay that waits for it
    unclear: int  # flows of which an end may be that of several nodes, or of none


def waits_for(found: Dependencies, row: int) -> tuple[Int32s, Int32s]:
    """The rows that are known to come before and after a node."""
    return found.before[found.after == row], found.after[found.before == row]


class Flows(msgspec.Struct, frozen=True, eq=False):
    """Arrays of shape [flows]: the threads on which a node ends and another one starts, as
    `Trace.thread_of_track` numbers them, -1 for none; and the times, in ns."""

    left: Int64s
    ended: Int64s
    came: Int64s
    started: Int64s


def dependencies(trace: Trace) -> Dependencies:
    """The dependencies of all replays. Reads the whole file, the first time; `once` keeps them."""
    events = own_events(trace.elements)
    flows = events.recall(KEPT_AS, Flows)
    if flows is None:
        flows = _read(trace)
        events.keep(KEPT_AS, flows)
    roles = np.isin(trace.role, GPU_ROLES)
    kinds = np.array([name in NODES for name in trace.categories] or [False])
    rows = np.flatnonzero(roles | ((trace.role == Role.SYNC) & kinds[trace.cat]))
    before = _only_one(trace, rows, trace.end, flows.left, flows.ended)
    after = _only_one(trace, rows, trace.start, flows.came, flows.started)
    known: Flags = (before >= 0) & (after >= 0) & (before != after)
    known &= trace.correlation[before] == trace.correlation[after]
    return Dependencies(before[known], after[known], int((~known).sum()))


def _read(trace: Trace) -> Flows:
    ends = read_flows(own_events(trace.elements), never, FLOW, FIRST)
    begins: dict[tuple[str, str], FlowEnd] = {end.key: end for end in ends if end.begins}
    pairs = [(begins[end.key], end) for end in ends if not end.begins and end.key in begins]
    lanes = ((track.pid, track.tid) for track in trace.tracks)
    numbers = dict(zip(lanes, trace.thread_of_track.tolist(), strict=True))
    told = [(numbers.get(end.thread, -1), end.time) for pair in pairs for end in pair]
    return Flows(*np.array(told, dtype=np.int64).reshape(-1, 4).T.copy())


def _only_one(trace: Trace, rows: Int64s, at: Int64s, threads: Int64s, times: Int64s) -> Int32s:
    """For each thread and time the one row of `rows` on that thread whose time `at` it is; -1 if
    there is none, or several."""
    every = np.concatenate((at[rows], times))
    time = np.unique(every, return_inverse=True)[1].reshape(-1).astype(np.int64)
    own = trace.thread_of_track[trace.track[rows]].astype(np.int64) * len(every) + time[: len(rows)]
    asked = threads * len(every) + time[len(rows) :]
    order = np.argsort(own, kind="stable")
    first, last = (np.searchsorted(own[order], asked, side=side) for side in ("left", "right"))
    found = np.append(rows[order], -1)[np.where(last - first == 1, first, len(rows))]
    return found.astype(np.int32)
