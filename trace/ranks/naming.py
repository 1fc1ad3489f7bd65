"""Which rank a trace is of, and what a collective is called, whoever recorded it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from fusetui.trace.ranks.model import Group

IN_NAME = re.compile(r"rank[ _.=-]?(\d{1,6})", re.IGNORECASE)
OF_TORCH = re.compile(r"\.pt\.trace\.json(?:\.gz|\.zst)?\Z")
RECORDED, NAMED, ORDERED = "distributedInfo", "the file's name", "the order of the files"

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


def rank_of(keys: Mapping[str, Any], path: str) -> tuple[int, str]:
    """The rank, -1 if nothing says it, and where it comes from."""
    rank = _info(keys).get("rank")
    if type(rank) is int and 0 <= rank < 1 << 24:
        return rank, RECORDED
    found = IN_NAME.findall(os.path.basename(path))
    return (int(found[-1]), NAMED) if found else (-1, ORDERED)


def looks_like_a_rank(path: str) -> bool:
    """Whether a file is named as torch or a person names the traces of ranks."""
    name = os.path.basename(path)
    return IN_NAME.search(name) is not None or OF_TORCH.search(name) is not None


def world_size(keys: Mapping[str, Any]) -> int:
    """How many ranks the job has, 0 if it was not recorded."""
    size = _info(keys).get("world_size")
    return size if type(size) is int and 0 < size < 1 << 24 else 0


def backend(keys: Mapping[str, Any]) -> str:
    found = _info(keys).get("backend")
    return found if isinstance(found, str) else ""


def group_of(name: object, description: object, ranks: object, size: object) -> Group:
    """A group from args of a collective: `ranks` is text, and cut off beyond 30 of them."""
    number = size if type(size) is int and 0 < size < 1 << 24 else 0
    listed = _ranks(ranks)
    return Group(
        name=_text(name),
        ranks=listed if len(listed) == number or not number else (),
        size=number or len(listed),
        description=_text(description),
    )


def groups_of_file(keys: Mapping[str, Any]) -> dict[str, Group]:
    """The process groups that distributedInfo lists, by name."""
    listed = _info(keys).get("pg_config")
    found = {}
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict):
            named, described, ranks, size = (
                one.get(key) for key in ("pg_name", "pg_desc", "ranks", "pg_size")
            )
            group = group_of(named, described, ranks, size)
            found[group.name] = group
    return found


def _info(keys: Mapping[str, Any]) -> dict[str, Any]:
    found = keys.get("distributedInfo")
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str:
    return str(value)[:200] if isinstance(value, str | int) else ""


def _ranks(value: object) -> tuple[int, ...]:
    """() unless all of them are there."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return ()
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        return ()
    return tuple(value)
