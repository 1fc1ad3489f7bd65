"""Determines what each step of a server ran on the GPU, and which part of it is the
model pass."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.graphs.captures import Nodes, replays
from fusetui.analysis.questions.launches import mark_graph_calls
from fusetui.analysis.questions.server_steps import (
    Requested,
    ServerPhase,
    ServerSteps,
    find_server_steps,
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
    """One step of a server, with the pass of the model that it ran.

    Where no annotation names steps, each replay of a graph counts as a step. Times are
    ns of the file.
    """

    name: str
    start_ns: int  # of the annotation, or of the launch of the graph
    dur_ns: int  # step_wall, or the duration of the launch of the graph
    requested: Requested
    mode: Mode
    launched_rows: Rows  # all GPU events that the step launched
    # The events of the model among them; see _select_model_events.
    model_rows: Rows
    replays: int  # launches of graphs


class BusyInterval(msgspec.Struct, frozen=True):
    """When some GPU events ran, in ns of the file.

    Its span is not the length of the step that launched the events; those are defined
    in trace/layout/steps.py.
    """

    begin_ns: int
    end_ns: int
    busy_ns: int  # the time during which at least one of the events runs

    @property
    def span_ns(self) -> int:
        """The time from the first start to the last end."""
        return self.end_ns - self.begin_ns


def measure_busy_interval(trace: Trace, rows: Rows) -> BusyInterval:
    """Measure when some events ran: the first start, the last end, and the time in
    which any ran.

    Args:
        trace: The trace.
        rows: The events. Without any, all figures are 0.
    """
    if not len(rows):
        return BusyInterval(begin_ns=0, end_ns=0, busy_ns=0)
    start = trace.start[rows]
    end = trace.end[rows]
    return BusyInterval(
        begin_ns=int(start.min()),
        end_ns=int(end.max()),
        busy_ns=union_length(start, end),
    )


def is_training(trace: Trace) -> bool:
    """Decide whether a trace is of training, which is so if an optimizer runs.

    Replayed graphs are then the forward or the backward part of a step, not passes of a
    server.
    """
    return len(annotations_with(trace, lambda name: name.startswith(OPTIMIZER))) > 0


def find_passes(trace: Trace) -> tuple[Pass, ...]:
    """Return the passes of all steps of a server, in order of time.

    If no annotation names steps, each replay of a graph is a pass, unless the trace is
    of training.
    """
    server_steps = find_server_steps(trace)
    if server_steps.requested:
        return _find_passes_of_steps(trace, server_steps)
    if is_training(trace):
        return ()
    return tuple(_make_pass_of_replay(trace, nodes) for nodes in replays(trace))


def _find_passes_of_steps(trace: Trace, server_steps: ServerSteps) -> tuple[Pass, ...]:
    """Return the pass of the model that each annotated step of the server launched.

    A *pass* is the GPU work of the model for one step, without the copies of its inputs
    and the like.

    Args:
        trace: The trace of the server.
        server_steps: The annotated steps, with what each was requested to compute.
    """
    steps = server_steps.steps
    launched, launch_ns = by_launch_time(trace)
    is_graph_call = mark_graph_calls(trace)
    names = _classify_event_names(trace)
    wall_ns = step_wall(steps.start, steps.end)

    model_passes = []
    for step_index, launched_in_step in enumerate(steps.slices_of(launch_ns)):
        rows = launched[launched_in_step]
        model = _select_model_events(trace, rows, is_graph_call, names)
        step = Pass(
            name=steps.names[step_index],
            start_ns=int(steps.start[step_index]),
            dur_ns=int(wall_ns[step_index]),
            requested=server_steps.requested[step_index] or UNKNOWN_REQUEST,
            mode=model.mode,
            launched_rows=rows,
            model_rows=model.rows,
            replays=model.replays,
        )
        model_passes.append(step)
    return tuple(model_passes)


def _make_pass_of_replay(trace: Trace, nodes: Nodes) -> Pass:
    """Return a replay of a CUDA graph as a pass of the model.

    It is used for a trace without annotated steps, so that the requested work is not
    known.

    Args:
        trace: The trace of the server.
        nodes: The GPU events of the replay, and the call that launched it.
    """
    return Pass(
        name=trace.name_of(nodes.call),
        start_ns=int(trace.start[nodes.call]),
        dur_ns=int(trace.dur[nodes.call]),
        requested=UNKNOWN_REQUEST,
        mode=Mode.GRAPH,
        launched_rows=nodes.rows,
        model_rows=nodes.rows,
        replays=1,
    )


class _ModelEvents(NamedTuple):
    """The GPU events of the model itself, among those that a step launched."""

    mode: Mode
    rows: Rows
    replays: int  # launches of graphs


def _select_model_events(
    trace: Trace, launched: Rows, is_graph_call: Flags, names: _EventNames
) -> _ModelEvents:
    """Select the GPU events of the model among all that a step launched.

    Only the device with most events counts. If graphs launch most of its kernels, the
    events of the model are those of the only graph, or all from the start of the first
    graph to the end of the last one. In an eager step they are the events after its
    inputs are there.

    Args:
        trace: The trace of the server.
        launched: The GPU events that the step launched.
        is_graph_call: One flag per row of the trace: whether it launches a graph.
        names: What the names of events say.
    """
    if not len(launched):
        return _ModelEvents(mode=Mode.NOTHING, rows=launched, replays=0)

    device_of_row = trace.process_of_track[trace.track[launched]]
    main_device = np.bincount(device_of_row).argmax()
    rows = launched[device_of_row == main_device]
    is_of_graph = is_graph_call[trace.launch[rows]]
    graph_rows = rows[is_of_graph]
    replays = len(distinct(trace.launch[graph_rows]))

    is_kernel = trace.role[rows] == Role.KERNEL
    kernels = int(is_kernel.sum())
    kernels_of_graphs = int((is_of_graph & is_kernel).sum())
    graphs_launch_most = kernels_of_graphs > kernels / 2
    if not graphs_launch_most:
        after_inputs = _drop_events_before_inputs(trace, rows, names)
        return _ModelEvents(mode=Mode.EAGER, rows=after_inputs, replays=replays)

    if replays == 1:
        return _ModelEvents(mode=Mode.GRAPH, rows=graph_rows, replays=1)

    from_first_to_last = _select_within_span(trace, rows, graph_rows)
    return _ModelEvents(mode=Mode.PIECEWISE, rows=from_first_to_last, replays=replays)


def _select_within_span(trace: Trace, rows: Rows, enclosing: Rows) -> Rows:
    """Return those rows that run within the span of the enclosing rows.

    The span is from the first start to the last end of `enclosing`.
    """
    starts_after = trace.start[rows] >= trace.start[enclosing].min()
    ends_before = trace.end[rows] <= trace.end[enclosing].max()
    within: Rows = rows[starts_after & ends_before]
    return within


class _EventNames(NamedTuple):
    """What the names of GPU events say; both arrays have one flag per name."""

    copies_from_host: Flags
    computes: Flags  # a product or attention


def _classify_event_names(trace: Trace) -> _EventNames:
    """Find out which names of GPU events are of copies from the host, and which of
    computing.

    Computing is attention or a matrix product. Each distinct name is decoded only once.

    Returns:
        Two arrays with a flag for each name of the trace.
    """
    copies_from_host = np.zeros(len(trace.names), dtype=np.bool_)
    computes = np.zeros(len(trace.names), dtype=np.bool_)
    for name_index in distinct(trace.name[trace.gpu_rows]).tolist():
        decoded = decode(trace.names[name_index])
        if decoded is None:
            continue
        if decoded.direction == "HtoD":
            copies_from_host[name_index] = True
        elif decoded.op == "attention" or decoded.op in PRODUCT_KINDS:
            computes[name_index] = True
    return _EventNames(copies_from_host=copies_from_host, computes=computes)


def _drop_events_before_inputs(trace: Trace, rows: Rows, names: _EventNames) -> Rows:
    """Return the events of a step without graphs that begin after its inputs were
    copied.

    Inputs have been copied when the last copy from the host ends that comes before the
    first product or attention. If there is no such copy, all events are returned.

    Args:
        trace: The trace of the server.
        rows: The GPU events of the step.
        names: Which names are of copies from the host, and which of computing.
    """
    name_of_row = trace.name[rows]
    computing = rows[names.computes[name_of_row]]
    if not len(computing):
        return rows

    first_computing_ns = trace.start[computing].min()
    copies = rows[names.copies_from_host[name_of_row]]
    copy_end_ns = trace.end[copies]
    is_copy_of_inputs = copy_end_ns <= first_computing_ns
    if not is_copy_of_inputs.any():
        return rows

    inputs_ready_ns = copy_end_ns[is_copy_of_inputs].max()
    after_inputs: Rows = rows[trace.start[rows] >= inputs_ready_ns]
    return after_inputs
