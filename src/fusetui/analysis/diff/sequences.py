"""Pairs two sequences of numbers in order: equal numbers, or the nearest ones.

Equal numbers are paired by a longest common subsequence, in nearly linear time. Short
stretches are solved exactly by bit-parallel dynamic programming (H. Hyyrö, Bit-parallel
LCS-length computation revisited, 2004): each row of the table is one Python integer.
Longer stretches are first cut at *anchors*: numbers that occur once on both sides (the
patience diff). If there are none, the anchors are pairs found by windows that slide
along both sides, or the n-th occurrences of a number on both sides, whichever are more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fusetui.trace.model.arrays import Int64s, count_leading, ordinals
from fusetui.trace.model.sorted_arrays import count_below, count_until

Pair = tuple[int, int]
"""A position in A and a position in B."""

MAX_CELLS = 1 << 28
"""The size of the largest table that is solved exactly: 32 MB of bits."""

MAX_CELLS_UNTRIMMED = 64
"""Tables up to this size are solved without trimming."""

WINDOW_NUMBERS = 2048
"""This many numbers of each side are solved exactly at a time where windows slide along
both sides. Only pairs in the first halves of two windows are used."""

MAX_CUTS = 40
"""Stretches that are still too long after this many successive cuts stay unmatched."""

MAX_CLOSEST_CELLS = 1 << 22
"""Sequences that take more comparisons than this are not paired by
`choose_closest_partners`."""

MAX_APART_DIVISOR = 4
"""Two times are alike if they differ by at most the longer one divided by this."""


class Stretch(NamedTuple):
    """The positions of both sides that are still to be paired.

    Each side has the positions from `first_*` up to, but without, `stop_*`.
    """

    first_a: int
    stop_a: int
    first_b: int
    stop_b: int

    @property
    def cells(self) -> int:
        """The size of the table that solves it; 0 when one side is empty."""
        return (self.stop_a - self.first_a) * (self.stop_b - self.first_b)


class _Task(NamedTuple):
    """A stretch that `pair_equal_numbers` has yet to pair."""

    stretch: Stretch
    cuts: int  # how many cuts at anchors led to this stretch


def pair_equal_numbers(a: Int64s, b: Int64s) -> list[Pair]:
    """Pair equal numbers of two sequences, in order.

    The pairs are a longest common subsequence if the table of what remains after
    trimming is small enough (MAX_CELLS), else a long common subsequence.

    >>> pair_equal_numbers(np.array([7, 8, 9]), np.array([8, 7, 9]))
    [(1, 0), (2, 2)]

    Returns:
        Pairs (i, j) with a[i] == b[j], ascending on both sides.
    """
    pairs: list[Pair] = []
    whole = Stretch(first_a=0, stop_a=len(a), first_b=0, stop_b=len(b))
    tasks = [_Task(stretch=whole, cuts=0)]
    while tasks:
        task = tasks.pop()
        stretch = task.stretch
        if stretch.cells > MAX_CELLS_UNTRIMMED:
            trimmed = _pair_equal_ends(a, b, stretch)
            stretch = trimmed.stretch
            pairs += trimmed.pairs
        if not stretch.cells:
            continue

        part_of_a = a[stretch.first_a : stretch.stop_a]
        part_of_b = b[stretch.first_b : stretch.stop_b]
        if stretch.cells <= MAX_CELLS:
            common = pair_longest_common(part_of_a.tolist(), part_of_b.tolist())
            pairs += _shift_to_whole(common, stretch)
        elif task.cuts < MAX_CUTS:
            anchors = _shift_to_whole(_choose_anchors(part_of_a, part_of_b), stretch)
            pairs += anchors
            tasks += _list_tasks_between(anchors, stretch, task.cuts + 1)
    return sorted(pairs)


def _list_tasks_between(
    anchors: list[Pair], stretch: Stretch, cuts: int
) -> list[_Task]:
    """List the stretches between the anchors of a stretch as tasks.

    A stretch is a range of positions in each of two sequences; an anchor is a pair of
    equal numbers at which it is cut. Without anchors the list is empty, so the stretch
    stays unmatched.

    Args:
        anchors: Pairs within the stretch, ascending.
        stretch: The stretch that is cut at its anchors.
        cuts: How many successive cuts have been made, this one included.
    """
    if not anchors:
        return []
    return [
        _Task(stretch=gap, cuts=cuts)
        for gap in iterate_gaps(anchors, stretch)
        if gap.cells
    ]


def _shift_to_whole(pairs: Iterable[Pair], stretch: Stretch) -> list[Pair]:
    """Turn pairs of positions within a stretch into positions in the whole sequences.

    A stretch is a range of positions in each of two sequences.
    """
    return [(i + stretch.first_a, j + stretch.first_b) for i, j in pairs]


def _choose_anchors(a: Int64s, b: Int64s) -> list[Pair]:
    """Choose pairs of equal numbers at which two long sequences are cut.

    Numbers that occur once in each sequence are the best anchors. If there are none,
    anchors are found by sliding windows or by occurrence, whichever gives more.

    Returns:
        Pairs of positions that ascend in both sequences; empty if no number is in both.
    """
    unique = _pair_longest_ascending(
        _locate_unique_numbers(a), _locate_unique_numbers(b)
    )
    if unique:
        return unique
    by_windows = _pair_by_sliding_windows(a, b)
    by_occurrence = _pair_longest_ascending(
        _locate_occurrences(a), _locate_occurrences(b)
    )
    return max(by_windows, by_occurrence, key=len)


def count_occurrences(values: Int64s, sequence: Int64s) -> Int64s:
    """Count how often each of the values occurs in a sequence.

    >>> count_occurrences(np.array([7, 8]), np.array([7, 5, 7])).tolist()
    [2, 0]
    """
    ascending = np.sort(sequence)
    return count_until(ascending, values) - count_below(ascending, values)


def iterate_gaps(pairs: Iterable[Pair], stretch: Stretch) -> Iterator[Stretch]:
    """Yield the stretches before, between and after pairs.

    A stretch is a range of positions in each of two sequences. There is one more than
    there are pairs, and some may be empty.

    Args:
        pairs: Pairs of positions within the stretch, ascending in both sequences.
        stretch: The stretch that the pairs divide.
    """
    first_a = stretch.first_a
    first_b = stretch.first_b
    for i, j in pairs:
        yield Stretch(first_a=first_a, stop_a=i, first_b=first_b, stop_b=j)
        first_a = i + 1
        first_b = j + 1
    yield Stretch(
        first_a=first_a,
        stop_a=stretch.stop_a,
        first_b=first_b,
        stop_b=stretch.stop_b,
    )


def pair_longest_common(a: list[int], b: list[int]) -> list[Pair]:
    """Return one longest common subsequence of two sequences.

    It takes time proportional to len(a) * len(b) / 64.

    Returns:
        Pairs (i, j) with a[i] == b[j], ascending on both sides.

    >>> pair_longest_common([1, 2, 3], [2, 3, 1])
    [(1, 0), (2, 1)]
    """
    return _trace_back(_compute_table_rows(a, b), len(a), len(b))


def _trace_back(table_rows: list[int], size_a: int, size_b: int) -> list[Pair]:
    """Read the pairs of one longest common subsequence from its table.

    Args:
        table_rows: The rows that `_compute_table_rows(a, b)` returned.
        size_a: The subsequence is that of a[:size_a] and b[:size_b].
        size_b: See `size_a`.
    """
    pairs: list[Pair] = []
    i = size_a
    j = size_b
    while i > 0 and j > 0:
        if not _adds_length(table_rows[i - 1], j - 1):
            j -= 1
        elif i > 1 and _adds_length(table_rows[i - 2], j - 1):
            i -= 1  # the row above is longer by b[j - 1] too, without a[i - 1]
        else:
            i -= 1
            j -= 1
            pairs.append((i, j))
    return pairs[::-1]


def _adds_length(table_row: int, j: int) -> bool:
    """Return whether b[j] makes the subsequence of a row longer: whether bit j is 0."""
    return not table_row >> j & 1


def _compute_table_rows(a: list[int], b: list[int]) -> list[int]:
    """Compute the table of longest common subsequences, by Hyyrö's algorithm.

    Returns:
        One row per number of `a`, as an integer of len(b) bits. Bit j of row i is 0
        where the longest common subsequence of a[: i + 1] and b[: j + 1] is longer than
        that of a[: i + 1] and b[:j].
    """
    # For each number, an integer whose bits say where it occurs in b.
    positions_in_b: dict[int, int] = {}
    for j, number in enumerate(b):
        bit = 1 << j
        positions_in_b[number] = positions_in_b.get(number, 0) | bit

    all_bits = (1 << len(b)) - 1
    row = all_bits
    rows: list[int] = []
    for number in a:
        hits = row & positions_in_b.get(number, 0)
        row = ((row + hits) | (row - hits)) & all_bits
        rows.append(row)
    return rows


class _Trimmed(NamedTuple):
    """A stretch without the equal numbers at its beginning and its end."""

    stretch: Stretch  # what remains
    pairs: list[Pair]  # of what was cut off


def _pair_equal_ends(a: Int64s, b: Int64s, stretch: Stretch) -> _Trimmed:
    """Pair the equal numbers with which two sequences begin, then those at the end.

    Returns the pairs, and the rest between them.

    Args:
        a: One sequence.
        b: The other one.
        stretch: The range of positions in each of them that is looked at.
    """
    part_of_a = a[stretch.first_a : stretch.stop_a]
    part_of_b = b[stretch.first_b : stretch.stop_b]
    shorter_length = min(len(part_of_a), len(part_of_b))
    equal_at_begin = count_leading(
        part_of_a[:shorter_length] == part_of_b[:shorter_length]
    )

    size_left = shorter_length - equal_at_begin
    backward_a = part_of_a[::-1][:size_left]
    backward_b = part_of_b[::-1][:size_left]
    equal_at_end = count_leading(backward_a == backward_b)

    rest = Stretch(
        first_a=stretch.first_a + equal_at_begin,
        stop_a=stretch.stop_a - equal_at_end,
        first_b=stretch.first_b + equal_at_begin,
        stop_b=stretch.stop_b - equal_at_end,
    )
    pairs: list[Pair] = []
    pairs += zip(
        range(stretch.first_a, rest.first_a),
        range(stretch.first_b, rest.first_b),
        strict=True,
    )
    pairs += zip(
        range(rest.stop_a, stretch.stop_a),
        range(rest.stop_b, stretch.stop_b),
        strict=True,
    )
    return _Trimmed(stretch=rest, pairs=pairs)


def _pair_by_sliding_windows(a: Int64s, b: Int64s) -> list[Pair]:
    """Pair equal numbers of two sequences, in order, by windows that move along both.

    Numbers that only one of them has are left out before. This takes less time than one
    large table, but may find fewer pairs.
    """
    positions_a = np.flatnonzero(np.isin(a, b)).tolist()
    positions_b = np.flatnonzero(np.isin(b, a)).tolist()
    common_a = a[positions_a].tolist()
    common_b = b[positions_b].tolist()
    pairs = _slide_windows_over(common_a, common_b)
    return [(positions_a[i], positions_b[j]) for i, j in pairs]


def _slide_windows_over(a: list[int], b: list[int]) -> list[Pair]:
    """Pair equal numbers, in order, by windows that move along both sequences.

    After each step the windows begin behind the last pair, and at least WINDOW_NUMBERS
    / 4 positions further on one of the sides.
    """
    pairs: list[Pair] = []
    begin_a = 0
    begin_b = 0
    while begin_a < len(a) and begin_b < len(b):
        window_a = a[begin_a : begin_a + WINDOW_NUMBERS]
        window_b = b[begin_b : begin_b + WINDOW_NUMBERS]
        is_end_of_a = begin_a + WINDOW_NUMBERS >= len(a)
        is_end_of_b = begin_b + WINDOW_NUMBERS >= len(b)
        pairs_of_window = _pair_numbers_of_window(
            window_a, window_b, is_last=is_end_of_a and is_end_of_b
        )
        pairs += [(begin_a + i, begin_b + j) for i, j in pairs_of_window]

        last_i = 0
        last_j = 0
        if pairs_of_window:
            last_i, last_j = pairs_of_window[-1]
        # With no pairs, or only early ones, the windows would hardly move.
        skipped = max(1, WINDOW_NUMBERS // 4 - max(last_i, last_j))
        begin_a += last_i + skipped
        begin_b += last_j + skipped
    return pairs


def _pair_numbers_of_window(a: list[int], b: list[int], *, is_last: bool) -> list[Pair]:
    """Pair the equal numbers of two windows, as positions in them.

    Except in the last windows, only pairs in the first halves are returned: what comes
    after the windows may change the pairs near their end.
    """
    if is_last:
        return pair_longest_common(a, b)
    half = WINDOW_NUMBERS // 2
    return [(i, j) for i, j in _align_open_ended(a, b) if i < half and j < half]


class _AlignmentEnd(NamedTuple):
    """Where an alignment may end that reaches the end of one of two windows.

    It is the alignment of a[:size_a] and b[:size_b].
    """

    skipped: int  # numbers of both parts that are in no pair
    reach: int  # how much it aligns of the window whose end it need not reach
    size_a: int
    size_b: int


def _align_open_ended(a: list[int], b: list[int]) -> list[Pair]:
    """Align two windows so that the end of only one of them has to be reached.

    A window is a part of a longer sequence. Both windows are equally long, but what
    corresponds in them need not be. So the alignment that skips the fewest numbers is
    returned; of equals, the one that reaches farthest in the other window.

    If that pairs at most half of `a`, a longest common subsequence of both is returned
    instead.

    Returns:
        Pairs of positions in the two windows, ascending in both.
    """
    table_rows = _compute_table_rows(a, b)
    best = min(
        _find_alignment_ends(table_rows, len(a), len(b)),
        key=lambda end: (end.skipped, -end.reach, end.size_a, end.size_b),
    )
    pairs = _trace_back(table_rows, best.size_a, best.size_b)
    if 2 * len(pairs) > len(a):
        return pairs
    return _trace_back(table_rows, len(a), len(b))


def _find_alignment_ends(
    table_rows: list[int], len_a: int, len_b: int
) -> Iterator[_AlignmentEnd]:
    """Yield where an alignment of two windows may end.

    Those that reach the end of `a` come first, then those that reach the end of `b`.

    Args:
        table_rows: The rows that `_compute_table_rows(a, b)` returned.
        len_a: The length of the window of A.
        len_b: The length of the window of B.
    """
    pairs_so_far = 0
    for j in range(len_b):
        # Bit j of the last row is 0 where b[j] adds one pair to those with all of a.
        if _adds_length(table_rows[-1], j):
            pairs_so_far += 1
        size_b = j + 1
        yield _AlignmentEnd(
            skipped=len_a + size_b - 2 * pairs_so_far,
            reach=size_b,
            size_a=len_a,
            size_b=size_b,
        )

    for size_a, row in enumerate(table_rows, 1):
        # Each bit of 0 is a pair.
        pairs_of_row = len_b - row.bit_count()
        yield _AlignmentEnd(
            skipped=size_a + len_b - 2 * pairs_of_row,
            reach=size_a,
            size_a=size_a,
            size_b=len_b,
        )


def _locate_unique_numbers(numbers: Int64s) -> dict[Hashable, int]:
    """Return {number: its position} for the numbers that occur once.

    >>> _locate_unique_numbers(np.array([7, 5, 7, 6]))
    {5: 1, 6: 3}
    """
    values, first_positions, counts = np.unique(
        numbers, return_index=True, return_counts=True
    )
    unique_values = values[counts == 1].tolist()
    positions = first_positions[counts == 1].tolist()
    return dict(zip(unique_values, positions, strict=True))


def _locate_occurrences(numbers: Int64s) -> dict[Hashable, int]:
    """Return {(number, how often it occurred before): its position}.

    >>> _locate_occurrences(np.array([7, 5, 7]))
    {(7, 0): 0, (5, 0): 1, (7, 1): 2}
    """
    occurred_before = ordinals(numbers).tolist()
    keys = zip(numbers.tolist(), occurred_before, strict=True)
    return {key: position for position, key in enumerate(keys)}


class _Chain(NamedTuple):
    """Pairs that ascend on both sides, as a list that is linked from its end."""

    last: Pair
    before: _Chain | None  # the chain of all pairs but the last one


def _pair_longest_ascending(
    positions_a: Mapping[Hashable, int], positions_b: Mapping[Hashable, int]
) -> list[Pair]:
    """Pair the keys that both sides have, and leave out as few as possible to ascend.

    This is a longest increasing subsequence, by patience sorting in time n log n.

    >>> _pair_longest_ascending({"x": 0, "y": 1, "z": 2}, {"x": 5, "y": 9, "z": 7})
    [(0, 5), (2, 7)]

    Args:
        positions_a: The position in A of each key.
        positions_b: The position in B of each key.

    Returns:
        Pairs of the two positions of a key, ascending on both sides. Of several
        solutions, it is the one whose positions in B are lowest at the end.
    """
    pairs = []
    for key, position in positions_a.items():
        if key in positions_b:
            pairs.append((position, positions_b[key]))
    pairs.sort()

    # Of the chains with n + 1 pairs, chains[n] is the one that ends first in B, because
    # the most other pairs can follow it. Longer chains end later, so ends_in_b ascends.
    chains: list[_Chain] = []
    ends_in_b: list[int] = []
    for pair in pairs:
        _, position_in_b = pair
        length_before = bisect_left(ends_in_b, position_in_b)
        longest_before = chains[length_before - 1] if length_before else None
        chain_with_pair = _Chain(last=pair, before=longest_before)
        if length_before == len(chains):  # it is the longest chain so far
            chains.append(chain_with_pair)
            ends_in_b.append(position_in_b)
        else:  # it ends earlier than the chain of the same length
            chains[length_before] = chain_with_pair
            ends_in_b[length_before] = position_in_b

    ascending: list[Pair] = []
    chain = chains[-1] if chains else None
    while chain is not None:
        ascending.append(chain.last)
        chain = chain.before
    return ascending[::-1]


def are_similar_times(a: float, b: float) -> bool:
    """Return whether two times may be of the same work.

    The same work takes another time at another position or in another step, but the
    times differ by at most a quarter of the longer one.
    """
    return MAX_APART_DIVISOR * abs(a - b) <= max(a, b)


def can_choose_closest_partners(*, shorter_length: int, longer_length: int) -> bool:
    """Return whether `choose_closest_partners` is fast enough for two sequences.

    It is if it takes at most MAX_CLOSEST_CELLS comparisons. Each element of the shorter
    sequence is compared with all partners that it may have.
    """
    candidates_of_each = longer_length - shorter_length + 1
    return shorter_length * candidates_of_each <= MAX_CLOSEST_CELLS


def choose_closest_partners(
    shorter: Sequence[int] | Int64s, longer: Sequence[int] | Int64s
) -> list[int]:
    """Choose a partner in the longer sequence for each element of the shorter one.

    The partners ascend, and the sum of the differences between partners is minimal.

    Args:
        shorter: Numbers, or an array [elements, features] whose differences are summed.
        longer: The same of the other sequence, which is at least as long.

    Returns:
        For each element of the shorter sequence, the position of its partner.

    >>> choose_closest_partners([10, 20], [9, 15, 21])
    [0, 2]
    """
    surplus = len(longer) - len(shorter)
    costs = _compute_differences(
        _make_features(shorter), _make_features(longer), surplus
    )
    return choose_cheapest_partners(costs, surplus)


def _compute_differences(
    shorter: Int64s, longer: Int64s, surplus: int
) -> Iterator[Int64s]:
    """Yield how far each element of the shorter sequence is from its candidates.

    The distance is the sum of the differences of all features.

    Args:
        shorter: Features of the shorter sequence, of shape [elements, features].
        longer: Features of the longer sequence.
        surplus: How many elements more it has. Element n has the candidates n to n +
            `surplus`.
    """
    for index, features in enumerate(shorter):
        candidates = longer[index : index + surplus + 1]
        yield np.abs(candidates - features).sum(axis=1)


def _make_features(elements: Sequence[int] | Int64s) -> Int64s:
    """Return features of shape [elements, features]; a number is one feature."""
    features = np.array(elements, dtype=np.int64)
    return features[:, None] if features.ndim == 1 else features


def choose_cheapest_partners(costs: Iterable[Int64s], surplus: int) -> list[int]:
    """Choose partners in order so that the sum of their costs is minimal.

    This is dynamic programming. The partner of element n of the shorter sequence is one
    of the elements n to n + `surplus` of the longer one. Of solutions that cost the
    same, the earliest positions are chosen.

    Args:
        costs: For each element of the shorter sequence, what each of its `surplus` + 1
            candidates costs.
        surplus: How many elements more the longer sequence has.

    Returns:
        For each element of the shorter sequence, the position of its partner;
        ascending.
    """
    # least_costs[n][s] is the least cost of the elements 0 to n if s elements of the
    # longer sequence are skipped before the partner of element n.
    least_costs: list[Int64s] = []
    cost_before = np.zeros(surplus + 1, dtype=np.int64)
    for costs_of_candidates in costs:
        # At most s elements were skipped before the partner of the previous element.
        cheapest_before = np.minimum.accumulate(cost_before)
        cost_before = cheapest_before + costs_of_candidates
        least_costs.append(cost_before)

    # Trace the choices back from the last element.
    partners: list[int] = []
    skipped = surplus
    for n in reversed(range(len(least_costs))):
        skipped = int(least_costs[n][: skipped + 1].argmin())
        partners.append(n + skipped)
    return partners[::-1]
