"""What each step of a server ran: its passes of the model."""

from __future__ import annotations

from enum import StrEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.graphs.captures import Nodes, replays
from fusetui.analysis.questions.launches import graph_calls
from fusetui.analysis.questions.server_steps import Requested, ServerPhase, server_steps
from fusetui.analysis.serving.parts import PRODUCTS
from fusetui.gpu.kernel_names import decode
from fusetui.trace.layout.steps import OPTIMIZER, annotations_with, by_launch_time
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
    """One step, or where no annotation names steps, one replay. Times in ns of the
    file."""

    name: str
    start_ns: int  # of the annotation, or of the launch of the graph
    dur_ns: int
    asked: Requested
    mode: Mode
    rows: Rows  # all GPU events that it launched
    # of the device with most: those of its graphs, or if it is eager, see _prepared
    model: Rows
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
    """Whether an optimizer runs: graphs are then the forward or the backward part of a
    step."""
    return len(annotations_with(trace, lambda name: name.startswith(OPTIMIZER))) > 0


def passes(trace: Trace) -> tuple[Pass, ...]:
    """All steps in time order; without any, all replays, unless they are parts of
    training."""
    steps = server_steps(trace)
    if not steps.asked:
        return (
            ()
            if trains(trace)
            else tuple(_of_replay(trace, one) for one in replays(trace))
        )
    launched, called = by_launch_time(trace)
    graph, kinds, unknown = (
        graph_calls(trace),
        _kinds(trace),
        Requested(ServerPhase.UNKNOWN),
    )
    of = steps.steps
    times = zip(of.names, of.start.tolist(), of.dur.tolist(), steps.asked, strict=True)
    return tuple(
        Pass(
            name,
            start,
            dur,
            asked or unknown,
            *_model(trace, launched[own], graph, kinds),
        )
        for (name, start, dur, asked), own in zip(
            times, of.slices_of(called), strict=True
        )
    )


def _of_replay(trace: Trace, one: Nodes) -> Pass:
    start, dur = int(trace.start[one.call]), int(trace.dur[one.call])
    asked = Requested(ServerPhase.UNKNOWN)
    return Pass(
        trace.name_of(one.call), start, dur, asked, Mode.GRAPH, one.rows, one.rows, 1
    )


def _model(
    trace: Trace, every: Rows, graph: NDArray[np.bool_], kinds: NDArray[np.int8]
) -> tuple[Mode, Rows, Rows, int]:
    """How events were launched, all of them, those of the model itself, and by how many
    graphs."""
    if not len(every):
        return Mode.NOTHING, every, every, 0
    device = trace.process_of_track[trace.track[every]]
    rows = every[device == np.bincount(device).argmax()]
    of_graph = graph[trace.launch[rows]]
    calls = len(np.unique(trace.launch[rows[of_graph]]))
    kernels = trace.role[rows] == Role.KERNEL
    if 2 * int((of_graph & kernels).sum()) <= int(kernels.sum()):
        return Mode.EAGER, every, _prepared(trace, rows, kinds), calls
    if calls == 1:
        return Mode.GRAPH, every, rows[of_graph], calls
    begin, end = trace.start[rows[of_graph]].min(), trace.end[rows[of_graph]].max()
    inside = (trace.start[rows] >= begin) & (trace.end[rows] <= end)
    return Mode.PIECEWISE, every, rows[inside], calls


def _prepared(trace: Trace, rows: Rows, kinds: NDArray[np.int8]) -> Rows:
    """Those of an eager step that begin after its inputs were copied: after the last
    copy from the host before its first product or attention."""
    own = kinds[trace.name[rows]]
    first = trace.start[rows[own == COMPUTES]].min(initial=NEVER)
    copies = rows[own == FROM_HOST]
    ready = trace.end[copies[trace.end[copies] <= first]].max(initial=-NEVER)
    return rows[trace.start[rows] >= ready] if first < NEVER else rows


def _kinds(trace: Trace) -> NDArray[np.int8]:
    """Of each name of a GPU event, whether it is a copy from the host, a product or
    attention."""
    kinds = np.zeros(len(trace.names), dtype=np.int8)
    for name in np.unique(trace.name[trace.gpu_rows]).tolist():
        known = decode(trace.names[name])
        if known is not None and known.direction == "HtoD":
            kinds[name] = FROM_HOST
        elif known is not None and known.op in (*PRODUCTS, "attention"):
            kinds[name] = COMPUTES
    return kinds
