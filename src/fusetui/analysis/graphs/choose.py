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
from itertools import compress
from typing import Final

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
from fusetui.trace.model.op_names import stem, words

_OF_PRODUCTS: Final = "gemm gemv reduction copy fill memset memcpy"
_KINDS: Final[dict[str, frozenset[str]]] = {
    op: frozenset(kinds.split())
    for ops, kinds in (
        (
            "mm addmm bmm baddbmm matmul linear _scaled_mm _int_mm mv addmv",
            _OF_PRODUCTS,
        ),
        (
            "add sub mul div neg exp silu gelu relu sigmoid tanh where rsub",
            "elementwise",
        ),
        ("reciprocal sqrt rsqrt pow cos sin clamp bitwise_and eq", "elementwise"),
        ("copy clone contiguous to _to_copy", "copy elementwise memcpy"),
        ("fill zero", "fill elementwise memset"),
        ("index_select embedding index gather", "index embedding"),
        ("softmax _softmax", "softmax"),
        ("sum mean argmax", "reduction"),
        ("cat stack", "copy memcpy"),
    )
    for op in words(ops)
}
"""The kinds of kernels (`KernelName.op`) that each of these ops of aten:: launches."""

_MOVED: Final = {
    "Memcpy": (Role.MEMCPY, ("copy", "memcpy")),
    "Memset": (Role.MEMSET, ("fill", "memset")),
}
SHARE: Final = 10
"""Without names of kernels, at least one node in this many must be confirmed by its
kind."""
LONGEST: Final = 60  # characters of a name in a message


class CaptureMatch(msgspec.Struct, frozen=True):
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
    rows = nodes.rows[trace.role[nodes.rows] == Role.KERNEL]
    names = map(there.name_of, capture.calls.tolist())
    launch = [not any(word in name for word in _MOVED) for name in names]
    texts = tuple(compress(capture.kernels, launch))
    calls = capture.calls[np.array(launch, dtype=np.bool_)]
    return replace(nodes, rows=rows), replace(capture, calls=calls, kernels=texts)


def fit(trace: Trace, nodes: Nodes, capture: Capture, there: Trace) -> CaptureMatch:
    """Compares each node with its call, or if there are more of one than of the other,
    each kernel with its launch. `there` is the trace of the capture."""
    if len(nodes) != len(capture):
        alone = kernels_alone(trace, nodes, capture, there)
        if len(alone[0]) and len(alone[0]) == len(alone[1]):
            found = _compared(trace, *alone, there)
            if found.problem or found.by_name:  # without names the counts must be equal
                return replace(found, kernels_only=True)
        problem = (
            f"the replay has {len(nodes)} nodes and the capture {len(capture)} calls"
        )
        return CaptureMatch(problem, min(len(nodes), len(capture)))
    return _compared(trace, nodes, capture, there)


def _compared(
    trace: Trace, nodes: Nodes, capture: Capture, there: Trace
) -> CaptureMatch:
    by_name, confirmed = True, 0
    rows, calls = nodes.rows.tolist(), capture.calls.tolist()
    for at, (row, call, kernel) in enumerate(
        zip(rows, calls, capture.kernels, strict=True)
    ):
        agrees, named, wanted = _agree(trace, row, there, call, kernel)
        if agrees is False:
            streams = len(np.unique(trace.thread_of_track[trace.track[nodes.rows]]))
            more = f"; it ran on {streams} streams, whose order is not recorded" * (
                streams > 1
            )
            name, wanted = (
                clip(n, LONGEST, "...") for n in (trace.name_of(row), wanted)
            )
            return CaptureMatch(
                f"node {at + 1} is {name}, and the capture has {wanted}{more}", at
            )
        by_name &= named
        confirmed += agrees is True
    if not by_name and confirmed * SHARE < len(rows):
        return CaptureMatch(
            "the capture does not name its kernels, and too few are of a known kind", 0
        )
    forks = capture.forks and not nodes.numbered
    if forks and not by_name:
        return CaptureMatch(
            "the capture uses several streams, whose order on the device is not recorded",
            0,
        )
    return CaptureMatch(by_name=by_name, forks=forks)


def _agree(
    trace: Trace, row: int, there: Trace, call: int, kernel: str
) -> tuple[bool | None, bool, str]:
    """Whether they agree (None: nothing tells), whether by name, and what the capture
    has."""
    name, role = trace.name_of(row), Role(int(trace.role[row]))
    if kernel:
        return kernel.removesuffix(".kd") == name.removesuffix(".kd"), True, kernel
    called, op = there.name_of(call), int(there.op[call])
    for word, (own, kinds) in _MOVED.items():
        if word in called:
            return role == own or _kind(name) in kinds, True, called
    if role != Role.KERNEL:
        return False, False, called
    return (None, False, called) if op < 0 else _by_op(there.name_of(op), name)


@lru_cache(maxsize=4096)
def _by_op(op: str, name: str) -> tuple[bool | None, bool, str]:
    if op.startswith("triton_"):
        return (
            (op == name, True, op) if name.startswith("triton_") else (None, False, op)
        )
    wanted = _KINDS.get(stem(op)) if op.startswith("aten::") else None
    kind = _kind(name)
    return None if wanted is None or kind is None else kind in wanted, False, op


def _kind(name: str) -> str | None:
    """The kind of work of a kernel; None if its name does not tell."""
    found = decode(name)
    return found.op if found else None


PADDED = "the capture is for {size} and the step has {batch}"
TOO_FAR = 2
"""The sizes that servers capture are less than this apart, from the second on: 1, 2, 4,
8, 16, 24, 32, ... in vLLM and SGLang, unless the user chose others. A capture for so
much more is one of another size, if the next smaller one is not there."""
BY_KIND = (
    "the calls of the capture do not name their kernels, whose kinds and order agree"
)
FORKED = (
    "the capture uses several streams, and kernels of one name may be those of another"
)
IN_TURN = "equal parts of a graph are told apart by their order"


class Chosen(msgspec.Struct, frozen=True):
    """The capture of a replay, an index (-1: none); why it is only likely, or why there
    is none."""

    capture: int = -1
    likely: str = ""
    problem: str = ""
    kernels_only: bool = False  # copies and sets of the graph have no call


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
    found = [Chosen()] * len(replays)
    names = [trace.name[nodes.rows].tobytes() for nodes in replays]
    for same in by_key(range(len(replays)), names.__getitem__).values():
        fits = [fit(trace, replays[same[0]], capture, there) for capture in captures]
        matching = {n: one for n, one in enumerate(fits) if not one.problem}
        if not matching:
            problem = _refusal(trace, there, replays[same[0]], fits, captures)
            for at in same:
                found[at] = Chosen(problem=problem)
            continue
        for (_, asked), own in by_key(same, steps.__getitem__).items():
            for at, one in zip(
                own, _of_step(len(own), matching, sizes, asked), strict=True
            ):
                found[at] = one
    return found


def _of_step(
    count: int,
    matching: Mapping[int, CaptureMatch],
    sizes: Sequence[CaptureSize],
    asked: CaptureSize,
) -> list[Chosen]:
    """For so many replays of one step with equal kernels, in order: of the captures
    that match by their kernels, those of the size that the step replays."""
    each, batch = _comparable(matching, sizes, asked)
    size, problem = _size(matching, each, batch)
    fitting = [n for n in matching if each[n] == size]
    several = len(fitting) > 1
    if several and count != len(fitting) and not problem:
        text = plural(len(fitting), "graph") + " of the capture fit equally"
        problem = f"{text}, and the step replays {count}"
    if problem:
        return [Chosen(problem=problem)] * count
    likely = [] if all(matching[n].by_name for n in fitting) else [BY_KIND]
    likely += [FORKED] if any(matching[n].forks for n in fitting) else []
    if size is not None and batch is not None and size != batch:
        likely.append(PADDED.format(size=size, batch=batch))
    why = "; ".join([*likely, IN_TURN] if several else likely)
    chosen = fitting if several else fitting * count
    return [Chosen(n, why, kernels_only=matching[n].kernels_only) for n in chosen]


def _comparable(
    matching: Mapping[int, CaptureMatch],
    sizes: Sequence[CaptureSize],
    asked: CaptureSize,
) -> tuple[list[int | None], int | None]:
    """The sizes and the batch in tokens, if they are known of all that match, else in
    requests."""
    for unit in ("tokens", "requests"):
        each: list[int | None] = [getattr(size, unit) for size in sizes]
        batch: int | None = getattr(asked, unit)
        if batch is not None and all(each[n] is not None for n in matching):
            return each, batch
    return [
        size.requests if size.tokens is None else size.tokens for size in sizes
    ], None


def _size(
    matching: Mapping[int, CaptureMatch], sizes: Sequence[int | None], batch: int | None
) -> tuple[int | None, str]:
    """The size of the captures that a step of this batch replays, or why none fits."""
    known = {sizes[n] for n in matching}
    said = [size for size in known if size is not None]
    if batch is None or None in known:
        which = (
            "the step does not say its batch"
            if batch is None
            else "not all say their size"
        )
        several = f"captures of {len(known)} sizes fit equally: {which}"
        return (known.pop(), "") if len(known) == 1 else (None, several)
    size = min((size for size in said if size >= batch), default=max(said))
    padded = PADDED.format(size=size, batch=batch)
    if size < batch:
        return None, padded
    smaller = any(other is not None and other < batch for other in sizes)
    too_far = size >= TOO_FAR * batch and not smaller
    return (None, f"{padded}, which no server pads so far") if too_far else (size, "")


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
    same = [
        one for one, own in zip(fits, captures, strict=True) if len(own) == len(nodes)
    ]
    if same:
        return max(same, key=lambda one: one.at).problem
    for capture in captures:
        if which := _part(trace, nodes, capture, there):
            return (
                f"it has only the {which} {len(nodes)} of {len(capture)} nodes of the capture, as"
                " if cut at the edge of the recorded window"
            )
    lengths = [str(length) for length in sorted({len(capture) for capture in captures})]
    shown = ", ".join([*lengths[:4], *(["..."] if len(lengths) > 4 else [])])
    return f"the replay has {len(nodes)} nodes, and the capture {shown}"


def _part(trace: Trace, nodes: Nodes, capture: Capture, there: Trace) -> str:
    """Whether the nodes are the first or the last calls of a capture; "" for
    neither."""
    size = len(nodes)
    for which, part in (
        ("first", slice(size)),
        ("last", slice(len(capture) - size, None)),
    ):
        some = replace(
            capture, calls=capture.calls[part], kernels=capture.kernels[part]
        )
        if size < len(capture) and not fit(trace, nodes, some, there).problem:
            return which
    return ""


def counted(problems: Sequence[str]) -> tuple[str, ...]:
    """A sentence for each distinct problem, with the number of replays that have it."""
    each = sorted(Counter(problems).items())
    return tuple(
        f"{plural(n, 'graph replay')} cannot be joined: {text}." for text, n in each
    )
