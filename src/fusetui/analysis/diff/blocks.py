"""Which repetitions of a block of work (layers, iterations) only one side has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from fusetui.analysis.diff.sequences import Pair, in_order
from fusetui.trace.model.arrays import Int64s, Rows

# so many different blocks are looked for: of the forward pass, the backward pass, ...
KINDS = 8
# of blocks with more pieces to compare than this, only some of them are compared
CELLS = 1 << 24


class LaneWork(msgspec.Struct, frozen=True, eq=False):
    """The work of a lane: its keys and times (ns), and the number of the item of
    each."""

    keys: Int64s
    ns: Int64s
    items: Rows

    def without(self, places: Rows) -> LaneWork:
        return LaneWork(
            *(np.delete(column, places) for column in (self.keys, self.ns, self.items))
        )


class Block(msgspec.Struct, frozen=True):
    """A block of work that occurs `a` times on one side and `b` times on the other;
    `items` are what the side with more (0 for A, 1 for B) has more, in order, and
    `beside` what it launched on other lanes for that."""

    side: int
    a: int
    b: int
    items: tuple[int, ...]
    beside: tuple[int, ...] = ()


def blocks(a: LaneWork, b: LaneWork) -> list[Block]:
    """Blocks that repeat in a row and are not equally many on both sides."""
    found: list[Block] = []
    while len(found) < KINDS:
        one = repeat(a.keys, b.keys)
        side = int(one is None)
        one = one or repeat(b.keys, a.keys)
        if one is None:
            break
        many, few = (b, a) if side else (a, b)
        gone = _surplus(many, few, one)
        times = (len(one.few), len(one.many)) if side else (len(one.many), len(one.few))
        found.append(Block(side, *times, items=tuple(many.items[gone].tolist())))
        a, b = (a, b.without(gone)) if side else (a.without(gone), b)
    return found


def _surplus(many: LaneWork, few: LaneWork, found: Repeat) -> Rows:
    """The places of the blocks without a counterpart: in order, those whose times fit
    the least."""
    chosen = in_order(_costs(many, few, found), found.more)
    left = np.setdiff1d(np.arange(len(found.many)), chosen)
    gone = [_slid(many, few, found, chosen, run) for run in runs(left)]
    return np.unique(np.concatenate([np.arange(first, last) for first, last in gone]))


def _costs(many: LaneWork, few: LaneWork, found: Repeat) -> Iterable[Int64s]:
    """Per block of the few: how far the times of each block that may be its counterpart
    are from its own (ns); a piece of other work costs the time of both."""
    cells = len(found.few) * (found.more + 1) * found.size
    within = np.arange(0, found.size, 1 + cells // CELLS)
    keys_a, times_a = _windows(many, found.many, within)
    keys_b, times_b = _windows(few, found.few, within)
    for n in range(len(found.few)):
        others = slice(n, n + found.more + 1)
        same = keys_a[others] == keys_b[n]
        apart = np.abs(times_a[others] - times_b[n])
        yield np.where(same, apart, times_a[others] + times_b[n]).sum(axis=1)


def _windows(of: LaneWork, starts: Rows, within: Rows) -> tuple[Int64s, Int64s]:
    """Keys and times of shape [blocks, pieces]; what lies beyond the end takes no
    time."""
    places = starts[:, None] + within
    inside = places < len(of.keys)
    places = np.minimum(places, len(of.keys) - 1)
    return np.where(inside, of.keys[places], 0), np.where(inside, of.ns[places], 0)


def runs(numbers: Rows) -> list[tuple[int, int]]:
    """The first and last of numbers that follow each other."""
    parts = (
        np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
        if len(numbers)
        else []
    )
    return [(int(part[0]), int(part[-1])) for part in parts]


def _slid(
    many: LaneWork, few: LaneWork, found: Repeat, chosen: list[int], run: Pair
) -> Pair:
    """The stretch of blocks in a row that have no counterpart, moved by part of a block
    to where the times of what is left fit best: a mark need not be where a block
    begins."""
    first, last = run
    # what follows the last block is other work: begin one before
    if last + 1 == len(found.many):
        first, last = first - 1, last - 1
    begin, end = int(found.many[first]), int(found.many[last + 1])
    place = int(found.few[chosen.index(last + 1) if last + 1 in chosen else -1])
    backward, forward = (
        _gain(many, few, begin, end, place, found.size, way) for way in (-1, 1)
    )
    # of those that fit alike
    earliest = len(backward) - 1 - int(backward[::-1].argmin())
    shift = int(forward.argmin()) if forward.min() < backward.min() else -earliest
    return begin + shift, end + shift


def _gain(
    many: LaneWork, few: LaneWork, begin: int, end: int, place: int, size: int, way: int
) -> Int64s:
    """For a shift of 0, 1, ... pieces: how much less well the times fit (ns, negative:
    better)."""
    n = np.arange(size)
    first = (begin, end, place) if way > 0 else (end - 1, begin - 1, place - 1)
    leaves, enters, partner = (start + way * n for start in first)
    low = np.minimum(np.minimum(leaves, enters), partner)
    same = (
        (low >= 0)
        & (np.maximum(leaves, enters) < len(many.keys))
        & (partner < len(few.keys))
    )
    leaves, enters, partner = (
        np.where(same, places, 0) for places in (leaves, enters, partner)
    )
    same &= (many.keys[leaves] == many.keys[enters]) & (
        many.keys[leaves] == few.keys[partner]
    )
    fits = np.logical_and.accumulate(same)
    own = few.ns[partner[fits]]
    more = np.abs(many.ns[leaves[fits]] - own) - np.abs(many.ns[enters[fits]] - own)
    return np.concatenate([[0], np.cumsum(more)])


DISTINCT = 4  # a block has at least so many different pieces of work
TIMES = 3  # a block repeats so often on the side that has it more often
# sizes of a block that are tried: the most frequent distances between equal pieces
PERIODS = 16
MOST = 0.75  # so much of a block occurs as many times more often as the block itself


class Repeat(msgspec.Struct, frozen=True, eq=False):
    """A block of `size` pieces that one sequence has `more` times more often than
    another.

    `mark` occurs once in each block: `many` are its places in the one, `few` in the
    other.
    """

    size: int
    more: int
    many: Rows
    few: Rows


def repeat(a: Int64s, b: Int64s) -> Repeat | None:
    """What A has more often than B: the block that explains most of A, the smallest of
    equals."""
    found = filter(None, (_more(block, a, b) for block in _blocks(a)))
    return max(found, key=lambda one: one.size * one.more, default=None)


def _blocks(keys: Int64s) -> Iterator[Int64s]:
    """One block of each stretch in which every piece is that `size` places later, the
    smallest first; each only once, whatever it begins with."""
    seen: set[bytes] = set()
    order = np.argsort(keys, kind="stable")
    apart = np.diff(order)[np.diff(keys[order]) == 0]
    sizes, counts = np.unique(apart[apart >= DISTINCT], return_counts=True)
    for size in sorted(sizes[np.argsort(-counts, kind="stable")][:PERIODS].tolist()):
        same = np.concatenate([[False], keys[:-size] == keys[size:], [False]])
        first, last = np.flatnonzero(np.diff(same)).reshape(-1, 2).T
        for start in first[last - first >= (TIMES - 1) * size].tolist():
            block = keys[start : start + size]
            known = np.sort(block).tobytes()
            if known not in seen and len(np.unique(block)) >= DISTINCT:
                seen.add(known)
                yield block


def _more(block: Int64s, a: Int64s, b: Int64s) -> Repeat | None:
    """How much more often A has a block, if most of it says the same."""
    kinds, times = np.unique(block, return_counts=True)
    in_a, in_b = _counts(kinds, a), _counts(kinds, b)
    more, rest = np.divmod(in_a - in_b, times)
    sure = (rest == 0) & (more > 0)
    if times[sure].sum() < MOST * len(block):
        return None
    values, weight = np.unique(np.repeat(more[sure], times[sure]), return_counts=True)
    agreed = int(values[weight.argmax()])
    marks = np.flatnonzero(sure & (more == agreed) & (times == 1) & (in_b > 0))
    if weight.max() < MOST * len(block) or not len(marks):
        return None
    mark = kinds[marks[in_a[marks].argmin()]]
    return Repeat(
        len(block), agreed, np.flatnonzero(a == mark), np.flatnonzero(b == mark)
    )


def _counts(kinds: Int64s, keys: Int64s) -> Int64s:
    ordered = np.sort(keys)
    return np.searchsorted(ordered, kinds, "right") - np.searchsorted(ordered, kinds)
