"""Which rank a trace is of, whoever recorded it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from fusetui.analysis.questions.process_groups import distributed_info
from fusetui.text.patterns import late

IN_NAME = late(r"rank[ _.=-]?(\d{1,6})", re.IGNORECASE)
OF_TORCH = late(r"\.pt\.trace\.json(?:\.gz|\.zst)?\Z")
RECORDED, NAMED, ORDERED = "distributedInfo", "the file's name", "the order of the files"


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
