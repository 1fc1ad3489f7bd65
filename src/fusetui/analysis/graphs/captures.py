"""Finds the graphs that a trace captures, and the replays of graphs.

A *capture* is the calls between the begin and the end of a stream capture. Each of them
becomes a node of the graph instead of running. A call in between that launched a GPU
event is therefore not part of the capture: it belongs to another stream.

A *replay* is one launch of a graph, with the GPU events of its nodes. They are given in
the order in which they were captured. This is the order of `graph node id` where the
profiler wrote it (Kineto since 2026), because CUDA numbers nodes in the order in which
they were added. Elsewhere it is taken to be the order of the starts on the device (see
also join.py).
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from typing import Final, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.launches import (
    BEGINS_CAPTURE,
    find_capture_calls,
    find_nodes_of_replays,
    find_outer_calls,
    mark_graph_calls,
)
from fusetui.gpu.roofline.many import read_inputs_by_op
from fusetui.gpu.roofline.products import matmul
from fusetui.text.patterns import MAX_SEARCHED_CHARS
from fusetui.trace.model.arrays import NO_ROW, Int64s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments, arguments, parsed
from fusetui.trace.model.memo import memo
from fusetui.trace.model.sorted_arrays import slice_between

_NODE_CALLS = re.compile(
    r"\A(?!.*(?i:GraphLaunch)).*?(?:(?i:Launch(?!HostFunc))|Memcpy|Memset)", re.DOTALL
)
"""Matches calls that launch a kernel, copy or set memory; not launches of graphs."""

_FORK_CALLS = re.compile(r"StreamWaitEvent")
_SIZE_ANNOTATION = re.compile(
    r"(?:[a-z]{1,40}_)?capture_(?P<size>\d{1,9})(?:_(?P<mode>[A-Za-z_]{1,40}))?\Z"
)
"""The annotation of a server around a capture: capture_32_DECODE (SGLang),
capture_32_FULL and capture_32_PIECEWISE (vLLM), capture_32_decode (ATOM)."""

_KERNEL_ARG: Final = ("kernel",)
"""HIP's calls record the name of the kernel that they launch."""

_PRODUCTS: Final = ("aten::mm", "aten::addmm", "aten::_scaled_mm")
_MODES_OF_TOKENS: Final = ("FULL", "PIECEWISE")  # how modes of vLLM begin
_MODES_OF_REQUESTS: Final = ("DECODE", "")


class Capture(msgspec.Struct, frozen=True, eq=False):
    """One captured graph."""

    calls: Rows  # rows of the calls that became nodes, in order
    kernels: tuple[str, ...]  # per call: the name of its kernel, "" if not recorded
    # requests or tokens that it is for, as an annotation around it says
    size: int | None
    mode: str = ""  # as that annotation says
    forks: bool = False  # streams wait for each other in it

    def __len__(self) -> int:
        return len(self.calls)


class Captures(msgspec.Struct, frozen=True, eq=False):
    """The captures of a trace."""

    complete: tuple[Capture, ...]  # recorded to their ends; of all threads, in order
    without_end: int  # how many other captures begin


class CaptureSize(msgspec.Struct, frozen=True):
    """How much work a graph was captured for; None for what is not known."""

    requests: int | None = None
    tokens: int | None = None


class _CaptureSpan(NamedTuple):
    """The rows of the calls that begin and end a capture."""

    begin: int
    end: int  # NO_ROW if the end was not recorded


class _SizeAnnotation(NamedTuple):
    """What the annotation of a server around a capture says."""

    size: int | None = None
    mode: str = ""


def has_captures(trace: Trace) -> bool:
    """Decide whether a capture begins in this trace, by looking at names only."""
    return any(
        BEGINS_CAPTURE.search(name, 0, MAX_SEARCHED_CHARS) for name in trace.names
    )


@memo()
def captures(trace: Trace) -> Captures:
    """Find the CUDA graphs that a trace captures, with the calls that became nodes.

    A capture lasts from one call on a thread (cudaStreamBeginCapture) to another one
    (cudaStreamEndCapture). The args of the calls in between are read.
    """
    all_spans = _find_capture_spans(trace)
    spans = _select_ended(all_spans)

    calls = _sort_by_start(trace, find_outer_calls(trace, _NODE_CALLS))
    # A call that launched a GPU event ran on another stream instead of being captured.
    has_run = np.isin(calls, trace.launch[trace.gpu_rows])
    calls = calls[~has_run]
    waits = _sort_by_start(trace, find_outer_calls(trace, _FORK_CALLS))

    calls_of_spans = [_find_calls_of_capture(trace, calls, span) for span in spans]
    kernels_of_spans = _read_kernel_names(trace, calls_of_spans)
    complete = []
    for span, calls_of_span, kernels in zip(
        spans, calls_of_spans, kernels_of_spans, strict=True
    ):
        annotation = _read_size_annotation(trace, span.begin)
        capture = Capture(
            calls=calls_of_span,
            kernels=kernels,
            size=annotation.size,
            mode=annotation.mode,
            forks=_any_starts_in(trace, waits, span),
        )
        complete.append(capture)
    return Captures(complete=tuple(complete), without_end=len(all_spans) - len(spans))


def _select_ended(spans: list[_CaptureSpan]) -> list[_CaptureSpan]:
    """Return the captures that were recorded to their ends.

    A capture whose end was not recorded has none, or that of the next capture. If two
    captures have the same end, it is that of the one that began later.

    Args:
        spans: The captures, in order of time.
    """
    last_of_end = {span.end: span for span in spans}
    return [
        span for span in spans if span.end != NO_ROW and last_of_end[span.end] is span
    ]


def _any_starts_in(trace: Trace, rows: Rows, span: _CaptureSpan) -> bool:
    """Decide whether any of these rows starts during a capture.

    Args:
        trace: The trace.
        rows: The rows, in the order of their starts.
        span: The calls that begin and end the capture.
    """
    starts_during = slice_between(
        trace.start[rows], begin=trace.start[span.begin], end=trace.start[span.end]
    )
    return len(rows[starts_during]) > 0


def _find_capture_spans(trace: Trace) -> list[_CaptureSpan]:
    """Return the spans of all captures that begin in the trace, in order of time."""
    calls = find_capture_calls(trace)
    by_time = np.argsort(trace.start[calls.begin], kind="stable")
    spans = []
    for index in by_time.tolist():
        span = _CaptureSpan(begin=int(calls.begin[index]), end=int(calls.end[index]))
        spans.append(span)
    return spans


def _sort_by_start(trace: Trace, rows: Rows) -> Rows:
    """Sort rows by their starts."""
    return rows[np.argsort(trace.start[rows], kind="stable")]


def _find_calls_of_capture(trace: Trace, calls: Rows, span: _CaptureSpan) -> Rows:
    """Return the calls that belong to the capture of a graph.

    They are those of the thread that captures. If that thread made none, they are those
    of all threads during the capture.

    Args:
        trace: The trace.
        calls: The calls to choose from, in the order of their starts.
        span: The calls that begin and end the capture.
    """
    start_during_capture = slice_between(
        trace.start[calls], begin=trace.end[span.begin], end=trace.start[span.end]
    )
    calls_of_all = calls[start_during_capture]

    thread_of_call = trace.thread_of_track[trace.track[calls_of_all]]
    capturing_thread = trace.thread_of_track[trace.track[span.begin]]
    calls_of_thread: Rows = calls_of_all[thread_of_call == capturing_thread]
    return calls_of_thread if len(calls_of_thread) else calls_of_all


def _read_kernel_names(
    trace: Trace, calls_of_captures: list[Rows]
) -> list[tuple[str, ...]]:
    """Return for each capture the names of the kernels that its calls launch.

    A name is "" where it is not recorded, as CUDA's calls never record it. The args of
    all calls are read at once.
    """
    all_calls = np.concatenate([np.empty(0, np.intp), *calls_of_captures])
    if _has_hip_call(trace, all_calls):
        names = _read_recorded_kernels(trace, all_calls)
    else:
        names = [""] * len(all_calls)

    remaining_names = iter(names)
    names_of_captures = []
    for calls in calls_of_captures:
        names_of_captures.append(tuple(islice(remaining_names, len(calls))))
    return names_of_captures


def _has_hip_call(trace: Trace, calls: Rows) -> bool:
    """Decide whether any of these calls is one of HIP, by its name."""
    for name_index in distinct(trace.name[calls]).tolist():
        if trace.names[name_index].startswith("hip"):
            return True
    return False


def _read_recorded_kernels(trace: Trace, calls: Rows) -> list[str]:
    """Return the name of the kernel that each captured call launches, as its args
    record it.

    The name is "" for a call whose args have none.
    """
    recorded = arguments(
        trace.elements, trace.order[calls], _KERNEL_ARG, keep_as="captured"
    )
    # Each distinct set of args has a number; a call without args has the number -1.
    name_of_number = {-1: ""}
    for number, texts_of_args in enumerate(recorded.distinct):
        name = parsed(texts_of_args[0])
        name_of_number[number] = name if isinstance(name, str) else ""
    return [name_of_number[number] for number in recorded.number.tolist()]


def _read_size_annotation(trace: Trace, begin: int) -> _SizeAnnotation:
    """Read the size of a capture from the innermost annotation around it that has one.

    Args:
        trace: The trace of the capture.
        begin: The row of the call that begins the capture.
    """
    annotations = trace.rows_of(Role.ANNOTATION)
    capture_start = trace.start[begin]
    has_begun = trace.start[annotations] <= capture_start
    has_not_ended = trace.end[annotations] > capture_start
    enclosing = annotations[has_begun & has_not_ended]
    innermost_first = enclosing[np.argsort(-trace.start[enclosing], kind="stable")]

    for row in innermost_first.tolist():
        name = trace.name_of(row)[:MAX_SEARCHED_CHARS]
        match = _SIZE_ANNOTATION.match(name)
        if match is not None:
            mode = match["mode"] or ""
            return _SizeAnnotation(size=int(match["size"]), mode=mode.upper())
    return _SizeAnnotation()


def determine_size(capture_trace: Trace, capture: Capture) -> CaptureSize:
    """Find out for how many requests or tokens a graph was captured.

    An annotation around the capture counts tokens in vLLM, and in a decode of SGLang
    requests. In other modes of SGLang, some versions count requests and some tokens:
    there the rows of more than half of the matrix products, which are tokens, decide.

    Args:
        capture_trace: The trace that has the capture.
        capture: The capture.
    """
    size = capture.size
    if size is not None and capture.mode.startswith(_MODES_OF_TOKENS):
        return CaptureSize(tokens=size)
    if size is not None and capture.mode in _MODES_OF_REQUESTS:
        return CaptureSize(requests=size)

    tokens = _most_frequent_product_rows(capture_trace, capture)
    if size is None or not tokens or tokens == size:
        return CaptureSize(tokens=tokens)
    # If `size` counts requests, each of them has the same number of tokens.
    counts_requests = size == 0 or tokens % size == 0
    return CaptureSize(requests=size if counts_requests else None, tokens=tokens)


def _most_frequent_product_rows(capture_trace: Trace, capture: Capture) -> int | None:
    """Return the number of rows (m) that more than half of the matrix products of a
    capture have.

    A product of an m x k and a k x n matrix has m rows, one for each token. Returns
    None if no number is that frequent.
    """
    product_ops = []
    for op in distinct(capture_trace.op[capture.calls]).tolist():
        if op != NO_ROW and capture_trace.name_of(op) in _PRODUCTS:
            product_ops.append(op)

    inputs_of_ops = read_inputs_by_op(
        capture_trace, np.array(product_ops, dtype=np.intp)
    )
    products_by_m: Counter[int | None] = Counter()
    for inputs in inputs_of_ops.values():
        product = matmul(inputs)
        if product:
            products_by_m[product.m] += 1

    for m, products in products_by_m.items():
        is_most = 2 * products > len(product_ops)
        if is_most:
            return m
    return None


NODE_ID: Final = "graph node id"
GRAPH_ID: Final = "graph id"
SOME_ANNOTATION: Final = "annotation"
NODE_ARGS: Final = (NODE_ID, GRAPH_ID, SOME_ANNOTATION, "module_name", "name", "str")
"""The args of a node that are read: its numbers, and what torch writes of its
annotation."""

_KERNELS_LOOKED_AT: Final = 8
_MAX_NODE_ID: Final = 1 << 62
_KEYS_OF_AMD: Final = frozenset({"roctracer_version", "hip_runtime_version"})
"""Keys of files whose nodes have no ids, as HIP's have not."""


class Nodes(msgspec.Struct, frozen=True, eq=False):
    """The nodes of one replay of a graph, on one device."""

    call: int  # row of the launch
    rows: Rows  # GPU rows, in the order in which they were captured
    numbered: bool = False  # whether that order is recorded

    def __len__(self) -> int:
        return len(self.rows)


def replays(trace: Trace) -> tuple[Nodes, ...]:
    """Return all launches of CUDA graphs, with the GPU events that are their nodes.

    They are in the order of the calls. The nodes of one launch are in the order of
    their recorded node ids, or without such ids in that of their starts. Launches
    without a recorded GPU event are left out.
    """
    rows_of_replays = find_nodes_of_replays(trace)
    if not rows_of_replays:
        return ()

    ids = _read_node_ids(trace, int(rows_of_replays[0][0]))
    if ids is not None:
        rows_of_replays = _sort_nodes_by_id(rows_of_replays, ids)
    replays = []
    for rows in rows_of_replays:
        call = int(trace.launch[rows[0]])
        replays.append(Nodes(call=call, rows=rows, numbered=ids is not None))
    return tuple(replays)


def _sort_nodes_by_id(rows_of_replays: list[Rows], ids: Int64s) -> list[Rows]:
    """Sort the nodes of each replay by their ids.

    E.g. the rows (5, 6) and (7, 8) with the ids 2, 1, 3 and 4 become (6, 5) and (7, 8).

    Args:
        rows_of_replays: The nodes of each replay.
        ids: The ids of the nodes of all replays, one replay after the other.
    """
    ends = np.cumsum([len(rows) for rows in rows_of_replays])
    ids_of_replays = np.split(ids, ends[:-1])
    sorted_replays = []
    for rows, own_ids in zip(rows_of_replays, ids_of_replays, strict=True):
        sorted_replays.append(rows[np.argsort(own_ids, kind="stable")])
    return sorted_replays


def count_launches_without_events(trace: Trace) -> int:
    """Count the launches of CUDA graphs without any recorded GPU event. There are such
    launches if the profiler did not record the nodes of graphs."""
    graph_calls = np.flatnonzero(mark_graph_calls(trace))
    has_event = np.isin(graph_calls, trace.launch[trace.gpu_rows])
    return int(np.count_nonzero(~has_event))


def has_node_numbers(trace: Trace) -> bool:
    """Return whether the file has numbers for the nodes of CUDA graphs.

    A *node* is one kernel, copy or set of a graph. Only the first kernels of the first
    replay are looked at.
    """
    nodes_of_replays = find_nodes_of_replays(trace)
    if not nodes_of_replays:
        return False
    nodes = nodes_of_replays[0]
    kernels = nodes[trace.role[nodes] == Role.KERNEL]
    first_kernels = kernels[:_KERNELS_LOOKED_AT].tolist()
    return any(NODE_ID in trace.args_of(kernel) for kernel in first_kernels)


def node_args(trace: Trace) -> tuple[Rows, Arguments]:
    """Read the args NODE_ARGS of the nodes of all replays.

    They are read once and kept for later calls. The trace must have replays.

    Returns:
        The nodes, and for each of them its args.
    """
    rows = np.concatenate(find_nodes_of_replays(trace))
    args = arguments(trace.elements.own, trace.order[rows], NODE_ARGS, keep_as="nodes")
    return rows, args


def _read_node_ids(trace: Trace, first_node: int) -> Int64s | None:
    """Return the ids of the nodes of all replays.

    Args:
        trace: The trace.
        first_node: The row of the first node, which tells whether to expect ids.

    Returns:
        One id per node, in the order of `node_args`; None unless every node has one.
    """
    if not _may_have_node_ids(trace, first_node):
        return None

    _, args = node_args(trace)
    has_args = args.number >= 0  # else -1
    if not has_args.all():
        return None

    # Nodes with equal args have one number, and so one id.
    id_of_number = []
    for texts_of_args in args.distinct:
        node_id = parsed(texts_of_args[NODE_ARGS.index(NODE_ID)])
        is_id = isinstance(node_id, int) and 0 < node_id < _MAX_NODE_ID
        if not is_id:
            return None
        id_of_number.append(node_id)
    return np.array(id_of_number, dtype=np.int64)[args.number]


def _may_have_node_ids(trace: Trace, first_node: int) -> bool:
    """Decide by its first node whether a file has ids of nodes; HIP has none."""
    launch_name = trace.name_of(int(trace.launch[first_node]))
    has_keys_of_amd = not _KEYS_OF_AMD.isdisjoint(trace.keys)
    is_from_amd = has_keys_of_amd or launch_name.startswith("hip")
    if is_from_amd:
        return False
    return bool(trace.args_of(first_node).get(NODE_ID))
