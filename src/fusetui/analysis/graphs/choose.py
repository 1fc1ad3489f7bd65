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
from fusetui.trace.model.arrays import NO_ROW, distinct
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
    kernel_nodes = replace(nodes, rows=nodes.rows[is_kernel])

    launches: list[int] = []
    kernel_names: list[str] = []
    for call, kernel_name in zip(capture.calls.tolist(), capture.kernels, strict=True):
        launches_kernel = _recognize_transfer(capture_trace.name_of(call)) is None
        if launches_kernel:
            launches.append(call)
            kernel_names.append(kernel_name)
    launches_only = replace(
        capture,
        calls=np.array(launches, dtype=np.intp),
        kernels=tuple(kernel_names),
    )
    return kernel_nodes, launches_only


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

    shorter_length = min(len(nodes), len(capture))
    return CaptureMatch(
        problem=f"the replay has {len(nodes)} nodes and the capture {len(capture)} calls",
        first_difference=shorter_length,
    )


def _compare_in_order(
    trace: Trace, nodes: Nodes, capture: Capture, capture_trace: Trace
) -> CaptureMatch:
    """Compare the n-th node of a replay with the n-th call of a capture.

    There are as many nodes as calls. They do not match if a node is not what was
    captured. Where names of kernels are missing, they do not match either if fewer than
    one node in _NODES_PER_CONFIRMATION is confirmed by its kind, or if the order of
    several streams is not known.

    Args:
        trace: The trace that has the rows of the nodes.
        nodes: The replay.
        capture: The capture.
        capture_trace: The trace that has the rows of the captured calls.
    """
    is_by_name = True
    confirmed_nodes = 0
    for index, (row, call, kernel) in enumerate(
        zip(nodes.rows.tolist(), capture.calls.tolist(), capture.kernels, strict=True)
    ):
        agreement = _check_agreement(trace, row, capture_trace, call, kernel)
        is_by_name = is_by_name and agreement.by_name
        if agreement.agrees is False:
            problem = _describe_difference(trace, nodes, index, agreement.captured)
            return CaptureMatch(problem=problem, first_difference=index)
        if agreement.agrees:  # and not None: nothing tells
            confirmed_nodes += 1

    has_unknown_order = capture.forks and not nodes.numbered
    if not is_by_name:
        if confirmed_nodes * _NODES_PER_CONFIRMATION < len(nodes):
            return CaptureMatch(problem=_TOO_FEW_KINDS, first_difference=0)
        if has_unknown_order:
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
    node_name = clip(node_name, _MAX_NAME_CHARACTERS, "...")
    captured = clip(captured, _MAX_NAME_CHARACTERS, "...")
    difference = f"node {node_index + 1} is {node_name}, and the capture has {captured}"

    streams = distinct(trace.thread_of_track[trace.track[nodes.rows]])
    if len(streams) == 1:
        return difference
    return (
        f"{difference}; it ran on {len(streams)} streams, whose order is not recorded"
    )


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
    node_name = trace.name_of(row)
    node_role = Role(int(trace.role[row]))
    if kernel:
        # .kd is the suffix of the descriptor of a kernel on AMD devices.
        is_same = kernel.removesuffix(".kd") == node_name.removesuffix(".kd")
        return _Agreement(agrees=is_same, by_name=True, captured=kernel)

    call_name = capture_trace.name_of(call)
    transfer = _recognize_transfer(call_name)
    if transfer is not None:
        has_role = node_role == transfer.role
        is_same = has_role or _recognize_work(node_name) in transfer.kinds
        return _Agreement(agrees=is_same, by_name=True, captured=call_name)

    # The call launches a kernel whose name is not recorded.
    if node_role != Role.KERNEL:
        return _Agreement(agrees=False, by_name=False, captured=call_name)
    op = int(capture_trace.op[call])
    if op == NO_ROW:  # then the kind of its kernel is not known
        return _Agreement(agrees=None, by_name=False, captured=call_name)
    return _check_agreement_with_op(capture_trace.name_of(op), node_name)


@lru_cache(maxsize=4096)
def _check_agreement_with_op(op_name: str, kernel_name: str) -> _Agreement:
    """Decide by their names whether a kernel may be the work of an op.

    A Triton kernel must have the name of its op. Of other kernels the kind of work,
    such as a matrix product, must be one that the op launches. Where that kind is not
    known, names neither agree nor disagree.
    """
    unknown = _Agreement(agrees=None, by_name=False, captured=op_name)
    if op_name.startswith("triton_"):
        if not kernel_name.startswith("triton_"):
            return unknown
        is_same = op_name == kernel_name
        return _Agreement(agrees=is_same, by_name=True, captured=op_name)

    if not op_name.startswith("aten::"):
        return unknown
    kinds_of_op = _KINDS_OF_OP.get(stem(op_name))
    kind = _recognize_work(kernel_name)
    if kinds_of_op is None or kind is None:
        return unknown
    return _Agreement(agrees=kind in kinds_of_op, by_name=False, captured=op_name)


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

    capture: int | None = None  # its index; None if there is none
    likely: str = ""  # why the choice is only likely; "" if it is certain
    problem: str = ""  # why there is no capture
    kernels_only: bool = False  # copies and sets of the graph have no call


class _ComparableSizes(NamedTuple):
    """The sizes of captures and of a step in one unit; None for what is not known."""

    captures: Sequence[int | None]  # one per capture
    batch: int | None  # of the step


class ServerStep(NamedTuple):
    """The step of an inference server in which a graph was replayed."""

    number: int | None  # None: in no step
    size: CaptureSize  # how much work the step had


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
    steps: Sequence[ServerStep],
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
        steps: Per replay the step of the server in which it ran.

    Returns:
        One choice per replay.
    """
    choices = [CaptureChoice()] * len(replays)
    # Replays with equal names of nodes, in order, fit the same captures.
    node_names = [trace.name[nodes.rows].tobytes() for nodes in replays]
    for same_names in by_key(range(len(replays)), node_names.__getitem__).values():
        nodes = replays[same_names[0]]
        matches = [
            match_capture(trace, nodes, capture, capture_trace) for capture in captures
        ]
        agreeing = _select_without_problems(matches)
        if not agreeing:
            problem = _explain_refusal(trace, capture_trace, nodes, matches, captures)
            for replay in same_names:
                choices[replay] = CaptureChoice(problem=problem)
            continue

        for step, replays_of_step in by_key(same_names, steps.__getitem__).items():
            choices_of_step = _choose_in_step(
                len(replays_of_step), agreeing, sizes, step.size
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
    chosen = _decide_size_of_step(matching, comparable)
    if chosen.problem:
        return [CaptureChoice(problem=chosen.problem)] * replay_count

    fitting = [index for index in matching if comparable.captures[index] == chosen.size]
    if len(fitting) == 1:
        capture_of_replay = fitting * replay_count
    elif len(fitting) == replay_count:  # as if a graph was captured in pieces
        capture_of_replay = fitting
    else:
        graphs = plural(len(fitting), "graph")
        problem = (
            f"{graphs} of the capture match equally well, and the step replays "
            f"{replay_count}"
        )
        return [CaptureChoice(problem=problem)] * replay_count

    fitting_matches = [matching[index] for index in fitting]
    doubts = _explain_doubts(fitting_matches, chosen.size, comparable.batch)
    choices = []
    for index in capture_of_replay:
        choice = CaptureChoice(
            capture=index, likely=doubts, kernels_only=matching[index].kernels_only
        )
        choices.append(choice)
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
    sizes_are_known = size is not None and batch is not None
    if sizes_are_known and size != batch:
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
    knows_all_tokens = all(tokens[index] is not None for index in matching)
    if step_size.tokens is not None and knows_all_tokens:
        return _ComparableSizes(captures=tokens, batch=step_size.tokens)

    requests = [size.requests for size in sizes]
    knows_all_requests = all(requests[index] is not None for index in matching)
    if step_size.requests is not None and knows_all_requests:
        return _ComparableSizes(captures=requests, batch=step_size.requests)

    tokens_or_requests = [
        size.tokens if size.tokens is not None else size.requests for size in sizes
    ]
    return _ComparableSizes(captures=tokens_or_requests, batch=None)


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
    known_sizes = [size for size in sizes if size is not None]
    all_are_known = len(known_sizes) == len(sizes)
    batch = comparable.batch
    if batch is not None and all_are_known:
        return _choose_size_for_batch(known_sizes, comparable, batch)

    if len(sizes) == 1:
        return _ChosenSize(size=sizes.pop())
    if batch is None:
        reason = "the step does not state its batch size"
    else:
        reason = "not all state their size"
    problem = f"captures of {len(sizes)} sizes match equally well: {reason}"
    return _ChosenSize(problem=problem)


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
    if not large_enough:
        return _ChosenSize(problem=PADDED.format(size=max(sizes), batch=batch))

    size = min(large_enough)
    is_far_larger = size >= _TOO_MUCH_PADDING * batch
    has_smaller_capture = any(
        other is not None and other < batch for other in comparable.captures
    )
    if is_far_larger and not has_smaller_capture:
        padding = PADDED.format(size=size, batch=batch)
        return _ChosenSize(problem=f"{padding}, and no server pads that far")
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
    if not captures:
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
        end_name = _find_matching_end(trace, nodes, capture, capture_trace)
        if end_name:
            return (
                f"it has only the {end_name} {len(nodes)} of {len(capture)} nodes of the "
                "capture. It may be cut off at the boundary of the recorded window"
            )
    lengths = _list_lengths(captures)
    return f"the replay has {len(nodes)} nodes, and the capture {lengths}"


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
    missing_nodes = len(capture) - len(nodes)
    if missing_nodes <= 0:
        return ""

    first_calls = replace(
        capture,
        calls=capture.calls[: len(nodes)],
        kernels=capture.kernels[: len(nodes)],
    )
    if not match_capture(trace, nodes, first_calls, capture_trace).problem:
        return "first"

    last_calls = replace(
        capture,
        calls=capture.calls[missing_nodes:],
        kernels=capture.kernels[missing_nodes:],
    )
    if not match_capture(trace, nodes, last_calls, capture_trace).problem:
        return "last"
    return ""


def describe_problems(problems: Sequence[str]) -> tuple[str, ...]:
    """Say for each distinct problem how many replays have it."""
    sentences = []
    for problem, count in sorted(Counter(problems).items()):
        replays = plural(count, "graph replay")
        sentences.append(f"{replays} cannot be joined: {problem}.")
    return tuple(sentences)
