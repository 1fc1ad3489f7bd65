"""The graphs that a trace captures, and their replays, each with its nodes in the order
of their capture.

A capture is the calls between the begin and the end of a stream capture. Every one of
them becomes a node of the graph instead of running: a call in between that launched a
GPU event belongs to another stream.

The order of the nodes of a replay is that of `graph node id` where the profiler wrote
it (Kineto since 2026), as CUDA numbers nodes in the order in which they were added;
else that of the starts on the device (see also join.py).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.launches import (
    BEGINS_CAPTURE,
    capture_calls,
    graph_calls,
    nodes_of_replays,
    outer_calls,
)
from fusetui.gpu.roofline.many import inputs_by_op
from fusetui.gpu.roofline.products import matmul
from fusetui.text.patterns import MAX_SEARCHED_CHARS
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments, arguments, parsed
from fusetui.trace.model.memo import memo

_NODE_CALLS = re.compile(
    r"\A(?!.*(?i:GraphLaunch)).*?(?:(?i:Launch(?!HostFunc))|Memcpy|Memset)", re.DOTALL
)
"""Calls that launch, copy or set."""

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
    """One graph. `kernels`: for each call the name of its kernel, "" where it is not
    recorded."""

    calls: Rows  # rows of the calls that became nodes, in order
    kernels: tuple[str, ...]
    # requests or tokens that it is for, as an annotation around it says
    size: int | None
    mode: str = ""  # as that annotation says
    forks: bool = False  # streams wait for each other in it

    def __len__(self) -> int:
        return len(self.calls)


class Captures(msgspec.Struct, frozen=True, eq=False):
    """The captures of a trace."""

    complete: tuple[Capture, ...]  # of all threads, in order
    without_end: int  # how many others begin


class CaptureSize(msgspec.Struct, frozen=True):
    """How much a graph was captured for; None for what is not known."""

    requests: int | None = None
    tokens: int | None = None


class _Span(NamedTuple):
    """The rows of the calls that begin and end a capture; `end` is -1 for none."""

    begin: int
    end: int


class _SizeAnnotation(NamedTuple):
    """What an annotation around a capture says."""

    size: int | None = None
    mode: str = ""


def has_captures(trace: Trace) -> bool:
    """Whether a capture begins in this trace; looks at names only."""
    return any(
        BEGINS_CAPTURE.search(name, 0, MAX_SEARCHED_CHARS) for name in trace.names
    )


@memo()
def captures(trace: Trace) -> Captures:
    """The captures of a trace. Reads args of their calls."""
    begun = _spans(trace)
    # where two have the same end, the later one holds the calls before it
    last_begin = {span.end: span.begin for span in begun if span.end >= 0}
    spans = [span for span in begun if last_begin.get(span.end) == span.begin]
    calls = _by_start(trace, outer_calls(trace, _NODE_CALLS))
    # what launched a GPU event ran, on another stream, instead of being captured
    has_run = np.isin(calls, trace.launch[trace.gpu_rows])
    calls = calls[~has_run]
    waits = _by_start(trace, outer_calls(trace, _FORK_CALLS))
    calls_of_spans = [_calls_in(trace, calls, span) for span in spans]
    kernels_of_spans = _kernel_names(trace, calls_of_spans)
    complete = []
    for n, span in enumerate(spans):
        annotation = _size_annotation(trace, span.begin)
        capture = Capture(
            calls=calls_of_spans[n],
            kernels=kernels_of_spans[n],
            size=annotation.size,
            mode=annotation.mode,
            forks=_starts_in(trace, waits, span),
        )
        complete.append(capture)
    return Captures(complete=tuple(complete), without_end=len(begun) - len(spans))


def _starts_in(trace: Trace, rows: Rows, span: _Span) -> bool:
    """Whether any row starts between the begin and the end of a capture; `rows`: in the
    order of their starts."""
    starts = trace.start[rows]
    first = starts.searchsorted(trace.start[span.begin])
    after_last = starts.searchsorted(trace.start[span.end])
    return bool(after_last > first)


def _spans(trace: Trace) -> list[_Span]:
    """All captures that begin in the trace, in order."""
    begins, ends = capture_calls(trace)
    spans = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        spans.append(_Span(begin, end))
    return sorted(spans, key=lambda span: int(trace.start[span.begin]))


def _by_start(trace: Trace, rows: Rows) -> Rows:
    """These rows in the order of their starts."""
    return rows[np.argsort(trace.start[rows], kind="stable")]


def _calls_in(trace: Trace, calls: Rows, span: _Span) -> Rows:
    """The calls between the begin and the end of a capture: those of the thread that
    captures; if it made none, those of all threads. `calls`: in the order of their
    starts."""
    starts = trace.start[calls]
    first = int(starts.searchsorted(trace.end[span.begin]))
    after_last = int(starts.searchsorted(trace.start[span.end]))
    inside = calls[first:after_last]
    thread = trace.thread_of_track[trace.track[inside]]
    capturing_thread = trace.thread_of_track[trace.track[span.begin]]
    of_thread: Rows = inside[thread == capturing_thread]
    return of_thread if len(of_thread) else inside


def _kernel_names(trace: Trace, calls_of_captures: list[Rows]) -> list[tuple[str, ...]]:
    """For each capture the name of the kernel that each of its calls launches, ""
    where it is not recorded. Reads the args of all calls at once."""
    calls = np.concatenate([np.empty(0, np.intp), *calls_of_captures])
    if not _are_of_hip(trace, calls):
        # CUDA's calls have no such arg
        return [("",) * len(rows) for rows in calls_of_captures]
    names = _recorded_kernels(trace, calls)
    names_of_captures = []
    first = 0
    for rows in calls_of_captures:
        after_last = first + len(rows)
        names_of_captures.append(tuple(names[first:after_last]))
        first = after_last
    return names_of_captures


def _are_of_hip(trace: Trace, calls: Rows) -> bool:
    """Whether any of these calls is one of HIP, by its name."""
    numbers = np.unique(trace.name[calls]).tolist()
    return any(trace.names[number].startswith("hip") for number in numbers)


def _recorded_kernels(trace: Trace, calls: Rows) -> list[str]:
    """The name of the kernel that each call launches, as its args record it; ""
    without."""
    recorded = arguments(
        trace.elements, trace.order[calls], _KERNEL_ARG, keep_as="captured"
    )
    distinct = []
    for texts in recorded.distinct:
        name = parsed(texts[0])
        distinct.append(name if isinstance(name, str) else "")
    distinct.append("")  # of a call without args, whose number is -1
    return [distinct[number] for number in recorded.number.tolist()]


def _size_annotation(trace: Trace, begin: int) -> _SizeAnnotation:
    """What the innermost annotation around the start of a row says, of those that name
    a size; nothing without one."""
    annotations = trace.rows_of(Role.ANNOTATION)
    time = trace.start[begin]
    starts_before = trace.start[annotations] <= time
    ends_after = trace.end[annotations] > time
    around = annotations[starts_before & ends_after]
    innermost_first = around[np.argsort(-trace.start[around], kind="stable")]
    for row in innermost_first.tolist():
        name = trace.name_of(row)[:MAX_SEARCHED_CHARS]
        match = _SIZE_ANNOTATION.match(name)
        if match:
            mode = (match["mode"] or "").upper()
            return _SizeAnnotation(size=int(match["size"]), mode=mode)
    return _SizeAnnotation()


def size_of(capture_trace: Trace, capture: Capture) -> CaptureSize:
    """For how much a graph was captured; `capture_trace` is the trace of the capture.

    An annotation around the capture counts tokens in vLLM, and in a decode of SGLang
    requests; in other modes of SGLang, some versions count requests and some tokens.
    The rows of more than half of the matrix products count tokens.
    """
    size = capture.size
    if size is not None and capture.mode.startswith(_MODES_OF_TOKENS):
        return CaptureSize(tokens=size)
    if size is not None and capture.mode in _MODES_OF_REQUESTS:
        return CaptureSize(requests=size)
    tokens = _rows_of_products(capture_trace, capture)
    if size is None or not tokens:
        return CaptureSize(tokens=tokens)
    is_multiple = tokens % max(size, 1) == 0
    if not is_multiple or tokens == size:
        return CaptureSize(tokens=tokens)
    return CaptureSize(requests=size, tokens=tokens)


def _rows_of_products(capture_trace: Trace, capture: Capture) -> int | None:
    """The number of rows (m) that more than half of the matrix products of a capture
    have; None if there is none such."""
    ops = []
    for op in np.unique(capture_trace.op[capture.calls]).tolist():
        if op >= 0 and capture_trace.name_of(op) in _PRODUCTS:
            ops.append(op)
    products_of_rows: Counter[int | None] = Counter()
    for inputs in inputs_by_op(capture_trace, np.array(ops, dtype=np.intp)).values():
        product = matmul(inputs)
        if product:
            products_of_rows[product.m] += 1
    for rows, products in products_of_rows.most_common(1):
        if 2 * products > len(ops):
            return rows
    return None


NODE_ID: Final = "graph node id"
GRAPH_ID: Final = "graph id"
SOME_ANNOTATION: Final = "annotation"
NODE_ARGS: Final = (NODE_ID, GRAPH_ID, SOME_ANNOTATION, "module_name", "name", "str")
"""What args say about nodes: their numbers, and what torch writes of annotations."""

_KERNELS_LOOKED_AT: Final = 8
_MAX_NODE_ID: Final = 1 << 62
_KEYS_OF_AMD: Final = frozenset({"roctracer_version", "hip_runtime_version"})
"""Keys of files whose nodes have no ids, as HIP's have not."""


class Nodes(msgspec.Struct, frozen=True, eq=False):
    """The nodes of one graph launch on one device."""

    call: int  # row of the launch
    rows: Rows  # GPU rows, in the order in which they were captured
    numbered: bool = False  # that order is recorded

    def __len__(self) -> int:
        return len(self.rows)


def replays(trace: Trace) -> tuple[Nodes, ...]:
    """All graph launches with recorded events, in order of their calls."""
    rows_of_replays = nodes_of_replays(trace)
    if not rows_of_replays:
        return ()
    ids = _node_ids(trace, int(rows_of_replays[0][0]))
    if ids is not None:
        rows_of_replays = _by_id(rows_of_replays, ids)
    nodes_of_launches = []
    for rows in rows_of_replays:
        call = int(trace.launch[rows[0]])
        nodes = Nodes(call=call, rows=rows, numbered=ids is not None)
        nodes_of_launches.append(nodes)
    return tuple(nodes_of_launches)


def _by_id(rows_of_replays: list[Rows], ids: Int64s) -> list[Rows]:
    """The nodes of each replay in the order of their ids. `ids`: of the nodes of all
    replays, one after the other."""
    in_order = []
    first = 0
    for rows in rows_of_replays:
        after_last = first + len(rows)
        order = np.argsort(ids[first:after_last], kind="stable")
        in_order.append(rows[order])
        first = after_last
    return in_order


def bare_launches(trace: Trace) -> int:
    """How many graph launches have no event: the profiler did not record the nodes of
    graphs."""
    calls = np.flatnonzero(graph_calls(trace))
    has_event = np.isin(calls, trace.launch[trace.gpu_rows])
    return int((~has_event).sum())


def numbers_nodes(trace: Trace) -> bool:
    """Whether the file numbers the nodes of graphs, by the first kernels of the first
    replay."""
    rows_of_replays = nodes_of_replays(trace)
    if not rows_of_replays:
        return False
    rows = rows_of_replays[0]
    kernels = rows[trace.role[rows] == Role.KERNEL]
    looked_at = kernels[:_KERNELS_LOOKED_AT].tolist()
    return any(NODE_ID in trace.args_of(row) for row in looked_at)


def node_args(trace: Trace) -> tuple[Rows, Arguments]:
    """The nodes of all replays, and their NODE_ARGS; read once for all who ask. Only
    for a trace with replays."""
    rows = np.concatenate(nodes_of_replays(trace))
    args = arguments(trace.elements.own, trace.order[rows], NODE_ARGS, keep_as="nodes")
    return rows, args


def _node_ids(trace: Trace, first: int) -> Int64s | None:
    """The ids of all nodes; None unless every one has an id of its own in its replay.
    `first`: the row of the first node."""
    if not _may_have_node_ids(trace, first):
        return None
    _, args = node_args(trace)
    unknown = 0
    id_of_distinct = []
    for texts in args.distinct:
        node_id = parsed(texts[NODE_ARGS.index(NODE_ID)])
        is_id = isinstance(node_id, int) and 0 < node_id < _MAX_NODE_ID
        id_of_distinct.append(node_id if is_id else unknown)
    id_of_distinct.append(unknown)  # of a node without args, whose number is -1
    ids = np.array(id_of_distinct, dtype=np.int64)[args.number]
    return None if (ids == unknown).any() else ids


def _may_have_node_ids(trace: Trace, first: int) -> bool:
    """Whether the first node has an id; nodes of HIP have none."""
    launch_name = trace.name_of(int(trace.launch[first]))
    has_keys_of_amd = bool(_KEYS_OF_AMD & trace.keys.keys())
    if has_keys_of_amd or launch_name.startswith("hip"):
        return False
    return bool(trace.args_of(first).get(NODE_ID))
