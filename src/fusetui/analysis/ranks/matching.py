"""Which collective of one rank is which of another.

The n-th collective of a name in a process group is the same on all its ranks, as long as the counts
agree. Where they do not, the sequence numbers that were recorded decide; without them collectives
are matched within each step from its end inwards, and what is left over is counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.collectives import POINT_TO_POINT, SYNCHRONOUS
from fusetui.analysis.questions.process_groups import UNKNOWN_GROUP, Group
from fusetui.analysis.ranks.model import RankSummary
from fusetui.trace.model.columns import Int64s, Rows

Key = tuple[object, ...]
MOST = 1 << 20  # more than any rank has collectives


class Matched(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Collectives that at least two of the given ranks took part in, in the order of their starts.

    Arrays of shape [rows]: one row per rank of each; those of one collective are neighbors, and
    `first` [collectives + 1] says where each begins.
    """

    ranks: tuple[RankSummary, ...]
    first: Rows
    rank: Rows  # index in `ranks`
    row: Rows  # index in the collectives of that rank
    start: Int64s
    end: Int64s
    covered: Int64s  # ns of each in which the rank computed
    names: tuple[str, ...]  # of shape [collectives], as the following
    groups: tuple[Group, ...]
    bytes: Int64s  # -1 if not known
    size: Int64s  # how many ranks the group has, 0 if that is not known
    unmatched: Int64s  # of each rank
    loose_rank: Rows  # of the collectives that are not matched, in no order
    loose_end: Int64s
    one_given: int  # of those: in groups of which one rank alone is given
    no_group: int  # of those: of which group they are is not known

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def counts(self) -> Rows:
        """How many of the given ranks took part in each."""
        counts: Rows = np.diff(self.first)
        return counts

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Whether all ranks of the group are given."""
        found: NDArray[np.bool_] = (self.size > 0) & (self.counts == self.size)
        return found

    @property
    def synchronous(self) -> NDArray[np.bool_]:
        return np.array([name in SYNCHRONOUS for name in self.names], dtype=np.bool_)

    @cached_property
    def point_to_point(self) -> NDArray[np.bool_]:
        found = [name.partition(" ")[0] in POINT_TO_POINT for name in self.names]
        return np.array(found, dtype=np.bool_)

    @cached_property
    def of_row(self) -> Rows:
        """The collective that each row belongs to."""
        found: Rows = np.repeat(np.arange(len(self)), self.counts)
        return found


class _Flat(msgspec.Struct, frozen=True, eq=False):
    """All collectives of all ranks, one after another."""

    keys: tuple[tuple[str, Group], ...]
    key: Int64s
    rank: Rows
    row: Rows
    ordinal: Int64s
    start: Int64s
    end: Int64s


def match(ranks: Sequence[RankSummary]) -> Matched:
    """Matches the collectives of ranks of one job; groups of one rank take no part."""
    flat = _flat(ranks)
    number = _numbers(ranks, flat)
    used = np.flatnonzero(number >= 0)
    order = used[np.lexsort((flat.rank[used], number[used]))]
    first = np.flatnonzero(np.diff(number[order], prepend=-1))
    counts = np.diff(np.append(first, len(order)))
    shared = np.repeat(counts > 1, counts)
    unmatched = np.bincount(
        np.concatenate((flat.rank[number == UNMATCHED], flat.rank[order[~shared]])),
        minlength=len(ranks),
    )
    sends = np.array([name in POINT_TO_POINT for name, _ in flat.keys] or [False])
    loose = (number == UNMATCHED) | (sends[flat.key] & (number == ALONE))
    loose[order[~shared]] = True
    return _in_time(tuple(ranks), flat, order[shared], number, unmatched, np.flatnonzero(loose))


UNMATCHED, ALONE = -1, -2
NOBODY = Group("", (), 1)  # with whom is not known, so it is matched with nothing


def _flat(ranks: Sequence[RankSummary]) -> _Flat:
    keys: dict[tuple[str, Group], int] = {}
    own = [_keys_of(one, keys) for one in ranks]
    ordinals = [_ordinals(key) for key in own]
    lengths = [len(key) for key in own]
    return _Flat(
        keys=tuple(keys),
        key=_joined(own),
        rank=np.repeat(np.arange(len(ranks)), lengths),
        row=_joined([np.arange(length) for length in lengths]).astype(np.intp),
        ordinal=_joined(ordinals),
        start=_joined([one.collectives.start for one in ranks]),
        end=_joined([one.collectives.end for one in ranks]),
    )


def _keys_of(one: RankSummary, keys: dict[tuple[str, Group], int]) -> Int64s:
    """For each collective the number of its name and group; sends and receives of one pair of ranks
    have the same."""
    found = one.collectives
    names, groups = len(one.names), len(one.groups)
    each = ((found.peer + 1) * groups + found.group) * names + found.name
    distinct, which = np.unique(each, return_inverse=True)
    numbers = [
        keys.setdefault(
            _key(one, n % names, n // names % groups, n // names // groups - 1), len(keys)
        )
        for n in distinct.tolist()
    ]
    key: Int64s = np.array(numbers, dtype=np.int64)[which]
    return key


def _key(one: RankSummary, name: int, group: int, peer: int) -> tuple[str, Group]:
    named, whole = one.names[name], one.groups[group]
    if named in POINT_TO_POINT and peer >= 0:
        pair = (one.rank, peer) if named == "send" else (peer, one.rank)
        if named == "send_recv":  # both in one kernel
            pair, link = (min(pair), max(pair)), "with"
        else:
            link = "to"
        return f"send_recv {pair[0]} {link} {pair[1]}", Group(whole.name, pair, 2)
    if named in POINT_TO_POINT:
        return named, NOBODY
    return named, whole if whole == UNKNOWN_GROUP else Group(whole.name, whole.ranks, whole.size)


def _ordinals(key: Int64s) -> Int64s:
    """How many of the same key come before each."""
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    found = np.empty(len(key), dtype=np.int64)
    found[order] = np.arange(len(key)) - np.repeat(first, np.diff(np.append(first, len(key))))
    return found


def _numbers(ranks: Sequence[RankSummary], flat: _Flat) -> Int64s:
    """The number of the collective that each row is of, UNMATCHED or ALONE."""
    number = np.full(len(flat.key), UNMATCHED, dtype=np.int64)
    by_key = np.argsort(flat.key, kind="stable")
    bounds = np.searchsorted(flat.key[by_key], np.arange(len(flat.keys) + 1))
    next_free = 0
    for key, (begin, end) in enumerate(itertools.pairwise(bounds)):
        rows = by_key[begin:end]
        group = flat.keys[key][1]
        if group.size == 1:
            number[rows] = ALONE
        if group.size == 1 or group == UNKNOWN_GROUP:
            continue
        places = _places(ranks, flat, rows)
        known = places >= 0
        _, dense = np.unique(places[known], return_inverse=True)
        number[rows[known]] = dense + next_free
        next_free += int(dense.max()) + 1 if len(dense) else 0
    return number


def _places(ranks: Sequence[RankSummary], flat: _Flat, rows: Rows) -> Int64s:
    """A number per row of one key, equal for the same collective; -1 for unmatched."""
    counts = np.bincount(flat.rank[rows])
    counts = counts[counts > 0]
    if counts.min() == counts.max():
        return flat.ordinal[rows]
    sequence = _column(ranks, flat, rows, "sequence")
    if (sequence >= 0).all() and _is_distinct(flat.rank[rows], sequence):
        return sequence
    step, from_end = _from_the_end(ranks, flat, rows)
    damaged = np.array([bool(one.damage) for one in ranks])[flat.rank[rows]]
    places: Int64s = np.where(damaged, -1, step * MOST + from_end)
    return places


def _is_distinct(rank: Rows, sequence: Int64s) -> bool:
    return len(np.unique(np.stack((rank, sequence)), axis=1).T) == len(rank)


def _from_the_end(ranks: Sequence[RankSummary], flat: _Flat, rows: Rows) -> tuple[Int64s, Int64s]:
    """The number of the step of each row, equal on all ranks, and how many of the same rank and
    step come after it."""
    step, from_end = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    names: dict[Key, int] = {}
    for rank in np.unique(flat.rank[rows]).tolist():
        own = np.flatnonzero(flat.rank[rows] == rank)
        one = ranks[rank]
        issued = one.collectives.issued[flat.row[rows[own]]]
        at = np.searchsorted(one.step_start, issued, side="right") - 1
        inside = (at >= 0) & (issued < np.append(one.step_end, 0)[at])
        numbers = [names.setdefault(key, len(names) + 1) for key in step_keys(one)]
        step[own] = np.where(inside, np.array([*numbers, 0])[at], 0)
        from_end[own] = _ordinals(step[own][::-1])[::-1]
    return step, from_end


def step_keys(one: RankSummary) -> list[Key]:
    """What identifies each step on all ranks: its name, or if names recur, its place from the
    end."""
    if len(set(one.steps)) == len(one.steps):
        return [(name,) for name in one.steps]
    return [(len(one.steps) - place,) for place in range(len(one.steps))]


def _column(ranks: Sequence[RankSummary], flat: _Flat, rows: Rows, name: str) -> Int64s:
    found = np.empty(len(rows), dtype=np.int64)
    order = np.argsort(flat.rank[rows], kind="stable")
    bounds = np.flatnonzero(np.diff(flat.rank[rows[order]], prepend=-1, append=-1))
    for begin, end in itertools.pairwise(bounds):
        own = order[begin:end]
        column = getattr(ranks[flat.rank[rows[own[0]]]].collectives, name)
        found[own] = column[flat.row[rows[own]]]
    return found


def _in_time(
    ranks: tuple[RankSummary, ...],
    flat: _Flat,
    order: Rows,
    number: Int64s,
    unmatched: Int64s,
    loose: Rows,
) -> Matched:
    """The collectives in the order of their first starts."""
    first = np.flatnonzero(np.diff(number[order], prepend=-1))
    counts = np.diff(np.append(first, len(order)))
    begin = np.minimum.reduceat(flat.start[order], first) if len(first) else first
    by_time = np.argsort(begin, kind="stable")
    place = np.empty(len(first), dtype=np.intp)
    place[by_time] = np.arange(len(first))
    rows = order[np.argsort(np.repeat(place, counts), kind="stable")]
    counts = counts[by_time]
    starts = np.concatenate(([0], np.cumsum(counts)))
    heads = rows[starts[:-1]]
    keys = [flat.keys[key] for key in flat.key[heads].tolist()]
    given = {one.rank for one in ranks}
    lone = [
        n
        for n, (_, group) in enumerate(flat.keys)
        if group != UNKNOWN_GROUP and group.size > 1 and len(given.intersection(group.ranks)) == 1
    ]
    nowhere = [n for n, (_, group) in enumerate(flat.keys) if group == UNKNOWN_GROUP]
    return Matched(
        ranks=ranks,
        first=starts,
        rank=flat.rank[rows],
        row=flat.row[rows],
        start=flat.start[rows],
        end=flat.end[rows],
        covered=_column(ranks, flat, rows, "covered"),
        names=tuple(name for name, _ in keys),
        groups=tuple(group for _, group in keys),
        bytes=_column(ranks, flat, heads, "size"),
        size=np.array([group.size for _, group in keys], dtype=np.int64),
        unmatched=unmatched,
        loose_rank=flat.rank[loose],
        loose_end=flat.end[loose],
        one_given=int(np.isin(flat.key, lone).sum()),
        no_group=int(np.isin(flat.key, nowhere).sum()),
    )


def _joined(parts: Sequence[NDArray[np.int64]]) -> Int64s:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


class StepsOfRows(msgspec.Struct, frozen=True, eq=False):
    """The steps of a job, and of each row of Matched the step in which it was issued."""

    names: tuple[str, ...]  # () for a job without steps
    of_row: Rows  # number of the step, -1 before the first; 0 in a job without steps
    length_ns: float  # the median over steps and ranks; without steps that of the windows


def steps_of(matched: Matched) -> StepsOfRows:
    """The steps of a job, in their order."""
    names: dict[object, str] = {}
    for one in matched.ranks:
        for key, name in zip(step_keys(one), one.steps, strict=True):
            names.setdefault(key, name)
    places = {key: place for place, key in enumerate(names)}
    of_row = np.zeros(len(matched.rank), dtype=np.intp)
    order = np.argsort(matched.rank, kind="stable")
    bounds = np.searchsorted(matched.rank[order], np.arange(len(matched.ranks) + 1))
    for rank, one in enumerate(matched.ranks if names else ()):
        own = order[bounds[rank] : bounds[rank + 1]]
        issued = one.collectives.issued[matched.row[own]]
        at = np.searchsorted(one.step_start, issued, side="right") - 1
        columns = np.array([*(places[key] for key in step_keys(one)), -1])
        of_row[own] = columns[at]
    lengths = [one.step_end - one.step_start for one in matched.ranks if one.steps] or [
        np.array([one.end_ns - one.begin_ns]) for one in matched.ranks
    ]
    length = float(np.median(np.concatenate(lengths))) if lengths else 0.0
    return StepsOfRows(tuple(names.values()), of_row, length)
