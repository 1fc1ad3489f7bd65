"""Pairs two sequences of numbers, in order: the equal ones, or the nearest ones.

The longest common subsequence takes nearly linear time. Short stretches are solved
exactly, bit-parallel (H. Hyyrö, Bit-parallel LCS-length computation revisited, 2004):
each row of the table is one Python integer. Longer ones are first cut at anchors:
numbers that occur once on both sides (the patience diff), else pairs found by windows
that slide along both, or the n-th occurrences of a number on both sides, whichever are
more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s, ordinals

Pair = tuple[int, int]
"""A place in A and a place in B."""

MAX_CELLS = 1 << 28
"""Of the largest table that is solved exactly: 32 MB of bits."""

MAX_CELLS_UNTRIMMED = 64
"""Tables up to this size are solved without trimming."""

WINDOW = 2048
"""So many numbers of each side are solved exactly at a time; of the pairs, those in the
first halves are kept."""

MAX_CUTS = 40
"""Stretches that are still too long after this many successive cuts stay unmatched."""

MAX_CLOSEST_CELLS = 1 << 22
"""Sequences that take more comparisons are not paired by `closest`."""

MAX_APART_DIVISOR = 4
"""Two times are alike if they differ by at most one part in so many of the longer
one."""


class Stretch(NamedTuple):
    """The places of both sides that are still to be paired: those from `first_*` up to,
    but without, `last_*`."""

    first_a: int
    last_a: int
    first_b: int
    last_b: int

    @property
    def cells(self) -> int:
        """The size of the table that solves it; 0 when one side is empty."""
        return (self.last_a - self.first_a) * (self.last_b - self.first_b)


class _Task(NamedTuple):
    """A stretch that `match` has yet to pair."""

    stretch: Stretch
    cuts: int  # that were made before


def match(a: Int64s, b: Int64s) -> list[Pair]:
    """Pairs (i, j) with a[i] == b[j], ascending on both sides: a longest common
    subsequence where the table of what remains after trimming is small enough
    (MAX_CELLS), else a long one."""
    pairs: list[Pair] = []
    whole = Stretch(first_a=0, last_a=len(a), first_b=0, last_b=len(b))
    tasks = [_Task(stretch=whole, cuts=0)]
    while tasks:
        task = tasks.pop()
        stretch = task.stretch
        if stretch.cells > MAX_CELLS_UNTRIMMED:
            trimmed = _trim(a, b, stretch)
            stretch = trimmed.stretch
            pairs += trimmed.pairs
        if not stretch.cells:
            continue
        of_a = a[stretch.first_a : stretch.last_a]
        of_b = b[stretch.first_b : stretch.last_b]
        if stretch.cells <= MAX_CELLS:
            common = longest_common(of_a.tolist(), of_b.tolist())
            pairs += _shifted(common, stretch)
        elif task.cuts < MAX_CUTS:
            anchors = _shifted(_anchors(of_a, of_b), stretch)
            pairs += anchors
            tasks += _tasks_between(anchors, stretch, task.cuts + 1)
    return sorted(pairs)


def _tasks_between(anchors: list[Pair], stretch: Stretch, cuts: int) -> list[_Task]:
    """What is to be paired between these anchors of a stretch, after so many cuts;
    nothing without anchors."""
    if not anchors:
        return []
    tasks = []
    for gap in gaps(anchors, stretch):
        if gap.cells:
            tasks.append(_Task(stretch=gap, cuts=cuts))
    return tasks


def _shifted(pairs: Iterable[Pair], stretch: Stretch) -> list[Pair]:
    """Pairs of a stretch as places of the whole sequences."""
    return [(i + stretch.first_a, j + stretch.first_b) for i, j in pairs]


def _anchors(a: Int64s, b: Int64s) -> list[Pair]:
    """Pairs of equal numbers, ascending on both sides, between which the rest is
    paired: of numbers that occur once on both sides or, if there are none, by sliding
    windows or by occurrence, whichever gives more."""
    unique = _longest_ascending(_unique(a), _unique(b))
    if unique:
        return unique
    by_windows = _slide(a, b)
    by_occurrence = _longest_ascending(_nth(a), _nth(b))
    return max(by_windows, by_occurrence, key=len)


def occurrences(values: Int64s, sequence: Int64s) -> Int64s:
    """How often each of the values occurs in a sequence; shape [values]."""
    ordered = np.sort(sequence)
    after_last = np.searchsorted(ordered, values, "right")
    return after_last - np.searchsorted(ordered, values)


def gaps(pairs: Iterable[Pair], stretch: Stretch) -> Iterator[Stretch]:
    """The stretches before, between and after ascending pairs within a stretch: one
    more than there are pairs, some of them empty."""
    first_a = stretch.first_a
    first_b = stretch.first_b
    for i, j in pairs:
        yield Stretch(first_a=first_a, last_a=i, first_b=first_b, last_b=j)
        first_a = i + 1
        first_b = j + 1
    yield Stretch(
        first_a=first_a,
        last_a=stretch.last_a,
        first_b=first_b,
        last_b=stretch.last_b,
    )


def longest_common(a: list[int], b: list[int]) -> list[Pair]:
    """The pairs (i, j), a[i] == b[j], of one longest common subsequence; in time len(a)
    * len(b) / 64.

    >>> longest_common([1, 2, 3], [2, 3, 1])
    [(1, 0), (2, 1)]
    """
    return _traced(_table(a, b), len(a), len(b))


def _traced(rows: list[int], size_a: int, size_b: int) -> list[Pair]:
    """The pairs of one longest common subsequence of a[:size_a] and b[:size_b], traced
    back from its end through the rows of `_table(a, b)`."""
    pairs: list[Pair] = []
    i = size_a
    j = size_b
    while i and j:
        if rows[i - 1] >> (j - 1) & 1:
            j -= 1
            continue
        i -= 1
        if not i or rows[i - 1] >> (j - 1) & 1:
            j -= 1
            pairs.append((i, j))
    return pairs[::-1]


def _table(a: list[int], b: list[int]) -> list[int]:
    """The rows of the table of longest common subsequences, each a number of len(b)
    bits: bit j of row i is 0 where that of a[: i + 1] and b[: j + 1] is longer than
    that of a[: i + 1] and b[:j]. (Hyyrö, see above.)"""
    places: dict[int, int] = {}
    for j, number in enumerate(b):
        places[number] = places.get(number, 0) | 1 << j
    full = (1 << len(b)) - 1
    row = full
    rows: list[int] = []
    for number in a:
        hits = row & places.get(number, 0)
        row = ((row + hits) | (row - hits)) & full
        rows.append(row)
    return rows


class _Trimmed(NamedTuple):
    """A stretch without what both sides begin and end with."""

    stretch: Stretch
    pairs: list[Pair]  # of what was cut off


def _trim(a: Int64s, b: Int64s, stretch: Stretch) -> _Trimmed:
    """Pairs the equal numbers with which both sides of a stretch begin, then those with
    which they end."""
    of_a = a[stretch.first_a : stretch.last_a]
    of_b = b[stretch.first_b : stretch.last_b]
    size = min(len(of_a), len(of_b))
    head = _length_of_run(of_a[:size] == of_b[:size])
    size_left = size - head
    # backward from the end
    tail = _length_of_run(
        of_a[::-1][:size_left] == of_b[::-1][:size_left],
    )
    first_a, last_a, first_b, last_b = stretch
    pairs = [(first_a + n, first_b + n) for n in range(head)]
    pairs += [(last_a - n, last_b - n) for n in range(tail, 0, -1)]
    rest = Stretch(
        first_a=first_a + head,
        last_a=last_a - tail,
        first_b=first_b + head,
        last_b=last_b - tail,
    )
    return _Trimmed(stretch=rest, pairs=pairs)


def _length_of_run(flags: Flags) -> int:
    """How many flags at the beginning are true."""
    return int(np.argmin(np.append(flags, False)))


def _slide(a: Int64s, b: Int64s) -> list[Pair]:
    """Pairs of equal numbers, ascending on both sides, from windows that move along
    both. What occurs on one side only is left out before."""
    places_a = np.flatnonzero(np.isin(a, b)).tolist()
    places_b = np.flatnonzero(np.isin(b, a)).tolist()
    pairs = _slide_over(a[places_a].tolist(), b[places_b].tolist())
    return [(places_a[i], places_b[j]) for i, j in pairs]


def _slide_over(a: list[int], b: list[int]) -> list[Pair]:
    """As `_slide`, of two sequences as they are.

    The windows move past the last pair that was kept, and at least WINDOW / 4 places on
    one of the sides.
    """
    pairs: list[Pair] = []
    i = 0
    j = 0
    while i < len(a) and j < len(b):
        window_a = a[i : i + WINDOW]
        window_b = b[j : j + WINDOW]
        is_last = i + WINDOW >= len(a) and j + WINDOW >= len(b)
        of_window = _pairs_of_window(window_a, window_b, is_last=is_last)
        pairs += [(i + x, j + y) for x, y in of_window]
        last_x, last_y = of_window[-1] if of_window else (0, 0)
        skipped = max(1, WINDOW // 4 - max(last_x, last_y))
        i += last_x + skipped
        j += last_y + skipped
    return pairs


def _pairs_of_window(a: list[int], b: list[int], *, is_last: bool) -> list[Pair]:
    """The pairs of equal numbers of two windows that are kept, as places in them: of
    the last windows all, of others those in the first halves."""
    if is_last:
        return longest_common(a, b)
    return [pair for pair in _open_ended(a, b) if max(pair) < WINDOW // 2]


class _End(NamedTuple):
    """Where an alignment may end that reaches the end of one of two windows: it is that
    of a[:size_a] and b[:size_b]."""

    skipped: int  # elements of both that are in no pair
    reach: int  # how much of the window it aligns whose end it need not reach
    size_a: int
    size_b: int


def _open_ended(a: list[int], b: list[int]) -> list[Pair]:
    """The pairs of the alignment that reaches the end of `a` or of `b` and skips the
    fewest elements; of equals the one that reaches farthest on the other side.

    A longest common subsequence of both would skip elements at the ends of both
    windows, because they are equally long. It is returned only where the two windows
    have so little in common that the other alignment pairs at most half of `a`.
    """
    rows = _table(a, b)
    best = min(
        _ends(rows, len(a), len(b)),
        key=lambda end: (end.skipped, -end.reach, end.size_a, end.size_b),
    )
    pairs = _traced(rows, best.size_a, best.size_b)
    if 2 * len(pairs) > len(a):
        return pairs
    return _traced(rows, len(a), len(b))


def _ends(rows: list[int], len_a: int, len_b: int) -> Iterator[_End]:
    """Where an alignment of two windows may end: first at the end of `a`, then at the
    end of `b`. `rows`: of `_table`; `len_a`, `len_b`: how long the windows are."""
    pairs_so_far = 0
    for j in range(len_b):
        # bit j of the last row is 0 where the pairs with a become one more at b[j]
        pairs_so_far += 1 - (rows[-1] >> j & 1)
        size_b = j + 1
        skipped = len_a + size_b - 2 * pairs_so_far
        yield _End(skipped, reach=size_b, size_a=len_a, size_b=size_b)
    for size_a, row in enumerate(rows, 1):
        pairs_of_row = len_b - row.bit_count()
        skipped = size_a + len_b - 2 * pairs_of_row
        yield _End(skipped, reach=size_a, size_a=size_a, size_b=len_b)


def _unique(numbers: Int64s) -> dict[Hashable, int]:
    """{number: its place}, of the numbers that occur once."""
    values, first, count = np.unique(numbers, return_index=True, return_counts=True)
    is_unique = count == 1
    places = zip(values[is_unique].tolist(), first[is_unique].tolist(), strict=True)
    return dict(places)


def _nth(numbers: Int64s) -> dict[Hashable, int]:
    """{(number, how often it occurred before): its place}."""
    keys = zip(numbers.tolist(), ordinals(numbers).tolist(), strict=True)
    return {key: place for place, key in enumerate(keys)}


def _longest_ascending(
    places_a: Mapping[Hashable, int], places_b: Mapping[Hashable, int]
) -> list[Pair]:
    """The places in A and in B of the keys that both have: the most of them that ascend
    on both sides, in time n log n (a longest increasing subsequence, by patience
    sorting)."""
    pairs = []
    for key, place in places_a.items():
        if key in places_b:
            pairs.append((place, places_b[key]))
    pairs.sort()
    # of the chains of each length, the one that ends first in B
    ends_in_b: list[int] = []
    last_of_chain: list[int] = []
    before: list[int] = []  # for each pair the one before it in its chain, -1 for none
    for number, (_, j) in enumerate(pairs):
        length = bisect_left(ends_in_b, j)
        before.append(last_of_chain[length - 1] if length else -1)
        if length == len(ends_in_b):
            ends_in_b.append(j)
            last_of_chain.append(number)
        else:
            ends_in_b[length] = j
            last_of_chain[length] = number
    number = last_of_chain[-1] if last_of_chain else -1
    chain: list[Pair] = []
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]


def is_like(a: float, b: float) -> bool:
    """Whether two times may be of the same work at another place or in another step:
    they differ by at most a quarter of the longer one."""
    return MAX_APART_DIVISOR * abs(a - b) <= max(a, b)


def is_feasible(few: int, many: int) -> bool:
    """Whether `closest` takes no more than MAX_CLOSEST_CELLS comparisons for so many
    things: each of the few with all that may be its partner."""
    return few * (many - few + 1) <= MAX_CLOSEST_CELLS


def closest(few: Sequence[int] | Int64s, many: Sequence[int] | Int64s) -> list[int]:
    """For each of the few, in order, the place of its partner among the many: these
    ascend, and the sum of the differences of partners is minimal. Things are numbers or
    rows of an array [things, features], whose differences are summed.

    >>> closest([10, 20], [9, 15, 21])
    [0, 2]
    """
    spare = len(many) - len(few)
    costs = _differences(_features(few), _features(many), spare)
    return in_order(costs, spare)


def _differences(of_few: Int64s, of_many: Int64s, spare: int) -> Iterator[Int64s]:
    """For each of the few how far the `spare` + 1 of the many are from it that may be
    its partner. Arguments: features, of shape [things, features]."""
    for n, features in enumerate(of_few):
        candidates = of_many[n : n + spare + 1]
        yield np.abs(candidates - features).sum(axis=1)


def _features(things: Sequence[int] | Int64s) -> Int64s:
    """The features of things, shape [things, features]; a number is its only
    feature."""
    features = np.array(things, dtype=np.int64)
    return features[:, None] if features.ndim == 1 else features


def in_order(costs: Iterable[Int64s], spare: int) -> list[int]:
    """For each of the few, in order, the place of its partner among the many: these
    ascend, and the sum of the costs is minimal; of equals the earliest places.

    The many are `spare` more than the few, so that the partner of number n is one of n
    to n + `spare`. `costs` has an array of shape [spare + 1] for each of the few: what
    each of these would cost.
    """
    # best[n][s]: the least cost of the first n of the few, where s of the many are
    # skipped before the partner of the last of these
    best = [np.zeros(spare + 1, dtype=np.int64)]
    for row in costs:
        best.append(np.minimum.accumulate(best[-1]) + row)
    partners: list[int] = []
    skipped = spare
    for n in range(len(best) - 1, 0, -1):
        skipped = int(best[n][: skipped + 1].argmin())
        partners.append(n - 1 + skipped)
    return partners[::-1]
