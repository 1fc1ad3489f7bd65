"""Which repetitions of a block of work (layers, iterations) only one side has."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from fusetui.analysis.diff.sequences import in_order, occurrences
from fusetui.trace.model.arrays import Flags, Int64s, Rows

MAX_BLOCKS = 8
"""So many different blocks are looked for in a lane: that of the forward pass, that of
the backward pass and others."""

MAX_COMPARED_CELLS = 1 << 24
"""Blocks are compared by all of their pieces if that takes no more comparisons; else by
every second piece, or every third, and so on."""

MIN_DISTINCT_PIECES = 4  # that a block consists of
MIN_REPETITIONS = 3  # of a block, on the side that has it more often
MAX_BLOCK_SIZES = 16
"""So many sizes of a block are tried: the most frequent distances between equal
pieces."""

MIN_AGREEING_SHARE = 0.75
"""So much of a block occurs as many times more often as the block itself."""


class LaneWork(msgspec.Struct, frozen=True, eq=False):
    """The work of a lane, in order: arrays of shape [pieces]."""

    keys: Int64s  # equal for what may be the same work
    features: Int64s  # of its times, shape [pieces, features]: see WorkItems.features
    items: Rows  # the number of the item of each piece

    def without(self, places: Rows) -> LaneWork:
        """All pieces but those at these places."""
        return LaneWork(
            keys=np.delete(self.keys, places),
            features=np.delete(self.features, places, axis=0),
            items=np.delete(self.items, places),
        )


class Block(msgspec.Struct, frozen=True):
    """A block of work that occurs more often on one side than on the other."""

    side: int  # the one that has it more often: 0 for A, 1 for B
    a: int  # how often it occurs in A
    b: int
    items: tuple[int, ...]  # what that side has more of, ascending
    items_on_other_lanes: tuple[
        int, ...
    ] = ()  # what it launched for that on other lanes


class Repeat(msgspec.Struct, frozen=True, eq=False):
    """A block that one sequence, the many, has more often than another, the few. The
    blocks are where their mark is: a piece that occurs once in each."""

    size: int  # pieces of a block
    more: int  # how many blocks more the many have
    many: Rows  # the places of the mark in the many
    few: Rows  # and in the few


def blocks(a: LaneWork, b: LaneWork) -> list[Block]:
    """The blocks that repeat in a row and are not equally many in two lanes, A's before
    B's. The surplus of each is left out of the lane before the next one is searched."""
    unequal: list[Block] = []
    while len(unequal) < MAX_BLOCKS:
        repeat_of_a = repeat(a.keys, b.keys)
        if repeat_of_a is not None:
            surplus = _surplus(a, b, repeat_of_a)
            block_of_a = Block(
                side=0,
                a=len(repeat_of_a.many),
                b=len(repeat_of_a.few),
                items=tuple(a.items[surplus].tolist()),
            )
            unequal.append(block_of_a)
            a = a.without(surplus)
            continue
        repeat_of_b = repeat(b.keys, a.keys)
        if repeat_of_b is None:
            break
        surplus = _surplus(b, a, repeat_of_b)
        block_of_b = Block(
            side=1,
            a=len(repeat_of_b.few),
            b=len(repeat_of_b.many),
            items=tuple(b.items[surplus].tolist()),
        )
        unequal.append(block_of_b)
        b = b.without(surplus)
    return unequal


def _surplus(many: LaneWork, few: LaneWork, repeated: Repeat) -> Rows:
    """The places, ascending, of the pieces of the blocks that the many have more: those
    that remain when each block of the few is paired, in order, with the one whose times
    fit it best."""
    # the numbers of the blocks of the many, one for each block of the few
    with_counterpart = in_order(_costs(many, few, repeated), repeated.more)
    surplus_blocks = np.setdiff1d(np.arange(len(repeated.many)), with_counterpart)
    places = []
    for run in runs(surplus_blocks):
        begin, end = _best_fitting(many, few, repeated, with_counterpart, run)
        places.append(np.arange(begin, end))
    return np.unique(np.concatenate(places))


def _costs(many: LaneWork, few: LaneWork, repeated: Repeat) -> Iterator[Int64s]:
    """For each block of the few, what each of the `more` + 1 blocks of the many that
    may be its counterpart costs, in order: the sum of the differences of their times
    (`features`). A piece of other work costs the times of both."""
    compared_pieces = _compared_pieces(repeated, features=many.features.shape[1])
    of_many = _windows(many, repeated.many, compared_pieces)
    of_few = _windows(few, repeated.few, compared_pieces)
    for block in range(len(repeated.few)):
        candidates = slice(block, block + repeated.more + 1)
        is_same_work = of_many.keys[candidates] == of_few.keys[block]
        of_candidates = of_many.features[candidates]
        of_block = of_few.features[block]
        differences = np.abs(of_candidates - of_block).sum(axis=2)
        sums = (of_candidates + of_block).sum(axis=2)
        costs_of_pieces = np.where(is_same_work, differences, sums)
        yield costs_of_pieces.sum(axis=1)


def _compared_pieces(repeated: Repeat, *, features: int) -> Rows:
    """The places in a block of the pieces by which blocks are compared: all, or every
    second and so on, so that it takes at most MAX_COMPARED_CELLS comparisons of
    features."""
    candidates = repeated.more + 1
    cells = len(repeated.few) * candidates * repeated.size * features
    every_nth = 1 + cells // MAX_COMPARED_CELLS
    return np.arange(0, repeated.size, every_nth)


class _Windows(msgspec.Struct, frozen=True, eq=False):
    """Pieces of blocks. What lies beyond the end of the lane has the key 0 and takes no
    time."""

    keys: Int64s  # shape [blocks, pieces]
    features: Int64s  # shape [blocks, pieces, features]


def _windows(lane: LaneWork, starts: Rows, pieces: Rows) -> _Windows:
    """Some pieces of the blocks that start at these places of the lane. `pieces`: their
    places within a block, counted from its start."""
    places = starts[:, None] + pieces
    is_inside = places < len(lane.keys)
    places = np.minimum(places, len(lane.keys) - 1)
    return _Windows(
        keys=np.where(is_inside, lane.keys[places], 0),
        features=np.where(is_inside[..., None], lane.features[places], 0),
    )


def runs(numbers: Rows) -> list[tuple[int, int]]:
    """(first, last) of each run of numbers that follow each other; `numbers` ascend.

    >>> runs(np.array([1, 2, 3, 7]))
    [(1, 3), (7, 7)]
    """
    if not len(numbers):
        return []
    begins = np.flatnonzero(np.diff(numbers) > 1) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(numbers, begins)]


def _best_fitting(
    many: LaneWork,
    few: LaneWork,
    repeated: Repeat,
    with_counterpart: list[int],
    run: tuple[int, int],
) -> tuple[int, int]:
    """The range [begin, end) of places of the many that a run of blocks without a
    counterpart takes: `run` is the first and the last number of these blocks.

    The range is as many blocks long, and moved from their marks by part of a block, to
    where the times of what is left fit the few best: a mark need not be where a block
    begins.
    """
    first, last = run
    # after the last block of all there is no mark: take the range one block earlier
    if last + 1 == len(repeated.many):
        first -= 1
        last -= 1
    begin = int(repeated.many[first])
    end = int(repeated.many[last + 1])
    # the place in the few of the block that follows the run
    if last + 1 in with_counterpart:
        counterpart = int(repeated.few[with_counterpart.index(last + 1)])
    else:
        counterpart = int(repeated.few[-1])
    size = repeated.size
    backward = _gain_backward(many, few, begin, end, counterpart, size)
    forward = _gain_forward(many, few, begin, end, counterpart, size)
    shift = _best_shift(backward, forward)
    return begin + shift, end + shift


def _best_shift(backward: Int64s, forward: Int64s) -> int:
    """The shift with the least value, below 0 for a shift backward. `backward`,
    `forward`: the values of shifts by 0, 1 and so on. Of equal ones, backward before
    forward; backward the farthest, so that the range begins early, forward the
    nearest."""
    if forward.min() < backward.min():
        return int(forward.argmin())
    best_shifts = np.flatnonzero(backward == backward.min())
    return -int(best_shifts[-1])


def _gain_forward(
    many: LaneWork, few: LaneWork, begin: int, end: int, counterpart: int, size: int
) -> Int64s:
    """How much less well the times fit (negative: better) if the range [begin, end) is
    shifted by 0, 1 and so on to `size` pieces towards the end of the lane; shorter where
    other work comes first. `counterpart`: the place in the few of what begins at
    `end`."""
    step = np.arange(size)
    return _gain(many, few, begin + step, end + step, counterpart + step)


def _gain_backward(
    many: LaneWork, few: LaneWork, begin: int, end: int, counterpart: int, size: int
) -> Int64s:
    """As `_gain_forward`, for shifts towards the beginning of the lane."""
    step = np.arange(size)
    return _gain(many, few, end - 1 - step, begin - 1 - step, counterpart - 1 - step)


def _gain(
    many: LaneWork, few: LaneWork, leaves: Rows, enters: Rows, partner: Rows
) -> Int64s:
    """How much less well the times fit if the first n of some pieces leave the surplus
    and as many enter it, for n from 0 up to the first piece of other work; shape
    [shifts + 1].

    A piece that leaves is compared with its partner from then on, and one that enters
    was compared with the same partner before. `leaves` and `enters` are places of the
    many, `partner` of the few, all in the order in which they move.
    """
    is_inside = _is_place_of(many, leaves) & _is_place_of(many, enters)
    inside = _leading(is_inside & _is_place_of(few, partner))
    leaves = leaves[:inside]
    enters = enters[:inside]
    partner = partner[:inside]
    key = many.keys[leaves]
    is_same_work = (key == many.keys[enters]) & (key == few.keys[partner])
    shifts = _leading(is_same_work)
    of_partner = few.features[partner[:shifts]]
    of_leaving = many.features[leaves[:shifts]]
    of_entering = many.features[enters[:shifts]]
    apart_after = np.abs(of_leaving - of_partner).sum(axis=1)
    apart_before = np.abs(of_entering - of_partner).sum(axis=1)
    less_well = np.cumsum(apart_after - apart_before)
    return np.concatenate([[0], less_well])


def _leading(flags: Flags) -> int:
    """How many flags are set before the first that is not."""
    return int(np.logical_and.accumulate(flags).sum())


def _is_place_of(lane: LaneWork, places: Rows) -> Flags:
    """Whether each of these is the place of a piece of the lane."""
    return np.asarray((places >= 0) & (places < len(lane.keys)))


def repeat(a: Int64s, b: Int64s) -> Repeat | None:
    """The block that A has more often than B and that explains the most pieces of A,
    the smallest of equals; None if there is none. `a` and `b`: keys of shape
    [pieces]."""
    best: Repeat | None = None
    for block in _blocks(a):
        candidate = _more_often(block, a, b)
        if candidate is None:
            continue
        explained = candidate.size * candidate.more
        if best is None or explained > best.size * best.more:
            best = candidate
    return best


def _blocks(keys: Int64s) -> Iterator[Int64s]:
    """The keys of one block for each part of a lane that repeats MIN_REPETITIONS times
    in a row, small blocks first. A block that is another one begun elsewhere is left
    out, as is one of fewer than MIN_DISTINCT_PIECES."""
    known_blocks: set[bytes] = set()
    for size in _block_sizes(keys):
        is_repeated = np.concatenate([[False], keys[:-size] == keys[size:], [False]])
        # each part [first, last) in which a piece is what is `size` places after it
        bounds = np.flatnonzero(np.diff(is_repeated)).reshape(-1, 2)
        first, last = bounds.T
        is_long_enough = last - first >= (MIN_REPETITIONS - 1) * size
        for start in first[is_long_enough].tolist():
            block = keys[start : start + size]
            sorted_keys = np.sort(block).tobytes()
            if sorted_keys in known_blocks:
                continue
            if len(np.unique(block)) >= MIN_DISTINCT_PIECES:
                known_blocks.add(sorted_keys)
                yield block


def _block_sizes(keys: Int64s) -> list[int]:
    """The MAX_BLOCK_SIZES most frequent distances between one key and the next equal
    one, ascending; none below MIN_DISTINCT_PIECES."""
    by_key = np.argsort(keys, kind="stable")
    is_same_key = np.diff(keys[by_key]) == 0
    distances = np.diff(by_key)[is_same_key]
    distances = distances[distances >= MIN_DISTINCT_PIECES]
    sizes, times = np.unique(distances, return_counts=True)
    most_frequent = sizes[np.argsort(-times, kind="stable")][:MAX_BLOCK_SIZES]
    return sorted(most_frequent.tolist())


def _more_often(block: Int64s, a: Int64s, b: Int64s) -> Repeat | None:
    """How many times A has a block more often than B, with the places of its mark in
    both; None if the pieces of the block do not agree on a number (`_agreed_number`),
    or if the block has no mark.

    The mark is a key that occurs once in the block, agrees on the number, and also
    occurs in B; of several, the one that A has least often. `block`, `a`, `b`: keys of
    pieces.
    """
    keys, times_in_block = np.unique(block, return_counts=True)
    times_in_a = occurrences(keys, a)
    times_in_b = occurrences(keys, b)
    blocks_more, remainder = np.divmod(times_in_a - times_in_b, times_in_block)
    is_multiple = (remainder == 0) & (blocks_more > 0)
    agreed = _agreed_number(blocks_more, times_in_block, is_multiple)
    if agreed is None:
        return None
    may_be_mark = is_multiple & (blocks_more == agreed)
    may_be_mark &= (times_in_block == 1) & (times_in_b > 0)
    marks = np.flatnonzero(may_be_mark)
    if not len(marks):
        return None
    rarest = marks[times_in_a[marks].argmin()]
    return Repeat(
        size=len(block),
        more=agreed,
        many=np.flatnonzero(a == keys[rarest]),
        few=np.flatnonzero(b == keys[rarest]),
    )


def _agreed_number(
    blocks_more: Int64s, times_in_block: Int64s, is_counted: Flags
) -> int | None:
    """The number of blocks on which most pieces of a block agree; None if these are
    fewer than MIN_AGREEING_SHARE of it. Arrays of shape [keys]: the number that each
    key says, how many pieces of the block have the key, and whether its number
    counts."""
    pieces_of_block = times_in_block.sum()
    numbers, which = np.unique(blocks_more[is_counted], return_inverse=True)
    if not len(numbers):
        return None
    pieces_that_agree = np.bincount(which, weights=times_in_block[is_counted])
    most = pieces_that_agree.argmax()
    if pieces_that_agree[most] < MIN_AGREEING_SHARE * pieces_of_block:
        return None
    return int(numbers[most])
