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

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.graphs.captures import Capture, CaptureSize, Nodes
from fusetui.gpu.kernel_names import decode
from fusetui.text.cutting import clip
from fusetui.text.figures import plural
from fusetui.trace.model.arrays import Rows
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
"""By a word that the name of the call contains; see `_transfer_of`."""

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
    trace: Trace, nodes: Nodes, capture: Capture, capture_trace: Trace
) -> tuple[Nodes, Capture]:
    """`nodes` and `capture` without copies and sets: of the nodes only kernels are
    left, of the captured calls only those that launch one. A graph may copy and set in
    other ways than its capture did, or not at all. `trace` has the rows of the nodes,
    `capture_trace` those of the calls."""
    is_kernel = trace.role[nodes.rows] == Role.KERNEL
    kernels = replace(nodes, rows=nodes.rows[is_kernel])
    call_names = _names(capture_trace, capture.calls)
    is_launch = [_transfer_of(name) is None for name in call_names]
    launches = replace(
        capture,
        calls=capture.calls[np.array(is_launch, dtype=np.bool_)],
        kernels=tuple(itertools.compress(capture.kernels, is_launch)),
    )
    return kernels, launches


def _names(trace: Trace, rows: Rows) -> list[str]:
    """The name of the slice at each row of a trace."""
    return [trace.name_of(row) for row in rows.tolist()]


def _transfer_of(call_name: str) -> _Transfer | None:
    """What a call of this name copies or sets; None if it launches a kernel."""
    for word, transfer in _TRANSFERS.items():
        if word in call_name:
            return transfer
    return None


def fit(
    trace: Trace, nodes: Nodes, capture: Capture, capture_trace: Trace
) -> CaptureMatch:
    """How the nodes of a replay agree with the calls of a capture, one by one in their
    order. Where there are more nodes than calls, or fewer, kernels alone are compared
    with the calls that launch one (`kernels_only`); if there are more of these too, or
    fewer, the two do not agree, and `problem` says the counts."""
    if len(nodes) == len(capture):
        return _compared(trace, nodes, capture, capture_trace)
    kernels, launches = kernels_alone(trace, nodes, capture, capture_trace)
    if len(kernels) and len(kernels) == len(launches):
        without_transfers = _compared(trace, kernels, launches, capture_trace)
        # Kinds of kernels alone prove too little where copies and sets differ: then
        # every kernel must agree by its name.
        if without_transfers.problem or without_transfers.by_name:
            return replace(without_transfers, kernels_only=True)
    return CaptureMatch(
        problem=f"the replay has {len(nodes)} nodes and the capture {len(capture)} calls",
        at=min(len(nodes), len(capture)),
    )


def _compared(
    trace: Trace, nodes: Nodes, capture: Capture, capture_trace: Trace
) -> CaptureMatch:
    """How as many nodes as calls agree, the n-th node with the n-th call. `problem` is
    set at the first node that is not what was captured; where names of kernels are
    missing, also if fewer than one node in _NODES_PER_CONFIRMATION is confirmed by its
    kind, or if the order of several streams is not known."""
    is_by_name = True
    confirmed = 0
    rows = nodes.rows.tolist()
    calls = capture.calls.tolist()
    for at, row in enumerate(rows):
        agreement = _agreement(
            trace, row, capture_trace, calls[at], capture.kernels[at]
        )
        if agreement.agrees is False:
            problem = _difference(trace, nodes, at, agreement.captured)
            return CaptureMatch(problem=problem, at=at)
        is_by_name &= agreement.by_name
        if agreement.agrees:
            confirmed += 1
    has_unknown_order = capture.forks and not nodes.numbered
    is_confirmed = confirmed * _NODES_PER_CONFIRMATION >= len(rows)
    if not is_by_name and not is_confirmed:
        return CaptureMatch(problem=_FEW_KINDS, at=0)
    if not is_by_name and has_unknown_order:
        return CaptureMatch(problem=_UNKNOWN_ORDER, at=0)
    return CaptureMatch(by_name=is_by_name, forks=has_unknown_order)


_FEW_KINDS: Final = (
    "the capture does not name its kernels, and too few are of a known kind"
)
_UNKNOWN_ORDER: Final = (
    "the capture uses several streams, whose order on the device is not recorded"
)


def _difference(trace: Trace, nodes: Nodes, at: int, captured: str) -> str:
    """The problem that the node `at` (an index) is not what was captured, as the end of
    a sentence; `captured` is the name of that."""
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
    trace: Trace, row: int, capture_trace: Trace, call: int, kernel: str
) -> _Agreement:
    """Whether a node is what a captured call launches, as far as names tell. `row` is
    the node, a row of `trace`; `call` is a row of `capture_trace`; `kernel` is the name
    of the kernel that the call launches, "" if it is not recorded."""
    name = trace.name_of(row)
    role = Role(int(trace.role[row]))
    if kernel:
        # .kd is the suffix of the descriptor of a kernel on AMD devices
        is_same = kernel.removesuffix(".kd") == name.removesuffix(".kd")
        return _Agreement(agrees=is_same, by_name=True, captured=kernel)
    call_name = capture_trace.name_of(call)
    transfer = _transfer_of(call_name)
    if transfer is not None:
        is_same = role == transfer.role or _kind(name) in transfer.kinds
        return _Agreement(agrees=is_same, by_name=True, captured=call_name)
    if role != Role.KERNEL:
        return _Agreement(agrees=False, by_name=False, captured=call_name)
    op = int(capture_trace.op[call])
    if op < 0:  # the call has no op around it, so its kind of kernel is not known
        return _Agreement(agrees=None, by_name=False, captured=call_name)
    return _agreement_with_op(capture_trace.name_of(op), name)


@lru_cache(maxsize=4096)
def _agreement_with_op(op: str, name: str) -> _Agreement:
    """Whether a kernel of this name may be the work of an op of this name. A Triton
    kernel must have the name of its op; else the kind of work must be one that the op
    launches; nothing tells (None) where that is not known of either of the two."""
    if op.startswith("triton_"):
        if name.startswith("triton_"):
            return _Agreement(agrees=op == name, by_name=True, captured=op)
        return _Agreement(agrees=None, by_name=False, captured=op)
    agrees = None
    kind = _kind(name)
    kinds_of_op = _KINDS.get(stem(op)) if op.startswith("aten::") else None
    if kind is not None and kinds_of_op is not None:
        agrees = kind in kinds_of_op
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
    capture_trace: Trace,
    replays: Sequence[Nodes],
    captures: Sequence[Capture],
    sizes: Sequence[CaptureSize],
    steps: Sequence[tuple[int, CaptureSize]],
) -> list[Chosen]:
    """For each replay its capture, an index in `captures`, or why it has none. `trace`
    has the rows of the replays, `capture_trace` those of the captures. `sizes`: of each
    capture; `steps`: of each replay the number of its step (-1: none), and what was
    asked of it."""
    chosen = [Chosen()] * len(replays)
    # Replays with equal names of nodes, in order, fit the same captures.
    names = [trace.name[nodes.rows].tobytes() for nodes in replays]
    for same_names in by_key(range(len(replays)), names.__getitem__).values():
        nodes = replays[same_names[0]]
        matches = [fit(trace, nodes, capture, capture_trace) for capture in captures]
        matching = _without_problems(matches)
        if not matching:
            problem = _refusal(trace, capture_trace, nodes, matches, captures)
            for replay in same_names:
                chosen[replay] = Chosen(problem=problem)
            continue
        replays_of_steps = by_key(same_names, steps.__getitem__)
        for (_, asked), replays_of_step in replays_of_steps.items():
            count = len(replays_of_step)
            choices = _choose_in_step(count, matching, sizes, asked)
            for replay, choice in zip(replays_of_step, choices, strict=True):
                chosen[replay] = choice
    return chosen


def _without_problems(matches: Sequence[CaptureMatch]) -> dict[int, CaptureMatch]:
    """The matches without a problem, by their indices."""
    matching = {}
    for n, match in enumerate(matches):
        if not match.problem:
            matching[n] = match
    return matching


def _choose_in_step(
    count: int,
    matching: Mapping[int, CaptureMatch],
    sizes: Sequence[CaptureSize],
    asked: CaptureSize,
) -> list[Chosen]:
    """The captures of `count` replays of one step whose kernels are equal, one for each
    in their order. `matching`: by their index, the captures whose kernels agree. Of
    these, the ones of the size that the step replays are chosen: one for all replays,
    or several in turn if there are as many as replays; else all get the same problem.
    `sizes`: of all captures; `asked`: what was asked of the step."""
    comparable = _comparable_sizes(matching, sizes, asked)
    size, problem = _size_of_step(matching, comparable)
    fitting = [n for n in matching if comparable.captures[n] == size]
    # as the pieces of a graph that was captured in parts
    are_several = len(fitting) > 1
    if are_several and count != len(fitting) and not problem:
        graphs = plural(len(fitting), "graph")
        problem = f"{graphs} of the capture fit equally, and the step replays {count}"
    if problem:
        return [Chosen(problem=problem)] * count
    likely = _doubts([matching[n] for n in fitting], size, comparable.batch)
    choices = []
    for n in fitting if are_several else fitting * count:
        kernels_only = matching[n].kernels_only
        choices.append(Chosen(capture=n, likely=likely, kernels_only=kernels_only))
    return choices


def _doubts(
    matches: Sequence[CaptureMatch], size: int | None, batch: int | None
) -> str:
    """Why it is only likely that these captures, of this size, are what a step of this
    batch replays; "" if it is certain."""
    reasons = []
    if not all(match.by_name for match in matches):
        reasons.append(BY_KIND)
    if any(match.forks for match in matches):
        reasons.append(FORKED)
    if size is not None and batch is not None and size != batch:
        reasons.append(PADDED.format(size=size, batch=batch))
    if len(matches) > 1:
        reasons.append(IN_TURN)
    return "; ".join(reasons)


def _comparable_sizes(
    matching: Mapping[int, CaptureMatch],
    sizes: Sequence[CaptureSize],
    asked: CaptureSize,
) -> _ComparableSizes:
    """The sizes of all captures and the batch of the step in one unit: in tokens, if
    the batch and the sizes of all that match are known so, else in requests. Where
    neither is possible, the batch is None, and each size is in tokens, or where these
    are not known in requests: then sizes can only be told apart."""
    tokens = [size.tokens for size in sizes]
    if asked.tokens is not None and _are_known(tokens, matching):
        return _ComparableSizes(captures=tokens, batch=asked.tokens)
    requests = [size.requests for size in sizes]
    if asked.requests is not None and _are_known(requests, matching):
        return _ComparableSizes(captures=requests, batch=asked.requests)
    either = [size.requests if size.tokens is None else size.tokens for size in sizes]
    return _ComparableSizes(captures=either, batch=None)


def _are_known(sizes: Sequence[int | None], which: Iterable[int]) -> bool:
    """Whether the sizes at these indices are all known."""
    return all(sizes[n] is not None for n in which)


def _size_of_step(
    matching: Mapping[int, CaptureMatch], comparable: _ComparableSizes
) -> _ChosenSize:
    """The size of the captures that a step of this batch replays: the smallest that is
    not below the batch. Without a batch, or where the size of a matching capture is not
    known, it is the only size there is (which may be None). Else why none fits."""
    sizes = {comparable.captures[n] for n in matching}
    batch = comparable.batch
    if batch is None or None in sizes:
        if len(sizes) == 1:
            return _ChosenSize(size=sizes.pop())
        reason = "not all say their size"
        if batch is None:
            reason = "the step does not say its batch"
        problem = f"captures of {len(sizes)} sizes fit equally: {reason}"
        return _ChosenSize(problem=problem)
    known_sizes = [size for size in sizes if size is not None]
    return _size_for_batch(known_sizes, comparable, batch)


def _size_for_batch(
    sizes: Sequence[int], comparable: _ComparableSizes, batch: int
) -> _ChosenSize:
    """The smallest of these sizes that is not below the batch; else why none fits: all
    are smaller, or it is far larger, though no smaller capture exists at all."""
    large_enough = [size for size in sizes if size >= batch]
    size = min(large_enough, default=max(sizes))
    padded = PADDED.format(size=size, batch=batch)
    if size < batch:
        return _ChosenSize(problem=padded)
    all_sizes = [other for other in comparable.captures if other is not None]
    has_smaller = any(other < batch for other in all_sizes)
    if size >= _TOO_MUCH_PADDING * batch and not has_smaller:
        return _ChosenSize(problem=f"{padded}, which no server pads so far")
    return _ChosenSize(size=size)


_MAX_LENGTHS_SHOWN: Final = 4


def _refusal(
    trace: Trace,
    capture_trace: Trace,
    nodes: Nodes,
    matches: Sequence[CaptureMatch],
    captures: Sequence[Capture],
) -> str:
    """Why none of the captures fits, as the end of a sentence. The first of these that
    is true: there is no capture; the problem of the capture with as many nodes that
    agrees longest; the nodes are only the first or the last ones of a capture; the
    numbers of nodes differ. `matches`: how the nodes agree with each capture."""
    if not matches:
        return "the other trace captures no graph"
    of_same_length: list[CaptureMatch] = []
    for match, capture in zip(matches, captures, strict=True):
        if len(capture) == len(nodes):
            of_same_length.append(match)
    if of_same_length:
        agrees_longest = max(of_same_length, key=lambda match: match.at)
        return agrees_longest.problem
    for capture in captures:
        which = _which_part(trace, nodes, capture, capture_trace)
        if which:
            return (
                f"it has only the {which} {len(nodes)} of {len(capture)} nodes of the capture."
                " It may have been cut at the edge of the recorded window"
            )
    return f"the replay has {len(nodes)} nodes, and the capture {_lengths(captures)}"


def _lengths(captures: Sequence[Capture]) -> str:
    """`12, 40, 41`: the numbers of nodes of these captures, ascending, `...` in place of
    those beyond _MAX_LENGTHS_SHOWN."""
    lengths = sorted({len(capture) for capture in captures})
    shown = [str(length) for length in lengths[:_MAX_LENGTHS_SHOWN]]
    if len(lengths) > _MAX_LENGTHS_SHOWN:
        shown.append("...")
    return ", ".join(shown)


def _which_part(
    trace: Trace, nodes: Nodes, capture: Capture, capture_trace: Trace
) -> str:
    """`first` or `last` if the nodes are these calls of a longer capture; "" for
    neither."""
    count = len(nodes)
    if count >= len(capture):
        return ""
    parts = {"first": slice(count), "last": slice(len(capture) - count, None)}
    for which, part in parts.items():
        part_of_capture = replace(
            capture, calls=capture.calls[part], kernels=capture.kernels[part]
        )
        if not fit(trace, nodes, part_of_capture, capture_trace).problem:
            return which
    return ""


def counted(problems: Sequence[str]) -> tuple[str, ...]:
    """A sentence for each distinct problem, with the number of replays that have it."""
    sentences = []
    for problem, count in sorted(Counter(problems).items()):
        replays = plural(count, "graph replay")
        sentences.append(f"{replays} cannot be joined: {problem}.")
    return tuple(sentences)
