"""What the steps of a server ran: of each step the GPU events, and those of graphs among them."""

from __future__ import annotations

from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.serving.captures import Nodes, replays
from fusetui.analysis.serving.graphs import graph_calls
from fusetui.analysis.serving.steps import Requested, ServerPhase, server_steps
from fusetui.analysis.serving.weights import PRODUCTS
from fusetui.gpu.kernel_names import decode
from fusetui.trace.layout.steps import OPTIMIZER, by_launch_time
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import union_length

FROM_HOST, COMPUTES = 1, 2
NEVER = np.iinfo(np.int64).max


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
    asked: Requested
    mode: Mode
    rows: Rows  # all GPU events that it launched
    model: Rows  # of the device with most: those of its graphs, or if it is eager, see _prepared
    replays: int


class BusyInterval(msgspec.Struct, frozen=True):
    """When some GPU events ran."""

    begin_ns: int
    end_ns: int
    busy_ns: int

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.begin_ns


def interval_of(trace: Trace, rows: Rows) -> BusyInterval:
    """Zeros if there are none."""
    if not len(rows):
        return BusyInterval(0, 0, 0)
    start, end = trace.start[rows], trace.end[rows]
    return BusyInterval(int(start.min()), int(end.max()), union_length(start, end))


def trains(trace: Trace) -> bool:
    """Whether an optimizer runs: graphs are then the forward or the backward part of a step."""
    rows = trace.rows_of(Role.ANNOTATION)
    used = np.unique(trace.name[rows]).tolist()
    return any(trace.names[name].startswith(OPTIMIZER) for name in used)


def passes(trace: Trace) -> tuple[Pass, ...]:
    """All steps in time order; without any, all replays, unless they are parts of training."""
    steps = server_steps(trace)
    if not len(steps):
        return () if trains(trace) else tuple(_of_replay(trace, one) for one in replays(trace))
    launched, called = by_launch_time(trace)
    graph, kinds = graph_calls(trace), _kinds(trace)
    found = []
    each = zip(steps.steps.names, steps.steps.slices_of(called), steps.asked, strict=True)
    for number, (name, own, asked) in enumerate(each):
        rows = launched[own]
        model, mode, count = _model(trace, rows, graph, kinds)
        found.append(
            Pass(
                name=name,
                start_ns=int(steps.steps.start[number]),
                dur_ns=int(steps.steps.dur[number]),
                asked=asked or Requested(ServerPhase.UNKNOWN),
                mode=mode,
                rows=rows,
                model=model,
                replays=count,
            )
        )
    return tuple(found)


def _of_replay(trace: Trace, one: Nodes) -> Pass:
    start, dur = int(trace.start[one.call]), int(trace.dur[one.call])
    asked = Requested(ServerPhase.UNKNOWN)
    return Pass(trace.name_of(one.call), start, dur, asked, Mode.GRAPH, one.rows, one.rows, 1)


def _model(
    trace: Trace, rows: Rows, graph: NDArray[np.bool_], kinds: NDArray[np.int8]
) -> tuple[Rows, Mode, int]:
    """The events of the model itself, how they were launched, and by how many graphs."""
    if not len(rows):
        return rows, Mode.NOTHING, 0
    device = trace.process_of_track[trace.track[rows]]
    rows = rows[device == np.bincount(device).argmax()]
    of_graph = graph[trace.launch[rows]]
    calls = len(np.unique(trace.launch[rows[of_graph]]))
    kernels = trace.role[rows] == Role.KERNEL
    if 2 * int((of_graph & kernels).sum()) <= int(kernels.sum()):
        return _prepared(trace, rows, kinds), Mode.EAGER, calls
    if calls == 1:
        return rows[of_graph], Mode.GRAPH, calls
    begin, end = trace.start[rows[of_graph]].min(), trace.end[rows[of_graph]].max()
    inside = (trace.start[rows] >= begin) & (trace.end[rows] <= end)
    return rows[inside], Mode.PIECEWISE, calls


def _prepared(trace: Trace, rows: Rows, kinds: NDArray[np.int8]) -> Rows:
    """Those of an eager step that begin after its inputs were copied: after the last copy from the
    host before its first product or attention."""
    own = kinds[trace.name[rows]]
    first = trace.start[rows[own == COMPUTES]].min(initial=NEVER)
    copies = rows[own == FROM_HOST]
    ready = trace.end[copies[trace.end[copies] <= first]].max(initial=-NEVER)
    return rows[trace.start[rows] >= ready] if first < NEVER else rows


def _kinds(trace: Trace) -> NDArray[np.int8]:
    """Of each name of a GPU event, whether it is a copy from the host, a product or attention."""
    kinds = np.zeros(len(trace.names), dtype=np.int8)
    for name in np.unique(trace.name[trace.gpu_rows]).tolist():
        known = decode(trace.names[name])
        if known is not None and known.direction == "HtoD":
            kinds[name] = FROM_HOST
        elif known is not None and known.op in (*PRODUCTS, "attention"):
            kinds[name] = COMPUTES
    return kinds
