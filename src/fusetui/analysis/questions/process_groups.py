"""Which rank of a distributed job a trace is of, and the process groups, as it recorded
them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from fusetui.text.patterns import late

IN_NAME = late(r"rank[ _.=-]?(\d{1,6})", re.IGNORECASE)
OF_TORCH = late(r"\.pt\.trace\.json(?:\.gz|\.zst)?\Z")
RECORDED, NAMED, ORDERED = (
    "distributedInfo",
    "the file's name",
    "the order of the files",
)


class ProcessGroup(msgspec.Struct, frozen=True):
    """A process group as a rank recorded it."""

    name: str  # "" if it was not recorded
    ranks: tuple[int, ...]  # () if they were not recorded
    size: int  # 0 if it was not recorded
    description: str = ""


UNKNOWN_GROUP = ProcessGroup("", (), 0, "one of several")
"""Of a collective that names no group, in a file that lists several."""


def distributed_info(keys: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says of the job of its rank; {} if nothing."""
    found = keys.get("distributedInfo")
    return found if isinstance(found, dict) else {}


def world_size(keys: Mapping[str, Any]) -> int:
    """How many ranks the job has, 0 if it was not recorded."""
    size = distributed_info(keys).get("world_size")
    return size if type(size) is int and 0 < size < 1 << 24 else 0


def rank_of(keys: Mapping[str, Any], path: str) -> tuple[int, str]:
    """The rank, -1 if nothing says it, and where it comes from."""
    rank = distributed_info(keys).get("rank")
    if type(rank) is int and 0 <= rank < 1 << 24:
        return rank, RECORDED
    found = IN_NAME.findall(os.path.basename(path))
    return (int(found[-1]), NAMED) if found else (-1, ORDERED)


def looks_like_a_rank(path: str) -> bool:
    """Whether a file is named as torch or a person names the traces of ranks."""
    name = os.path.basename(path)
    return IN_NAME.search(name) is not None or OF_TORCH.search(name) is not None


def group_of(
    name: object, description: object, ranks: object, size: object
) -> ProcessGroup:
    """A group from args of a collective: `ranks` is text, and cut off beyond 30 of
    them."""
    number = size if type(size) is int and 0 < size < 1 << 24 else 0
    listed = _ranks(ranks)
    return ProcessGroup(
        name=_text(name),
        ranks=listed if len(listed) == number or not number else (),
        size=number or len(listed),
        description=_text(description),
    )


def groups_of_file(keys: Mapping[str, Any]) -> dict[str, ProcessGroup]:
    """The process groups that distributedInfo lists, by name."""
    listed = distributed_info(keys).get("pg_config")
    each = (
        one
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
    )
    words = ("pg_name", "pg_desc", "ranks", "pg_size")
    return {
        group.name: group for group in (group_of(*map(one.get, words)) for one in each)
    }


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
