"""The rank and the process groups of a distributed job, as a trace records them."""

from __future__ import annotations

import json  # which reads integers beyond 64 bits
import os
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from fusetui.text.patterns import lazy_pattern

_RANK_IN_NAME = lazy_pattern(r"rank[ _.=-]?(\d{1,6})", re.IGNORECASE)
_FILE_OF_TORCH = lazy_pattern(r"\.pt\.trace\.json(?:\.gz|\.zst)?\Z")
# Where the number of a rank comes from.
RECORDED: Final = "distributedInfo"
NAMED: Final = "file name"
ORDERED: Final = "file order"

_MAX_RANKS: Final = 1 << 24  # in any job
_MAX_TEXT_CHARACTERS: Final = 200


class ProcessGroup(msgspec.Struct, frozen=True):
    """A process group of torch.distributed, as a rank recorded it."""

    name: str  # "" if it was not recorded
    ranks: tuple[int, ...]  # () if they were not recorded
    size: int  # 0 if it was not recorded
    description: str = ""


UNKNOWN_GROUP: Final = ProcessGroup(
    name="", ranks=(), size=0, description="unrecorded group"
)
"""Of a collective that names no group, in a file that lists several."""


def read_distributed_info(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a trace says about the distributed job that it is of.

    Args:
        keys: The top-level keys of the trace file.

    Returns:
        Its `distributedInfo`; {} if it has none.
    """
    info = keys.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def read_world_size(keys: Mapping[str, Any]) -> int:
    """Return how many ranks the job has; 0 if that was not recorded.

    Args:
        keys: The top-level keys of the trace file.
    """
    size = read_distributed_info(keys).get("world_size")
    return _parse_group_size(size)


def _parse_group_size(value: object) -> int:
    """Return a recorded number of ranks; 0 for anything that is no such number."""
    # A bool, which is an int to isinstance, is no number here.
    if type(value) is int and 0 < value < _MAX_RANKS:
        return value
    return 0


class RankOfTrace(NamedTuple):
    """Which rank of its job a trace is of, and what tells it."""

    rank: int  # -1 if nothing tells it
    source: str  # RECORDED or NAMED; ORDERED if nothing tells it


def infer_rank(keys: Mapping[str, Any], path: str) -> RankOfTrace:
    """Return which rank of its job a trace is of, and where that number comes from.

    E.g. 3 and RECORDED if `distributedInfo` has it, 3 and NAMED for a file named
    `rank3.json.gz`, and else -1 and ORDERED.

    Args:
        keys: The top-level keys of the trace file.
        path: Its path.
    """
    recorded_rank = read_distributed_info(keys).get("rank")
    if type(recorded_rank) is int and 0 <= recorded_rank < _MAX_RANKS:
        return RankOfTrace(rank=recorded_rank, source=RECORDED)
    ranks_in_name = _RANK_IN_NAME.findall(os.path.basename(path))
    if ranks_in_name:
        return RankOfTrace(rank=int(ranks_in_name[-1]), source=NAMED)
    return RankOfTrace(rank=-1, source=ORDERED)


def is_named_as_rank(path: str) -> bool:
    """Return whether a file is named as the trace of a rank is.

    E.g. `rank3.json.gz`, or `host_123.1700000000.pt.trace.json`, as torch names them.
    """
    name = os.path.basename(path)
    has_rank = _RANK_IN_NAME.search(name) is not None
    return has_rank or _FILE_OF_TORCH.search(name) is not None


def make_process_group(
    name: object, description: object, ranks: object, size: object
) -> ProcessGroup:
    """Make a process group from the recorded args of a collective, of any types.

    Args:
        name: Its name.
        description: Its description.
        ranks: Its ranks as a list, or as the text of one: "[0, 1, 2, 3]". torch cuts
            off the text of more than 30 ranks; these ranks count as not recorded.
        size: How many ranks it has.
    """
    recorded_size = _parse_group_size(size)
    listed = _parse_ranks(ranks)
    is_complete = not recorded_size or len(listed) == recorded_size
    return ProcessGroup(
        name=_to_text(name),
        ranks=listed if is_complete else (),
        size=recorded_size or len(listed),
        description=_to_text(description),
    )


def read_process_groups(keys: Mapping[str, Any]) -> dict[str, ProcessGroup]:
    """Return the process groups that `distributedInfo` of a trace lists, by name.

    Damaged entries are skipped. The result is {} if the trace lists none.

    Args:
        keys: The top-level keys of the trace file.
    """
    configs = read_distributed_info(keys).get("pg_config")
    if not isinstance(configs, list):
        return {}
    groups = {}
    for config in configs:
        if not isinstance(config, dict):
            continue
        group = make_process_group(
            name=config.get("pg_name"),
            description=config.get("pg_desc"),
            ranks=config.get("ranks"),
            size=config.get("pg_size"),
        )
        groups[group.name] = group
    return groups


def _to_text(value: object) -> str:
    """Return a recorded text or number as text; "" for anything else."""
    if not isinstance(value, str | int):
        return ""
    return str(value)[:_MAX_TEXT_CHARACTERS]


def _parse_ranks(value: object) -> tuple[int, ...]:
    """Return the ranks of a recorded list, or of its text such as "[0, 1]".

    Returns () for anything else, such as text that was cut off.
    """
    ranks = value
    if isinstance(value, str):
        try:
            ranks = json.loads(value)
        except (ValueError, RecursionError):
            return ()
    if not isinstance(ranks, list) or not all(type(rank) is int for rank in ranks):
        return ()
    return tuple(ranks)
