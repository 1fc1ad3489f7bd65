"""Determines which files are ranks of one job, and matches the collectives of the
ranks.

The n-th collective of a name in a process group is the same one on all ranks of the
group, as long as all ranks have equally many. If they do not, the recorded sequence
numbers decide. Without those, collectives are matched within each step, from the end of
the step inwards; those behind the last step are matched from its end on. What is left
over is counted as unmatched.

The beginning or the end of a recording can cut a collective on some rank. It still
takes part in the matching, so that the count of the others is right. Afterwards it is
left out on all ranks, because nobody knows when it began or ended on the rank that cut
it.
"""

from __future__ import annotations

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
from fusetui.analysis.ranks.model import NO_PEER, NO_SEQUENCE, LeftOut, RankSummary
from fusetui.text.figures import duration
from fusetui.trace.layout.steps import step_wall
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    Number,
    Rows,
    at,
    distinct,
    distinct_rows,
    last_at_or_before,
    numbers_of_sized_groups,
    ordinals,
    prefix_sums,
    rank_of_each,
    reduce_groups,
    run_bounds,
)
from fusetui.trace.model.grouping import grouped

StepKey = tuple[object, ...]
"""What identifies a step on all ranks."""


class MatchingKey(NamedTuple):
    """What two collectives of two ranks must have in common to be the same one."""

    name: str  # of a send or receive with its pair of ranks, "send_recv 0 to 1"
    group: ProcessGroup  # of a send or receive the group of these two ranks


OUTSIDE_STEPS = 0
"""In place of the number of a step, for collectives in no step. Steps count from 1."""
BEHIND_ALL_STEPS = 1 << 40
"""In place of the number of a step, for collectives behind the last step. There are far
fewer steps."""
BEFORE_STEPS = -1
"""In place of the index of a step, for rows that were issued before the first one."""


class Matched(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The collectives in which at least two of the given ranks took part.

    They are in the order of their starts. A *row* is one rank's part in one collective;
    the rows of a collective are neighbors.
    """

    ranks: tuple[RankSummary, ...]
    # Where the rows of each collective begin; one entry more than collectives.
    first: Rows

    # One entry per row.
    rank: Rows  # index in `ranks`
    row: Rows  # index in the collectives of that rank
    start: Int64s
    end: Int64s
    covered: Int64s  # ns of it in which the rank computed
    ready: Int64s  # see Collectives, as the following
    ahead: Int64s
    stalled: Int64s

    # One entry per collective.
    names: tuple[str, ...]
    groups: tuple[ProcessGroup, ...]
    bytes: Int64s  # UNKNOWN_BYTES if not known
    size: Int64s  # how many ranks the group has, 0 if that is not known

    unmatched: Int64s  # how many collectives of each rank are not matched
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
        """How many of the given ranks took part in each collective."""
        return np.diff(self.first)

    @property
    def has_all_ranks(self) -> Flags:
        """For each collective whether all ranks of its group are given."""
        return np.asarray((self.size > 0) & (self.counts == self.size))

    def mark_named(self, kinds: Collection[str]) -> Flags:
        """Mark the collectives that have one of these names, such as "all_reduce".

        Returns one flag per collective.
        """
        return np.array([name in kinds for name in self.names], dtype=np.bool_)

    @cached_property
    def point_to_point(self) -> Flags:
        """For each collective whether it is a send and receive of a pair of ranks."""
        kinds = [name.partition(" ")[0] for name in self.names]
        return np.array([kind in POINT_TO_POINT for kind in kinds], dtype=np.bool_)

    @cached_property
    def collective_of_row(self) -> Rows:
        """The index of the collective of each row: each collective has a row for each
        of its ranks.

        E.g. of two collectives, one with 3 ranks and one with 2: 0, 0, 0, 1, 1.
        """
        return numbers_of_sized_groups(self.counts)

    def for_each_row(self, of_collective: NDArray[Number]) -> NDArray[Number]:
        """Give each row the value of its collective.

        E.g. 7 and 8, for two collectives with 3 and 2 ranks, become 7, 7, 7, 8, 8.

        Args:
            of_collective: One value per collective.
        """
        return of_collective[self.collective_of_row]

    def rank_at(self, row: int) -> RankSummary:
        """Return the rank whose part a row is."""
        return self.ranks[int(self.rank[row])]

    def over_ranks(
        self, operation: np.ufunc, of_row: NDArray[Number]
    ) -> NDArray[Number]:
        """Combine the values of the ranks of each collective.

        E.g. with np.maximum and the times at which ranks start: the last start of each
        collective.

        Args:
            operation: np.maximum, np.minimum or np.add.
            of_row: One value per row.

        Returns:
            One value per collective.
        """
        return reduce_groups(operation, of_row, first=self.first[:-1])


class _AllCollectives(msgspec.Struct, frozen=True, eq=False, dict=True):
    """All collectives of all ranks, one rank after another.

    A *row* is one rank's part in one collective; arrays have one entry per row.
    """

    ranks: tuple[RankSummary, ...]
    keys: tuple[MatchingKey, ...]
    key: Int64s  # index in `keys`
    rank: Rows  # index in `ranks`
    row: Rows  # index in the collectives of that rank

    def column(self, name: str) -> Int64s:
        """Concatenate a column of the Collectives of all ranks."""
        columns = [getattr(summary.collectives, name) for summary in self.ranks]
        return np.concatenate([np.empty(0, dtype=np.int64), *columns])

    @cached_property
    def sequence(self) -> Int64s:
        """The recorded sequence number of each row, as in Collectives."""
        return self.column("sequence")

    @cached_property
    def is_cut(self) -> Flags:
        """Whether the recording of its own rank cuts the collective of each row."""
        flags_of_ranks = [np.zeros(0, dtype=np.bool_)]
        for summary in self.ranks:
            is_cut = np.zeros(len(summary.collectives), dtype=np.bool_)
            is_cut[list(summary.cut)] = True
            flags_of_ranks.append(is_cut)
        return np.concatenate(flags_of_ranks)

    @cached_property
    def is_point_to_point(self) -> Flags:
        """Whether each row is a send or receive whose other rank is unknown.

        The keys of all other sends and receives have the name of their pair.
        """
        is_of_key = [key.name in POINT_TO_POINT for key in self.keys]
        return np.array(is_of_key, dtype=np.bool_)[self.key]


def match_collectives(ranks: Sequence[RankSummary]) -> Matched:
    """Match the collectives of the ranks of one job: find which of several ranks are
    one and the same.

    Args:
        ranks: The summaries of the ranks.

    Returns:
        The collectives that at least two ranks share, with counts of what is left over.
        Collectives that a recording cuts are left out on all ranks. Collectives of a
        group of one rank are not counted at all.
    """
    all_rows = _join_collectives(ranks)
    number_of_row = _number_collectives(all_rows)
    cut = _find_cut_collectives(all_rows, number_of_row)
    number_of_row[cut.rows] = CUT

    # Sort the numbered rows by collective, then by rank. A collective with one row only
    # is shared with nobody.
    numbered = np.flatnonzero(_is_numbered(number_of_row))
    by_number_and_rank = np.lexsort((all_rows.rank[numbered], number_of_row[numbered]))
    by_number = numbered[by_number_and_rank]
    ranks_of_collective = np.diff(run_bounds(number_of_row[by_number]))
    is_shared = np.repeat(ranks_of_collective > 1, ranks_of_collective)
    of_one_rank = by_number[~is_shared]

    without_number = np.flatnonzero(number_of_row == UNMATCHED)
    unmatched = np.concatenate((without_number, of_one_rank))

    # A rank may have waited in a send even if the receiver is unknown.
    is_unshared = (number_of_row == ALONE) & all_rows.is_point_to_point
    is_unshared[unmatched] = True
    is_unshared[cut.rows] = True

    return _order_by_start(
        all_rows,
        by_number[is_shared],
        number_of_row,
        unmatched=np.bincount(all_rows.rank[unmatched], minlength=len(ranks)),
        unshared=np.flatnonzero(is_unshared),
        cut=cut,
    )


def _join_collectives(ranks: Sequence[RankSummary]) -> _AllCollectives:
    """Put the collectives of all ranks into one table, one rank after another.

    Each gets a key, which is its name and its process group. Only collectives with
    equal keys can be the same one on several ranks.
    """
    index_of_key: dict[MatchingKey, int] = {}
    keys_of_ranks = [_make_keys(summary, index_of_key) for summary in ranks]
    counts = [len(keys) for keys in keys_of_ranks]
    rank = numbers_of_sized_groups(np.array(counts, dtype=np.intp))
    no_keys = np.empty(0, dtype=np.int64)  # of a job without ranks
    return _AllCollectives(
        ranks=tuple(ranks),
        keys=tuple(index_of_key),
        key=np.concatenate([no_keys, *keys_of_ranks]),
        rank=rank,
        row=ordinals(rank),
    )


class _CutRows(msgspec.Struct, frozen=True, eq=False):
    """The collectives that the recording of some rank cuts."""

    rows: Rows  # their rows of _AllCollectives, on all ranks
    collectives: int  # how many collectives these are


def _find_cut_collectives(all_rows: _AllCollectives, number: Int64s) -> _CutRows:
    """Find the collectives that are cut on some rank, with their rows on all ranks.

    Args:
        all_rows: All collectives of all ranks.
        number: The number of the collective of each row. A row that is UNMATCHED counts
            as a collective of its own. Rows that are ALONE take no part.
    """
    is_cut = all_rows.is_cut & (number != ALONE)
    cut_numbers = distinct(number[is_cut & _is_numbered(number)])
    cut_without_number = np.count_nonzero(is_cut & (number == UNMATCHED))

    # A collective that is cut on one rank is of no use on the others either.
    is_cut_somewhere = is_cut | np.isin(number, cut_numbers)
    return _CutRows(
        rows=np.flatnonzero(is_cut_somewhere),
        collectives=len(cut_numbers) + int(cut_without_number),
    )


# These stand in place of the number of a collective.
UNMATCHED: Final = -1  # it is not known which collective of other ranks it is
ALONE: Final = -2  # its process group has one rank
CUT: Final = -3  # some recording cuts it

NOBODY: Final = ProcessGroup("", (), 1)
"""The group of a send or receive whose other rank is not known: as if of one rank, so
that it is matched with nothing."""


def _is_numbered(number: Int64s) -> Flags:
    """Mark the rows that have the number of a collective, not one of the stand-ins."""
    return number >= 0


def _make_keys(summary: RankSummary, index_of_key: dict[MatchingKey, int]) -> Int64s:
    """Determine the key of each collective of a rank, by which it is matched.

    Args:
        summary: The rank.
        index_of_key: The keys so far with their indices. New keys are added.

    Returns:
        The index of the key of each collective.
    """
    collectives = summary.collectives

    # Collectives of one peer, group and name have one key. Make it only once for each
    # such kind, because a rank may have many thousand collectives.
    first_of_kind, kind_of_collective = distinct_rows(
        (collectives.peer, collectives.group, collectives.name)
    )
    key_of_kind = []
    for first in first_of_kind.tolist():
        key = _make_key(
            summary.rank,
            name=summary.name_of(first),
            group=summary.groups[collectives.group[first]],
            peer=int(collectives.peer[first]),
        )
        key_of_kind.append(index_of_key.setdefault(key, len(index_of_key)))
    key_index_of_kind = np.array(key_of_kind, dtype=np.int64)
    return key_index_of_kind[kind_of_collective]


def _make_key(rank: int, *, name: str, group: ProcessGroup, peer: int) -> MatchingKey:
    """Make the key of a collective of a rank, by which it is matched with those of
    other ranks.

    A send and its receive have the same key: for a send from rank 0 to 1 and the
    receive of rank 1 from 0 it is the name "send_recv 0 to 1" and the group of the two.

    Args:
        rank: The number of the rank.
        name: The name of the collective.
        group: Its process group.
        peer: The other rank of a send or receive; NO_PEER if it is unknown.
    """
    if name not in POINT_TO_POINT:
        if group != UNKNOWN_GROUP:  # ranks may describe the same group differently
            group = ProcessGroup(group.name, group.ranks, group.size)
        return MatchingKey(name, group)
    if peer == NO_PEER:
        return MatchingKey(name, NOBODY)

    if name == "send_recv":  # both in one kernel
        first, second = sorted((rank, peer))
        pair_name = f"send_recv {first} with {second}"
    else:
        first, second = (rank, peer) if name == "send" else (peer, rank)
        pair_name = f"send_recv {first} to {second}"
    return MatchingKey(pair_name, ProcessGroup(group.name, (first, second), 2))


def _number_collectives(all_rows: _AllCollectives) -> Int64s:
    """Number the collectives of all ranks, so that the rows of one have one number.

    Returns:
        A number per row. UNMATCHED stands for a collective that cannot be matched, and
        ALONE for one whose group has one rank.
    """
    number = np.full(len(all_rows.key), UNMATCHED, dtype=np.int64)
    rows_of_keys = grouped(all_rows.key).members_of_each()
    next_free = 0
    for key, rows in zip(all_rows.keys, rows_of_keys, strict=True):
        if key.group.size == 1:
            number[rows] = ALONE
        elif key.group != UNKNOWN_GROUP:
            number_within_key = _number_within_key(all_rows, rows)
            is_matched = number_within_key != UNMATCHED

            # Count on from the numbers of the keys before, and leave none out.
            first_of_number, dense_number = distinct_rows(
                (number_within_key[is_matched],)
            )
            number[rows[is_matched]] = next_free + dense_number
            next_free += len(first_of_number)
    return number


def _number_within_key(all_rows: _AllCollectives, rows: Rows) -> Int64s:
    """Decide which rows of one name and group are the same collective on several ranks.

    If all ranks have equally many, the n-th one of each rank is the same. Otherwise
    those with equal recorded sequence numbers are the same, if no rank has a number
    twice. Otherwise they are counted from the end of each step, except on ranks whose
    file is damaged: of these it is not known how many collectives are missing.

    Args:
        all_rows: All collectives of all ranks.
        rows: The rows of this name and group.

    Returns:
        A number for each of `rows`, UNMATCHED for those that cannot be matched.
    """
    rank = all_rows.rank[rows]
    rows_of_rank = np.bincount(rank)
    counts = rows_of_rank[rows_of_rank > 0]
    all_have_equally_many = counts.min() == counts.max()
    if all_have_equally_many:
        return ordinals(rank)  # counts from 0 on each rank

    sequence = all_rows.sequence[rows]
    all_are_recorded = (sequence != NO_SEQUENCE).all()
    distinct_pairs, _ = distinct_rows((rank, sequence))
    no_rank_has_one_twice = len(distinct_pairs) == len(rows)
    if all_are_recorded and no_rank_has_one_twice:
        return sequence

    is_damaged = np.array([bool(summary.damage) for summary in all_rows.ranks])
    number = _number_from_end_of_steps(all_rows, rows)
    return np.where(is_damaged[rank], UNMATCHED, number)


def _number_from_end_of_steps(all_rows: _AllCollectives, rows: Rows) -> Int64s:
    """Number collectives of one name and group by counting from the end of each step.

    On every rank, the last one in step 7 is the same collective, and so is the last but
    one. Behind the last step they are counted from its end on instead: a recording may
    end within a step, and does so at another point on each rank.

    Args:
        all_rows: All collectives of all ranks.
        rows: The rows of this name and group.

    Returns:
        A number for each of `rows`, equal for the rows of one collective.
    """
    rank_of_row = all_rows.rank[rows]
    collective_of_row = all_rows.row[rows]  # an index on the rank
    step = np.empty(len(rows), dtype=np.int64)
    position = np.empty(len(rows), dtype=np.int64)
    number_of_step: dict[StepKey, int] = {}
    for rank in distinct(rank_of_row).tolist():
        summary = all_rows.ranks[rank]
        is_of_rank = rank_of_row == rank
        collectives_of_rank = collective_of_row[is_of_rank]
        issued = summary.collectives.issued[collectives_of_rank]
        step_of_rank = _find_steps_of_issued(summary, issued, number_of_step)

        # `ordinals` counts how many precede; on reversed arrays, how many follow.
        position_of_rank = ordinals(step_of_rank[::-1])[::-1]

        if len(summary.step_end):
            is_behind_steps = issued >= summary.step_end.max()
            step_of_rank[is_behind_steps] = BEHIND_ALL_STEPS
            behind_steps = np.count_nonzero(is_behind_steps)
            position_of_rank[is_behind_steps] = np.arange(behind_steps)
        step[is_of_rank] = step_of_rank
        position[is_of_rank] = position_of_rank

    _, number = distinct_rows((step, position))
    return number.astype(np.int64)


def _find_steps_of_issued(
    summary: RankSummary, issued: Int64s, number_of_step: dict[StepKey, int]
) -> Int64s:
    """Find the step in which each collective of a rank was issued.

    E.g. with steps from 0 to 10 and from 20 to 30 ns, which have the numbers 1 and 2:
    for collectives issued at 5, 15 and 25 ns, the numbers 1, OUTSIDE_STEPS and 2.

    Args:
        summary: The rank.
        issued: When each collective was issued, in ns.
        number_of_step: The steps of all ranks so far with their numbers, from 1 on. New
            steps are added.

    Returns:
        The number of a step per collective, OUTSIDE_STEPS for those in no step.
    """
    own_numbers = []
    for key in make_step_keys(summary):
        own_numbers.append(number_of_step.setdefault(key, len(number_of_step) + 1))

    number_of_collective = np.full(len(issued), OUTSIDE_STEPS, dtype=np.int64)
    steps_begun = np.searchsorted(summary.step_start, issued, side="right")
    after_first_begin = np.flatnonzero(steps_begun > 0)
    last_begun = steps_begun[after_first_begin] - 1

    # Steps may have gaps in between, so the end of the step has to be looked at too.
    is_inside = issued[after_first_begin] < summary.step_end[last_begun]
    step = last_begun[is_inside]
    inside_step = after_first_begin[is_inside]
    number_of_collective[inside_step] = np.array(own_numbers)[step]
    return number_of_collective


def make_step_keys(summary: RankSummary) -> list[StepKey]:
    """Return for each step of a rank a key that identifies the step on all ranks.

    It is the name of the step: ("step 7",). If names recur, it is how far the step is
    from the end, (3,), (2,), (1,), because recordings of ranks may begin at different
    steps.
    """
    names = summary.steps
    has_distinct_names = len(set(names)) == len(names)
    if has_distinct_names:
        return [(name,) for name in names]
    return [(steps_left,) for steps_left in range(len(names), 0, -1)]


def _order_by_start(
    all_rows: _AllCollectives,
    by_number: Rows,
    number: Int64s,
    *,
    unmatched: Int64s,
    unshared: Rows,
    cut: _CutRows,
) -> Matched:
    """Put the matched collectives into the order of their first starts.

    Args:
        all_rows: All collectives of all ranks; a row is one rank's part in one.
        by_number: The rows of collectives that ranks share, those of one collective
            side by side.
        number: The number of the collective of each row of `all_rows`.
        unmatched: How many collectives of each rank are not matched.
        unshared: The rows of other collectives in which ranks may have waited.
        cut: The rows of collectives that a recording cuts.
    """
    collectives = _sort_by_first_start(by_number, number, all_rows.column("start"))
    rows = collectives.rows

    # One row of each collective, for what is the same on all of its ranks.
    first_rows = rows[collectives.first[:-1]]
    keys = [all_rows.keys[key] for key in all_rows.key[first_rows].tolist()]
    group_sizes = [key.group.size for key in keys]

    return Matched(
        ranks=all_rows.ranks,
        first=collectives.first,
        rank=all_rows.rank[rows],
        row=all_rows.row[rows],
        start=all_rows.column("start")[rows],
        end=all_rows.column("end")[rows],
        covered=all_rows.column("covered")[rows],
        ready=all_rows.column("ready")[rows],
        ahead=all_rows.column("ahead")[rows],
        stalled=all_rows.column("stalled")[rows],
        names=tuple(key.name for key in keys),
        groups=tuple(key.group for key in keys),
        bytes=all_rows.column("size")[first_rows],
        size=np.array(group_sizes, dtype=np.int64),
        unmatched=unmatched,
        unshared_rank=all_rows.rank[unshared],
        unshared_end=all_rows.column("end")[unshared],
        cut=cut.collectives,
        cut_rank=all_rows.rank[cut.rows],
        cut_row=all_rows.row[cut.rows],
        one_given=_count_with_one_given_rank(all_rows),
        no_group=_count_without_group(all_rows),
    )


class _OrderedByStart(NamedTuple):
    """Collectives in the order of their first starts."""

    rows: Rows  # rows of _AllCollectives; those of one collective are neighbors
    first: Rows  # where each collective begins in `rows`, followed by the length


def _sort_by_first_start(
    by_number: Rows, number: Int64s, start: Int64s
) -> _OrderedByStart:
    """Sort collectives by the first start of their rows.

    Args:
        by_number: Rows of _AllCollectives, those of one collective side by side.
        number: The number of the collective of each row of _AllCollectives.
        start: The start of each row of _AllCollectives.
    """
    bounds = run_bounds(number[by_number])
    rows_of_collective = np.diff(bounds)
    first_start = reduce_groups(np.minimum, start[by_number], bounds[:-1])

    # Give each row the position of its collective in the new order, and sort by that.
    by_time = np.argsort(first_start, kind="stable")
    position_of_collective = rank_of_each(by_time)
    position_of_row = np.repeat(position_of_collective, rows_of_collective)
    by_position = np.argsort(position_of_row, kind="stable")
    return _OrderedByStart(
        rows=by_number[by_position],
        first=prefix_sums(rows_of_collective[by_time]),
    )


def _count_with_one_given_rank(all_rows: _AllCollectives) -> int:
    """Count the collectives of groups of which the trace of one rank alone is given.

    Groups of a single rank, and collectives whose group is unknown, are left out.
    """
    given_ranks = {summary.rank for summary in all_rows.ranks}
    has_one_given = []
    for key in all_rows.keys:
        has_several_ranks = key.group != UNKNOWN_GROUP and key.group.size > 1
        given = given_ranks.intersection(key.group.ranks)
        has_one_given.append(has_several_ranks and len(given) == 1)
    return _count_rows_of_keys(all_rows, has_one_given)


def _count_without_group(all_rows: _AllCollectives) -> int:
    """Count the collectives of which it is not known of which group they are."""
    has_unknown_group = [key.group == UNKNOWN_GROUP for key in all_rows.keys]
    return _count_rows_of_keys(all_rows, has_unknown_group)


def _count_rows_of_keys(all_rows: _AllCollectives, is_counted: Sequence[bool]) -> int:
    """Count the rows whose key is flagged; `is_counted` has one flag per key."""
    flag_of_key = np.array(is_counted, dtype=np.bool_)
    return int(np.count_nonzero(flag_of_key[all_rows.key]))


class StepsOfRows(msgspec.Struct, frozen=True, eq=False):
    """The steps of a job, and the step in which each row of Matched was issued."""

    names: tuple[str, ...]  # () for a job without steps
    # the index of the step of each row, BEFORE_STEPS before the first; 0 in a job
    # without steps
    step_of_row: Rows
    # the median step_wall over steps and ranks; without steps the median length of the
    # recordings
    length_ns: float

    @property
    def is_in_step(self) -> Flags:
        """Which rows were issued in a step, and not before the first one."""
        return np.asarray(self.step_of_row != BEFORE_STEPS)


def find_job_steps(matched: Matched) -> StepsOfRows:
    """Find the steps of a job, and the step in which each collective was issued.

    Ranks may have recorded different steps. The steps of the job are those of all ranks
    together, in the order in which they first occur: with steps 4, 5 of rank 0 and 5, 6
    of rank 1, they are 4, 5, 6.
    """
    name_of_key: dict[StepKey, str] = {}
    for summary in matched.ranks:
        for key, name in zip(make_step_keys(summary), summary.steps, strict=True):
            name_of_key.setdefault(key, name)

    return StepsOfRows(
        names=tuple(name_of_key.values()),
        step_of_row=_find_steps_of_rows(matched, list(name_of_key)),
        length_ns=_measure_median_step(matched),
    )


def _find_steps_of_rows(matched: Matched, keys: Sequence[StepKey]) -> Rows:
    """Find the step in which each rank issued its part of each collective.

    Args:
        matched: The collectives; a row is one rank's part in one of them.
        keys: The keys of all steps of the job, in their order.

    Returns:
        The index of a step per row, BEFORE_STEPS before the first step of the rank; 0
        for all rows of a job without steps.
    """
    step_of_row = np.zeros(len(matched.rank), dtype=np.intp)
    if not keys:
        return step_of_row

    job_step_of_key = {key: step for step, key in enumerate(keys)}
    by_rank = grouped(matched.rank)
    for rank, rows in zip(
        by_rank.keys.tolist(), by_rank.members_of_each(), strict=True
    ):
        summary = matched.ranks[rank]
        issued = summary.collectives.issued[matched.row[rows]]
        own_step = last_at_or_before(summary.step_start, issued)

        own_keys = make_step_keys(summary)
        job_steps = np.array([job_step_of_key[key] for key in own_keys], dtype=np.intp)
        step_of_row[rows] = at(job_steps, own_step, missing=BEFORE_STEPS)
    return step_of_row


def _measure_median_step(matched: Matched) -> float:
    """Return the median length of a step over all steps and ranks, in ns.

    A job without steps gives the median length of the recordings; one without ranks 0.
    """
    step_lengths: list[Int64s] = []
    for summary in matched.ranks:
        if summary.steps:
            step_lengths.append(step_wall(summary.step_start, summary.step_end))
    if step_lengths:
        return float(np.median(np.concatenate(step_lengths)))

    recording_lengths = [summary.end_ns - summary.begin_ns for summary in matched.ranks]
    return float(np.median(recording_lengths)) if recording_lengths else 0.0


APART_NS = 60 * 10**9
"""Windows that lie further apart than this, and than the length of both, are not of one
recording: clocks of machines differ by much less."""


class RankJob(msgspec.Struct, frozen=True, eq=False):
    """The ranks of a job for which traces are given, in their order."""

    ranks: tuple[RankSummary, ...]
    left_out: tuple[LeftOut, ...]
    world_size: int  # 0 if it is not known
    missing: tuple[int, ...]  # ranks that are not given; () if the size is not known
    notes: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all ranks of the job are given."""
        return bool(self.world_size) and not self.missing


def determine_job(summaries_or_reasons: Iterable[RankSummary | LeftOut]) -> RankJob:
    """Determine the job to which most of the files belong.

    Files that could not be read, ranks of other jobs, and ranks whose number was given
    before are left out, each with the reason.

    Args:
        summaries_or_reasons: For each file the summary of its rank, or why it could not
            be read.
    """
    summaries: list[RankSummary] = []
    left_out: list[LeftOut] = []
    for summary_or_reason in summaries_or_reasons:
        if isinstance(summary_or_reason, LeftOut):
            left_out.append(summary_or_reason)
        else:
            summaries.append(summary_or_reason)

    # The job is that of the recording in the middle of all recordings, by time.
    numbered = _assign_rank_numbers(summaries)
    world_size = _choose_world_size(numbered)
    recordings = sorted((summary.begin_ns, summary.end_ns) for summary in numbered)

    ranks: dict[int, RankSummary] = {}
    for summary in numbered:
        middle_recording = recordings[len(recordings) // 2]
        reason = _explain_other_job(summary, world_size, middle_recording)
        if not reason:
            reason = _explain_given_twice(summary, ranks)

        if reason:
            left_out.append(LeftOut(summary.path, summary.rank, reason))
        else:
            ranks[summary.rank] = summary

    return RankJob(
        ranks=tuple(ranks[number] for number in sorted(ranks)),
        left_out=tuple(left_out),
        world_size=world_size,
        missing=tuple(sorted(set(range(world_size)) - ranks.keys())),
        notes=tuple(_list_notes(numbered, ranks.values())),
    )


def _explain_given_twice(summary: RankSummary, ranks: Mapping[int, RankSummary]) -> str:
    """Explain that a rank was given by an earlier file; "" if it was not.

    Args:
        summary: The rank.
        ranks: The ranks of earlier files, by their numbers.
    """
    if summary.rank not in ranks:
        return ""
    first_path = ranks[summary.rank].path
    return f"{summary.path} is skipped: it is rank {summary.rank}, like {first_path}."


def _assign_rank_numbers(summaries: Sequence[RankSummary]) -> list[RankSummary]:
    """Give a number to each rank that has none: the lowest that is still free.

    E.g. the ranks (none, 0, none) become 1, 0 and 2.
    """
    numbers_in_use = {summary.rank for summary in summaries}
    next_number = 0
    numbered = []
    for summary in summaries:
        if not summary.has_number:
            while next_number in numbers_in_use:
                next_number += 1
            summary = replace(summary, rank=next_number)
            numbers_in_use.add(next_number)
        numbered.append(summary)
    return numbered


def _choose_world_size(summaries: Sequence[RankSummary]) -> int:
    """Choose the world size (the number of ranks) that most ranks recorded.

    Of sizes that equally many recorded, it is the larger one. Returns 0 if no rank
    recorded it.
    """
    ranks_of_size: Counter[int] = Counter()
    for summary in summaries:
        if summary.world_size:
            ranks_of_size[summary.world_size] += 1

    def sort_key(size: int) -> tuple[int, int]:
        return ranks_of_size[size], size

    return max(ranks_of_size, key=sort_key, default=0)


def _list_notes(
    given: Sequence[RankSummary], ranks: Iterable[RankSummary]
) -> Iterator[str]:
    """Yield what users have to know about the job, each sentence once.

    Args:
        given: The ranks of all files.
        ranks: Those that take part.
    """
    sources = {summary.rank_by for summary in given}
    for source in sorted(sources - {RECORDED}):
        yield f"Some ranks are numbered by {source}."

    notes = [summary.note for summary in ranks if summary.note]
    yield from dict.fromkeys(notes)


def _explain_other_job(
    summary: RankSummary, world_size: int, middle: tuple[int, int]
) -> str:
    """Explain why a rank is of another job; "" if it is not.

    Args:
        summary: The rank.
        world_size: The size of the job, 0 if it is unknown.
        middle: Begin and end of the recording in the middle of all recordings, in ns.
    """
    path = summary.path
    has_other_size = summary.world_size not in (0, world_size)
    if has_other_size:
        return (
            f"{path} is of a different job: it has {summary.world_size} ranks, and "
            f"the others have {world_size}."
        )
    # A number that was only given by the order of the files may be too large.
    has_real_number = summary.rank_by != ORDERED
    if world_size and summary.rank >= world_size and has_real_number:
        return (
            f"{path} is skipped: it is rank {summary.rank} of a job with {world_size} "
            "ranks."
        )

    # Either this recording ends before the middle one begins, or the other way around.
    middle_begin_ns, middle_end_ns = middle
    apart_ns = max(summary.begin_ns - middle_end_ns, middle_begin_ns - summary.end_ns)
    own_length_ns = summary.end_ns - summary.begin_ns
    middle_length_ns = middle_end_ns - middle_begin_ns
    if apart_ns > max(APART_NS, own_length_ns, middle_length_ns):
        return (
            f"{path} is skipped: it was recorded {duration(apart_ns)} before or after "
            "the others."
        )
    return ""
