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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

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
from fusetui.trace.model.arrays import Flags, Int64s, Rows, at, ordinals

StepKey = tuple[object, ...]
"""What identifies a step on all ranks."""


class MatchingKey(NamedTuple):
    """Collectives of ranks can only be the same if this is."""

    name: str  # of a send or receive also the pair of ranks
    group: ProcessGroup  # of a send or receive the pair


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
    unmatched: Int64s  # [ranks]: how many collectives of each rank are not matched
    # The collectives that are not matched or are cut, in no order: the rank of each (an
    # index), and its end.
    unshared_rank: Rows
    unshared_end: Int64s
    cut: int  # how many collectives the beginning or the end of a recording cuts
    # where these ran, in no order: ranks, and indices in the collectives of these
    cut_rank: Rows
    cut_row: Rows
    one_given: int  # collectives of groups of which one rank alone is given
    no_group: int  # collectives of which it is not known of which group they are

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
        """Which are sends and receives of a pair of ranks."""
        kinds = [name.partition(" ")[0] for name in self.names]
        return np.array([kind in POINT_TO_POINT for kind in kinds], dtype=np.bool_)

    @cached_property
    def of_row(self) -> Rows:
        """The collective that each row belongs to."""
        return np.repeat(np.arange(len(self)), self.counts)


class _Flat(msgspec.Struct, frozen=True, eq=False, dict=True):
    """All collectives of all ranks, one rank after another; arrays of shape [rows]."""

    ranks: tuple[RankSummary, ...]
    keys: tuple[MatchingKey, ...]
    key: Int64s  # index in `keys`
    rank: Rows  # index in `ranks`
    row: Rows  # index in the collectives of that rank

    def column(self, name: str) -> Int64s:
        """A column of Collectives."""
        columns = [getattr(summary.collectives, name) for summary in self.ranks]
        return np.concatenate([np.empty(0, dtype=np.int64), *columns])

    @cached_property
    def sequence(self) -> Int64s:
        """See Collectives."""
        return self.column("sequence")

    @cached_property
    def is_cut(self) -> Flags:
        """Which collectives the recording of their own rank cuts."""
        is_cut = np.zeros(len(self.key), dtype=np.bool_)
        first_of_rank = np.searchsorted(self.rank, np.arange(len(self.ranks)))
        for summary, first in zip(self.ranks, first_of_rank.tolist(), strict=True):
            is_cut[first + np.array(summary.cut, dtype=np.intp)] = True
        return is_cut

    @cached_property
    def is_point_to_point(self) -> Flags:
        """Which are sends and receives whose other rank is not known; keys of the
        others have the names of their pairs."""
        by_key = [key.name in POINT_TO_POINT for key in self.keys]
        return np.array(by_key, dtype=np.bool_)[self.key]


def match(ranks: Sequence[RankSummary]) -> Matched:
    """The collectives of ranks of one job that at least two of them share, and what is
    left over. A collective that a recording cuts is left out on all ranks, one of a
    group of one rank is not even counted."""
    flat = _flat(ranks)
    number = _numbers(flat)
    cut = _cut_anywhere(flat, number)
    number[cut.rows] = CUT

    numbered = np.flatnonzero(number >= 0)
    by_number = numbered[np.lexsort((flat.rank[numbered], number[numbered]))]
    ranks_of_each = np.diff(run_bounds(number[by_number]))
    is_shared = np.repeat(ranks_of_each > 1, ranks_of_each)
    of_one_rank = by_number[~is_shared]

    without_number = np.flatnonzero(number == UNMATCHED)
    unmatched = np.concatenate((without_number, of_one_rank))
    # with whom such a send is may not be known, but its rank may have waited in it
    is_unshared = (number == ALONE) & flat.is_point_to_point
    is_unshared[unmatched] = True
    is_unshared[cut.rows] = True
    return _in_time(
        flat,
        by_number[is_shared],
        number,
        unmatched=np.bincount(flat.rank[unmatched], minlength=len(ranks)),
        unshared=np.flatnonzero(is_unshared),
        cut=cut,
    )


def _flat(ranks: Sequence[RankSummary]) -> _Flat:
    """All collectives of these ranks, with the keys by which they can be matched."""
    number_of_key: dict[MatchingKey, int] = {}
    keys_of_ranks = [_keys_of(summary, number_of_key) for summary in ranks]
    counts = [len(keys) for keys in keys_of_ranks]
    rank = np.repeat(np.arange(len(ranks)), counts)
    return _Flat(
        ranks=tuple(ranks),
        keys=tuple(number_of_key),
        key=np.concatenate([np.empty(0, dtype=np.int64), *keys_of_ranks]),
        rank=rank,
        row=ordinals(rank),
    )


class _CutRows(msgspec.Struct, frozen=True, eq=False):
    """Rows of _Flat whose collective the recording of some rank cuts."""

    rows: Rows
    collectives: int  # how many these are


def _cut_anywhere(flat: _Flat, number: Int64s) -> _CutRows:
    """The rows of the collectives that are cut on some rank: those on all ranks count.
    `number`: of the collective of each row; rows that are UNMATCHED are collectives of
    their own, rows that are ALONE take no part."""
    is_cut = flat.is_cut & (number != ALONE)
    cut_numbers = np.unique(number[is_cut & (number >= 0)])
    without_number = np.count_nonzero(is_cut & (number == UNMATCHED))
    is_cut |= np.isin(number, cut_numbers)
    return _CutRows(
        rows=np.flatnonzero(is_cut), collectives=len(cut_numbers) + int(without_number)
    )


# In place of the number of a collective:
UNMATCHED: Final = -1  # which one it is is not known
ALONE: Final = -2  # its group is of one rank
CUT: Final = -3  # a recording cuts it

NOBODY: Final = ProcessGroup("", (), 1)
"""The group of a send or receive whose other rank is not known: as if of one rank, so
that it is matched with nothing."""


def run_bounds(ordered: NDArray[np.integer]) -> Rows:
    """Where each run of equal numbers begins, and the end of the last one."""
    return np.append(np.flatnonzero(np.diff(ordered, prepend=-1)), len(ordered))


def _keys_of(summary: RankSummary, number_of_key: dict[MatchingKey, int]) -> Int64s:
    """For each collective of a rank the number of its key; new keys are added to
    `number_of_key`."""
    collectives = summary.collectives
    # one number stands for peer, group and name; a peer that is not known is -1
    names = len(summary.names)
    groups = len(summary.groups)
    peer_from_0 = collectives.peer + 1
    combined = (peer_from_0 * groups + collectives.group) * names + collectives.name
    distinct, place = np.unique(combined, return_inverse=True)
    numbers = []
    for combination in distinct.tolist():
        peer_and_group, name = divmod(combination, names)
        peer_number, group = divmod(peer_and_group, groups)
        key = _key(
            summary.rank,
            name=summary.names[name],
            group=summary.groups[group],
            peer=peer_number - 1,
        )
        numbers.append(number_of_key.setdefault(key, len(number_of_key)))
    return np.array(numbers, dtype=np.int64)[place]


def _key(rank: int, *, name: str, group: ProcessGroup, peer: int) -> MatchingKey:
    """Of a collective of `rank`. A send and its receive have one key, that of the pair
    of ranks; `peer` is the other one, -1 if it is not known."""
    if name not in POINT_TO_POINT:
        if group != UNKNOWN_GROUP:
            group = ProcessGroup(group.name, group.ranks, group.size)
        return MatchingKey(name, group)
    if peer < 0:
        return MatchingKey(name, NOBODY)
    if name == "send_recv":  # both in one kernel
        first, second = sorted((rank, peer))
        link = "with"
    else:
        first, second = (rank, peer) if name == "send" else (peer, rank)
        link = "to"
    pair = ProcessGroup(group.name, (first, second), 2)
    return MatchingKey(f"send_recv {first} {link} {second}", pair)


def _numbers(flat: _Flat) -> Int64s:
    """For each row the number of its collective, equal for the rows of one; UNMATCHED
    where which one it is is not known, ALONE if its group is of one rank."""
    number = np.full(len(flat.key), UNMATCHED, dtype=np.int64)
    by_key = np.argsort(flat.key, kind="stable")
    bounds = np.searchsorted(flat.key[by_key], np.arange(len(flat.keys) + 1))
    next_free = 0
    for key, (begin, end) in zip(flat.keys, itertools.pairwise(bounds), strict=True):
        rows = by_key[begin:end]
        if key.group.size == 1:
            number[rows] = ALONE
            continue
        if key.group == UNKNOWN_GROUP:
            continue
        within_key = _numbers_within_key(flat, rows)
        is_known = within_key >= 0
        distinct, dense = np.unique(within_key[is_known], return_inverse=True)
        number[rows[is_known]] = dense + next_free
        next_free += len(distinct)
    return number


def _numbers_within_key(flat: _Flat, rows: Rows) -> Int64s:
    """A number per row of one key, equal for the same collective; -1 for unmatched.

    By order, if all ranks have equally many; else by the recorded sequence, if no rank has
    one twice; else from the end of each step, but not of damaged files."""
    rank = flat.rank[rows]
    collectives_of_rank = np.bincount(rank)
    counts = collectives_of_rank[collectives_of_rank > 0]
    if counts.min() == counts.max():
        return ordinals(rank)
    sequence = flat.sequence[rows]
    distinct = np.unique(np.stack((rank, sequence)), axis=1)
    no_rank_has_one_twice = distinct.shape[1] == len(rank)
    if (sequence >= 0).all() and no_rank_has_one_twice:
        return sequence
    is_damaged = np.array([bool(summary.damage) for summary in flat.ranks])
    from_the_end = _from_the_end(flat, rows)
    return np.where(is_damaged[rank], UNMATCHED, from_the_end)


def _from_the_end(flat: _Flat, rows: Rows) -> Int64s:
    """A number for each of these rows of one key, equal for the same collective. It is
    made of the step and of how many of the key come after it in the same step. Behind
    the last step it is how many come before: a recording may end within a step, at
    another place on each rank."""
    numbers = np.empty(len(rows), dtype=np.int64)
    number_of_key: dict[StepKey, int] = {}
    for rank in np.unique(flat.rank[rows]).tolist():
        summary = flat.ranks[rank]
        of_rank = np.flatnonzero(flat.rank[rows] == rank)
        issued = summary.collectives.issued[flat.row[rows[of_rank]]]
        step = _steps_of_issued(summary, issued, number_of_key)
        nth = ordinals(step[::-1])[::-1]  # from the end of the step
        if len(summary.step_end):
            is_behind = issued >= summary.step_end.max()
            step[is_behind] = BEHIND_ALL_STEPS
            nth[is_behind] = np.arange(np.count_nonzero(is_behind))
        numbers[of_rank] = step * MAX_COLLECTIVES_OF_A_RANK + nth
    return numbers


def _steps_of_issued(
    summary: RankSummary, issued: Int64s, number_of_key: dict[StepKey, int]
) -> Int64s:
    """The number of the step of a rank during which each collective was issued, equal
    for the same step of all ranks; OUTSIDE_STEPS for those that are in none. New steps
    are added to `number_of_key`, from 1 on."""
    numbers = []
    for key in step_keys(summary):
        numbers.append(number_of_key.setdefault(key, len(number_of_key) + 1))
    place = np.searchsorted(summary.step_start, issued, side="right") - 1
    is_inside = (place >= 0) & (issued < at(summary.step_end, place, missing=0))
    number = at(np.array(numbers, dtype=np.int64), place, missing=OUTSIDE_STEPS)
    return np.where(is_inside, number, OUTSIDE_STEPS)


def step_keys(summary: RankSummary) -> list[StepKey]:
    """Of each step of a rank its name or, if names recur, its place from the end."""
    steps = summary.steps
    if len(set(steps)) == len(steps):
        return [(name,) for name in steps]
    return [(len(steps) - place,) for place in range(len(steps))]


def _in_time(
    flat: _Flat,
    order: Rows,
    number: Int64s,
    *,
    unmatched: Int64s,
    unshared: Rows,
    cut: _CutRows,
) -> Matched:
    """The collectives in the order of their first starts. `order`: the rows of shared
    collectives, by their numbers; `unshared`: those of others that ranks may have waited
    in."""
    collectives = _by_first_start(order, number, flat.column("start"))
    rows = collectives.rows
    heads = rows[collectives.first[:-1]]
    keys_of_matched = [flat.keys[key] for key in flat.key[heads].tolist()]
    given = {summary.rank for summary in flat.ranks}
    has_unknown_group = [key.group == UNKNOWN_GROUP for key in flat.keys]
    has_one_given = [_is_of_one_given(key.group, given) for key in flat.keys]
    return Matched(
        ranks=flat.ranks,
        first=collectives.first,
        rank=flat.rank[rows],
        row=flat.row[rows],
        start=flat.column("start")[rows],
        end=flat.column("end")[rows],
        covered=flat.column("covered")[rows],
        ready=flat.column("ready")[rows],
        ahead=flat.column("ahead")[rows],
        stalled=flat.column("stalled")[rows],
        names=tuple(key.name for key in keys_of_matched),
        groups=tuple(key.group for key in keys_of_matched),
        bytes=flat.column("size")[heads],
        size=np.array([key.group.size for key in keys_of_matched], dtype=np.int64),
        unmatched=unmatched,
        unshared_rank=flat.rank[unshared],
        unshared_end=flat.column("end")[unshared],
        cut=cut.collectives,
        cut_rank=flat.rank[cut.rows],
        cut_row=flat.row[cut.rows],
        one_given=_count_of_keys(flat, has_one_given),
        no_group=_count_of_keys(flat, has_unknown_group),
    )


class _InTime(NamedTuple):
    """Collectives in the order of their first starts."""

    rows: Rows  # of _Flat; those of one collective are neighbors
    first: Rows  # where each collective begins in `rows`; [collectives + 1]


def _by_first_start(order: Rows, number: Int64s, start: Int64s) -> _InTime:
    """Collectives in the order of the first start of their rows. `order`: rows of
    _Flat by the numbers of their collectives; `number`, `start`: of all rows of it."""
    bounds = run_bounds(number[order])
    counts = np.diff(bounds)
    first_starts = bounds[:-1]  # none without collectives
    if len(counts):
        first_starts = np.minimum.reduceat(start[order], bounds[:-1])
    by_time = np.argsort(first_starts, kind="stable")
    place_of_collective = np.argsort(by_time)
    place_of_row = np.repeat(place_of_collective, counts)
    return _InTime(
        rows=order[np.argsort(place_of_row, kind="stable")],
        first=np.concatenate(([0], np.cumsum(counts[by_time]))),
    )


def _is_of_one_given(group: ProcessGroup, given: set[int]) -> bool:
    """Whether just one of several ranks of a group is among those that are given."""
    if group == UNKNOWN_GROUP or group.size <= 1:
        return False
    return len(given.intersection(group.ranks)) == 1


def _count_of_keys(flat: _Flat, is_counted: Sequence[bool]) -> int:
    """How many rows have a key that is counted; `is_counted`: of each key."""
    of_keys = np.array(is_counted, dtype=np.bool_)
    return int(np.count_nonzero(of_keys[flat.key]))


class StepsOfRows(msgspec.Struct, frozen=True, eq=False):
    """The steps of a job, and of each row of Matched the step in which it was
    issued."""

    names: tuple[str, ...]  # () for a job without steps
    of_row: Rows  # number of the step, -1 before the first; 0 in a job without steps
    # the median step_wall over steps and ranks; without steps that of the windows
    length_ns: float


def steps_of(matched: Matched) -> StepsOfRows:
    """The steps of a job, in their order."""
    name_of_key: dict[StepKey, str] = {}
    for summary in matched.ranks:
        for key, name in zip(step_keys(summary), summary.steps, strict=True):
            name_of_key.setdefault(key, name)
    return StepsOfRows(
        names=tuple(name_of_key.values()),
        of_row=_steps_of_rows(matched, list(name_of_key)),
        length_ns=_median_length_ns(matched),
    )


def _steps_of_rows(matched: Matched, keys: Sequence[StepKey]) -> Rows:
    """See StepsOfRows.of_row. `keys`: of all steps of the job, in their order."""
    of_row = np.zeros(len(matched.rank), dtype=np.intp)
    if not keys:
        return of_row
    place_of_key = {key: place for place, key in enumerate(keys)}
    by_rank = np.argsort(matched.rank, kind="stable")
    ranks = np.arange(len(matched.ranks) + 1)
    bounds = np.searchsorted(matched.rank[by_rank], ranks).tolist()
    for summary, first, stop in zip(
        matched.ranks, bounds[:-1], bounds[1:], strict=True
    ):
        rows = by_rank[first:stop]
        issued = summary.collectives.issued[matched.row[rows]]
        step_of_rank = np.searchsorted(summary.step_start, issued, side="right") - 1
        places = [place_of_key[key] for key in step_keys(summary)]
        places_or_none = np.array([*places, -1])  # -1: before the first
        of_row[rows] = places_or_none[step_of_rank]
    return of_row


def _median_length_ns(matched: Matched) -> float:
    """See StepsOfRows.length_ns; 0 without ranks."""
    lengths_ns = []  # of the steps of each rank
    for summary in matched.ranks:
        if summary.steps:
            lengths_ns.append(step_wall(summary.step_start, summary.step_end))
    if not lengths_ns:
        for summary in matched.ranks:
            lengths_ns.append(np.array([summary.end_ns - summary.begin_ns]))
    if not lengths_ns:
        return 0.0
    return float(np.median(np.concatenate(lengths_ns)))


APART_NS = 60 * 10**9
"""Windows that lie further apart than this, and than the length of both, are not of one
recording: clocks of machines differ by much less."""


class RankJob(msgspec.Struct, frozen=True, eq=False):
    """The ranks of a job that are given, in their order."""

    ranks: tuple[RankSummary, ...]
    left_out: tuple[LeftOut, ...]
    world_size: int  # 0 if it is not known
    missing: tuple[int, ...]  # ranks that are not given; () if the size is not known
    notes: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return bool(self.world_size) and not self.missing


def job_of(summaries_or_reasons: Iterable[RankSummary | LeftOut]) -> RankJob:
    """The job that most of these summaries are of. Files that could not be read, ranks
    of other jobs, and ranks whose number was given before are left out, each with the
    reason."""
    files = list(summaries_or_reasons)
    summaries = [file for file in files if isinstance(file, RankSummary)]
    left_out = [file for file in files if isinstance(file, LeftOut)]
    given = _numbered(summaries)
    size = _size_of_most(given)
    windows = sorted((summary.begin_ns, summary.end_ns) for summary in given)
    ranks: dict[int, RankSummary] = {}
    for summary in given:
        middle_window = windows[len(windows) // 2]
        reason = _foreign(summary, size, middle_window)
        reason = reason or _given_before(summary, ranks)
        if reason:
            left_out.append(LeftOut(summary.path, summary.rank, reason))
        else:
            ranks[summary.rank] = summary
    return RankJob(
        ranks=tuple(ranks[number] for number in sorted(ranks)),
        left_out=tuple(left_out),
        world_size=size,
        missing=tuple(sorted(set(range(size)) - ranks.keys())),
        notes=tuple(_notes_of_job(given, ranks.values())),
    )


def _given_before(summary: RankSummary, ranks: Mapping[int, RankSummary]) -> str:
    """That `ranks`, by their numbers, have this rank already; else ""."""
    if summary.rank not in ranks:
        return ""
    first_path = ranks[summary.rank].path
    return f"{summary.path} is rank {summary.rank}, as {first_path} is: it is left out."


def _numbered(summaries: Sequence[RankSummary]) -> list[RankSummary]:
    """These summaries in their order; those without a rank (-1) get the lowest numbers
    that no other has."""
    taken = {summary.rank for summary in summaries}
    free = (number for number in itertools.count() if number not in taken)
    numbered = []
    for summary in summaries:
        if summary.rank < 0:
            summary = replace(summary, rank=next(free))
        numbered.append(summary)
    return numbered


def _size_of_most(given: Sequence[RankSummary]) -> int:
    """The most frequent size of a job that was recorded, the larger one of two; 0 if
    none was."""
    sizes = Counter(summary.world_size for summary in given if summary.world_size)
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def _notes_of_job(
    given: Sequence[RankSummary], ranks: Iterable[RankSummary]
) -> Iterator[str]:
    """What users are told about the job, each sentence once. `given`: all ranks;
    `ranks`: those that take part."""
    sources = {summary.rank_by for summary in given if summary.rank_by != RECORDED}
    for source in sorted(sources):
        yield f"Some ranks are numbered by {source}."
    yield from dict.fromkeys(summary.note for summary in ranks if summary.note)


def _foreign(summary: RankSummary, size: int, middle: tuple[int, int]) -> str:
    """Why it is no rank of this job, else "". `size`: see _size_of_most; `middle`:
    begin and end of the rank whose window is in the middle of all."""
    path = summary.path
    if summary.world_size and summary.world_size != size:
        return (
            f"{path} is of a different job: it has {summary.world_size} ranks, the others have "
            f"{size}."
        )
    if size and summary.rank >= size and summary.rank_by != ORDERED:
        return (
            f"{path} is left out: it is rank {summary.rank} of a job with {size} ranks."
        )
    begin_ns, end_ns = middle
    apart_ns = max(summary.begin_ns - end_ns, begin_ns - summary.end_ns)
    longer_ns = max(summary.end_ns - summary.begin_ns, end_ns - begin_ns)
    if apart_ns > max(APART_NS, longer_ns):
        return f"{path} is left out: it was recorded {duration(apart_ns)} apart."
    return ""
