"""Selects the capture of each graph replay.

The nodes of a replay must be the calls of the capture: one for one, in order. Launch
calls of HIP record the name of their kernel, which must be that of the node. Those of
CUDA do not. There the name of the node must tell a kind of work that the captured op
may launch.

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
from fusetui.trace.model.arrays import Rows, distinct
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
_KINDS_OF_OP: Final[Mapping[str, frozenset[str]]] = {
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
"""The kinds of kernels (`KernelName.op`) that each op of aten:: may launch."""


class _Transfer(NamedTuple):
    """What a captured copy or set may become when the graph is replayed."""

    role: Role  # of the event
    kinds: tuple[str, ...]  # of a kernel that does the same work instead


_TRANSFERS: Final = {
    "Memcpy": _Transfer(Role.MEMCPY, ("copy", "memcpy")),
    "Memset": _Transfer(Role.MEMSET, ("fill", "memset")),
}
"""The copies and sets, by a word that the name of the call contains."""

_NODES_PER_CONFIRMATION: Final = 10
"""Without names of kernels, at least one node in this many must be confirmed by its
kind."""

_MAX_NAME_CHARACTERS: Final = 60
"""A longer name is cut in a message."""


class CaptureMatch(msgspec.Struct, frozen=True):
    """How the nodes of a replay agree with the calls of a capture."""

    problem: str = ""  # why they do not agree; "" if they do
    first_difference: int = -1  # index of the first node that differs; -1 if none does
    by_name: bool = True  # every kernel agrees by its name
    kernels_only: bool = False  # copies and sets differ
    forks: bool = False  # it ran on several streams whose order is not recorded


class _Agreement(NamedTuple):
    """How one node agrees with one captured call."""

    agrees: bool | None  # None if nothing tells
    by_name: bool  # the names were compared, not only kinds of work
    captured: str  # the name of what the capture has


def remove_transfers(
    trace: Trace, nodes: Nodes, capture: Capture, capture_trace: Trace
) -> tuple[Nodes, Capture]:
    """Remove copies and sets from a replay and from a capture.

    A graph may copy and set in other ways than its capture did, or not at all. What is
    left are the nodes that are kernels and the calls that launch one.

    Args:
        trace: The trace that has the rows of the nodes.
        nodes: The replay.
        capture: The capture.
        capture_trace: The trace that has the rows of the captured calls.
    """
    is_kernel = trace.role[nodes.rows] == Role.KERNEL
    kernels = replace(nodes, rows=nodes.rows[is_kernel])

    call_names = _names_of_rows(capture_trace, capture.calls)
    is_launch = [_recognize_transfer(name) is None for name in call_names]
    launches = replace(
        capture,
        calls=capture.calls[np.array(is_launch, dtype=np.bool_)],
        kernels=tuple(itertools.compress(capture.kernels, is_launch)),
    )
    return kernels, launches


def _names_of_rows(trace: Trace, rows: Rows) -> list[str]:
    """Return the name of the slice at each of these rows."""
    return [trace.name_of(row) for row in rows.tolist()]


def _recognize_transfer(call_name: str) -> _Transfer | None:
    """Return what a call copies or sets, by its name; None if it launches a kernel."""
    for word, transfer in _TRANSFERS.items():
        if word in call_name:
            return transfer
    return None


def match_capture(
    trace: Trace, nodes: Nodes, capture: Capture, capture_trace: Trace
) -> CaptureMatch:
    """Compare the nodes of a replay with the calls of a capture, one by one in order.

    If there are more nodes than calls, or fewer, only kernels are compared with the
    calls that launch one. If their numbers differ too, the replay does not match.

    Args:
        trace: The trace that has the rows of the nodes.
        nodes: The replay.
        capture: The capture.
        capture_trace: The trace that has the rows of the captured calls.
    """
    if len(nodes) == len(capture):
        return _compare_in_order(trace, nodes, capture, capture_trace)

    kernels, launches = remove_transfers(trace, nodes, capture, capture_trace)
    if len(kernels) and len(kernels) == len(launches):
        match = _compare_in_order(trace, kernels, launches, capture_trace)
        # Kinds of kernels alone prove too little where copies and sets differ: then
        # every kernel must agree by its name.
        if match.problem or match.by_name:
            return replace(match, kernels_only=True)
    return CaptureMatch(
        problem=f"the replay has {len(nodes)} nodes and the capture {len(capture)} calls",
        first_difference=min(len(nodes), len(capture)),
    )


def _compare_in_order(
    trace: Trace, nodes: Nodes, capture: Capture, capture_trace: Trace
) -> CaptureMatch:
    """Compare the n-th node of a replay with the n-th call of a capture.

    There are as many nodes as calls. They do not match if a node is not what was
    captured. Where names of kernels are missing, they do not match either if fewer than
    one node in _NODES_PER_CONFIRMATION is confirmed by its kind, or if the order of
    several streams is not known.
    """
    is_by_name = True
    confirmed_nodes = 0
    rows = nodes.rows.tolist()
    calls = capture.calls.tolist()
    for index, row in enumerate(rows):
        agreement = _check_agreement(
            trace, row, capture_trace, calls[index], capture.kernels[index]
        )
        if agreement.agrees is False:
            problem = _describe_difference(trace, nodes, index, agreement.captured)
            return CaptureMatch(problem=problem, first_difference=index)
        is_by_name &= agreement.by_name
        if agreement.agrees:
            confirmed_nodes += 1

    has_unknown_order = capture.forks and not nodes.numbered
    is_confirmed = confirmed_nodes * _NODES_PER_CONFIRMATION >= len(rows)
    if not is_by_name and not is_confirmed:
        return CaptureMatch(problem=_TOO_FEW_KINDS, first_difference=0)
    if not is_by_name and has_unknown_order:
        return CaptureMatch(problem=_UNKNOWN_ORDER, first_difference=0)
    return CaptureMatch(by_name=is_by_name, forks=has_unknown_order)


_TOO_FEW_KINDS: Final = (
    "the capture does not name its kernels, and too few have a known kind"
)
_UNKNOWN_ORDER: Final = (
    "the capture uses several streams, whose order on the device is not recorded"
)


def _describe_difference(
    trace: Trace, nodes: Nodes, node_index: int, captured: str
) -> str:
    """Say that a node is not what was captured, as the end of a sentence.

    Args:
        trace: The trace that has the rows of the nodes.
        nodes: The replay.
        node_index: The index of the node among `nodes`.
        captured: The name of what was captured.
    """
    node_name = trace.name_of(int(nodes.rows[node_index]))
    text = (
        f"node {node_index + 1} is {clip(node_name, _MAX_NAME_CHARACTERS, '...')}, and the"
        f" capture has {clip(captured, _MAX_NAME_CHARACTERS, '...')}"
    )
    streams = len(distinct(trace.thread_of_track[trace.track[nodes.rows]]))
    if streams > 1:
        text += f"; it ran on {streams} streams, whose order is not recorded"
    return text


def _check_agreement(
    trace: Trace, row: int, capture_trace: Trace, call: int, kernel: str
) -> _Agreement:
    """Decide whether a node is what a captured call launches, as far as names tell.

    Args:
        trace: The trace of the replay.
        row: The node, a row of `trace`.
        capture_trace: The trace of the capture.
        call: The captured call, a row of `capture_trace`.
        kernel: The name of the kernel that the call launches; "" if it is not recorded.
    """
    name = trace.name_of(row)
    role = Role(int(trace.role[row]))
    if kernel:
        # .kd is the suffix of the descriptor of a kernel on AMD devices.
        is_same = kernel.removesuffix(".kd") == name.removesuffix(".kd")
        return _Agreement(agrees=is_same, by_name=True, captured=kernel)

    call_name = capture_trace.name_of(call)
    transfer = _recognize_transfer(call_name)
    if transfer is not None:
        is_same = role == transfer.role or _recognize_work(name) in transfer.kinds
        return _Agreement(agrees=is_same, by_name=True, captured=call_name)
    if role != Role.KERNEL:
        return _Agreement(agrees=False, by_name=False, captured=call_name)

    op = int(capture_trace.op[call])
    has_op = op >= 0
    if not has_op:  # then the kind of its kernel is not known
        return _Agreement(agrees=None, by_name=False, captured=call_name)
    return _check_agreement_with_op(capture_trace.name_of(op), name)


@lru_cache(maxsize=4096)
def _check_agreement_with_op(op_name: str, kernel_name: str) -> _Agreement:
    """Decide by their names whether a kernel may be the work of an op.

    A Triton kernel must have the name of its op. Of other kernels the kind of work,
    such as a matrix product, must be one that the op launches. Where that kind is not
    known, names neither agree nor disagree.
    """
    if op_name.startswith("triton_"):
        if kernel_name.startswith("triton_"):
            is_same = op_name == kernel_name
            return _Agreement(agrees=is_same, by_name=True, captured=op_name)
        return _Agreement(agrees=None, by_name=False, captured=op_name)

    agrees = None
    kind = _recognize_work(kernel_name)
    kinds_of_op = None
    if op_name.startswith("aten::"):
        kinds_of_op = _KINDS_OF_OP.get(stem(op_name))
    if kind is not None and kinds_of_op is not None:
        agrees = kind in kinds_of_op
    return _Agreement(agrees=agrees, by_name=False, captured=op_name)


def _recognize_work(kernel_name: str) -> str | None:
    """Return the kind of work of a kernel; None if its name does not tell."""
    kernel = decode(kernel_name)
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
IN_TURN: Final = "identical parts of a graph are matched by order"


class CaptureChoice(msgspec.Struct, frozen=True):
    """The capture that was chosen for a replay, or why none was."""

    capture: int = -1  # its index; -1 if there is none
    likely: str = ""  # why the choice is only likely; "" if it is certain
    problem: str = ""  # why there is no capture
    kernels_only: bool = False  # copies and sets of the graph have no call


class _ComparableSizes(NamedTuple):
    """The sizes of captures and of a step in one unit; None for what is not known."""

    captures: Sequence[int | None]  # one per capture
    batch: int | None  # of the step


class _ChosenSize(NamedTuple):
    """The size of the captures that a step replays, or why none fits."""

    size: int | None = None
    problem: str = ""


def choose_captures(
    trace: Trace,
    capture_trace: Trace,
    replays: Sequence[Nodes],
    captures: Sequence[Capture],
    sizes: Sequence[CaptureSize],
    steps: Sequence[tuple[int, CaptureSize]],
) -> list[CaptureChoice]:
    """Choose for each replay of a graph the capture that it replays.

    First the names of nodes and captured calls must agree, one by one. Of several
    captures that agree, as graphs for different batches do, the size of the server's
    step decides: a step with 3 requests replays the graph for 4.

    Args:
        trace: The trace that has the rows of the replays.
        capture_trace: The trace that has the rows of the captures.
        replays: The replays.
        captures: The captures to choose from.
        sizes: For how much work each capture is.
        steps: Per replay, the index of the step of the server in which it ran (-1 for
            none), and how much work that step had.

    Returns:
        One choice per replay.
    """
    choices = [CaptureChoice()] * len(replays)
    # Replays with equal names of nodes, in order, fit the same captures.
    names = [trace.name[nodes.rows].tobytes() for nodes in replays]
    for same_names in by_key(range(len(replays)), names.__getitem__).values():
        nodes = replays[same_names[0]]
        matches = [
            match_capture(trace, nodes, capture, capture_trace) for capture in captures
        ]
        agreeing = _select_without_problems(matches)
        if not agreeing:
            problem = _explain_refusal(trace, capture_trace, nodes, matches, captures)
            for replay in same_names:
                choices[replay] = CaptureChoice(problem=problem)

        replays_of_steps = by_key(same_names, steps.__getitem__) if agreeing else {}
        for (_, step_size), replays_of_step in replays_of_steps.items():
            choices_of_step = _choose_in_step(
                len(replays_of_step), agreeing, sizes, step_size
            )
            for replay, choice in zip(replays_of_step, choices_of_step, strict=True):
                choices[replay] = choice
    return choices


def _select_without_problems(
    matches: Sequence[CaptureMatch],
) -> dict[int, CaptureMatch]:
    """Return the matches that have no problem, by the indices of their captures."""
    matching = {}
    for capture_index, match in enumerate(matches):
        if not match.problem:
            matching[capture_index] = match
    return matching


def _choose_in_step(
    replay_count: int,
    matching: Mapping[int, CaptureMatch],
    sizes: Sequence[CaptureSize],
    step_size: CaptureSize,
) -> list[CaptureChoice]:
    """Choose the captures of those replays of one step whose kernels are equal.

    Of the captures whose kernels agree, those of the size that the step replays fit. If
    one fits, it is that of all replays. If as many fit as there are replays, they are
    taken in turn. Otherwise all replays have the same problem.

    Args:
        replay_count: How many replays there are.
        matching: The captures whose kernels agree, by their indices.
        sizes: For how much work each of all captures is.
        step_size: How much work the step had.

    Returns:
        One choice per replay, in their order.
    """
    comparable = _express_in_one_unit(matching, sizes, step_size)
    size, problem = _decide_size_of_step(matching, comparable)
    fitting = [index for index in matching if comparable.captures[index] == size]

    # Several fit equally, for instance, if a graph was captured in pieces.
    are_several = len(fitting) > 1
    if are_several and replay_count != len(fitting) and not problem:
        graphs = plural(len(fitting), "graph")
        problem = (
            f"{graphs} of the capture match equally well, and the step replays "
            f"{replay_count}"
        )
    if problem:
        return [CaptureChoice(problem=problem)] * replay_count

    likely = _explain_doubts(
        [matching[index] for index in fitting], size, comparable.batch
    )
    capture_of_replay = fitting if are_several else fitting * replay_count
    choices = []
    for index in capture_of_replay:
        kernels_only = matching[index].kernels_only
        choices.append(
            CaptureChoice(capture=index, likely=likely, kernels_only=kernels_only)
        )
    return choices


def _explain_doubts(
    matches: Sequence[CaptureMatch], size: int | None, batch: int | None
) -> str:
    """Say why the choice of captures is only likely; "" if it is certain.

    Args:
        matches: How the replays agree with the chosen captures.
        size: The size of these captures; None if it is not known.
        batch: The batch of the step; None if it is not known.
    """
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


def _express_in_one_unit(
    matching: Mapping[int, CaptureMatch],
    sizes: Sequence[CaptureSize],
    step_size: CaptureSize,
) -> _ComparableSizes:
    """Express the sizes of all captures and of a server's step in one unit.

    The unit is tokens, if they are known for the step and all matching captures, else
    requests. Where neither is possible, the batch is None. Sizes can then only be told
    apart.

    Args:
        matching: The captures whose kernels agree, by their indices.
        sizes: For how many tokens and requests each of all captures is.
        step_size: How many tokens and requests the step had.
    """
    tokens = [size.tokens for size in sizes]
    if step_size.tokens is not None and _are_known(tokens, matching):
        return _ComparableSizes(captures=tokens, batch=step_size.tokens)

    requests = [size.requests for size in sizes]
    if step_size.requests is not None and _are_known(requests, matching):
        return _ComparableSizes(captures=requests, batch=step_size.requests)

    either_unit = [
        size.requests if size.tokens is None else size.tokens for size in sizes
    ]
    return _ComparableSizes(captures=either_unit, batch=None)


def _are_known(sizes: Sequence[int | None], indices: Iterable[int]) -> bool:
    """Decide whether the sizes at these indices are all known."""
    return all(sizes[index] is not None for index in indices)


def _decide_size_of_step(
    matching: Mapping[int, CaptureMatch], comparable: _ComparableSizes
) -> _ChosenSize:
    """Decide which size of captures a step replays.

    It is the smallest size that is not below the batch. If the batch, or the size of a
    matching capture, is not known, all matching captures must have one size, which may
    be None.

    Args:
        matching: The captures whose kernels agree, by their indices.
        comparable: The sizes of all captures and the batch of the step.
    """
    sizes = {comparable.captures[index] for index in matching}
    batch = comparable.batch
    if batch is None or None in sizes:
        if len(sizes) == 1:
            return _ChosenSize(size=sizes.pop())
        reason = "not all state their size"
        if batch is None:
            reason = "the step does not state its batch size"
        problem = f"captures of {len(sizes)} sizes match equally well: {reason}"
        return _ChosenSize(problem=problem)

    known_sizes = [size for size in sizes if size is not None]
    return _choose_size_for_batch(known_sizes, comparable, batch)


def _choose_size_for_batch(
    sizes: Sequence[int], comparable: _ComparableSizes, batch: int
) -> _ChosenSize:
    """Choose the smallest captured size that is not below the batch, as servers pad.

    E.g. of the sizes 1, 2, 4 and 8, a batch of 3 replays 4. None fits if all are
    smaller, or if the size is at least twice the batch (_TOO_MUCH_PADDING) though no
    capture is smaller than the batch.

    Args:
        sizes: The sizes of the captures whose kernels agree.
        comparable: The sizes of all captures.
        batch: The batch of the step.
    """
    large_enough = [size for size in sizes if size >= batch]
    size = min(large_enough, default=max(sizes))
    padding_text = PADDED.format(size=size, batch=batch)
    if size < batch:
        return _ChosenSize(problem=padding_text)

    all_sizes = [other for other in comparable.captures if other is not None]
    has_smaller = any(other < batch for other in all_sizes)
    if size >= _TOO_MUCH_PADDING * batch and not has_smaller:
        return _ChosenSize(problem=f"{padding_text}, and no server pads that far")
    return _ChosenSize(size=size)


_MAX_LENGTHS_SHOWN: Final = 4


def _explain_refusal(
    trace: Trace,
    capture_trace: Trace,
    nodes: Nodes,
    matches: Sequence[CaptureMatch],
    captures: Sequence[Capture],
) -> str:
    """Say why none of the captures matches a replay, as the end of a sentence.

    The first of these reasons that is true is given: there is no capture; of those with
    as many nodes, the problem of the one that agrees longest; the nodes are only the
    first or the last ones of a capture; the numbers of nodes differ.

    Args:
        trace: The trace that has the rows of the nodes.
        capture_trace: The trace that has the rows of the captured calls.
        nodes: The replay.
        matches: How the replay agrees with each capture.
        captures: All captures.
    """
    if not matches:
        return "the other trace captures no graph"

    matches_of_same_length: list[CaptureMatch] = []
    for match, capture in zip(matches, captures, strict=True):
        if len(capture) == len(nodes):
            matches_of_same_length.append(match)
    if matches_of_same_length:
        agrees_longest = max(
            matches_of_same_length, key=lambda match: match.first_difference
        )
        return agrees_longest.problem

    for capture in captures:
        which = _find_matching_end(trace, nodes, capture, capture_trace)
        if which:
            return (
                f"it has only the {which} {len(nodes)} of {len(capture)} nodes of the "
                "capture. It may be cut off at the boundary of the recorded window"
            )
    return (
        f"the replay has {len(nodes)} nodes, and the capture {_list_lengths(captures)}"
    )


def _list_lengths(captures: Sequence[Capture]) -> str:
    """List the distinct numbers of nodes of these captures, as `12, 40, 41`.

    They are ascending. `...` stands for those beyond _MAX_LENGTHS_SHOWN.
    """
    lengths = sorted({len(capture) for capture in captures})
    shown = [str(length) for length in lengths[:_MAX_LENGTHS_SHOWN]]
    if len(lengths) > _MAX_LENGTHS_SHOWN:
        shown.append("...")
    return ", ".join(shown)


def _find_matching_end(
    trace: Trace, nodes: Nodes, capture: Capture, capture_trace: Trace
) -> str:
    """Tell whether a replay of a graph has only the beginning or the end of a longer
    capture.

    Args:
        trace: The trace that has the rows of the nodes.
        nodes: The nodes (kernels, copies and sets) of the replay.
        capture: The capture.
        capture_trace: The trace that has the rows of the captured calls.

    Returns:
        "first" or "last": these calls of the capture match the nodes; "" if
        neither do.
    """
    node_count = len(nodes)
    if node_count >= len(capture):
        return ""
    calls_of_end = {
        "first": slice(node_count),
        "last": slice(len(capture) - node_count, None),
    }
    for end_name, calls in calls_of_end.items():
        cut_capture = replace(
            capture, calls=capture.calls[calls], kernels=capture.kernels[calls]
        )
        if not match_capture(trace, nodes, cut_capture, capture_trace).problem:
            return end_name
    return ""


def describe_problems(problems: Sequence[str]) -> tuple[str, ...]:
    """Say for each distinct problem how many replays have it."""
    sentences = []
    for problem, count in sorted(Counter(problems).items()):
        replays = plural(count, "graph replay")
        sentences.append(f"{replays} cannot be joined: {problem}.")
    return tuple(sentences)
