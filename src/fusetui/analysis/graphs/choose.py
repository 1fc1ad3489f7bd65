"""Which capture each replay replays.

The nodes of a replay must be the calls of the capture: one for one, in order. HIP's
launch calls record the name of their kernel, which must be that of the node. CUDA's do
not: there the kind of work that the captured op implies must be that which the node's
name tells.

Replays with equal kernels fit the same captures. If several fit, the batch decides: a
server pads a step to the next size that it captured, in requests or in tokens. If
several of that size fit, as with the pieces of a graph that was captured in parts,
their order decides, provided that a step replays as many as were captured. Whatever is
left open is not joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.graphs.captures import Capture, CaptureSize, Nodes
from fusetui.gpu.kernel_names import decode
from fusetui.text.cutting import clip
from fusetui.text.figures import plural
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.op_names import stem

_KINDS_OF_PRODUCTS: Final = frozenset(
    {"gemm", "gemv", "reduction", "copy", "fill", "memset", "memcpy"}
)
_ELEMENTWISE: Final = frozenset({"elementwise"})
_KINDS_OF_COPIES: Final = frozenset({"copy", "elementwise", "memcpy"})
_KINDS_OF_FILLS: Final = frozenset({"fill", "elementwise", "memset"})
_KINDS_OF_INDEXING: Final = frozenset({"index", "embedding"})
_SOFTMAX: Final = frozenset({"softmax"})
_REDUCTION: Final = frozenset({"reduction"})
_KINDS_OF_CONCATENATION: Final = frozenset({"copy", "memcpy"})
_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "mm": _KINDS_OF_PRODUCTS,
    "addmm": _KINDS_OF_PRODUCTS,
    "bmm": _KINDS_OF_PRODUCTS,
    "baddbmm": _KINDS_OF_PRODUCTS,
    "matmul": _KINDS_OF_PRODUCTS,
    "linear": _KINDS_OF_PRODUCTS,
    "_scaled_mm": _KINDS_OF_PRODUCTS,
    "_int_mm": _KINDS_OF_PRODUCTS,
    "mv": _KINDS_OF_PRODUCTS,
    "addmv": _KINDS_OF_PRODUCTS,
    "add": _ELEMENTWISE,
    "sub": _ELEMENTWISE,
    "mul": _ELEMENTWISE,
    "div": _ELEMENTWISE,
    "neg": _ELEMENTWISE,
    "exp": _ELEMENTWISE,
    "silu": _ELEMENTWISE,
    "gelu": _ELEMENTWISE,
    "relu": _ELEMENTWISE,
    "sigmoid": _ELEMENTWISE,
    "tanh": _ELEMENTWISE,
    "where": _ELEMENTWISE,
    "rsub": _ELEMENTWISE,
    "reciprocal": _ELEMENTWISE,
    "sqrt": _ELEMENTWISE,
    "rsqrt": _ELEMENTWISE,
    "pow": _ELEMENTWISE,
    "cos": _ELEMENTWISE,
    "sin": _ELEMENTWISE,
    "clamp": _ELEMENTWISE,
    "bitwise_and": _ELEMENTWISE,
    "eq": _ELEMENTWISE,
    "copy": _KINDS_OF_COPIES,
    "clone": _KINDS_OF_COPIES,
    "contiguous": _KINDS_OF_COPIES,
    "to": _KINDS_OF_COPIES,
    "_to_copy": _KINDS_OF_COPIES,
    "fill": _KINDS_OF_FILLS,
    "zero": _KINDS_OF_FILLS,
    "index_select": _KINDS_OF_INDEXING,
    "embedding": _KINDS_OF_INDEXING,
    "index": _KINDS_OF_INDEXING,
    "gather": _KINDS_OF_INDEXING,
    "softmax": _SOFTMAX,
    "_softmax": _SOFTMAX,
    "sum": _REDUCTION,
    "mean": _REDUCTION,
    "argmax": _REDUCTION,
    "cat": _KINDS_OF_CONCATENATION,
    "stack": _KINDS_OF_CONCATENATION,
}
"""The kinds of kernels (`KernelName.op`) that each of these ops of aten:: launches."""


class _Transfer(NamedTuple):
    """What a captured copy or set becomes when the graph is replayed."""

    role: Role  # of the event
    kinds: tuple[str, ...]  # of a kernel in its place


_TRANSFERS: Final = {
    "Memcpy": _Transfer(Role.MEMCPY, ("copy", "memcpy")),
    "Memset": _Transfer(Role.MEMSET, ("fill", "memset")),
}
"""By a word in the name of the call."""

_NODES_PER_CONFIRMATION: Final = 10
"""Without names of kernels, at least one node in this many must be confirmed by its
kind."""

_MAX_NAME_CHARACTERS: Final = 60
"""Of a name in a message."""


class CaptureMatch(msgspec.Struct, frozen=True):
    """How a replay agrees with a capture."""

    problem: str = ""  # why it does not; "" if it does
    at: int = -1  # the node that differs first
    by_name: bool = True  # every kernel by its name
    kernels_only: bool = False  # copies and sets differ
    forks: bool = False  # it ran on several streams whose order is not recorded


class _Agreement(NamedTuple):
    """How a node agrees with a captured call."""

    agrees: bool | None  # None: nothing tells
    by_name: bool
    captured: str  # what the capture has


def kernels_alone(
    trace: Trace, nodes: Nodes, capture: Capture, there: Trace
) -> tuple[Nodes, Capture]:
    """Without copies and sets: a graph may do them in other ways, or not at all.
    `there` is the trace of the capture."""
    rows = nodes.rows[trace.role[nodes.rows] == Role.KERNEL]
    calls = []
    kernels = []
    for call, kernel in zip(capture.calls.tolist(), capture.kernels, strict=True):
        name = there.name_of(call)
        if not any(word in name for word in _TRANSFERS):
            calls.append(call)
            kernels.append(kernel)
    launches = replace(
        capture,
        calls=np.array(calls, dtype=capture.calls.dtype),
        kernels=tuple(kernels),
    )
    return replace(nodes, rows=rows), launches


def fit(trace: Trace, nodes: Nodes, capture: Capture, there: Trace) -> CaptureMatch:
    """Compares each node with its call, or if there are more of one than of the other,
    each kernel with its launch. `there` is the trace of the capture."""
    if len(nodes) == len(capture):
        return _compared(trace, nodes, capture, there)
    kernels, launches = kernels_alone(trace, nodes, capture, there)
    if len(kernels) and len(kernels) == len(launches):
        without_transfers = _compared(trace, kernels, launches, there)
        # without names the counts must be equal
        if without_transfers.problem or without_transfers.by_name:
            return replace(without_transfers, kernels_only=True)
    return CaptureMatch(
        problem=f"the replay has {len(nodes)} nodes and the capture {len(capture)} calls",
        at=min(len(nodes), len(capture)),
    )


def _compared(
    trace: Trace, nodes: Nodes, capture: Capture, there: Trace
) -> CaptureMatch:
    """How as many nodes as calls agree, one by one."""
    is_by_name = True
    confirmed = 0
    rows = nodes.rows.tolist()
    calls = capture.calls.tolist()
    for at, (row, call, kernel) in enumerate(
        zip(rows, calls, capture.kernels, strict=True)
    ):
        agreement = _agreement(trace, row, there, call, kernel)
        if agreement.agrees is False:
            problem = _difference(trace, nodes, at, agreement.captured)
            return CaptureMatch(problem=problem, at=at)
        is_by_name &= agreement.by_name
        confirmed += agreement.agrees is True
    if not is_by_name and confirmed * _NODES_PER_CONFIRMATION < len(rows):
        problem = (
            "the capture does not name its kernels, and too few are of a known kind"
        )
        return CaptureMatch(problem=problem, at=0)
    has_unknown_order = capture.forks and not nodes.numbered
    if has_unknown_order and not is_by_name:
        problem = "the capture uses several streams, whose order on the device is not recorded"
        return CaptureMatch(problem=problem, at=0)
    return CaptureMatch(by_name=is_by_name, forks=has_unknown_order)


def _difference(trace: Trace, nodes: Nodes, at: int, captured: str) -> str:
    """A sentence part about the node `at`, which is not what was captured."""
    node_name = trace.name_of(int(nodes.rows[at]))
    text = (
        f"node {at + 1} is {clip(node_name, _MAX_NAME_CHARACTERS, '...')}, and the capture has"
        f" {clip(captured, _MAX_NAME_CHARACTERS, '...')}"
    )
    streams = len(np.unique(trace.thread_of_track[trace.track[nodes.rows]]))
    if streams > 1:
        text += f"; it ran on {streams} streams, whose order is not recorded"
    return text


def _agreement(
    trace: Trace, row: int, there: Trace, call: int, kernel: str
) -> _Agreement:
    """Whether a node is what a captured call launches, as far as names tell. `kernel`:
    the name of its kernel, "" if it is not recorded."""
    name = trace.name_of(row)
    role = Role(int(trace.role[row]))
    if kernel:
        is_same = kernel.removesuffix(".kd") == name.removesuffix(".kd")
        return _Agreement(agrees=is_same, by_name=True, captured=kernel)
    call_name = there.name_of(call)
    op = int(there.op[call])
    for word, transfer in _TRANSFERS.items():
        if word in call_name:
            is_same = role == transfer.role or _kind(name) in transfer.kinds
            return _Agreement(agrees=is_same, by_name=True, captured=call_name)
    if role != Role.KERNEL:
        return _Agreement(agrees=False, by_name=False, captured=call_name)
    if op < 0:
        return _Agreement(agrees=None, by_name=False, captured=call_name)
    return _agreement_with_op(there.name_of(op), name)


@lru_cache(maxsize=4096)
def _agreement_with_op(op: str, name: str) -> _Agreement:
    """Whether a kernel may be the work of an op."""
    if op.startswith("triton_"):
        if name.startswith("triton_"):
            return _Agreement(agrees=op == name, by_name=True, captured=op)
        return _Agreement(agrees=None, by_name=False, captured=op)
    kinds = _KINDS.get(stem(op)) if op.startswith("aten::") else None
    kind = _kind(name)
    agrees = None if kinds is None or kind is None else kind in kinds
    return _Agreement(agrees=agrees, by_name=False, captured=op)


def _kind(name: str) -> str | None:
    """The kind of work of a kernel; None if its name does not tell."""
    kernel = decode(name)
    return kernel.op if kernel else None


PADDED: Final = "the capture is for {size} and the step has {batch}"
_TOO_MUCH_PADDING: Final = 2
"""The sizes that servers capture are less than this apart, from the second on: 1, 2, 4,
8, 16, 24, 32, ... in vLLM and SGLang, unless the user chose others. A capture for so
much more is one of another size, if the next smaller one is not there."""

BY_KIND: Final = (
    "the calls of the capture do not name their kernels, whose kinds and order agree"
)
FORKED: Final = (
    "the capture uses several streams, and kernels of one name may be those of another"
)
IN_TURN: Final = "equal parts of a graph are told apart by their order"


class Chosen(msgspec.Struct, frozen=True):
    """The capture of a replay, an index (-1: none); why it is only likely, or why there
    is none."""

    capture: int = -1
    likely: str = ""
    problem: str = ""
    kernels_only: bool = False  # copies and sets of the graph have no call


class _ComparableSizes(NamedTuple):
    """Sizes in one unit, None for what is not known."""

    captures: Sequence[int | None]
    batch: int | None  # of the step


class _ChosenSize(NamedTuple):
    """The size of the captures that a step replays, or why none fits."""

    size: int | None = None
    problem: str = ""


def choose(
    trace: Trace,
    there: Trace,
    replays: Sequence[Nodes],
    captures: Sequence[Capture],
    sizes: Sequence[CaptureSize],
    steps: Sequence[tuple[int, CaptureSize]],
) -> list[Chosen]:
    """For each replay its capture. `sizes`: of each capture; `steps`: of each replay
    the number of its step (-1: none), and what was asked of it."""
    chosen = [Chosen()] * len(replays)
    names = [trace.name[nodes.rows].tobytes() for nodes in replays]
    for same_names in by_key(range(len(replays)), names.__getitem__).values():
        nodes = replays[same_names[0]]
        fits = [fit(trace, nodes, capture, there) for capture in captures]
        matching = {n: fit_ for n, fit_ in enumerate(fits) if not fit_.problem}
        if not matching:
            problem = _refusal(trace, there, nodes, fits, captures)
            for replay in same_names:
                chosen[replay] = Chosen(problem=problem)
            continue
        for (_, asked), of_step in by_key(same_names, steps.__getitem__).items():
            choices = _choose_in_step(len(of_step), matching, sizes, asked)
            for replay, choice in zip(of_step, choices, strict=True):
                chosen[replay] = choice
    return chosen


def _choose_in_step(
    count: int,
    matching: Mapping[int, CaptureMatch],
    sizes: Sequence[CaptureSize],
    asked: CaptureSize,
) -> list[Chosen]:
    """For so many replays of one step with equal kernels, in order: of the captures
    that match by their kernels, those of the size that the step replays."""
    comparable = _comparable_sizes(matching, sizes, asked)
    size, problem = _size_of_step(matching, comparable)
    fitting = [n for n in matching if comparable.captures[n] == size]
    are_several = len(fitting) > 1
    if are_several and count != len(fitting) and not problem:
        graphs = plural(len(fitting), "graph")
        problem = f"{graphs} of the capture fit equally, and the step replays {count}"
    if problem:
        return [Chosen(problem=problem)] * count
    reasons = []
    if not all(matching[n].by_name for n in fitting):
        reasons.append(BY_KIND)
    if any(matching[n].forks for n in fitting):
        reasons.append(FORKED)
    batch = comparable.batch
    if size is not None and batch is not None and size != batch:
        reasons.append(PADDED.format(size=size, batch=batch))
    if are_several:
        reasons.append(IN_TURN)
    captures = fitting if are_several else fitting * count
    return [
        Chosen(
            capture=n,
            likely="; ".join(reasons),
            kernels_only=matching[n].kernels_only,
        )
        for n in captures
    ]


def _comparable_sizes(
    matching: Mapping[int, CaptureMatch],
    sizes: Sequence[CaptureSize],
    asked: CaptureSize,
) -> _ComparableSizes:
    """The sizes and the batch in tokens, if they are known of all that match, else in
    requests. Of captures that cannot be compared with the batch the size in either."""
    tokens = [size.tokens for size in sizes]
    requests = [size.requests for size in sizes]
    for captures, batch in ((tokens, asked.tokens), (requests, asked.requests)):
        if batch is not None and all(captures[n] is not None for n in matching):
            return _ComparableSizes(captures=captures, batch=batch)
    either = [size.requests if size.tokens is None else size.tokens for size in sizes]
    return _ComparableSizes(captures=either, batch=None)


def _size_of_step(
    matching: Mapping[int, CaptureMatch], comparable: _ComparableSizes
) -> _ChosenSize:
    """The size of the captures that a step of this batch replays, or why none fits."""
    sizes = {comparable.captures[n] for n in matching}
    known_sizes = [size for size in sizes if size is not None]
    batch = comparable.batch
    if batch is None or None in sizes:
        if len(sizes) == 1:
            return _ChosenSize(size=sizes.pop())
        reason = (
            "the step does not say its batch"
            if batch is None
            else "not all say their size"
        )
        problem = f"captures of {len(sizes)} sizes fit equally: {reason}"
        return _ChosenSize(problem=problem)
    large_enough = [size for size in known_sizes if size >= batch]
    size = min(large_enough, default=max(known_sizes))
    padded = PADDED.format(size=size, batch=batch)
    if size < batch:
        return _ChosenSize(problem=padded)
    has_smaller = any(
        other is not None and other < batch for other in comparable.captures
    )
    if size >= _TOO_MUCH_PADDING * batch and not has_smaller:
        return _ChosenSize(problem=f"{padded}, which no server pads so far")
    return _ChosenSize(size=size)


_MAX_LENGTHS_SHOWN: Final = 4


def _refusal(
    trace: Trace,
    there: Trace,
    nodes: Nodes,
    fits: Sequence[CaptureMatch],
    captures: Sequence[Capture],
) -> str:
    """Where the capture that agrees longest differs first."""
    if not fits:
        return "the other trace captures no graph"
    same_length = [
        fit_
        for fit_, capture in zip(fits, captures, strict=True)
        if len(capture) == len(nodes)
    ]
    if same_length:
        return max(same_length, key=lambda fit_: fit_.at).problem
    for capture in captures:
        which = _which_part(trace, nodes, capture, there)
        if which:
            return (
                f"it has only the {which} {len(nodes)} of {len(capture)} nodes of the capture, as"
                " if cut at the edge of the recorded window"
            )
    lengths = sorted({len(capture) for capture in captures})
    shown = [str(length) for length in lengths[:_MAX_LENGTHS_SHOWN]]
    if len(lengths) > _MAX_LENGTHS_SHOWN:
        shown.append("...")
    return f"the replay has {len(nodes)} nodes, and the capture {', '.join(shown)}"


def _which_part(trace: Trace, nodes: Nodes, capture: Capture, there: Trace) -> str:
    """Whether the nodes are the `first` or the `last` calls of a capture; "" for
    neither."""
    count = len(nodes)
    if count >= len(capture):
        return ""
    parts = {"first": slice(count), "last": slice(len(capture) - count, None)}
    for which, part in parts.items():
        calls = replace(
            capture, calls=capture.calls[part], kernels=capture.kernels[part]
        )
        if not fit(trace, nodes, calls, there).problem:
            return which
    return ""


def counted(problems: Sequence[str]) -> tuple[str, ...]:
    """A sentence for each distinct problem, with the number of replays that have it."""
    counts = sorted(Counter(problems).items())
    return tuple(
        f"{plural(count, 'graph replay')} cannot be joined: {problem}."
        for problem, count in counts
    )
