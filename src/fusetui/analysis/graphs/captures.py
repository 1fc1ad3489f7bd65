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
from fusetui.trace.model.arrays import Int64s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments, arguments, parsed
from fusetui.trace.model.memo import memo

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
    end: int  # -1 if the end was not recorded


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
    # A capture whose end was not recorded gets the end of the next one, so two have the
    # same. The calls belong to the one that began later.
    last_begin = {span.end: span.begin for span in all_spans if span.end >= 0}
    spans = [span for span in all_spans if last_begin.get(span.end) == span.begin]

    calls = _sort_by_start(trace, find_outer_calls(trace, _NODE_CALLS))
    # A call that launched a GPU event ran on another stream instead of being captured.
    has_run = np.isin(calls, trace.launch[trace.gpu_rows])
    calls = calls[~has_run]
    waits = _sort_by_start(trace, find_outer_calls(trace, _FORK_CALLS))

    calls_of_spans = [_find_calls_of_capture(trace, calls, span) for span in spans]
    kernels_of_spans = _read_kernel_names(trace, calls_of_spans)
    complete = []
    for index, span in enumerate(spans):
        annotation = _read_size_annotation(trace, span.begin)
        capture = Capture(
            calls=calls_of_spans[index],
            kernels=kernels_of_spans[index],
            size=annotation.size,
            mode=annotation.mode,
            forks=_any_starts_in(trace, waits, span),
        )
        complete.append(capture)
    return Captures(complete=tuple(complete), without_end=len(all_spans) - len(spans))


def _any_starts_in(trace: Trace, rows: Rows, span: _CaptureSpan) -> bool:
    """Decide whether any of these rows starts during a capture.

    `rows` are in the order of their starts.
    """
    starts = trace.start[rows]
    first = starts.searchsorted(trace.start[span.begin])
    after_last = starts.searchsorted(trace.start[span.end])
    return bool(after_last > first)


def _find_capture_spans(trace: Trace) -> list[_CaptureSpan]:
    """Return the spans of all captures that begin in the trace, in order of time."""
    begins, ends = find_capture_calls(trace)
    spans = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        spans.append(_CaptureSpan(begin, end))
    return sorted(spans, key=lambda span: int(trace.start[span.begin]))


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
    starts = trace.start[calls]
    first_call = int(starts.searchsorted(trace.end[span.begin]))
    after_last = int(starts.searchsorted(trace.start[span.end]))
    calls_during_capture = calls[first_call:after_last]

    thread_of_call = trace.thread_of_track[trace.track[calls_during_capture]]
    capturing_thread = trace.thread_of_track[trace.track[span.begin]]
    of_capturing_thread: Rows = calls_during_capture[thread_of_call == capturing_thread]
    return of_capturing_thread if len(of_capturing_thread) else calls_during_capture


def _read_kernel_names(
    trace: Trace, calls_of_captures: list[Rows]
) -> list[tuple[str, ...]]:
    """Return for each capture the names of the kernels that its calls launch.

    A name is "" where it is not recorded, as CUDA's calls never record it. The args of
    all calls are read at once.
    """
    calls = np.concatenate([np.empty(0, np.intp), *calls_of_captures])
    if not _has_hip_call(trace, calls):
        return [("",) * len(rows) for rows in calls_of_captures]

    names = _read_recorded_kernels(trace, calls)
    names_of_captures = []
    first = 0
    for rows in calls_of_captures:
        after_last = first + len(rows)
        names_of_captures.append(tuple(names[first:after_last]))
        first = after_last
    return names_of_captures


def _has_hip_call(trace: Trace, calls: Rows) -> bool:
    """Decide whether any of these calls is one of HIP, by its name."""
    name_indices = distinct(trace.name[calls]).tolist()
    return any(trace.names[name_index].startswith("hip") for name_index in name_indices)


def _read_recorded_kernels(trace: Trace, calls: Rows) -> list[str]:
    """Return the name of the kernel that each captured call launches, as its args
    record it.

    The name is "" for a call whose args have none.
    """
    recorded = arguments(
        trace.elements, trace.order[calls], _KERNEL_ARG, keep_as="captured"
    )
    distinct_names = []
    for texts_of_args in recorded.distinct:
        name = parsed(texts_of_args[0])
        distinct_names.append(name if isinstance(name, str) else "")
    # A call without args has the number -1, which reads the last entry.
    distinct_names.append("")
    return [distinct_names[number] for number in recorded.number.tolist()]


def _read_size_annotation(trace: Trace, begin: int) -> _SizeAnnotation:
    """Read the size of a capture from the innermost annotation around it that has one.

    Args:
        trace: The trace of the capture.
        begin: The row of the call that begins the capture.
    """
    annotations = trace.rows_of(Role.ANNOTATION)
    time = trace.start[begin]
    starts_before = trace.start[annotations] <= time
    ends_after = trace.end[annotations] > time
    enclosing = annotations[starts_before & ends_after]
    innermost_first = enclosing[np.argsort(-trace.start[enclosing], kind="stable")]

    for row in innermost_first.tolist():
        name = trace.name_of(row)[:MAX_SEARCHED_CHARS]
        match = _SIZE_ANNOTATION.match(name)
        if match:
            mode = (match["mode"] or "").upper()
            return _SizeAnnotation(size=int(match["size"]), mode=mode)
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
    if size is None or not tokens:
        return CaptureSize(tokens=tokens)
    is_multiple = tokens % max(size, 1) == 0
    if not is_multiple or tokens == size:
        return CaptureSize(tokens=tokens)
    return CaptureSize(requests=size, tokens=tokens)


def _most_frequent_product_rows(capture_trace: Trace, capture: Capture) -> int | None:
    """Return the number of rows (m) that more than half of the matrix products of a
    capture have.

    A product of an m x k and a k x n matrix has m rows, one for each token. Returns
    None if no number is that frequent.
    """
    product_ops = []
    for op in distinct(capture_trace.op[capture.calls]).tolist():
        if op >= 0 and capture_trace.name_of(op) in _PRODUCTS:
            product_ops.append(op)

    inputs_of_ops = read_inputs_by_op(
        capture_trace, np.array(product_ops, dtype=np.intp)
    )
    products_by_m: Counter[int | None] = Counter()
    for inputs in inputs_of_ops.values():
        product = matmul(inputs)
        if product:
            products_by_m[product.m] += 1

    for m, products in products_by_m.most_common(1):
        if 2 * products > len(product_ops):
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
    nodes_of_launches = []
    for rows in rows_of_replays:
        call = int(trace.launch[rows[0]])
        nodes = Nodes(call=call, rows=rows, numbered=ids is not None)
        nodes_of_launches.append(nodes)
    return tuple(nodes_of_launches)


def _sort_nodes_by_id(rows_of_replays: list[Rows], ids: Int64s) -> list[Rows]:
    """Sort the nodes of each replay by their ids.

    Args:
        rows_of_replays: The nodes of each replay.
        ids: The ids of the nodes of all replays, one replay after the other.
    """
    sorted_replays = []
    first = 0
    for rows in rows_of_replays:
        after_last = first + len(rows)
        order = np.argsort(ids[first:after_last], kind="stable")
        sorted_replays.append(rows[order])
        first = after_last
    return sorted_replays


def count_launches_without_events(trace: Trace) -> int:
    """Count the launches of CUDA graphs without any recorded GPU event. There are such
    launches if the profiler did not record the nodes of graphs."""
    calls = np.flatnonzero(mark_graph_calls(trace))
    has_event = np.isin(calls, trace.launch[trace.gpu_rows])
    return int((~has_event).sum())


def has_node_numbers(trace: Trace) -> bool:
    """Return whether the file has numbers for the nodes of CUDA graphs.

    A *node* is one kernel, copy or set of a graph. Only the first kernels of the first
    replay are looked at.
    """
    rows_of_replays = find_nodes_of_replays(trace)
    if not rows_of_replays:
        return False
    rows = rows_of_replays[0]
    kernels = rows[trace.role[rows] == Role.KERNEL]
    first_kernels = kernels[:_KERNELS_LOOKED_AT].tolist()
    return any(NODE_ID in trace.args_of(row) for row in first_kernels)


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
    unknown = 0
    id_of_distinct = []
    for texts_of_args in args.distinct:
        node_id = parsed(texts_of_args[NODE_ARGS.index(NODE_ID)])
        is_id = isinstance(node_id, int) and 0 < node_id < _MAX_NODE_ID
        id_of_distinct.append(node_id if is_id else unknown)
    # A node without args has the number -1, which reads the last entry.
    id_of_distinct.append(unknown)
    ids = np.array(id_of_distinct, dtype=np.int64)[args.number]
    return None if (ids == unknown).any() else ids


def _may_have_node_ids(trace: Trace, first_node: int) -> bool:
    """Decide by its first node whether a file has ids of nodes; HIP has none."""
    launch_name = trace.name_of(int(trace.launch[first_node]))
    has_keys_of_amd = bool(_KEYS_OF_AMD & trace.keys.keys())
    if has_keys_of_amd or launch_name.startswith("hip"):
        return False
    return bool(trace.args_of(first_node).get(NODE_ID))
