"""What a collective is called, how much it moves, and how nccl-tests counts its bandwidth.

Algorithm bandwidth is size / time. Bus bandwidth is that times a factor which makes it comparable
to the links' own: 2 (n - 1) / n for an all_reduce, (n - 1) / n where every rank sends to or
receives from all others, 1 for a broadcast and a reduce (doc/PERFORMANCE.md of nccl-tests).
"""

from __future__ import annotations

import re

KINDS = (
    ("all_to_all", ("alltoall", "all2all")),
    ("reduce_scatter", ("reducescatter",)),
    ("all_reduce", ("allreduce",)),
    ("all_gather", ("allgather",)),
    ("barrier", ("barrier",)),
    ("broadcast", ("broadcast",)),
    ("send_recv", ("sendrecv",)),
    ("send", ("isend", "send")),
    ("recv", ("irecv", "recv")),
    ("reduce", ("reduce",)),
    ("gather", ("gather",)),
    ("scatter", ("scatter",)),
)
"""The name of torch.distributed, and words by which others call it; the first that fits counts."""

SYNCHRONOUS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier"})
"""These cannot end on any rank before they have started on all."""

POINT_TO_POINT = frozenset({"send", "recv", "send_recv"})
"""Between two ranks: in a pipeline, waiting in them is its bubble."""

BYTES = {
    **dict.fromkeys(("float", "int", "uint32", "complexhalf", "c10::complexhalf"), 4),
    **dict.fromkeys(("double", "long", "long int", "int64", "complexfloat"), 8),
    **dict.fromkeys(("half", "bfloat16", "short", "c10::half", "c10::bfloat16"), 2),
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
}
"""Bytes of an element by the name of its type, as c10 or its C++ spelling has it."""


def collective_name(name: str) -> str:
    """`_allgather_base`, `nccl:all_gather`, `AllGather` -> `all_gather`; others stay as they
    are."""
    plain = re.sub(r"[^a-z0-9]", "", name.rpartition(":")[2][:200].lower())
    for kind, words in KINDS:
        if any(word in plain for word in words):
            return kind
    return name[:200]


def is_batch(name: str) -> bool:
    """Whether an annotation is around several collectives, and so names none of them."""
    return name.rpartition(":")[2] == "coalesced"


def element_size(dtype: str) -> int:
    """Bytes of an element, 0 if the type is not known."""
    low = dtype.lower()
    return BYTES.get(low, BYTES.get(low.removeprefix("c10::"), 0))


def bus_factor(name: str, ranks: int) -> float | None:
    """How much data crosses a link per byte of size; None if nccl-tests does not define it."""
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if name in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    if name in ("broadcast", "reduce") or name.startswith("send_recv"):
        return 1.0
    return None
