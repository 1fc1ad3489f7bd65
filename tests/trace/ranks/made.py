"""Summaries of ranks written by hand: what each figure should be is plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fusetui.trace.questions.process_groups import Group
from fusetui.trace.ranks.model import (
    CLASSES,
    VERSION,
    Collectives,
    KernelTotal,
    Place,
    RankSummary,
    packed,
)

US = 1_000  # ns
Times = Sequence[tuple[float, float]]


def rank(
    number: int,
    times: Times = (),
    names: Sequence[str] | str = "all_reduce",
    *,
    size: int = 2,
    group: Group | None = None,
    steps: Times = (),
    before: Sequence[dict[str, float]] = (),
    places: Sequence[tuple[int, str, str, float]] = (),
    begin: float = 0,
    end: float | None = None,
    clock: float = 0,
    step_compute: Sequence[float] = (),
    **more: Any,
) -> RankSummary:
    """A rank with collectives from start to end (us). `clock`: by how much (us) its own is ahead;
    all times are given on the common one."""
    named = [names] * len(times) if isinstance(names, str) else list(names)
    known = list(dict.fromkeys((*named, "float")))
    accounts = np.zeros((len(step_compute), len(CLASSES)), dtype=np.int64)
    accounts[:, CLASSES.index("compute")] = [ns * US for ns in step_compute]
    last = max([end for _, end in (*times, *steps)], default=0) if end is None else end
    fields: dict[str, Any] = {
        "version": VERSION,
        "path": f"rank{number}.json",
        "rank": number,
        "rank_by": "distributedInfo",
        "world_size": size,
        "host": "",
        "backend": "nccl",
        "devices": 0,
        "device": -1,
        "device_name": "",
        "base_ns": 0,
        "begin_ns": _ns(begin + clock),
        "end_ns": _ns(last + clock),
        "steps_by": "ProfilerStep" if steps else "",
        "steps": tuple(f"ProfilerStep#{n}" for n in range(len(steps))),
        "step_start": _column([a + clock for a, _ in steps]),
        "step_end": _column([b + clock for _, b in steps]),
        "accounts": accounts,
        "account": np.empty(0, dtype=np.int64),
        "kernels": tuple[KernelTotal, ...](),
        "groups": (group or Group("0", tuple(range(size)), size),),
        "names": tuple(known),
        "collectives": collectives(times, [known.index(name) for name in named], before, clock),
        "places": tuple(Place(n, kind, name, _ns(us)) for n, kind, name, us in places),
        "memory_peak": -1,
        "note": "",
        "inferred": (),
        "damage": (),
    }
    return RankSummary(**(fields | more))


def collectives(
    times: Times, names: Sequence[int], before: Sequence[dict[str, float]] = (), clock: float = 0
) -> Collectives:
    """`before`: us by class."""
    accounts = np.zeros((len(before), len(CLASSES)), dtype=np.int64)
    for row, classes in enumerate(before):
        for name, us in classes.items():
            accounts[row, CLASSES.index(name)] = _ns(us)
    start = _column([start + clock for start, _ in times])
    nothing = np.full(len(times), -1, dtype=np.int64)
    return Collectives(
        group=np.zeros(len(times), dtype=np.int64),
        name=np.array(names, dtype=np.int64),
        dtype=np.zeros(len(times), dtype=np.int64),
        sequence=nothing,
        size=np.full(len(times), 1_000_000, dtype=np.int64),
        peer=nothing,
        issued=start,
        start=start,
        end=_column([end + clock for _, end in times]),
        before=packed(accounts),
    )


def _column(times: Sequence[float]) -> Any:
    return np.array([_ns(us) for us in times], dtype=np.int64)


def _ns(us: float) -> int:
    return round(us * US)
