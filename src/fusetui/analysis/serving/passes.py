"""What each step of a server ran: its passes of the model."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.graphs.captures import Nodes, replays
from fusetui.analysis.questions.launches import graph_calls
from fusetui.analysis.questions.server_steps import (
    Requested,
    ServerPhase,
    ServerSteps,
    server_steps,
)
from fusetui.analysis.serving.products import PRODUCT_KINDS
from fusetui.gpu.kernel_names import decode
from fusetui.trace.layout.steps import (
    OPTIMIZER,
    annotations_with,
    by_launch_time,
    step_wall,
)
from fusetui.trace.model.arrays import Flags, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import union_length

UNKNOWN_REQUEST = Requested(ServerPhase.UNKNOWN)


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
    dur_ns: int  # step_wall, or that of the launch
    asked: Requested
    mode: Mode
    rows: Rows  # all GPU events that it launched
    model: Rows  # see _model
    replays: int


class BusyInterval(msgspec.Struct, frozen=True):
    """When some GPU events ran; of all that a step launched this is no length of the
    step, as those of trace/layout/steps.py are."""

    begin_ns: int
    end_ns: int
    busy_ns: int  # the length of their union

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.begin_ns


def interval_of(trace: Trace, rows: Rows) -> BusyInterval:
    """From the first start to the last end of some events, and how long any of them
    runs; zeros if there are none."""
    if not len(rows):
        return BusyInterval(begin_ns=0, end_ns=0, busy_ns=0)
    start = trace.start[rows]
    end = trace.end[rows]
    return BusyInterval(
        begin_ns=int(start.min()),
        end_ns=int(end.max()),
        busy_ns=union_length(start, end),
    )


def trains(trace: Trace) -> bool:
    """Whether an optimizer runs: graphs are then the forward or the backward part of a
    step."""
    return len(annotations_with(trace, lambda name: name.startswith(OPTIMIZER))) > 0


def passes(trace: Trace) -> tuple[Pass, ...]:
    """All steps of the server in time order; without any, all replays, unless they are
    parts of training."""
    served = server_steps(trace)
    if served.asked:
        return _of_steps(trace, served)
    if trains(trace):
        return ()
    return tuple(_of_replay(trace, nodes) for nodes in replays(trace))


def _of_steps(trace: Trace, served: ServerSteps) -> tuple[Pass, ...]:
    """The pass of each step of the server."""
    steps = served.steps
    launched, launch_ns = by_launch_time(trace)
    is_graph_call = graph_calls(trace)
    names = _event_names(trace)
    wall_ns = step_wall(steps.start, steps.end)
    passes = []
    for number, places in enumerate(steps.slices_of(launch_ns)):
        rows = launched[places]
        model = _model(trace, rows, is_graph_call, names)
        step = Pass(
            name=steps.names[number],
            start_ns=int(steps.start[number]),
            dur_ns=int(wall_ns[number]),
            asked=served.asked[number] or UNKNOWN_REQUEST,
            mode=model.mode,
            rows=rows,
            model=model.rows,
            replays=model.replays,
        )
        passes.append(step)
    return tuple(passes)


def _of_replay(trace: Trace, nodes: Nodes) -> Pass:
    """The pass that a replay of a graph is, where there are no steps."""
    return Pass(
        name=trace.name_of(nodes.call),
        start_ns=int(trace.start[nodes.call]),
        dur_ns=int(trace.dur[nodes.call]),
        asked=UNKNOWN_REQUEST,
        mode=Mode.GRAPH,
        rows=nodes.rows,
        model=nodes.rows,
        replays=1,
    )


class _Model(NamedTuple):
    """The events of the model itself, among those that a step launched."""

    mode: Mode
    rows: Rows
    replays: int  # launches of graphs


def _model(
    trace: Trace, launched: Rows, is_graph_call: Flags, names: _EventNames
) -> _Model:
    """The events of the model, on the device with most events of a step: those of one
    graph; those that ran from the start of the first graph to the end of the last one;
    or of an eager step those after its inputs. `launched`: the events of the step."""
    if not len(launched):
        return _Model(mode=Mode.NOTHING, rows=launched, replays=0)
    device = trace.process_of_track[trace.track[launched]]
    main_device = np.bincount(device).argmax()
    rows = launched[device == main_device]
    is_of_graph = is_graph_call[trace.launch[rows]]
    of_graph = rows[is_of_graph]
    replays = len(distinct(trace.launch[of_graph]))
    is_kernel = trace.role[rows] == Role.KERNEL
    kernels = int(is_kernel.sum())
    kernels_of_graph = int((is_of_graph & is_kernel).sum())
    if 2 * kernels_of_graph <= kernels:
        after_inputs = _after_inputs(trace, rows, names)
        return _Model(mode=Mode.EAGER, rows=after_inputs, replays=replays)
    if replays == 1:
        return _Model(mode=Mode.GRAPH, rows=of_graph, replays=1)
    within = _within(trace, rows, of_graph)
    return _Model(mode=Mode.PIECEWISE, rows=within, replays=replays)


def _within(trace: Trace, rows: Rows, others: Rows) -> Rows:
    """The rows that run from the first start to the last end of the others."""
    starts_after = trace.start[rows] >= trace.start[others].min()
    ends_before = trace.end[rows] <= trace.end[others].max()
    within: Rows = rows[starts_after & ends_before]
    return within


class _EventNames(NamedTuple):
    """What the names of GPU events say; by the numbers of names."""

    copies_from_host: Flags
    computes: Flags  # a product or attention


def _event_names(trace: Trace) -> _EventNames:
    """What the names of all GPU events of a trace say."""
    copies_from_host = np.zeros(len(trace.names), dtype=np.bool_)
    computes = np.zeros(len(trace.names), dtype=np.bool_)
    for number in distinct(trace.name[trace.gpu_rows]).tolist():
        decoded = decode(trace.names[number])
        if decoded is None:
            continue
        if decoded.direction == "HtoD":
            copies_from_host[number] = True
        elif decoded.op == "attention" or decoded.op in PRODUCT_KINDS:
            computes[number] = True
    return _EventNames(copies_from_host=copies_from_host, computes=computes)


def _after_inputs(trace: Trace, rows: Rows, names: _EventNames) -> Rows:
    """The events of an eager step that begin after its inputs were copied: after the
    last copy from the host before its first product or attention; all without these."""
    name = trace.name[rows]
    computing = rows[names.computes[name]]
    if not len(computing):
        return rows
    first_computing_ns = trace.start[computing].min()
    copied_ns = trace.end[rows[names.copies_from_host[name]]]
    copied_before_ns = copied_ns[copied_ns <= first_computing_ns]
    if not len(copied_before_ns):
        return rows
    inputs_ready_ns = copied_before_ns.max()
    after_inputs: Rows = rows[trace.start[rows] >= inputs_ready_ns]
    return after_inputs
