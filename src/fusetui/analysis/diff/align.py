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
from fusetui.analysis.diff.sequences import Pair, Stretch, exact, gaps, match
from fusetui.trace.model.arrays import Int64s

FAR = 0x1E3779B97F4A7C15  # an odd number: its multiples, modulo 2 ** 64, lie far apart
NONE = 0  # the key of items that cannot be paired by this key
SMALL = 10_000  # gaps with fewer possible pairs than this are aligned without numpy
# lanes of each side, the largest, whose work is compared to find partners
COMPARED = 64


class Lanes(msgspec.Struct, frozen=True, eq=False):
    """Two paired lanes: the items of each, and the aligned pairs, ascending on both
    sides.

    Items are numbered as in Items. `a` and `b` are without those of blocks, of any
    lane, that only one side has; `blocks` are those of these lanes, and `places` are
    the pairs as places in `a` and `b`. A lane without a partner has nothing on the
    other side.
    """

    a: Sequence[int]
    b: Sequence[int]
    places: list[Pair]
    blocks: list[Block]


def align(
    a: WorkItems, b: WorkItems, places: Sequence[Sequence[object]]
) -> list[Lanes]:
    """Every lane of both sides once, in the order of A's lanes.

    `places`: per item where in the program it is. What is at the same place is aligned
    first, so that no chance hit elsewhere tears a place apart. What is compared by its
    kernel alone has none.
    """
    numbers: dict[object, int] = {}  # large numbers, far apart for two places
    at = [
        np.array(
            [numbers.setdefault(place, len(numbers)) for place in side], dtype=np.int64
        )
        * FAR
        for side in places
    ]
    at = [np.where(of.by_kernel, 0, own) for of, own in zip((a, b), at, strict=True)]
    partners = _partners(a, b)
    blocks_of = _blocks_of_lanes((a, b), partners)
    gone = [_gone(side, blocks_of) for side in (0, 1)]
    aligned = []
    for (of_a, of_b), own_blocks in zip(partners, blocks_of, strict=True):
        kept_a = _without(of_a, gone[0])
        kept_b = _without(of_b, gone[1])
        pairs = _pairs(a, b, kept_a, kept_b, at)
        aligned.append(Lanes(a=kept_a, b=kept_b, places=pairs, blocks=own_blocks))
    return aligned


def _blocks_of_lanes(
    sides: tuple[WorkItems, WorkItems], partners: Sequence[tuple[range, range]]
) -> list[list[Block]]:
    """For each pair of lanes the repeated blocks that only one side has, so that none
    is paired with parts of others. Those of the largest lanes come first: what they
    launched on other lanes is part of them, and of no block there."""
    found: list[list[Block]] = [[] for _ in partners]
    largest_first = sorted(
        range(len(partners)), key=lambda n: -sum(map(len, partners[n]))
    )
    for number in largest_first:
        gone = [_gone(side, found) for side in (0, 1)]
        lanes = [_without(partners[number][side], gone[side]) for side in (0, 1)]
        works = [_lane_work(sides[side], lanes[side]) for side in (0, 1)]
        for block in blocks(*works):
            gone = [_gone(side, found) for side in (0, 1)]
            beside = _beside(sides, partners, block, gone)
            found[number].append(msgspec.structs.replace(block, beside=beside))
    return found


def _beside(
    sides: tuple[WorkItems, WorkItems],
    partners: Sequence[tuple[range, range]],
    block: Block,
    gone: Sequence[set[int]],
) -> tuple[int, ...]:
    """What was launched with a block on other lanes, if the other side has less of it
    by as much; `gone` is what is part of other blocks, of A and of B."""
    own, other = sides[block.side], sides[1 - block.side]
    launched = {*launched_on_other_lanes(own, block.items)} - gone[block.side]
    if not launched:
        return ()
    found: list[int] = []
    for lanes in partners:
        own_lane = _without(lanes[block.side], gone[block.side])
        other_lane = _without(lanes[1 - block.side], gone[1 - block.side])
        of_lane = [item for item in own_lane if item in launched]
        more = Counter(own.by_op[[*own_lane]].tolist())
        more.subtract(other.by_op[[*other_lane]].tolist())
        of_block = Counter(own.by_op[of_lane].tolist())
        keys = {key for key, times in of_block.items() if times <= more[key]}
        found += [item for item in of_lane if int(own.by_op[item]) in keys]
    return tuple(sorted(found))


def _lane_work(items: WorkItems, lane: Sequence[int]) -> LaneWork:
    members = np.array(lane, dtype=np.intp)
    return LaneWork(keys=items.by_op[members], ns=items.ns[members], items=members)


def _gone(side: int, blocks_of: Sequence[Sequence[Block]]) -> set[int]:
    """The items of a side that are part of blocks."""
    found: set[int] = set()
    for own_blocks in blocks_of:
        for block in own_blocks:
            if block.side == side:
                found.update(block.items, block.beside)
    return found


def _without(lane: range, gone: set[int]) -> Sequence[int]:
    return [item for item in lane if item not in gone] if gone else lane


def _pairs(
    a: WorkItems,
    b: WorkItems,
    of_a: Sequence[int],
    of_b: Sequence[int],
    at: Sequence[Int64s],
) -> list[Pair]:
    """The pairs, as places in both lanes, found by one key after another, each within
    the gaps that the keys before it left: first within places, then anywhere.

    The same kernel under the same op comes first if that covers most of what could be
    aligned by op. Otherwise (other hardware, another library) the op comes first, so
    that names that agree by chance do not mislead.
    """
    stretch = (0, len(of_a), 0, len(of_b))
    rows_a, rows_b = np.array(of_a, dtype=np.intp), np.array(of_b, dtype=np.intp)
    named = [
        (a.exact, b.exact),
        (a.by_op, b.by_op),
        (a.alone, b.alone),
        (a.by_class, b.by_class),
    ]
    keys = [(x[rows_a], y[rows_b]) for x, y in named]
    by_exact, by_op = (_in_common(x, y) for x, y in keys[:2])
    if 2 * by_exact < by_op:
        keys[:2] = keys[1::-1]
    at_a, at_b = at[0][rows_a], at[1][rows_b]
    within = [
        (np.where(x, x + at_a, NONE), np.where(y, y + at_b, NONE)) for x, y in keys
    ]
    pairs: list[Pair] = []
    for key_a, key_b in (*within, *keys):
        for gap in list(gaps(pairs, stretch)):
            pairs += _match(key_a, key_b, gap)
        pairs.sort()
    return pairs


def _match(key_a: Int64s, key_b: Int64s, gap: Stretch) -> list[Pair]:
    """The pairs in a gap; items without a key are skipped."""
    first_a, last_a, first_b, last_b = gap
    if first_a == last_a or first_b == last_b:
        return []
    own, other = key_a[first_a:last_a], key_b[first_b:last_b]
    if len(own) * len(other) > SMALL:
        keyed_a, keyed_b = (
            np.flatnonzero(part != NONE).tolist() for part in (own, other)
        )
        found = match(own[keyed_a], other[keyed_b])
    else:  # on a few items, numpy's calls would cost more than the work
        part_a, part_b = own.tolist(), other.tolist()
        common = set(part_a).intersection(part_b) - {NONE}
        keyed_a, keyed_b = (
            [n for n, key in enumerate(part) if key in common]
            for part in (part_a, part_b)
        )
        found = (
            exact([part_a[i] for i in keyed_a], [part_b[j] for j in keyed_b])
            if common
            else []
        )
    return [(keyed_a[i] + first_a, keyed_b[j] + first_b) for i, j in found]


def _partners(a: WorkItems, b: WorkItems) -> list[tuple[range, range]]:
    """Pairs of lanes: those with the most work in common first, then the busiest
    ones."""
    of_a, of_b = _lanes(a), _lanes(b)
    if len(of_a) == len(of_b) == 1:
        return [(of_a[0], of_b[0])]
    largest_a, largest_b = (
        sorted(range(len(lanes)), key=lambda n: (-len(lanes[n]), n))
        for lanes in (of_a, of_b)
    )
    common = {
        (i, j): _in_common(a.by_op[_slice(of_a[i])], b.by_op[_slice(of_b[j])])
        + _in_common(a.exact[_slice(of_a[i])], b.exact[_slice(of_b[j])])
        for i in largest_a[:COMPARED]
        for j in largest_b[:COMPARED]
    }
    sizes = {(i, j): min(len(of_a[i]), len(of_b[j])) for i, j in common}
    partner: dict[int, int] = {}
    for i, j in sorted(
        common, key=lambda p: (-common[p], -sizes[p], abs(p[0] - p[1]), p)
    ):
        if i not in partner and j not in partner.values():
            partner[i] = j
    taken = {*partner.values()}
    left_a = [i for i in largest_a if i not in partner]
    partner |= zip(left_a, (j for j in largest_b if j not in taken), strict=False)
    found = [
        (x, of_b[partner[i]] if i in partner else range(0)) for i, x in enumerate(of_a)
    ]
    taken = {*partner.values()}
    return found + [(range(0), y) for j, y in enumerate(of_b) if j not in taken]


def _lanes(items: WorkItems) -> list[range]:
    cuts = (np.flatnonzero(np.diff(items.lane)) + 1).tolist()
    return [range(first, last) for first, last in pairwise([0, *cuts, len(items)])]


def _in_common(a: Int64s, b: Int64s) -> int:
    """The size of the intersection of two multisets."""
    if len(a) * len(b) <= SMALL:
        return (Counter(a.tolist()) & Counter(b.tolist())).total()
    values_a, count_a = np.unique(a, return_counts=True)
    values_b, count_b = np.unique(b, return_counts=True)
    _, at_a, at_b = np.intersect1d(
        values_a, values_b, assume_unique=True, return_indices=True
    )
    return int(np.minimum(count_a[at_a], count_b[at_b]).sum())


def _slice(items: range) -> slice:
    return slice(items.start, items.stop)
