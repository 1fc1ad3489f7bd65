"""Which calls launch graphs, and whether a capture would name their nodes. Every command asks this,
so it imports little."""

from __future__ import annotations

import numpy as np

from fusetui.analysis.questions.launches import is_replay
from fusetui.trace.model.arrays import Flags
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import Joined
from fusetui.trace.model.memo import memo


@memo()
def graph_calls(trace: Trace) -> Flags:
    """For each row, whether it is a call that launches a graph."""
    rows = np.flatnonzero(trace.role == Role.CALL)
    used, which = np.unique(trace.name[rows], return_inverse=True)
    named = np.array([is_replay(trace.names[name]) for name in used.tolist()], dtype=np.bool_)
    found = np.zeros(len(trace), dtype=np.bool_)
    found[rows] = named[which.reshape(-1)]
    return found


def wants_capture(trace: Trace) -> bool:
    """Whether the trace has nodes of graphs that were not joined."""
    rows = trace.gpu_rows
    launch = trace.launch[rows]
    nodes = (launch >= 0) & graph_calls(trace)[launch]
    if isinstance(trace, Joined):
        nodes &= trace.captured[rows] < 0
    return bool(nodes.any())
