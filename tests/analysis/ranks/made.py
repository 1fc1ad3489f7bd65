"""Summaries of ranks written by hand: what each figure should be is plain
arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.process_groups import ProcessGroup
from fusetui.analysis.ranks.answer import explained
from fusetui.analysis.ranks.model import (
    CLASSES,
    VERSION,
    Collectives,
    JobAnswer,
    KernelRuns,
    LeftOut,
    RankSummary,
    RegionTimes,
    pack_regions,
    pack_table,
)
from fusetui.report.ranks_words import describe_straggler, describe_verdict

US = 1_000  # ns
Times = Sequence[tuple[float, float]]


def answer_of(ranks: Iterable[RankSummary | LeftOut]) -> JobAnswer:
    return explained(ranks).answer


def texts_of(answer: JobAnswer) -> list[str]:
    """What is said of each straggler."""
    return [describe_straggler(answer, one) for one in answer.stragglers]


def verdict_of(answer: JobAnswer) -> tuple[str, ...]:
    return tuple(describe_verdict(answer))


def rank(
    number: int,
    times: Times = (),
    names: Sequence[str] | str = "all_reduce",
    *,
    size: int = 2,
    group: ProcessGroup | None = None,
    steps: Times = (),
    before: Sequence[dict[str, float]] = (),
    places: Sequence[tuple[int, str, str, float]] = (),
    left_out: Sequence[tuple[int, str, float]] = (),
    begin: float = 0,
    end: float | None = None,
    clock: float = 0,
    step_compute: Sequence[float] = (),
    **more: Any,
) -> RankSummary:
    """A rank with collectives from start to end (us). `clock`: by how much (us) its own
    is ahead; all times are given on the common one."""
    named = [names] * len(times) if isinstance(names, str) else list(names)
    known = list(dict.fromkeys((*named, "float")))
    accounts = np.zeros((len(step_compute), len(CLASSES)), dtype=np.int64)
    accounts[:, CLASSES.index("compute")] = [_ns(us) for us in step_compute]
    last = max([end for _, end in (*times, *steps)], default=0) if end is None else end
    fields: dict[str, Any] = {
        "version": VERSION,
        "path": f"rank{number}.json",
        "rank": number,
        "rank_by": "distributedInfo",
        "world_size": size,
        "host": "",
        "devices": 0,
        "device": -1,
        "device_name": "",
        "begin_ns": _ns(begin + clock),
        "end_ns": _ns(last + clock),
        "steps": tuple(f"ProfilerStep#{n}" for n in range(len(steps))),
        "step_start": _column([a + clock for a, _ in steps]),
        "step_end": _column([b + clock for _, b in steps]),
        "accounts": accounts,
        "account": np.empty(0, dtype=np.int64),
        "kernels": tuple[KernelRuns, ...](),
        "groups": (group or ProcessGroup("0", tuple(range(size)), size),),
        "names": tuple(known),
        "collectives": collectives(
            times, [known.index(name) for name in named], before, clock
        ),
        "cut": (),
        "regions": pack_regions(_places_before(places, left_out)),
        "memory_peak": -1,
        "note": "",
        "inferred": (),
        "damage": (),
    }
    return RankSummary(**(fields | more))


def _places_before(
    places: Sequence[tuple[int, str, str, float]],
    left_out: Sequence[tuple[int, str, float]],
) -> dict[int, RegionTimes]:
    """`places`: number of the collective, kind, name and us; `left_out`: number, kind
    and us."""
    before = {number: RegionTimes({}, {}) for number, *_ in places}
    for number, kind, name, us in places:
        before[number].ns[kind, name] = _ns(us)
    for number, kind, us in left_out:
        before[number].left_out_ns[kind] = _ns(us)
    return before


class Meet(NamedTuple):
    """What a rank does: `own` us of its own work, then a collective that lasts `lasts`
    us from when all of its ranks are there."""

    own: float
    group: ProcessGroup
    name: str = "all_reduce"
    lasts: float = 10.0


def played(
    programs: Sequence[Sequence[Meet]], steps: int = 4, **more: Any
) -> list[RankSummary]:
    """A job whose ranks run these programs once in every step, one step after
    another."""
    now = [0.0] * len(programs)
    begins: list[list[float]] = [[] for _ in programs]
    done: list[list[tuple[float, float, Meet]]] = [[] for _ in programs]
    for _ in range(steps):
        left = [list(program) for program in programs]
        for rank_, time in enumerate(now):
            begins[rank_].append(time)
        while any(left):
            _meet(left, now, done)
    ends = [[*begin[1:], time] for begin, time in zip(begins, now, strict=True)]
    return [
        _of_program(
            n, done[n], list(zip(begins[n], ends[n], strict=True)), len(programs), more
        )
        for n in range(len(programs))
    ]


def _meet(
    left: list[list[Meet]],
    now: list[float],
    done: list[list[tuple[float, float, Meet]]],
) -> None:
    """Runs one collective whose ranks are all there."""
    group = next(
        own[0].group
        for own in left
        if own
        and all(
            left[n] and left[n][0].group == own[0].group for n in own[0].group.ranks
        )
    )
    starts = {n: now[n] + left[n][0].own for n in group.ranks}
    for n, start in starts.items():
        meet = left[n].pop(0)
        now[n] = max(starts.values()) + meet.lasts
        done[n].append((start, now[n], meet))


def _of_program(
    number: int,
    done: Sequence[tuple[float, float, Meet]],
    steps: Times,
    size: int,
    more: Any,
) -> RankSummary:
    """`compute`: us of each step, by rank."""
    groups = tuple(dict.fromkeys(meet.group for _, _, meet in done))
    compute = more.get("compute")
    extra = {name: value for name, value in more.items() if name != "compute"}
    one = rank(
        number,
        [(start, end) for start, end, _ in done],
        [meet.name for _, _, meet in done],
        size=size,
        steps=steps,
        **{"host": "h", **extra},
        step_compute=[compute[number]] * len(steps) if compute else (),
    )
    columns = one.collectives
    which = np.array([groups.index(meet.group) for _, _, meet in done], dtype=np.int64)
    peers = [
        next(n for n in meet.group.ranks if n != number)
        if meet.name in ("send", "recv")
        else -1
        for _, _, meet in done
    ]
    columns = replace(columns, group=which, peer=np.array(peers, dtype=np.int64))
    return replace(one, groups=groups, collectives=columns)


def collectives(
    times: Times,
    names: Sequence[int],
    before: Sequence[dict[str, float]] = (),
    clock: float = 0,
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
        sequence=nothing,
        size=np.full(len(times), 1_000_000, dtype=np.int64),
        peer=nothing,
        issued=start,
        start=start,
        end=_column([end + clock for _, end in times]),
        covered=np.zeros(len(times), dtype=np.int64),
        ready=start,
        ahead=np.zeros(len(times), dtype=np.int64),
        stalled=_column([end - start for start, end in times]),
        before=pack_table(accounts),
    )


def _column(times: Sequence[float]) -> Any:
    return np.array([_ns(us) for us in times], dtype=np.int64)


def _ns(us: float) -> int:
    return round(us * US)
