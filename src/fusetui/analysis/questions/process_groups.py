"""The rank and the process groups of a distributed job, as a trace records them."""

from __future__ import annotations

import json  # which reads integers beyond 64 bits
import os
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fusetui.text.patterns import lazy_pattern

_RANK_IN_NAME = lazy_pattern(r"rank[ _.=-]?(\d{1,6})", re.IGNORECASE)
_FILE_OF_TORCH = lazy_pattern(r"\.pt\.trace\.json(?:\.gz|\.zst)?\Z")
RECORDED: Final = "distributedInfo"
NAMED: Final = "file name"
ORDERED: Final = "file order"
"""Where the number of a rank comes from."""

_MAX_RANKS: Final = 1 << 24  # in any job
_MAX_TEXT_CHARACTERS: Final = 200


class ProcessGroup(msgspec.Struct, frozen=True):
    """A process group as a rank recorded it."""

    name: str  # "" if it was not recorded
    ranks: tuple[int, ...]  # () if they were not recorded
    size: int  # 0 if it was not recorded
    description: str = ""


UNKNOWN_GROUP: Final = ProcessGroup(
    name="", ranks=(), size=0, description="one of several"
)
"""Of a collective that names no group, in a file that lists several."""


def distributed_info(keys: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says of the job of its rank; {} if nothing."""
    info = keys.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def world_size(keys: Mapping[str, Any]) -> int:
    """How many ranks the job has, 0 if it was not recorded."""
    size = distributed_info(keys).get("world_size")
    return _group_size(size)


def _group_size(value: object) -> int:
    """How many ranks a group has, 0 for what is no such number."""
    return value if type(value) is int and 0 < value < _MAX_RANKS else 0


def rank_of(keys: Mapping[str, Any], path: str) -> tuple[int, str]:
    """The rank, -1 if nothing says it, and where it comes from."""
    rank = distributed_info(keys).get("rank")
    if type(rank) is int and 0 <= rank < _MAX_RANKS:
        return rank, RECORDED
    numbers = _RANK_IN_NAME.findall(os.path.basename(path))
    return (int(numbers[-1]), NAMED) if numbers else (-1, ORDERED)


def looks_like_a_rank(path: str) -> bool:
    """Whether a file is named as torch or a person names the traces of ranks."""
    name = os.path.basename(path)
    has_rank = _RANK_IN_NAME.search(name) is not None
    return has_rank or _FILE_OF_TORCH.search(name) is not None


def group_of(
    name: object, description: object, ranks: object, size: object
) -> ProcessGroup:
    """A group from args of a collective: `ranks` is text, and cut off beyond 30 of
    them."""
    recorded_size = _group_size(size)
    listed = _ranks(ranks)
    is_complete = not recorded_size or len(listed) == recorded_size
    return ProcessGroup(
        name=_text(name),
        ranks=listed if is_complete else (),
        size=recorded_size or len(listed),
        description=_text(description),
    )


def groups_of_file(keys: Mapping[str, Any]) -> dict[str, ProcessGroup]:
    """The process groups that distributedInfo lists, by name."""
    listed = distributed_info(keys).get("pg_config")
    groups = {}
    for config in listed if isinstance(listed, list) else ():
        if not isinstance(config, dict):
            continue
        group = group_of(
            config.get("pg_name"),
            config.get("pg_desc"),
            config.get("ranks"),
            config.get("pg_size"),
        )
        groups[group.name] = group
    return groups


def _text(value: object) -> str:
    """A name, or a number as one; "" for anything else."""
    return str(value)[:_MAX_TEXT_CHARACTERS] if isinstance(value, str | int) else ""


def _ranks(value: object) -> tuple[int, ...]:
    """() unless all of them are there."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return ()
    if not isinstance(value, list) or not all(type(rank) is int for rank in value):
        return ()
    return tuple(value)
