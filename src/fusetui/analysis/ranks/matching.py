"""Which of the files are ranks of one job, and why the others are not; and which
collective of one rank is which of another.

The n-th collective of a name in a process group is the same on all its ranks, as long
as the counts agree. Where they do not, the sequence numbers that were recorded decide;
without them collectives are matched within each step from its end inwards, those behind
the last step from its end on, and what is left over is counted.

A collective that the beginning or the end of a recording cuts on some rank counts in
the matching of the others, and is then left out on all ranks: when it began or ended
there is not known.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.questions.collectives import POINT_TO_POINT
from fusetui.analysis.questions.process_groups import (
    ORDERED,
    RECORDED,
    UNKNOWN_GROUP,
    ProcessGroup,
)
from fusetui.analysis.ranks.model import LeftOut, RankSummary
from fusetui.text.figures import duration
from fusetui.trace.layout.steps import step_wall
from fusetui.trace.model.arrays import Flags, Int64s, Rows, ordinals

Key = tuple[object, ...]
MAX_COLLECTIVES_OF_A_RANK = 1 << 20
"""More than any rank has."""
OUTSIDE_STEPS = 0
BEHIND_ALL_STEPS = 1 << 40
"""Instead of the number of a step; there are far fewer steps."""


class Matched(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Collectives that at least two of the given ranks took part in, in the order of
    their starts.

    Arrays of shape [rows]: one row per rank of each; those of one collective are
    neighbors, and `first` [collectives + 1] says where each begins.
    """

    ranks: tuple[RankSummary, ...]
    first: Rows
    rank: Rows  # index in `ranks`
    row: Rows  # index in the collectives of that rank
    start: Int64s
    end: Int64s
    covered: Int64s  # ns of each in which the rank computed
    ready: Int64s  # see Collectives, as the following
    ahead: Int64s
    stalled: Int64s
    names: tuple[str, ...]  # of shape [collectives], as the following
    groups: tuple[ProcessGroup, ...]
    bytes: Int64s  # -1 if not known
    size: Int64s  # how many ranks the group has, 0 if that is not known
    unmatched: Int64s  # of each rank
    loose_rank: Rows  # of the collectives that are not matched or are cut, in no order
    loose_end: Int64s
    cut: int  # collectives that the beginning or the end of a recording cuts
    cut_rank: Rows  # where these ran: ranks, and their collectives, in no order
    cut_row: Rows
    one_given: int  # of those: in groups of which one rank alone is given
    no_group: int  # of those: of which group they are is not known

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def counts(self) -> Rows:
        """How many of the given ranks took part in each."""
        return np.diff(self.first)

    @property
    def whole(self) -> Flags:
        """Whether all ranks of the group are given."""
        return np.asarray((self.size > 0) & (self.counts == self.size))

    def named(self, kinds: Collection[str]) -> Flags:
        """Which collectives are of these kinds."""
        return np.array([name in kinds for name in self.names], dtype=np.bool_)

    @cached_property
    def point_to_point(self) -> Flags:
        found = [name.partition(" ")[0] in POINT_TO_POINT for name in self.names]
        return np.array(found, dtype=np.bool_)

    @cached_property
    def of_row(self) -> Rows:
        """The collective that each row belongs to."""
        return np.repeat(np.arange(len(self)), self.counts)


class _Flat(msgspec.Struct, frozen=True, eq=False, dict=True):
    """All collectives of all ranks, one after another."""

    ranks: tuple[RankSummary, ...]
    keys: tuple[tuple[str, ProcessGroup], ...]
    key: Int64s
    rank: Rows
    row: Rows

    def column(self, name: str) -> Int64s:
        """A column of Collectives."""
        parts = [getattr(one.collectives, name) for one in self.ranks]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    @cached_property
    def sequence(self) -> Int64s:
        return self.column("sequence")

    @cached_property
    def is_cut(self) -> Flags:
        """Whether the recording of its own rank cuts it."""
        found = np.zeros(len(self.key), dtype=np.bool_)
        first_row = np.searchsorted(self.rank, np.arange(len(self.ranks)))
        for one, first in zip(self.ranks, first_row.tolist(), strict=True):
            found[first + np.array(one.cut, dtype=np.intp)] = True
        return found


def match(ranks: Sequence[RankSummary]) -> Matched:
    """Matches the collectives of ranks of one job; groups of one rank take no part."""
    keys: dict[tuple[str, ProcessGroup], int] = {}
    own = [_keys_of(one, keys) for one in ranks]
    key = np.concatenate([np.empty(0, dtype=np.int64), *own])
    rank = np.repeat(np.arange(len(ranks)), list(map(len, own)))
    flat = _Flat(tuple(ranks), tuple(keys), key, rank, row=ordinals(rank))
    number = _numbers(flat)
    cut = flat.is_cut & (number != ALONE)
    numbers_of_cut = np.unique(number[cut & (number >= 0)])
    cut_collectives = len(numbers_of_cut) + np.count_nonzero(
        cut & (number == UNMATCHED)
    )
    cut |= np.isin(number, numbers_of_cut)
    number[cut] = CUT
    used = np.flatnonzero(number >= 0)
    order = used[np.lexsort((flat.rank[used], number[used]))]
    counts = np.diff(run_bounds(number[order]))
    shared = np.repeat(counts > 1, counts)
    left = np.concatenate((flat.rank[number == UNMATCHED], flat.rank[order[~shared]]))
    sends = np.array([name in POINT_TO_POINT for name, _ in flat.keys], dtype=np.bool_)
    loose = (number == UNMATCHED) | cut | (sends[flat.key] & (number == ALONE))
    loose[order[~shared]] = True
    unmatched = np.bincount(left, minlength=len(ranks))
    left_out = _LeftOutRows(
        np.flatnonzero(loose), np.flatnonzero(cut), int(cut_collectives)
    )
    return _in_time(flat, order[shared], number, unmatched, left_out)


class _LeftOutRows(msgspec.Struct, frozen=True, eq=False):
    """Rows of _Flat that are not of matched collectives."""

    loose: Rows
    cut: Rows  # of them: of collectives that some recording cuts
    cut_collectives: int


UNMATCHED, ALONE, CUT = -1, -2, -3
# with whom is not known, so it is matched with nothing
NOBODY = ProcessGroup("", (), 1)


def run_bounds(ordered: NDArray[np.integer]) -> Rows:
    """Where each run of equal numbers begins, and the end of the last one."""
    return np.append(np.flatnonzero(np.diff(ordered, prepend=-1)), len(ordered))


def _keys_of(one: RankSummary, keys: dict[tuple[str, ProcessGroup], int]) -> Int64s:
    """For each collective the number of its name and group, or of its pair of ranks."""
    found = one.collectives
    names, groups = len(one.names), len(one.groups)
    each = ((found.peer + 1) * groups + found.group) * names + found.name
    distinct, which = np.unique(each, return_inverse=True)
    numbers = []
    for n in distinct.tolist():
        key = _key(one, n % names, n // names % groups, n // names // groups - 1)
        numbers.append(keys.setdefault(key, len(keys)))
    return np.array(numbers, dtype=np.int64)[which]


def _key(
    one: RankSummary, name: int, group: int, peer: int
) -> tuple[str, ProcessGroup]:
    named, whole = one.names[name], one.groups[group]
    if named not in POINT_TO_POINT:
        known = whole != UNKNOWN_GROUP
        return named, ProcessGroup(
            whole.name, whole.ranks, whole.size
        ) if known else whole
    if peer < 0:
        return named, NOBODY
    pair, link = (one.rank, peer) if named == "send" else (peer, one.rank), "to"
    if named == "send_recv":  # both in one kernel
        pair, link = (min(pair), max(pair)), "with"
    return f"send_recv {pair[0]} {link} {pair[1]}", ProcessGroup(whole.name, pair, 2)


def _numbers(flat: _Flat) -> Int64s:
    """The number of the collective that each row is of, UNMATCHED or ALONE."""
    number = np.full(len(flat.key), UNMATCHED, dtype=np.int64)
    by_key = np.argsort(flat.key, kind="stable")
    bounds = np.searchsorted(flat.key[by_key], np.arange(len(flat.keys) + 1))
    next_free = 0
    for (_, group), (begin, end) in zip(
        flat.keys, itertools.pairwise(bounds), strict=True
    ):
        rows = by_key[begin:end]
        if group.size == 1:
            number[rows] = ALONE
        elif group != UNKNOWN_GROUP:
            places = _numbers_within_key(flat, rows)
            known = places >= 0
            distinct, dense = np.unique(places[known], return_inverse=True)
            number[rows[known]] = dense + next_free
            next_free += len(distinct)
    return number


def _numbers_within_key(flat: _Flat, rows: Rows) -> Int64s:
    """A number per row of one key, equal for the same collective; -1 for unmatched.

    By order, if all ranks have equally many; else by the recorded sequence, if no rank has
    one twice; else from the end of each step, but not of damaged files."""
    rank = flat.rank[rows]
    counts = np.bincount(rank)
    counts = counts[counts > 0]
    if counts.min() == counts.max():
        return ordinals(rank)
    sequence = flat.sequence[rows]
    distinct = np.unique(np.stack((rank, sequence)), axis=1).shape[1]
    if (sequence >= 0).all() and distinct == len(rank):
        return sequence
    damaged = np.array([bool(one.damage) for one in flat.ranks])[rank]
    return np.where(damaged, -1, _from_the_end(flat, rows))


def _from_the_end(flat: _Flat, rows: Rows) -> Int64s:
    """A number per step, equal on all ranks, and of how many of the same step come
    after it. Behind the last step it is how many come before: a recording may end
    within a step, at another place on each rank."""
    numbers = np.empty(len(rows), dtype=np.int64)
    step_numbers: dict[Key, int] = {}
    for rank in np.unique(flat.rank[rows]).tolist():
        of_rank = np.flatnonzero(flat.rank[rows] == rank)
        summary = flat.ranks[rank]
        issued = summary.collectives.issued[flat.row[rows[of_rank]]]
        place = np.searchsorted(summary.step_start, issued, side="right") - 1
        is_inside = (place >= 0) & (issued < np.append(summary.step_end, 0)[place])
        number_of_step = [
            step_numbers.setdefault(key, len(step_numbers) + 1)
            for key in step_keys(summary)
        ]
        step_or_none = np.array([*number_of_step, OUTSIDE_STEPS])[place]
        step = np.where(is_inside, step_or_none, OUTSIDE_STEPS)
        following = ordinals(step[::-1])[::-1]
        if len(summary.step_end):
            is_behind = issued >= summary.step_end.max()
            step[is_behind] = BEHIND_ALL_STEPS
            following[is_behind] = np.arange(np.count_nonzero(is_behind))
        numbers[of_rank] = step * MAX_COLLECTIVES_OF_A_RANK + following
    return numbers


def step_keys(one: RankSummary) -> list[Key]:
    """What identifies a step on all ranks: its name or, if names recur, its place from
    the end."""
    if len(set(one.steps)) == len(one.steps):
        return [(name,) for name in one.steps]
    return [(len(one.steps) - place,) for place in range(len(one.steps))]


def _in_time(
    flat: _Flat, order: Rows, number: Int64s, unmatched: Int64s, left_out: _LeftOutRows
) -> Matched:
    """The collectives in the order of their first starts."""
    bounds = run_bounds(number[order])
    counts = np.diff(bounds)
    start = flat.column("start")
    first_starts = bounds[:-1]
    if len(first_starts):
        first_starts = np.minimum.reduceat(start[order], bounds[:-1])
    by_time = np.argsort(first_starts, kind="stable")
    place_in_time = np.repeat(np.argsort(by_time), counts)
    rows = order[np.argsort(place_in_time, kind="stable")]
    first = np.concatenate(([0], np.cumsum(counts[by_time])))
    heads = rows[first[:-1]]
    keys = [flat.keys[key] for key in flat.key[heads].tolist()]
    given = {summary.rank for summary in flat.ranks}
    is_unknown = np.array(
        [group == UNKNOWN_GROUP for _, group in flat.keys], dtype=np.bool_
    )
    has_one_given = np.array(
        [group.size > 1 and len(given & {*group.ranks}) == 1 for _, group in flat.keys],
        dtype=np.bool_,
    )
    has_one_given &= ~is_unknown
    return Matched(
        ranks=flat.ranks,
        first=first,
        rank=flat.rank[rows],
        row=flat.row[rows],
        start=start[rows],
        end=flat.column("end")[rows],
        covered=flat.column("covered")[rows],
        ready=flat.column("ready")[rows],
        ahead=flat.column("ahead")[rows],
        stalled=flat.column("stalled")[rows],
        names=tuple(name for name, _ in keys),
        groups=tuple(group for _, group in keys),
        bytes=flat.column("size")[heads],
        size=np.array([group.size for _, group in keys], dtype=np.int64),
        unmatched=unmatched,
        loose_rank=flat.rank[left_out.loose],
        loose_end=flat.column("end")[left_out.loose],
        cut=left_out.cut_collectives,
        cut_rank=flat.rank[left_out.cut],
        cut_row=flat.row[left_out.cut],
        one_given=int(has_one_given[flat.key].sum()),
        no_group=int(is_unknown[flat.key].sum()),
    )


class StepsOfRows(msgspec.Struct, frozen=True, eq=False):
    """The steps of a job, and of each row of Matched the step in which it was
    issued."""

    names: tuple[str, ...]  # () for a job without steps
    of_row: Rows  # number of the step, -1 before the first; 0 in a job without steps
    # the median step_wall over steps and ranks; without steps that of the windows
    length_ns: float


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
        of_row[own] = np.array([*(places[key] for key in step_keys(one)), -1])[at]
    return StepsOfRows(
        names=tuple(names.values()), of_row=of_row, length_ns=_median_length_ns(matched)
    )


def _median_length_ns(matched: Matched) -> float:
    """See StepsOfRows.length_ns; 0 without ranks."""
    lengths = [
        step_wall(summary.step_start, summary.step_end)
        for summary in matched.ranks
        if summary.steps
    ]
    if not lengths:
        lengths = [
            np.array([summary.end_ns - summary.begin_ns]) for summary in matched.ranks
        ]
    return float(np.median(np.concatenate(lengths))) if lengths else 0.0


APART_NS = 60 * 10**9
"""Windows that lie further apart than this, and than the length of both, are not of one
recording: clocks of machines differ by much less."""


class RankJob(msgspec.Struct, frozen=True, eq=False):
    """The ranks of a job that are given, in their order."""

    ranks: tuple[RankSummary, ...]
    left: tuple[LeftOut, ...]
    world_size: int  # 0 if it is not known
    missing: tuple[int, ...]  # ranks that are not given; () if the size is not known
    notes: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return bool(self.world_size) and not self.missing


def job_of(found: Iterable[RankSummary | LeftOut]) -> RankJob:
    """Sorts out files that could not be read, ranks of other jobs, and numbers given
    twice."""
    files = list(found)
    known = [one for one in files if isinstance(one, RankSummary)]
    left = [one for one in files if isinstance(one, LeftOut)]
    taken = {one.rank for one in known}  # what nothing numbers is numbered in order
    free = (number for number in range(len(known) + len(taken)) if number not in taken)
    given = [replace(one, rank=next(free)) if one.rank < 0 else one for one in known]
    sizes = Counter(one.world_size for one in given if one.world_size)
    size = max(sizes, key=lambda size: (sizes[size], size), default=0)
    windows = sorted((one.begin_ns, one.end_ns) for one in given)
    ranks: dict[int, RankSummary] = {}
    for one in given:
        reason = _foreign(one, size, windows[len(windows) // 2])
        if not reason and one.rank in ranks:
            reason = f"{one.path} is rank {one.rank}, as {ranks[one.rank].path} is: it is left out."
        if reason:
            left.append(LeftOut(one.path, one.rank, reason))
        else:
            ranks[one.rank] = one
    sources = sorted({one.rank_by for one in given if one.rank_by != RECORDED})
    notes = [f"Some ranks are numbered by {source}." for source in sources]
    notes += dict.fromkeys(one.note for one in ranks.values() if one.note)
    missing = tuple(sorted(set(range(size)) - ranks.keys()))
    return RankJob(
        tuple(ranks[n] for n in sorted(ranks)), tuple(left), size, missing, tuple(notes)
    )


def _foreign(one: RankSummary, size: int, middle: tuple[int, int]) -> str:
    """Why it is no rank of this job, else "". `size`: the most frequent size that was
    recorded, the larger one of two, 0 if none was; `middle`: the window of the rank in
    the middle of all."""
    if one.world_size and one.world_size != size:
        world = one.world_size
        return f"{one.path} is of another job: it has {world} ranks, the others have {size}."
    if size and one.rank >= size and one.rank_by != ORDERED:
        return f"{one.path} is rank {one.rank} of a job of {size}: it is left out."
    apart = max(one.begin_ns - middle[1], middle[0] - one.end_ns)
    lengths = max(one.end_ns - one.begin_ns, middle[1] - middle[0])
    if apart > max(APART_NS, lengths):
        return f"{one.path} was recorded at another time, {duration(apart)} apart: it is left out."
    return ""
