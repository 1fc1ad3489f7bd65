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
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s, ordinals

Pair = tuple[int, int]
Stretch = tuple[int, int, int, int]  # a's [first, last), b's [first, last)
MAX_CELLS = 1 << 28  # the largest table that is solved exactly: 32 MB of bits
SMALL = 64  # tables up to this size are solved without trimming
# windows of this size are solved exactly, and their first halves are kept
WINDOW = 2048
# stretches that are still too long after this many successive cuts stay unmatched
MAX_CUTS = 40


def match(a: Int64s, b: Int64s) -> list[Pair]:
    """Positions (i, j) with a[i] == b[j], ascending on both sides."""
    pairs: list[Pair] = []
    todo: list[tuple[Stretch, int]] = [((0, len(a), 0, len(b)), 0)]
    while todo:
        stretch, cuts = todo.pop()
        if _cells(stretch) > SMALL:
            stretch, ends = _trim(a, b, stretch)
            pairs += ends
        first_a, last_a, first_b, last_b = stretch
        own, other = a[first_a:last_a], b[first_b:last_b]
        if 0 < _cells(stretch) <= MAX_CELLS:
            found = exact(own.tolist(), other.tolist())
            pairs += [(i + first_a, j + first_b) for i, j in found]
        elif cuts < MAX_CUTS and _cells(stretch):
            # of numbers that are unique on both sides, else of n-th occurrences
            found = _ascending(_unique(own), _unique(other))
            found = found or max(
                _slide(own, other), _ascending(_nth(own), _nth(other)), key=len
            )
            anchors = [(i + first_a, j + first_b) for i, j in found]
            pairs += anchors
            inner = (
                [gap for gap in gaps(anchors, stretch) if _cells(gap)]
                if anchors
                else []
            )
            todo += [(gap, cuts + 1) for gap in inner]
    return sorted(pairs)


def occurrences(values: Int64s, sequence: Int64s) -> Int64s:
    """How often each of the values occurs in a sequence; shape [values]."""
    ordered = np.sort(sequence)
    after_last = np.searchsorted(ordered, values, "right")
    return after_last - np.searchsorted(ordered, values)


def _cells(stretch: Stretch) -> int:
    """The size of the table that solves a stretch; 0 when one side is empty."""
    first_a, last_a, first_b, last_b = stretch
    return (last_a - first_a) * (last_b - first_b)


def gaps(pairs: list[Pair], stretch: Stretch) -> Iterator[Stretch]:
    """What lies between ascending pairs, empty stretches included."""
    first_a, last_a, first_b, last_b = stretch
    for i, j in pairs:
        yield first_a, i, first_b, j
        first_a, first_b = i + 1, j + 1
    yield first_a, last_a, first_b, last_b


def exact(a: list[int], b: list[int]) -> list[Pair]:
    """One longest common subsequence, in time len(a) * len(b) / 64."""
    return _traced(_table(a, b), len(a), len(b))


def _traced(rows: list[int], i: int, j: int) -> list[Pair]:
    """The pairs of one longest common subsequence of a[:i] and b[:j], from their
    table."""
    pairs: list[Pair] = []
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
    with a[:i]."""
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


def _trim(a: Int64s, b: Int64s, stretch: Stretch) -> tuple[Stretch, list[Pair]]:
    """Pairs the elements that both begin and end with."""
    first_a, last_a, first_b, last_b = stretch
    size = min(last_a - first_a, last_b - first_b)
    head = _equal_run(a[first_a : first_a + size] == b[first_b : first_b + size])
    size -= head
    tail = _equal_run((a[last_a - size : last_a] == b[last_b - size : last_b])[::-1])
    pairs = [(first_a + n, first_b + n) for n in range(head)]
    pairs += [(last_a - n, last_b - n) for n in range(tail, 0, -1)]
    return (first_a + head, last_a - tail, first_b + head, last_b - tail), pairs


def _equal_run(equal: Flags) -> int:
    return int(np.argmin(np.append(equal, False)))


def _slide(a: Int64s, b: Int64s) -> list[Pair]:
    """Pairs from windows that move along both; what occurs on one side only is
    skipped."""
    in_a, in_b = (
        np.flatnonzero(np.isin(a, b)).tolist(),
        np.flatnonzero(np.isin(b, a)).tolist(),
    )
    shared_a, shared_b = a[in_a].tolist(), b[in_b].tolist()
    pairs: list[Pair] = []
    i = j = 0
    while i < len(in_a) and j < len(in_b):
        window = shared_a[i : i + WINDOW], shared_b[j : j + WINDOW]
        if i + WINDOW < len(in_a) or j + WINDOW < len(in_b):
            found = [(x, y) for x, y in _open_ended(*window) if max(x, y) < WINDOW // 2]
        else:
            found = exact(*window)
        pairs += [(in_a[i + x], in_b[j + y]) for x, y in found]
        x, y = found[-1] if found else (0, 0)
        skipped = max(1, WINDOW // 4 - max(x, y))
        i, j = i + x + skipped, j + y + skipped
    return pairs


def _open_ended(a: list[int], b: list[int]) -> list[Pair]:
    """The alignment that reaches the end of a or of b and skips the fewest elements.

    The longest one would skip elements of both windows, because they are equally long.
    It is used only where the two have so little in common that the other would be
    almost empty.
    """
    rows = _table(a, b)
    matched = accumulate(1 - (rows[-1] >> j & 1) for j in range(len(b)))
    ends = [(len(a) + j - 2 * n, -j, len(a), j) for j, n in enumerate(matched, 1)]
    ends += [
        (i - len(b) + 2 * row.bit_count(), -i, i, len(b))
        for i, row in enumerate(rows, 1)
    ]
    found = _traced(rows, *min(ends)[2:])
    return found if 2 * len(found) > len(a) else _traced(rows, len(a), len(b))


def _unique(numbers: Int64s) -> dict[object, int]:
    values, first, count = np.unique(numbers, return_index=True, return_counts=True)
    return dict(np.stack([values, first])[:, count == 1].T.tolist())


def _nth(numbers: Int64s) -> dict[object, int]:
    """(number, how often it occurred before) -> position."""
    keys = zip(numbers.tolist(), ordinals(numbers).tolist(), strict=True)
    return {key: place for place, key in enumerate(keys)}


def _ascending(a: dict[object, int], b: dict[object, int]) -> list[Pair]:
    """Of the places of what both have, the longest subsequence that ascends in both; n
    log n."""
    pairs = sorted((place, b[key]) for key, place in a.items() if key in b)
    tops: list[int] = []
    top_index: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(pairs):
        length = bisect_left(tops, j)
        before.append(top_index[length - 1] if length else -1)
        if length == len(tops):
            tops.append(j)
            top_index.append(index)
        else:
            tops[length], top_index[length] = j, index
    index = top_index[-1] if top_index else -1
    chain: list[Pair] = []
    while index >= 0:
        chain.append(pairs[index])
        index = before[index]
    return chain[::-1]


CELLS = 1 << 22  # sequences that take more steps to compare are not paired one by one
LIKE = 4  # two times are alike if they differ by at most one LIKE-th of the longer one


def is_like(a: float, b: float) -> bool:
    """Whether two times may be of the same work at another place or in another step."""
    return LIKE * abs(a - b) <= max(a, b)


def is_feasible(few: int, many: int) -> bool:
    """Whether `closest` is worth its time, which grows with the one and with the
    difference."""
    return few * (many - few + 1) <= CELLS


def closest(few: Sequence[int] | Int64s, many: Sequence[int] | Int64s) -> list[int]:
    """For each of the few, in order, one of the many: the sum of the differences is
    minimal. Numbers, or arrays of shape [things, features], whose differences add
    up."""
    of_few = np.array(few, dtype=np.int64).reshape(len(few), -1)
    of_many = np.array(many, dtype=np.int64).reshape(len(many), -1)
    spare = len(many) - len(few)
    costs = (
        np.abs(of_many[n : n + spare + 1] - values).sum(axis=1)
        for n, values in enumerate(of_few)
    )
    return in_order(costs, spare)


def in_order(costs: Iterable[Int64s], spare: int) -> list[int]:
    """The same by cost: `costs` has for each of the few what it costs to pair it with
    each of the `spare` + 1 of the many that may be its partner."""
    best = [np.zeros(spare + 1, dtype=np.int64)]
    for row in costs:
        best.append(np.minimum.accumulate(best[-1]) + row)
    chosen: list[int] = []
    skip = spare
    for n in range(len(best) - 1, 0, -1):
        skip = int(best[n][: skip + 1].argmin())
        chosen.append(n - 1 + skip)
    return chosen[::-1]
