"""Matches the work of A with that of B: pairs lanes, leaves out the blocks that only
one side has, then aligns the rest by the best keys first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np

from fusetui.analysis.diff.blocks import Block, LaneWork, blocks
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.periods import launched_on_other_lanes
from fusetui.analysis.diff.sequences import Pair, Stretch, gaps, longest_common, match
from fusetui.trace.model.arrays import Int64s

PLACE_FACTOR = 0x1E3779B97F4A7C15
"""An odd number: its multiples, modulo 2 ** 64, lie far apart."""

NO_KEY = 0  # of items that cannot be paired by a key

MAX_PAIRS_WITHOUT_NUMPY = 10_000
"""Where no more pairs than this are possible, items are compared without numpy, whose
calls would cost more than the work on so few."""

MAX_COMPARED_LANES = 64
"""AlignedLanes of each side, the largest, whose work is compared to find partners."""


class AlignedLanes(msgspec.Struct, frozen=True, eq=False):
    """A lane of A and its partner of B, aligned. A lane without a partner has no items
    on the other side."""

    # the items of each lane, ascending, without those of any block (see `Block`)
    a: Sequence[int]
    b: Sequence[int]
    # (i, j): `a[i]` is aligned with `b[j]`; both i and j ascend
    pairs: list[Pair]
    blocks: list[Block]  # of these two lanes


def align(
    a: WorkItems, b: WorkItems, places_a: Sequence[object], places_b: Sequence[object]
) -> list[AlignedLanes]:
    """Every lane of both sides once: those of A in their order, each with its partner,
    then those of B that have none.

    `places_a`, `places_b`: where in the program each item is; shape [items]. Items at
    the same place are aligned first, so that no chance hit elsewhere tears a place
    apart. The place of an item that is compared by its kernel alone does not count.
    """
    number_of_place: dict[object, int] = {}
    place_keys_a = _place_keys(a, places_a, number_of_place)
    place_keys_b = _place_keys(b, places_b, number_of_place)
    partners = _partners(a, b)
    blocks_of = _blocks_of_lanes((a, b), partners)
    in_blocks_a = _in_blocks(0, blocks_of)
    in_blocks_b = _in_blocks(1, blocks_of)
    aligned = []
    for (lane_a, lane_b), own_blocks in zip(partners, blocks_of, strict=True):
        kept_a = _without(lane_a, in_blocks_a)
        kept_b = _without(lane_b, in_blocks_b)
        keys_a = _keys(a, kept_a, place_keys_a)
        keys_b = _keys(b, kept_b, place_keys_b)
        pairs = _pairs(keys_a, keys_b)
        aligned.append(AlignedLanes(a=kept_a, b=kept_b, pairs=pairs, blocks=own_blocks))
    return aligned


def _place_keys(
    items: WorkItems, places: Sequence[object], number_of_place: dict[object, int]
) -> Int64s:
    """For each item a large number of its place, far from that of any other place; 0
    for what is compared by its kernel alone. Places that `number_of_place` lacks are
    added to it."""
    numbers = [
        number_of_place.setdefault(place, len(number_of_place)) for place in places
    ]
    keys = np.array(numbers, dtype=np.int64) * PLACE_FACTOR
    return np.where(items.is_without_op, 0, keys)


def _blocks_of_lanes(
    sides: tuple[WorkItems, WorkItems], partners: Sequence[tuple[range, range]]
) -> list[list[Block]]:
    """For each pair of lanes the repeated blocks that one side has more of, which are
    kept out of the alignment so that none is paired with parts of others. They are
    searched for in the largest lanes first: what a block launched on other lanes is
    part of it, and of no block there."""
    a, b = sides
    blocks_of: list[list[Block]] = [[] for _ in partners]
    sizes = [len(lane_a) + len(lane_b) for lane_a, lane_b in partners]
    largest_first = sorted(range(len(partners)), key=lambda number: -sizes[number])
    for number in largest_first:
        lane_a, lane_b = partners[number]
        kept_a = _without(lane_a, _in_blocks(0, blocks_of))
        kept_b = _without(lane_b, _in_blocks(1, blocks_of))
        for block in blocks(_lane_work(a, kept_a), _lane_work(b, kept_b)):
            in_blocks_a = _in_blocks(0, blocks_of)
            in_blocks_b = _in_blocks(1, blocks_of)
            beside = _beside(sides, partners, block, (in_blocks_a, in_blocks_b))
            blocks_of[number].append(
                msgspec.structs.replace(block, items_on_other_lanes=beside)
            )
    return blocks_of


def _beside(
    sides: tuple[WorkItems, WorkItems],
    partners: Sequence[tuple[range, range]],
    block: Block,
    in_blocks: tuple[set[int], set[int]],
) -> tuple[int, ...]:
    """The items, ascending, that a block launched on other lanes: of one key (`by_op`)
    either all, or none if the lane has not so many more of it than its partner.
    `in_blocks`: the items of A and of B that are part of other blocks."""
    side = block.side
    other_side = 1 - side
    own = sides[side]
    launched = {*launched_on_other_lanes(own, block.items)} - in_blocks[side]
    if not launched:
        return ()
    beside: list[int] = []
    for lanes in partners:
        own_lane = _without(lanes[side], in_blocks[side])
        other_lane = _without(lanes[other_side], in_blocks[other_side])
        more = _times_by_op(own, own_lane)
        more.subtract(_times_by_op(sides[other_side], other_lane))
        launched_here = [item for item in own_lane if item in launched]
        times_launched = _times_by_op(own, launched_here)
        for item in launched_here:
            key = int(own.op_keys[item])
            if times_launched[key] <= more[key]:
                beside.append(item)
    return tuple(sorted(beside))


def _times_by_op(items: WorkItems, members: Sequence[int]) -> Counter[int]:
    """How many of these items have each key `by_op`."""
    return Counter(items.op_keys[[*members]].tolist())


def _lane_work(items: WorkItems, lane: Sequence[int]) -> LaneWork:
    """These items of a lane as what blocks are searched in."""
    members = np.array(lane, dtype=np.intp)
    return LaneWork(
        keys=items.op_keys[members], features=items.features[members], items=members
    )


def _in_blocks(side: int, blocks_of: Sequence[Sequence[Block]]) -> set[int]:
    """The items of a side that are part of blocks, in their lane or beside it."""
    members: set[int] = set()
    for blocks_of_lane in blocks_of:
        for block in blocks_of_lane:
            if block.side == side:
                members.update(block.items, block.items_on_other_lanes)
    return members


def _without(lane: range, items: set[int]) -> Sequence[int]:
    """The items of a lane that are not among these."""
    if not items:
        return lane
    return [item for item in lane if item not in items]


class _Keys(msgspec.Struct, frozen=True, eq=False):
    """The keys of the items of a lane by which they can be paired; arrays of shape
    [items]. See WorkItems."""

    exact_keys: Int64s
    op_keys: Int64s
    single_kernel_keys: Int64s
    class_keys: Int64s
    place: Int64s  # to be added to a key so that it is equal within a place only

    def __len__(self) -> int:
        return len(self.exact_keys)


def _keys(items: WorkItems, lane: Sequence[int], place_keys: Int64s) -> _Keys:
    """The keys of these items of a lane; `place_keys` has the shape of all items."""
    members = np.array(lane, dtype=np.intp)
    return _Keys(
        exact_keys=items.exact_keys[members],
        op_keys=items.op_keys[members],
        single_kernel_keys=items.single_kernel_keys[members],
        class_keys=items.class_keys[members],
        place=place_keys[members],
    )


def _pairs(a: _Keys, b: _Keys) -> list[Pair]:
    """The pairs of equal keys, as positions in both lanes, ascending on both sides.

    The keys are used one after another, each within the gaps that those before it left:
    all of them first within places of the program, then all of them anywhere.
    """
    anywhere = _keys_in_order(a, b)
    within_places = []
    for keys_a, keys_b in anywhere:
        at_place_a = _with_place(keys_a, a.place)
        at_place_b = _with_place(keys_b, b.place)
        within_places.append((at_place_a, at_place_b))
    whole = Stretch(first_a=0, last_a=len(a), first_b=0, last_b=len(b))
    pairs: list[Pair] = []
    for keys_a, keys_b in [*within_places, *anywhere]:
        for gap in list(gaps(pairs, whole)):
            pairs += _match(keys_a, keys_b, gap)
        pairs.sort()
    return pairs


def _keys_in_order(a: _Keys, b: _Keys) -> list[tuple[Int64s, Int64s]]:
    """The keys of A and of B by which items are paired, the best first.

    That is the same kernel under the same op, if as many as half of the pieces that
    both have by op are such. Otherwise (other hardware, another library) the op comes
    first, so that names that agree by chance do not mislead.
    """
    by_kernel = (a.exact_keys, b.exact_keys)
    by_op = (a.op_keys, b.op_keys)
    by_single_kernel = (a.single_kernel_keys, b.single_kernel_keys)
    by_class = (a.class_keys, b.class_keys)
    if 2 * _in_common(a.exact_keys, b.exact_keys) < _in_common(a.op_keys, b.op_keys):
        return [by_op, by_kernel, by_single_kernel, by_class]
    return [by_kernel, by_op, by_single_kernel, by_class]


def _with_place(key: Int64s, place: Int64s) -> Int64s:
    """Keys that are equal only within one place; NO_KEY stays as it is."""
    return np.where(key, key + place, NO_KEY)


def _match(key_a: Int64s, key_b: Int64s, gap: Stretch) -> list[Pair]:
    """The pairs of equal keys in a gap, as positions in both lanes: a longest common
    subsequence of the items that have a key."""
    if not gap.cells:
        return []
    gap_a = key_a[gap.first_a : gap.last_a]
    gap_b = key_b[gap.first_b : gap.last_b]
    if len(gap_a) * len(gap_b) > MAX_PAIRS_WITHOUT_NUMPY:
        pairs = _match_many(gap_a, gap_b)
    else:
        pairs = _match_few(gap_a.tolist(), gap_b.tolist())
    return [(i + gap.first_a, j + gap.first_b) for i, j in pairs]


def _match_many(keys_a: Int64s, keys_b: Int64s) -> list[Pair]:
    """The pairs of equal keys of two sequences, as positions in them, with numpy."""
    places_a = np.flatnonzero(keys_a != NO_KEY).tolist()
    places_b = np.flatnonzero(keys_b != NO_KEY).tolist()
    matches = match(keys_a[places_a], keys_b[places_b])
    return [(places_a[i], places_b[j]) for i, j in matches]


def _match_few(keys_a: list[int], keys_b: list[int]) -> list[Pair]:
    """As `_match_many`, without numpy."""
    common = set(keys_a).intersection(keys_b) - {NO_KEY}
    if not common:
        return []
    places_a = [place for place, key in enumerate(keys_a) if key in common]
    places_b = [place for place, key in enumerate(keys_b) if key in common]
    common_a = [keys_a[place] for place in places_a]
    common_b = [keys_b[place] for place in places_b]
    matches = longest_common(common_a, common_b)
    return [(places_a[i], places_b[j]) for i, j in matches]


def _partners(a: WorkItems, b: WorkItems) -> list[tuple[range, range]]:
    """The items of each lane of A and those of its partner in B, in the order of A's
    lanes, then the lanes of B that have no partner. A lane without a partner is paired
    with an empty range."""
    lanes_a = _lanes(a)
    lanes_b = _lanes(b)
    if len(lanes_a) == len(lanes_b) == 1:
        return [(lanes_a[0], lanes_b[0])]
    partner_of_a = _partner_numbers(a, b, lanes_a, lanes_b)
    no_items = range(0)
    pairs = []
    for number_a, lane_a in enumerate(lanes_a):
        number_b = partner_of_a.get(number_a)
        pairs.append((lane_a, no_items if number_b is None else lanes_b[number_b]))
    with_partner = {*partner_of_a.values()}
    for number_b, lane_b in enumerate(lanes_b):
        if number_b not in with_partner:
            pairs.append((no_items, lane_b))
    return pairs


def _partner_numbers(
    a: WorkItems, b: WorkItems, lanes_a: Sequence[range], lanes_b: Sequence[range]
) -> dict[int, int]:
    """By the number of a lane of A, that of its partner in B. Of the largest lanes those
    with the most work in common are partners, then the larger ones, then those with the
    nearest numbers; what is beyond them is paired by size."""
    largest_a = _largest_first(lanes_a)
    largest_b = _largest_first(lanes_b)
    common: dict[Pair, int] = {}
    for i in largest_a[:MAX_COMPARED_LANES]:
        for j in largest_b[:MAX_COMPARED_LANES]:
            common[i, j] = _common_work(a, b, lanes_a[i], lanes_b[j])

    def most_in_common_first(pair: Pair) -> tuple[int, int, int, Pair]:
        i, j = pair
        smaller = min(len(lanes_a[i]), len(lanes_b[j]))
        return -common[pair], -smaller, abs(i - j), pair

    partner_of_a: dict[int, int] = {}
    taken_of_b: set[int] = set()
    for i, j in sorted(common, key=most_in_common_first):
        if i not in partner_of_a and j not in taken_of_b:
            partner_of_a[i] = j
            taken_of_b.add(j)
    rest_of_a = [i for i in largest_a if i not in partner_of_a]
    rest_of_b = [j for j in largest_b if j not in taken_of_b]
    partner_of_a |= zip(rest_of_a, rest_of_b, strict=False)
    return partner_of_a


def _common_work(a: WorkItems, b: WorkItems, lane_a: range, lane_b: range) -> int:
    """How much work two lanes have in common: the pieces that are the same by op, and
    once more those that are the same kernel under the same op."""
    span_a = slice(lane_a.start, lane_a.stop)
    span_b = slice(lane_b.start, lane_b.stop)
    same_ops = _in_common(a.op_keys[span_a], b.op_keys[span_b])
    same_kernels = _in_common(a.exact_keys[span_a], b.exact_keys[span_b])
    return same_ops + same_kernels


def _largest_first(lanes: Sequence[range]) -> list[int]:
    """The numbers of the lanes, by how many items they have; the first one of equals
    first."""
    return sorted(range(len(lanes)), key=lambda number: (-len(lanes[number]), number))


def _lanes(items: WorkItems) -> list[range]:
    """The items of each lane, which follow each other; one empty range without any
    items."""
    cuts = (np.flatnonzero(np.diff(items.lane)) + 1).tolist()
    return [range(first, last) for first, last in pairwise([0, *cuts, len(items)])]


def _in_common(a: Int64s, b: Int64s) -> int:
    """How many keys two lanes have in common: a key that occurs 2 times in the one and
    3 times in the other counts as 2."""
    if len(a) * len(b) <= MAX_PAIRS_WITHOUT_NUMPY:
        return (Counter(a.tolist()) & Counter(b.tolist())).total()
    values_a, times_a = np.unique(a, return_counts=True)
    values_b, times_b = np.unique(b, return_counts=True)
    _, common_a, common_b = np.intersect1d(
        values_a, values_b, assume_unique=True, return_indices=True
    )
    return int(np.minimum(times_a[common_a], times_b[common_b]).sum())
