"""Which ranks share a clock: those of one host, unless their collectives contradict that."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.model import RankSummary

Rows = NDArray[np.intp]

SLACK_NS = 20_000.0
"""On one host, clocks of GPUs are converted at least this exactly; what contradicts itself by more
is matched wrongly, or of two hosts."""


class Hosts(msgspec.Struct, frozen=True, eq=False):
    """Clocks of their own, and the ranks (indices) that go by them."""

    names: tuple[str, ...]  # as recorded, `host 1` where guessed, `rank 3` where not known
    of_rank: Rows
    why: str  # why ranks of one host are known to share it; the end of a sentence
    guessed: bool
    apart_ns: float  # by how much times of one host contradict each other, below SLACK_NS
    contradiction: str  # how times of one host contradict each other; "" if they do not


def hosts_of(matched: Matched, rows: Rows) -> Hosts:
    """The hosts of the ranks; `rows` are those of synchronous collectives."""
    ranks = matched.ranks
    if all(one.host for one in ranks):
        numbers = {host: n for n, host in enumerate(dict.fromkeys(one.host for one in ranks))}
        names, of_rank = (
            tuple(numbers),
            np.array([numbers[one.host] for one in ranks] or [0])[: len(ranks)],
        )
        why = "all ranks ran on one host"
        apart, which = _apart(matched, rows, of_rank)
        told = _contradiction(matched, which) if apart > SLACK_NS else ""
        return Hosts(names, of_rank, why, False, min(apart, SLACK_NS), told)
    guess = _guessed(ranks)
    if guess is not None:
        apart, _ = _apart(matched, rows, guess.of_rank)
        if apart <= SLACK_NS:
            return msgspec.structs.replace(guess, apart_ns=apart)
    names = tuple(f"rank {one.rank}" for one in ranks)
    return Hosts(names, np.arange(len(ranks)), "", False, 0.0, "")


def _guessed(ranks: Sequence[RankSummary]) -> Hosts | None:
    """By the devices that each machine lists: the ranks fill one machine after another."""
    listed = {one.devices for one in ranks}
    size = max((one.world_size for one in ranks), default=0)
    each = min(listed, default=0)
    if each < 1 or not size:
        return None
    if size <= each:
        devices = [one.device for one in ranks]
        if -1 in devices or len(set(devices)) < len(devices):
            return None
        why = f"the job has {size} ranks, and this machine {each} devices"
        return Hosts(("host 0",), np.zeros(len(ranks), dtype=np.intp), why, True, 0.0, "")
    if each == 1 or len(listed) > 1 or any(one.device != one.rank % each for one in ranks):
        return None
    numbers, of_rank = np.unique([one.rank // each for one in ranks], return_inverse=True)
    why = f"each machine has {each} devices, and ranks use them in turn"
    return Hosts(tuple(f"host {n}" for n in numbers.tolist()), of_rank, why, True, 0.0, "")


def _apart(matched: Matched, rows: Rows, host: Rows) -> tuple[float, Rows]:
    """How long before the last start on a host a synchronous collective ended there, at most; and
    the rows of that end and that start."""
    none = 0.0, np.empty(0, dtype=np.intp)
    if not len(rows):
        return none
    key = matched.of_row[rows] * len(matched.ranks) + host[matched.rank[rows]]
    by_start = rows[np.lexsort((matched.start[rows], key))]
    by_end = rows[np.lexsort((matched.end[rows], key))]
    bounds = np.append(np.flatnonzero(np.diff(np.sort(key), prepend=-1)), len(rows))
    last, first = by_start[bounds[1:] - 1], by_end[bounds[:-1]]
    apart = matched.start[last] - matched.end[first]
    worst = int(np.argmax(apart))
    if apart[worst] <= 0:
        return none
    return float(apart[worst]), np.array([first[worst], last[worst]])


def _contradiction(matched: Matched, rows: Rows) -> str:
    ended, started = (matched.ranks[matched.rank[row]] for row in rows)
    name = matched.names[matched.of_row[rows[0]]]
    return (
        f"ranks {ended.rank} and {started.rank} ran on one host ({ended.host}), and yet one {name} "
        f"ends on rank {ended.rank} before it starts on rank {started.rank}: collectives are "
        "matched wrongly, or two hosts have this name"
    )
