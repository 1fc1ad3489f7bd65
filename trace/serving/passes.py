"""What the steps of a server ran: of each step the GPU events, and those of graphs among them."""

from __future__ import annotations

from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.steps import by_launch_time
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import union_length
from fusetui.trace.serving.replays import graph_calls, replays
from fusetui.trace.serving.requests import Asked, Phase
from fusetui.trace.serving.steps import server_steps

Rows = NDArray[np.intp]


class Mode(StrEnum):
    """How a step launched most of its kernels."""

    GRAPH = "graph"
    PIECEWISE = "piecewise graphs"
    EAGER = "eager"
    NOTHING = "nothing"  # it launched none


class Pass(msgspec.Struct, frozen=True, eq=False):
    """One step, or where no annotation names steps, one replay. Times in ns of the file."""

    name: str
    start_ns: int  # of the annotation, or of the launch of the graph
    dur_ns: int
    asked: Asked
    mode: Mode
    rows: Rows  # all GPU events that it launched
    model: Rows  # of the device with most: those of its graphs, or all if it is eager
    replays: int

    @property
    def kernels(self) -> int:
        return len(self.rows)


class Interval(msgspec.Struct, frozen=True):
    """When some GPU events ran."""

    begin_ns: int
    end_ns: int
    busy_ns: int

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.begin_ns


def interval_of(trace: Trace, rows: Rows) -> Interval:
    """Zeros if there are none."""
    if not len(rows):
        return Interval(0, 0, 0)
    start, end = trace.start[rows], trace.end[rows]
    return Interval(int(start.min()), int(end.max()), union_length(start, end))


def passes(trace: Trace) -> tuple[Pass, ...]:
    """All steps in time order; without any, all replays."""
    steps = server_steps(trace)
    if not len(steps):
        return tuple(
            Pass(
                name=trace.name_of(one.call),
                start_ns=int(trace.start[one.call]),
                dur_ns=int(trace.dur[one.call]),
                asked=Asked(Phase.UNKNOWN),
                mode=Mode.GRAPH,
                rows=one.rows,
                model=one.rows,
                replays=1,
            )
            for one in replays(trace)
        )
    launched, called = by_launch_time(trace)
    first = np.searchsorted(called, steps.start, side="left")
    last = np.searchsorted(called, steps.end, side="left")
    graph = graph_calls(trace)
    found = []
    for number, row in enumerate(steps.rows.tolist()):
        rows = launched[first[number] : last[number]]
        model, mode, count = _model(trace, rows, graph)
        found.append(
            Pass(
                name=trace.name_of(row),
                start_ns=int(steps.start[number]),
                dur_ns=int(trace.dur[row]),
                asked=steps.asked[number] or Asked(Phase.UNKNOWN),
                mode=mode,
                rows=rows,
                model=model,
                replays=count,
            )
        )
    return tuple(found)


def _model(trace: Trace, rows: Rows, graph: NDArray[np.bool_]) -> tuple[Rows, Mode, int]:
    """The events of the model itself, how they were launched, and by how many graphs."""
    if not len(rows):
        return rows, Mode.NOTHING, 0
    device = trace.process_of_track[trace.track[rows]]
    rows = rows[device == np.bincount(device).argmax()]
    of_graph = graph[trace.launch[rows]]
    calls = len(np.unique(trace.launch[rows[of_graph]]))
    kernels = trace.role[rows] == Role.KERNEL
    if 2 * int((of_graph & kernels).sum()) <= int(kernels.sum()):
        return rows, Mode.EAGER, calls
    if calls == 1:
        return rows[of_graph], Mode.GRAPH, calls
    return rows, Mode.PIECEWISE, calls
