"""When each node of a graph begins and ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fusetui.analysis.replay.graph import Graph
from fusetui.trace.model.arrays import Int64s

BLOCK = 1 << 16  # nodes that are objects of Python at a time


class Times(NamedTuple):
    """In ns after the origin; shape [nodes]. What was taken out of a graph has no times."""

    begin: Int64s
    end: Int64s


def replay(graph: Graph) -> Times:
    """The times of all nodes: a single pass, in which each waits for its two sources."""
    ends = [0]
    append = ends.append
    lag = graph.lag + graph.residual
    for at in range(1, len(graph), BLOCK):
        own = slice(at, at + BLOCK)
        columns = (*graph.source[:, own], *lag[:, own], graph.dur[own])
        for a, b, after_a, after_b, dur in zip(*(c.tolist() for c in columns), strict=True):
            first, second = ends[a] + after_a, ends[b] + after_b
            append((first if first > second else second) + dur)
    end = np.array(ends, dtype=np.int64)
    return Times(end - graph.dur, end)
