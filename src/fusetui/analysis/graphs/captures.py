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
from itertools import islice

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
from fusetui.text.patterns import LONGEST_NAME
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Arguments, arguments, parsed
from fusetui.trace.model.memo import memo

NODES = re.compile(
    r"\A(?!.*(?i:GraphLaunch)).*?(?:(?i:Launch(?!HostFunc))|Memcpy|Memset)", re.DOTALL
)
"""Calls that launch, copy or set."""
FORKS = re.compile(r"StreamWaitEvent")
SIZE = re.compile(r"(?:[a-z]{1,40}_)?capture_(\d{1,9})(?:_([A-Za-z_]{1,40}))?\Z")
"""The annotation of a server around a capture: capture_32_DECODE (SGLang),
capture_32_FULL and capture_32_PIECEWISE (vLLM), capture_32_decode (ATOM)."""
KERNEL = ("kernel",)  # HIP's calls record the name of the kernel that they launch
PRODUCTS = ("aten::mm", "aten::addmm", "aten::_scaled_mm")
TOKENS = ("FULL", "PIECEWISE")  # modes of vLLM
REQUESTS = ("DECODE", "")


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


class CaptureSize(msgspec.Struct, frozen=True):
    """How much a graph was captured for; None for what is not known."""

    requests: int | None = None
    tokens: int | None = None


def has_captures(trace: Trace) -> bool:
    """Whether a capture begins in this trace; looks at names only."""
    return any(BEGINS_CAPTURE.search(name, 0, LONGEST_NAME) for name in trace.names)


@memo()
def captures(trace: Trace) -> tuple[tuple[Capture, ...], int]:
    """The captures of all threads in order, and how many have no end. Reads args of
    their calls."""
    both = zip(*(rows.tolist() for rows in capture_calls(trace)), strict=True)
    every = sorted(both, key=lambda span: int(trace.start[span[0]]))
    # no other one begins before the end
    last = {end: begin for begin, end in every if end >= 0}
    spans = [(begin, end) for begin, end in every if last.get(end) == begin]
    calls, waits = (
        rows[np.argsort(trace.start[rows], kind="stable")]
        for rows in (outer_calls(trace, NODES), outer_calls(trace, FORKS))
    )
    calls = calls[~np.isin(calls, trace.launch[trace.gpu_rows])]
    own = [_between(trace, calls, begin, end) for begin, end in spans]
    names = iter(_kernels(trace, np.concatenate([np.empty(0, np.intp), *own])))
    found = []
    for (begin, end), rows in zip(spans, own, strict=True):
        size, mode = _annotated(trace, begin)
        first, last = np.searchsorted(trace.start[waits], trace.start[[begin, end]])
        found.append(
            Capture(
                rows, tuple(islice(names, len(rows))), size, mode, bool(last > first)
            )
        )
    return tuple(found), len(every) - len(spans)


def _between(trace: Trace, calls: Rows, begin: int, end: int) -> Rows:
    """Those of the thread that captures; if it has none, of all."""
    first, last = np.searchsorted(
        trace.start[calls], (trace.end[begin], trace.start[end])
    )
    rows = calls[first:last]
    thread = trace.thread_of_track[trace.track[rows]]
    found: Rows = rows[thread == trace.thread_of_track[trace.track[begin]]]
    return found if len(found) else rows


def _kernels(trace: Trace, calls: Rows) -> list[str]:
    """The name of the kernel that each call launches, "" where it is not recorded."""
    if not any(
        trace.names[n].startswith("hip") for n in np.unique(trace.name[calls]).tolist()
    ):
        return [""] * len(calls)  # CUDA's calls have no such arg
    found = arguments(trace.elements, trace.order[calls], KERNEL, keep_as="captured")
    distinct = [parsed(texts[0]) for texts in found.distinct]
    names = [*(name if isinstance(name, str) else "" for name in distinct), ""]
    return [names[number] for number in found.number.tolist()]


def _annotated(trace: Trace, begin: int) -> tuple[int | None, str]:
    """The number and the mode in the innermost annotation around a row that tells
    them."""
    rows, time = trace.rows_of(Role.ANNOTATION), trace.start[begin]
    rows = rows[(trace.start[rows] <= time) & (time < trace.end[rows])]
    for row in rows[np.argsort(-trace.start[rows], kind="stable")].tolist():
        if found := SIZE.match(trace.name_of(row)[:LONGEST_NAME]):
            return int(found[1]), (found[2] or "").upper()
    return None, ""


def size_of(there: Trace, capture: Capture) -> CaptureSize:
    """For how much a graph was captured.

    An annotation around the capture counts tokens in vLLM, and in a decode of SGLang
    requests; in other modes of SGLang, some versions count requests and some tokens.
    The rows of more than half of the matrix products count tokens.
    """
    size = capture.size
    if size is not None and capture.mode.startswith(TOKENS):
        return CaptureSize(tokens=size)
    if size is not None and capture.mode in REQUESTS:
        return CaptureSize(requests=size)
    ops = np.unique(there.op[capture.calls])
    ops = ops[[op >= 0 and there.name_of(op) in PRODUCTS for op in ops.tolist()]]
    products = map(matmul, inputs_by_op(there, ops).values())
    rows = Counter(product.m for product in products if product).most_common(1)
    tokens = next((m for m, count in rows if 2 * count > len(ops)), None)
    if size is None or not tokens or tokens % max(size, 1):
        return CaptureSize(tokens=tokens)
    return CaptureSize(requests=None if tokens == size else size, tokens=tokens)


NODE_ID, GRAPH_ID, SOME_ANNOTATION = "graph node id", "graph id", "annotation"
LOOKED_AT = 8  # kernels
NODE_ARGS = (NODE_ID, GRAPH_ID, SOME_ANNOTATION, "module_name", "name", "str")
"""What args say about nodes: their numbers, and what torch writes of annotations."""
AMD = {"roctracer_version", "hip_runtime_version"}
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
    each = nodes_of_replays(trace)
    if not each:
        return ()
    ids = _node_ids(trace, int(each[0][0]))
    if ids is not None:
        of_each = np.split(ids, np.cumsum([len(own) for own in each])[:-1])
        each = [
            own[np.argsort(n, kind="stable")]
            for own, n in zip(each, of_each, strict=True)
        ]
    return tuple(Nodes(int(trace.launch[own[0]]), own, ids is not None) for own in each)


def bare_launches(trace: Trace) -> int:
    """How many graph launches have no event: the profiler did not record the nodes of
    graphs."""
    calls = np.flatnonzero(graph_calls(trace))
    return int((~np.isin(calls, trace.launch[trace.gpu_rows])).sum())


def numbers_nodes(trace: Trace) -> bool:
    """Whether the file numbers the nodes of graphs, by the first kernels of the first
    replay."""
    each = nodes_of_replays(trace)
    kernels = (
        each[0][trace.role[each[0]] == Role.KERNEL][:LOOKED_AT].tolist() if each else []
    )
    return any(NODE_ID in trace.args_of(row) for row in kernels)


def node_args(trace: Trace) -> tuple[Rows, Arguments]:
    """The nodes of all replays, and their NODE_ARGS; read once for all who ask."""
    rows = np.concatenate(nodes_of_replays(trace))
    return rows, arguments(
        trace.elements.own, trace.order[rows], NODE_ARGS, keep_as="nodes"
    )


def _node_ids(trace: Trace, first: int) -> Int64s | None:
    """The ids of all nodes; None unless every one has an id of its own in its
    replay."""
    if AMD & trace.keys.keys() or trace.name_of(int(trace.launch[first])).startswith(
        "hip"
    ):
        return None
    if not trace.args_of(first).get(NODE_ID):
        return None
    found = node_args(trace)[1]
    values = [parsed(texts[0]) for texts in found.distinct]
    ids = [v if isinstance(v, int) and 0 < v < 1 << 62 else 0 for v in values]
    each = np.array([*ids, 0], dtype=np.int64)[found.number]
    return each if (each > 0).all() else None
