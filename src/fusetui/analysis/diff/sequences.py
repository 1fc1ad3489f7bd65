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
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s, ordinals

Pair = tuple[int, int]
"""A place in A and a place in B."""

MAX_CELLS = 1 << 28
"""The largest table that is solved exactly: 32 MB of bits."""

MAX_CELLS_UNTRIMMED = 64
"""Tables up to this size are solved without trimming."""

WINDOW = 2048
"""Windows of this size are solved exactly, and their first halves are kept."""

MAX_CUTS = 40
"""Stretches that are still too long after this many successive cuts stay unmatched."""

MAX_CLOSEST_CELLS = 1 << 22
"""Sequences that take more steps to compare are not paired one by one."""

MAX_SHARE_APART = 4
"""Two times are alike if they differ by at most one part in so many of the longer
one."""


class Stretch(NamedTuple):
    """The places [first, last) of both sides that are still to be paired."""

    first_a: int
    last_a: int
    first_b: int
    last_b: int

    @property
    def cells(self) -> int:
        """The size of the table that solves it; 0 when one side is empty."""
        return (self.last_a - self.first_a) * (self.last_b - self.first_b)


class _Task(NamedTuple):
    stretch: Stretch
    cuts: int  # that were made before


def match(a: Int64s, b: Int64s) -> list[Pair]:
    """Positions (i, j) with a[i] == b[j], ascending on both sides."""
    pairs: list[Pair] = []
    whole = Stretch(first_a=0, last_a=len(a), first_b=0, last_b=len(b))
    tasks = [_Task(stretch=whole, cuts=0)]
    while tasks:
        stretch, cuts = tasks.pop()
        if stretch.cells > MAX_CELLS_UNTRIMMED:
            trimmed = _trim(a, b, stretch)
            stretch = trimmed.stretch
            pairs += trimmed.pairs
        if not stretch.cells:
            continue
        own = a[stretch.first_a : stretch.last_a]
        other = b[stretch.first_b : stretch.last_b]
        if stretch.cells <= MAX_CELLS:
            pairs += _shifted(exact(own.tolist(), other.tolist()), stretch)
        elif cuts < MAX_CUTS:
            anchors = _shifted(_anchors(own, other), stretch)
            pairs += anchors
            if anchors:
                for gap in gaps(anchors, stretch):
                    if gap.cells:
                        tasks.append(_Task(stretch=gap, cuts=cuts + 1))
    return sorted(pairs)


def _shifted(pairs: Iterable[Pair], stretch: Stretch) -> list[Pair]:
    """Pairs of a stretch as places of the whole sequences."""
    return [(i + stretch.first_a, j + stretch.first_b) for i, j in pairs]


def _anchors(a: Int64s, b: Int64s) -> list[Pair]:
    """Pairs of numbers that are unique on both sides, else of as many others as can be
    found."""
    unique = _ascending(_unique(a), _unique(b))
    if unique:
        return unique
    by_windows = _slide(a, b)
    by_occurrence = _ascending(_nth(a), _nth(b))
    return max(by_windows, by_occurrence, key=len)


def occurrences(values: Int64s, sequence: Int64s) -> Int64s:
    """How often each of the values occurs in a sequence; shape [values]."""
    ordered = np.sort(sequence)
    after_last = np.searchsorted(ordered, values, "right")
    return after_last - np.searchsorted(ordered, values)


def gaps(pairs: Iterable[Pair], stretch: Stretch) -> Iterator[Stretch]:
    """What lies between ascending pairs of a stretch, empty stretches included."""
    first_a, first_b = stretch.first_a, stretch.first_b
    for i, j in pairs:
        yield Stretch(first_a=first_a, last_a=i, first_b=first_b, last_b=j)
        first_a, first_b = i + 1, j + 1
    yield Stretch(
        first_a=first_a,
        last_a=stretch.last_a,
        first_b=first_b,
        last_b=stretch.last_b,
    )


def exact(a: list[int], b: list[int]) -> list[Pair]:
    """One longest common subsequence, in time len(a) * len(b) / 64."""
    return _traced(_table(a, b), len(a), len(b))


def _traced(rows: list[int], size_a: int, size_b: int) -> list[Pair]:
    """The pairs of one longest common subsequence of a[:size_a] and b[:size_b], from
    their table."""
    pairs: list[Pair] = []
    i, j = size_a, size_b
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
    """Bit j of row i is 0 where one more of b (j + 1 instead of j) lengthens the LCS
    with a[: i + 1]."""
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
    """A stretch without what both sides begin and end with, and the pairs of that."""

    stretch: Stretch
    pairs: list[Pair]


def _trim(a: Int64s, b: Int64s, stretch: Stretch) -> _Trimmed:
    first_a, last_a, first_b, last_b = stretch
    size = min(last_a - first_a, last_b - first_b)
    is_equal = a[first_a : first_a + size] == b[first_b : first_b + size]
    head = _length_of_run(is_equal)
    size -= head
    is_equal = a[last_a - size : last_a] == b[last_b - size : last_b]
    tail = _length_of_run(is_equal[::-1])
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
    """How many are true at the beginning."""
    return int(np.argmin(np.append(flags, False)))


def _slide(a: Int64s, b: Int64s) -> list[Pair]:
    """Pairs from windows that move along both; what occurs on one side only is
    skipped."""
    places_a = np.flatnonzero(np.isin(a, b)).tolist()
    places_b = np.flatnonzero(np.isin(b, a)).tolist()
    shared_a, shared_b = a[places_a].tolist(), b[places_b].tolist()
    pairs: list[Pair] = []
    i = j = 0
    while i < len(places_a) and j < len(places_b):
        window_a = shared_a[i : i + WINDOW]
        window_b = shared_b[j : j + WINDOW]
        is_last = i + WINDOW >= len(places_a) and j + WINDOW >= len(places_b)
        if is_last:
            of_window = exact(window_a, window_b)
        else:
            of_window = [
                pair
                for pair in _open_ended(window_a, window_b)
                if max(pair) < WINDOW // 2
            ]
        pairs += [(places_a[i + x], places_b[j + y]) for x, y in of_window]
        last_x, last_y = of_window[-1] if of_window else (0, 0)
        skipped = max(1, WINDOW // 4 - max(last_x, last_y))
        i += last_x + skipped
        j += last_y + skipped
    return pairs


class _End(NamedTuple):
    """Where an alignment of a[:size_a] and b[:size_b] ends; the first is the best."""

    skipped: int  # elements of both
    before_end: int  # minus how far it reaches on the side that it does not exhaust
    size_a: int
    size_b: int


def _open_ended(a: list[int], b: list[int]) -> list[Pair]:
    """The alignment that reaches the end of a or of b and skips the fewest elements.

    The longest one would skip elements of both windows, because they are equally long.
    It is used only where the two have so little in common that the other would be
    almost empty.
    """
    rows = _table(a, b)
    ends = []
    lengthens = (1 - (rows[-1] >> j & 1) for j in range(len(b)))
    for j, matched in enumerate(accumulate(lengthens), 1):
        skipped = len(a) + j - 2 * matched
        ends.append(_End(skipped, before_end=-j, size_a=len(a), size_b=j))
    for i, row in enumerate(rows, 1):
        skipped = i - len(b) + 2 * row.bit_count()
        ends.append(_End(skipped, before_end=-i, size_a=i, size_b=len(b)))
    best = min(ends)
    pairs = _traced(rows, best.size_a, best.size_b)
    if 2 * len(pairs) > len(a):
        return pairs
    return _traced(rows, len(a), len(b))


def _unique(numbers: Int64s) -> dict[Hashable, int]:
    """The places of numbers that occur once."""
    values, first, count = np.unique(numbers, return_index=True, return_counts=True)
    is_unique = count == 1
    places = zip(values[is_unique].tolist(), first[is_unique].tolist(), strict=True)
    return dict(places)


def _nth(numbers: Int64s) -> dict[Hashable, int]:
    """(number, how often it occurred before) -> place."""
    keys = zip(numbers.tolist(), ordinals(numbers).tolist(), strict=True)
    return {key: place for place, key in enumerate(keys)}


def _ascending(
    places_a: Mapping[Hashable, int], places_b: Mapping[Hashable, int]
) -> list[Pair]:
    """Of the places of what both have, the longest subsequence that ascends in both; n
    log n."""
    pairs = sorted(
        (place, places_b[key]) for key, place in places_a.items() if key in places_b
    )
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
    """Whether two times may be of the same work at another place or in another step."""
    return MAX_SHARE_APART * abs(a - b) <= max(a, b)


def is_feasible(few: int, many: int) -> bool:
    """Whether `closest` is worth its time, which grows with the one and with the
    difference."""
    return few * (many - few + 1) <= MAX_CLOSEST_CELLS


def closest(few: Sequence[int] | Int64s, many: Sequence[int] | Int64s) -> list[int]:
    """For each of the few, in order, one of the many: the sum of the differences is
    minimal. Numbers, or arrays of shape [things, features], whose differences add
    up."""
    of_few, of_many = _features(few), _features(many)
    spare = len(many) - len(few)
    costs = (
        np.abs(of_many[n : n + spare + 1] - values).sum(axis=1)
        for n, values in enumerate(of_few)
    )
    return in_order(costs, spare)


def _features(things: Sequence[int] | Int64s) -> Int64s:
    """A number is a thing of one feature."""
    features = np.array(things, dtype=np.int64)
    return features[:, None] if features.ndim == 1 else features


def in_order(costs: Iterable[Int64s], spare: int) -> list[int]:
    """The same by cost: `costs` has for each of the few what it costs to pair it with
    each of the `spare` + 1 of the many that may be its partner."""
    # the least cost of the first n of the few, by how many of the many are skipped
    best = [np.zeros(spare + 1, dtype=np.int64)]
    for row in costs:
        best.append(np.minimum.accumulate(best[-1]) + row)
    partners: list[int] = []
    skipped = spare
    for n in range(len(best) - 1, 0, -1):
        skipped = int(best[n][: skipped + 1].argmin())
        partners.append(n - 1 + skipped)
    return partners[::-1]
