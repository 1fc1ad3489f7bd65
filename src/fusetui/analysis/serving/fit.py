"""Whether the nodes of a replay are the calls of a capture: one for one, in order.

HIP's launch calls record the name of their kernel, which must be that of the node. CUDA's do not:
there the kind of work that the captured op implies must be that which the node's name tells.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.serving.captures import Capture
from fusetui.analysis.serving.replays import Nodes
from fusetui.gpu.kernel_names import decode
from fusetui.text.cutting import clip
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import stem, words

_PRODUCTS: Final = frozenset(
    ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "_scaled_mm", "_int_mm", "mv", "addmv")
)
_OF_PRODUCTS: Final = frozenset(("gemm", "gemv", "reduction", "copy", "fill", "memset", "memcpy"))
_POINTWISE: Final = words(
    """add sub mul div neg exp silu gelu relu sigmoid tanh where rsub reciprocal sqrt rsqrt pow cos
    sin clamp bitwise_and eq"""
)
_KINDS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(_PRODUCTS, _OF_PRODUCTS),
    **dict.fromkeys(_POINTWISE, frozenset(("elementwise",))),
    **dict.fromkeys(
        ("copy", "clone", "contiguous", "to", "_to_copy"),
        frozenset(("copy", "elementwise", "memcpy")),
    ),
    **dict.fromkeys(("fill", "zero"), frozenset(("fill", "elementwise", "memset"))),
    **dict.fromkeys(
        ("index_select", "embedding", "index", "gather"), frozenset(("index", "embedding"))
    ),
    **dict.fromkeys(("softmax", "_softmax"), frozenset(("softmax",))),
    **dict.fromkeys(("sum", "mean", "argmax"), frozenset(("reduction",))),
    **dict.fromkeys(("cat", "stack"), frozenset(("copy", "memcpy"))),
}
"""The kinds of kernels (`KernelName.op`) that each of these ops of aten:: launches."""

_MOVED: Final = {
    "Memcpy": (Role.MEMCPY, frozenset(("copy", "memcpy"))),
    "Memset": (Role.MEMSET, frozenset(("fill", "memset"))),
}
SHARE: Final = 10
"""Without names of kernels, at least one node in this many must be confirmed by its kind."""
LONGEST: Final = 60  # characters of a name in a message


class Fit(msgspec.Struct, frozen=True):
    """How a replay agrees with a capture."""

    problem: str = ""  # why it does not; "" if it does
    at: int = -1  # the node that differs first
    by_name: bool = True  # every kernel by its name
    kernels_only: bool = False  # copies and sets differ
    forks: bool = False  # it ran on several streams whose order is not recorded


def kernels_alone(
    trace: Trace, nodes: Nodes, capture: Capture, there: Trace
) -> tuple[Nodes, Capture]:
    """Without copies and sets: a graph may do them in other ways, or not at all."""
    kernels = nodes.rows[trace.role[nodes.rows] == Role.KERNEL]
    names = [there.name_of(call) for call in capture.calls.tolist()]
    launch = np.array([not any(word in name for word in _MOVED) for name in names], np.bool_)
    texts = tuple(text for text, own in zip(capture.kernels, launch, strict=True) if own)
    return replace(nodes, rows=kernels), replace(
        capture, calls=capture.calls[launch], kernels=texts
    )


def fit(trace: Trace, nodes: Nodes, capture: Capture, there: Trace) -> Fit:
    """Compares each node with its call, or if there are more of one than of the other, each kernel
    with its launch. `there` is the trace of the capture."""
    if len(nodes) == len(capture):
        return _compared(trace, nodes, capture, there)
    alone = kernels_alone(trace, nodes, capture, there)
    if not len(alone[0]) or len(alone[0]) != len(alone[1]):
        return _compared(trace, nodes, capture, there)
    found = _compared(trace, *alone, there)
    if not found.problem and not found.by_name:
        return _compared(trace, nodes, capture, there)  # without names the counts must be equal
    return replace(found, kernels_only=True)


def _compared(trace: Trace, nodes: Nodes, capture: Capture, there: Trace) -> Fit:
    if len(nodes) != len(capture):
        problem = f"the replay has {len(nodes)} nodes and the capture {len(capture)} calls"
        return Fit(problem, min(len(nodes), len(capture)))
    by_name, confirmed = True, 0
    rows, calls = nodes.rows.tolist(), capture.calls.tolist()
    for at, (row, call, kernel) in enumerate(zip(rows, calls, capture.kernels, strict=True)):
        agrees, named, wanted = _agree(trace, row, there, call, kernel)
        if agrees is False:
            streams = len(np.unique(trace.thread_of_track[trace.track[nodes.rows]]))
            return Fit(_differs(at, trace.name_of(row), wanted, streams), at)
        by_name &= named
        confirmed += agrees is True
    if not by_name and confirmed * SHARE < len(rows):
        return Fit("the capture does not name its kernels, and too few are of a known kind", 0)
    forks = capture.forks and not nodes.numbered
    if forks and not by_name:
        return Fit("the capture uses several streams, whose order on the device is not recorded", 0)
    return Fit(by_name=by_name, forks=forks)


def _differs(at: int, name: str, wanted: str, streams: int) -> str:
    several = f"; it ran on {streams} streams, whose order is not recorded" if streams > 1 else ""
    shown = clip(name, LONGEST, "...")
    return f"node {at + 1} is {shown}, and the capture has {clip(wanted, LONGEST, '...')}{several}"


def _agree(
    trace: Trace, row: int, there: Trace, call: int, kernel: str
) -> tuple[bool | None, bool, str]:
    """Whether they agree (None: nothing tells), whether by name, and what the capture has."""
    name, role = trace.name_of(row), Role(int(trace.role[row]))
    if kernel:
        return kernel.removesuffix(".kd") == name.removesuffix(".kd"), True, kernel
    called = there.name_of(call)
    for word, (own, kinds) in _MOVED.items():
        if word in called:
            return role == own or _kind(name) in kinds, True, called
    if role != Role.KERNEL:
        return False, False, called
    op = int(there.op[call])
    return (None, False, called) if op < 0 else _by_op(there.name_of(op), name)


@lru_cache(maxsize=4096)
def _by_op(op: str, name: str) -> tuple[bool | None, bool, str]:
    if op.startswith("triton_"):
        return (op == name, True, op) if name.startswith("triton_") else (None, False, op)
    wanted = _KINDS.get(stem(op)) if op.startswith("aten::") else None
    kind = _kind(name)
    if wanted is None or kind is None:
        return None, False, op
    return kind in wanted, False, op


def _kind(name: str) -> str | None:
    """The kind of work of a kernel; None if its name does not tell."""
    found = decode(name)
    return found.op if found else None
