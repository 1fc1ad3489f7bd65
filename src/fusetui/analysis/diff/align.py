"""Aligns the work of trace A with that of trace B, lane by lane.

The lanes of both sides are paired first. Blocks of work that one side repeats more
often (layers that were added, say) are taken out of them. What remains of two paired
lanes is aligned in order of time, by the most reliable keys first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.diff.blocks import Block, LaneWork, find_surplus_blocks
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.periods import find_launches_on_other_lanes
from fusetui.analysis.diff.sequences import (
    Pair,
    Stretch,
    iterate_gaps,
    pair_equal_numbers,
    pair_longest_common,
)
from fusetui.trace.model.arrays import Int64s, begins_runs, distinct_rows

NO_KEY = 0
"""The key of items that cannot be paired by this kind of key."""

MAX_PAIRS_WITHOUT_NUMPY = 10_000
"""Where at most this many pairs are possible, items are compared without numpy, whose
calls would cost more than the work on so few."""

MAX_COMPARED_LANES = 64
"""Only this many lanes of each side, the largest, are compared to find partners."""


class AlignedLanes(msgspec.Struct, frozen=True, eq=False):
    """A lane of A and the lane of B that does the same work, aligned.

    A lane without a partner is aligned with an empty lane.
    """

    # The items of each lane, ascending, without those that are part of a `Block`.
    a: Sequence[int]
    b: Sequence[int]
    # (i, j): the item `a[i]` is aligned with the item `b[j]`; both i and j ascend.
    pairs: list[Pair]
    blocks: list[Block]  # what one of the two lanes repeats more often


def align(
    a: WorkItems, b: WorkItems, places_a: Sequence[object], places_b: Sequence[object]
) -> list[AlignedLanes]:
    """Pair the lanes of two traces, and align the work of each pair of lanes.

    A lane is a stream or a thread. Kernels at the same place of the program are aligned
    first. Otherwise two kernels that are equal by chance could tear a module apart.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        places_a: Where in the program each item of A is, one per item. The place of an
            item that is compared by its kernel alone is ignored.
        places_b: The same for the items of B.

    Returns:
        Each lane of both traces once: the lanes of A in their order, with their
        partners, then the lanes of B that have no partner.
    """
    number_of_place: dict[object, int] = {}
    place_of_item_a = _number_places(a, places_a, number_of_place)
    place_of_item_b = _number_places(b, places_b, number_of_place)

    lane_pairs = _pair_lanes(a, b)
    blocks_by_lane_pair = _find_blocks_by_lane_pair((a, b), lane_pairs)
    items_in_blocks_a = _collect_items_in_blocks(0, blocks_by_lane_pair)
    items_in_blocks_b = _collect_items_in_blocks(1, blocks_by_lane_pair)

    aligned = []
    for lanes, lane_blocks in zip(lane_pairs, blocks_by_lane_pair, strict=True):
        rest_of_a = _exclude_items(lanes.a, items_in_blocks_a)
        rest_of_b = _exclude_items(lanes.b, items_in_blocks_b)
        keys_a = _collect_lane_keys(a, rest_of_a, place_of_item_a)
        keys_b = _collect_lane_keys(b, rest_of_b, place_of_item_b)
        pairs = _align_pairs(keys_a, keys_b)
        aligned.append(
            AlignedLanes(a=rest_of_a, b=rest_of_b, pairs=pairs, blocks=lane_blocks)
        )
    return aligned


class _LanePair(NamedTuple):
    """The items of a lane of A, and those of its partner in B, as ranges of indices.

    A lane without a partner has an empty range as its partner.
    """

    a: range
    b: range


def _number_places(
    items: WorkItems, places: Sequence[object], number_of_place: dict[object, int]
) -> Int64s:
    """Return a number for the place of each item, such as its module.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        places: The place of each item.
        number_of_place: The numbers that places have so far. New places are added to
            it, so that A and B share the numbers.

    Returns:
        One number per item; 0 for items that are compared by their kernel alone.
    """
    place_numbers = []
    for place in places:
        new_number = len(number_of_place)
        place_numbers.append(number_of_place.setdefault(place, new_number))
    return np.where(items.is_without_op, 0, np.array(place_numbers, dtype=np.int64))


def _find_blocks_by_lane_pair(
    sides: tuple[WorkItems, WorkItems], lane_pairs: Sequence[_LanePair]
) -> list[list[Block]]:
    """Find the repeated blocks that A or B has more of, for each pair of lanes.

    A block is a sequence of kernels such as a layer. Surplus blocks are kept out of the
    alignment, so that none of them is paired with parts of other blocks. The largest
    lanes are searched first: what one of their blocks launched on other lanes belongs
    to that block.

    Args:
        sides: The items (kernels and copies) of A and of B.
        lane_pairs: The items of each lane of A and of its partner in B.

    Returns:
        One list of blocks per pair of lanes.
    """
    a, b = sides
    in_blocks_a: set[int] = set()
    in_blocks_b: set[int] = set()
    blocks_by_lane_pair: list[list[Block]] = [[] for _ in lane_pairs]
    sizes = [len(lanes.a) + len(lanes.b) for lanes in lane_pairs]
    largest_first = sorted(range(len(lane_pairs)), key=lambda index: -sizes[index])

    for lane_pair_index in largest_first:
        lanes = lane_pairs[lane_pair_index]
        lane_work_a = _make_lane_work(a, _exclude_items(lanes.a, in_blocks_a))
        lane_work_b = _make_lane_work(b, _exclude_items(lanes.b, in_blocks_b))
        for block in find_surplus_blocks(lane_work_a, lane_work_b):
            on_other_lanes = _find_block_items_on_other_lanes(
                sides, lane_pairs, block, (in_blocks_a, in_blocks_b)
            )
            complete_block = msgspec.structs.replace(
                block, items_on_other_lanes=on_other_lanes
            )
            blocks_by_lane_pair[lane_pair_index].append(complete_block)
            in_blocks = in_blocks_a if block.side == 0 else in_blocks_b
            in_blocks.update(block.items, on_other_lanes)
    return blocks_by_lane_pair


def _find_block_items_on_other_lanes(
    sides: tuple[WorkItems, WorkItems],
    lane_pairs: Sequence[_LanePair],
    block: Block,
    items_in_blocks: tuple[set[int], set[int]],
) -> tuple[int, ...]:
    """Return the items that a surplus block launched on other streams, ascending.

    A block is a sequence of kernels such as a layer, whose collectives run on another
    stream. Items count only where the stream has that many more of them than its
    partner. So of all items with one key on a stream, either all or none are returned.

    Args:
        sides: The items (kernels and copies) of A and of B.
        lane_pairs: The items of each lane (stream) of A and of its partner in B.
        block: A block that A or B repeats more often.
        items_in_blocks: The items of A and of B that are already part of blocks.
    """
    side = block.side
    other_side = 1 - side
    own = sides[side]
    other = sides[other_side]
    launched = set(find_launches_on_other_lanes(own, block.items))
    launched -= items_in_blocks[side]
    if not launched:
        return ()

    on_other_lanes: list[int] = []
    for lanes in lane_pairs:
        own_lane = _exclude_items(lanes[side], items_in_blocks[side])
        other_lane = _exclude_items(lanes[other_side], items_in_blocks[other_side])
        surplus_by_key = _count_by_op_key(own, own_lane)
        surplus_by_key.subtract(_count_by_op_key(other, other_lane))

        launched_here = [item for item in own_lane if item in launched]
        launched_by_key = _count_by_op_key(own, launched_here)
        for item in launched_here:
            key = int(own.op_keys[item])
            if launched_by_key[key] <= surplus_by_key[key]:
                on_other_lanes.append(item)
    return tuple(sorted(on_other_lanes))


def _count_by_op_key(items: WorkItems, members: Sequence[int]) -> Counter[int]:
    """Count how many of these items have each of the keys `WorkItems.op_keys`."""
    return Counter(items.op_keys[[*members]].tolist())


def _make_lane_work(items: WorkItems, lane: Sequence[int]) -> LaneWork:
    """Collect the keys and times of some items of a lane to search for blocks.

    An item is a kernel or copy of the representative step; `lane` has indices of items.
    """
    members = np.array(lane, dtype=np.intp)
    return LaneWork(
        keys=items.op_keys[members], features=items.features[members], items=members
    )


def _collect_items_in_blocks(
    side: int, blocks_by_lane_pair: Sequence[Sequence[Block]]
) -> set[int]:
    """Return the items of A (side 0) or B (1) that are part of surplus blocks."""
    members: set[int] = set()
    for lane_blocks in blocks_by_lane_pair:
        for block in lane_blocks:
            if block.side == side:
                members.update(block.items, block.items_on_other_lanes)
    return members


def _exclude_items(lane: range, excluded: set[int]) -> Sequence[int]:
    """Return the items of a lane without the excluded ones."""
    if not excluded:
        return lane
    return [item for item in lane if item not in excluded]


class _LaneKeys(msgspec.Struct, frozen=True, eq=False):
    """The keys by which the items of a lane can be paired, one per item of the lane.

    See `WorkItems` for what each kind of key says.
    """

    exact_keys: Int64s
    op_keys: Int64s
    single_kernel_keys: Int64s
    class_keys: Int64s
    places: Int64s  # a number for the place in the program

    def __len__(self) -> int:
        return len(self.exact_keys)


def _collect_lane_keys(
    items: WorkItems, lane: Sequence[int], place_of_item: Int64s
) -> _LaneKeys:
    """Collect the keys by which some items of a lane can be paired.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        lane: The indices of the items of the lane that are to be paired.
        place_of_item: For each item of the trace, a number for its place.
    """
    members = np.array(lane, dtype=np.intp)
    return _LaneKeys(
        exact_keys=items.exact_keys[members],
        op_keys=items.op_keys[members],
        single_kernel_keys=items.single_kernel_keys[members],
        class_keys=items.class_keys[members],
        places=place_of_item[members],
    )


def _align_pairs(a: _LaneKeys, b: _LaneKeys) -> list[Pair]:
    """Pair the items of two lanes whose keys are equal, in order.

    An item is a kernel or copy. Several kinds of keys are used one after another, from
    the same kernel to the same kind of work. Each kind is used in the gaps that the
    ones before it left. Keys within one place of the program come first, then keys
    regardless of the place.

    Returns:
        Positions in both lanes, ascending in both.
    """
    places = _KeysOfLanes(a.places, b.places)
    keys_anywhere = _sort_keys_by_trust(a, b)
    keys_within_places = [_combine_with_places(keys, places) for keys in keys_anywhere]

    whole_lanes = Stretch(first_a=0, stop_a=len(a), first_b=0, stop_b=len(b))
    pairs: list[Pair] = []
    for keys in [*keys_within_places, *keys_anywhere]:
        gaps_so_far = list(iterate_gaps(pairs, whole_lanes))
        for gap in gaps_so_far:
            pairs += _pair_items_in_gap(keys.a, keys.b, gap)
        pairs.sort()
    return pairs


class _KeysOfLanes(NamedTuple):
    """Keys of one kind, one per item of a lane of A and of its partner in B."""

    a: Int64s
    b: Int64s


def _sort_keys_by_trust(a: _LaneKeys, b: _LaneKeys) -> list[_KeysOfLanes]:
    """List the kinds of keys of A and of B, the most reliable kind first.

    Usually that is the same kernel under the same op. But if less than half of the work
    with the same op also has the same kernel (on other hardware, or with another
    library), the op comes first, so that kernels whose names agree by chance do not
    mislead.
    """
    exact = _KeysOfLanes(a.exact_keys, b.exact_keys)
    same_op = _KeysOfLanes(a.op_keys, b.op_keys)
    single_kernel = _KeysOfLanes(a.single_kernel_keys, b.single_kernel_keys)
    same_class = _KeysOfLanes(a.class_keys, b.class_keys)

    with_same_kernel = _count_in_common(a.exact_keys, b.exact_keys)
    with_same_op = _count_in_common(a.op_keys, b.op_keys)
    if 2 * with_same_kernel < with_same_op:
        return [same_op, exact, single_kernel, same_class]
    return [exact, same_op, single_kernel, same_class]


def _combine_with_places(keys: _KeysOfLanes, places: _KeysOfLanes) -> _KeysOfLanes:
    """Make keys that are equal only within one place of the program.

    Where there is NO_KEY, it stays.

    >>> keys = _KeysOfLanes(a=np.array([7, 7, NO_KEY]), b=np.array([7]))
    >>> places = _KeysOfLanes(a=np.array([0, 1, 1]), b=np.array([1]))
    >>> _combine_with_places(keys, places)
    _KeysOfLanes(a=array([2, 3, 0]), b=array([3]))
    """
    keys_of_both = np.concatenate([keys.a, keys.b])
    places_of_both = np.concatenate([places.a, places.b])
    _, number_of_row = distinct_rows((keys_of_both, places_of_both))
    combined = np.where(keys_of_both == NO_KEY, NO_KEY, number_of_row + 1)
    size_a = len(keys.a)
    return _KeysOfLanes(a=combined[:size_a], b=combined[size_a:])


def _pair_items_in_gap(keys_a: Int64s, keys_b: Int64s, gap: Stretch) -> list[Pair]:
    """Pair the items with equal keys in a part of two lanes, in order.

    The pairs are a longest common subsequence of the items that have a key.

    Args:
        keys_a: The keys of one kind of the whole lane of A.
        keys_b: The keys of the same kind of the whole lane of B.
        gap: The part of both lanes in which items are paired.

    Returns:
        Positions in both lanes.
    """
    if not gap.cells:
        return []

    keys_in_gap_a = keys_a[gap.first_a : gap.stop_a]
    keys_in_gap_b = keys_b[gap.first_b : gap.stop_b]
    if len(keys_in_gap_a) * len(keys_in_gap_b) > MAX_PAIRS_WITHOUT_NUMPY:
        pairs_in_gap = _pair_equal_keys_by_numpy(keys_in_gap_a, keys_in_gap_b)
    else:
        pairs_in_gap = _pair_equal_keys(keys_in_gap_a.tolist(), keys_in_gap_b.tolist())
    return [(i + gap.first_a, j + gap.first_b) for i, j in pairs_in_gap]


def _pair_equal_keys_by_numpy(keys_a: Int64s, keys_b: Int64s) -> list[Pair]:
    """Pair the equal keys of two long sequences, in order.

    NO_KEY equals no other key. The pairs are positions in both sequences.
    """
    positions_a = np.flatnonzero(keys_a != NO_KEY).tolist()
    positions_b = np.flatnonzero(keys_b != NO_KEY).tolist()
    matches = pair_equal_numbers(keys_a[positions_a], keys_b[positions_b])
    return [(positions_a[i], positions_b[j]) for i, j in matches]


def _pair_equal_keys(keys_a: list[int], keys_b: list[int]) -> list[Pair]:
    """Pair the equal keys of two short sequences, as positions in them.

    >>> _pair_equal_keys([7, 8, 9], [8, 9, 7])
    [(1, 0), (2, 1)]
    """
    common_keys = set(keys_a).intersection(keys_b) - {NO_KEY}
    if not common_keys:
        return []

    positions_a = [i for i, key in enumerate(keys_a) if key in common_keys]
    positions_b = [j for j, key in enumerate(keys_b) if key in common_keys]
    matches = pair_longest_common(
        [keys_a[i] for i in positions_a], [keys_b[j] for j in positions_b]
    )
    return [(positions_a[i], positions_b[j]) for i, j in matches]


def _pair_lanes(a: WorkItems, b: WorkItems) -> list[_LanePair]:
    """Pair each lane (stream) of A with the lane of B that does the same work.

    The lanes of A come first, in their order, then the lanes of B without a partner.
    """
    lanes_a = _find_lanes(a)
    lanes_b = _find_lanes(b)
    if len(lanes_a) == len(lanes_b) == 1:
        return [_LanePair(a=lanes_a[0], b=lanes_b[0])]

    partner_of_lane_a = _choose_partners_of_lanes_a(a, b, lanes_a, lanes_b)
    no_items = range(0)
    lane_pairs = []
    for index_a, lane_a in enumerate(lanes_a):
        if index_a in partner_of_lane_a:
            partner = lanes_b[partner_of_lane_a[index_a]]
        else:
            partner = no_items
        lane_pairs.append(_LanePair(a=lane_a, b=partner))

    lanes_with_partner = set(partner_of_lane_a.values())
    for index_b, lane_b in enumerate(lanes_b):
        if index_b not in lanes_with_partner:
            lane_pairs.append(_LanePair(a=no_items, b=lane_b))
    return lane_pairs


def _choose_partners_of_lanes_a(
    a: WorkItems, b: WorkItems, lanes_a: Sequence[range], lanes_b: Sequence[range]
) -> dict[int, int]:
    """Choose the partner in B of each lane (stream) of A.

    The MAX_COMPARED_LANES largest lanes of A and of B are compared. Those with the most
    work in common become partners first; then larger lanes before smaller ones, then
    lanes whose indices are closest. The remaining lanes are paired by size.

    Returns:
        {index into `lanes_a`: index into `lanes_b`}, without lanes that get no partner.
    """
    largest_first_a = _sort_by_size(lanes_a)
    largest_first_b = _sort_by_size(lanes_b)
    common_work: dict[Pair, int] = {}
    for i in largest_first_a[:MAX_COMPARED_LANES]:
        for j in largest_first_b[:MAX_COMPARED_LANES]:
            common_work[i, j] = _measure_common_work(a, b, lanes_a[i], lanes_b[j])

    def most_in_common_first(pair: Pair) -> tuple[int, int, int, Pair]:
        i, j = pair
        size_of_smaller = min(len(lanes_a[i]), len(lanes_b[j]))
        indices_apart = abs(i - j)
        return -common_work[pair], -size_of_smaller, indices_apart, pair

    partner_of_lane_a: dict[int, int] = {}
    lanes_b_with_partner: set[int] = set()
    for i, j in sorted(common_work, key=most_in_common_first):
        if i not in partner_of_lane_a and j not in lanes_b_with_partner:
            partner_of_lane_a[i] = j
            lanes_b_with_partner.add(j)

    rest_of_a = [i for i in largest_first_a if i not in partner_of_lane_a]
    rest_of_b = [j for j in largest_first_b if j not in lanes_b_with_partner]
    partner_of_lane_a.update(zip(rest_of_a, rest_of_b, strict=False))
    return partner_of_lane_a


def _measure_common_work(
    a: WorkItems, b: WorkItems, lane_a: range, lane_b: range
) -> int:
    """Measure how much work two lanes (streams) have in common.

    A kernel or copy counts once if both lanes run the same op, and once more if they
    run the same kernel under that op.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        lane_a: The range of the items of a lane of A.
        lane_b: The range of the items of a lane of B.
    """
    slice_a = slice(lane_a.start, lane_a.stop)
    slice_b = slice(lane_b.start, lane_b.stop)
    same_ops = _count_in_common(a.op_keys[slice_a], b.op_keys[slice_b])
    same_kernels = _count_in_common(a.exact_keys[slice_a], b.exact_keys[slice_b])
    return same_ops + same_kernels


def _sort_by_size(lanes: Sequence[range]) -> list[int]:
    """Return the indices of the lanes by descending size; equal sizes stay in order."""
    return sorted(range(len(lanes)), key=lambda index: (-len(lanes[index]), index))


def _find_lanes(items: WorkItems) -> list[range]:
    """Return the range of items of each lane, which is a stream or a thread.

    The items of a lane are consecutive. Without any items, there is one lane, and it is
    empty.
    """
    if not len(items):
        return [range(0)]
    first_items = np.flatnonzero(begins_runs(items.lane)).tolist()
    bounds = [*first_items, len(items)]
    return [range(first, stop) for first, stop in pairwise(bounds)]


def _count_in_common(a: Int64s, b: Int64s) -> int:
    """Count the keys that two lanes (streams) have in common.

    A key that occurs 2 times in one lane and 3 times in the other counts as 2.

    >>> _count_in_common(np.array([5, 5, 6]), np.array([5, 7, 5, 5]))
    2
    """
    if len(a) * len(b) <= MAX_PAIRS_WITHOUT_NUMPY:
        return (Counter(a.tolist()) & Counter(b.tolist())).total()

    values_a, counts_a = np.unique(a, return_counts=True)
    values_b, counts_b = np.unique(b, return_counts=True)
    # The second and third result are the positions of common values in both arrays.
    _, common_a, common_b = np.intersect1d(
        values_a, values_b, assume_unique=True, return_indices=True
    )
    return int(np.minimum(counts_a[common_a], counts_b[common_b]).sum())
