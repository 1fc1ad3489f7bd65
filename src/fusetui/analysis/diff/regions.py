"""Groups work that no other rule has paired, by kind of work in one part of the
program.

Kernels of a CUDA graph or of compiled code often have no op. Where a side does not say
which op its kernels come from, its open GEMMs of a module, say, are taken for those of
the same module on the other side.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from fusetui.analysis.diff.groups import WorkGroup, with_matches
from fusetui.analysis.diff.items import NO_OP
from fusetui.analysis.diff.program_places import OTHER, ProgramPlaces
from fusetui.analysis.diff.sequences import closest, is_feasible
from fusetui.trace.model.arrays import Floats

T = TypeVar("T")

MAIN_SORTS: Final = ("GEMM", "convolution", "attention", "communication")
"""Compilers leave work of these sorts as it is, so it is paired in order."""

SORTS_OF_MOVES: Final = ("copy", "fill")
"""Work of these sorts stands for nothing else: an additional copy is just that."""

MIN_LIKE_SHARE = 0.9
"""Both sides have nearly as many items if the smaller number is at least this share of
the larger one."""

MAX_RATIO_OF_TIMES, MIN_SHARE_WITHIN_RATIO = 2.0, 0.8
"""Pairs in order are believed if the times of this share of them differ by at most this
factor, beside the factor by which all of them differ."""


class OpenItems(msgspec.Struct, frozen=True):
    """The items of each side that are in no group yet, ascending."""

    a: list[int]
    b: list[int]

    @property
    def are_on_both_sides(self) -> bool:
        """Whether each side has some."""
        return bool(self.a) and bool(self.b)

    @property
    def are_nearly_as_many(self) -> bool:
        """Whether both sides have about the same number; see MIN_LIKE_SHARE."""
        smaller, larger = sorted((len(self.a), len(self.b)))
        return smaller > 0 and smaller >= MIN_LIKE_SHARE * larger

    def without(self, groups: Sequence[WorkGroup]) -> OpenItems:
        """Return the items that are not in these groups."""
        grouped_a = {item for group in groups for item in group.a}
        grouped_b = {item for group in groups for item in group.b}
        return OpenItems(
            a=[item for item in self.a if item not in grouped_a],
            b=[item for item in self.b if item not in grouped_b],
        )


class _Region(msgspec.Struct, frozen=True):
    """The work of one sort in one part of the program."""

    phase: str  # "" for any phase
    place: str  # "" for any place
    sort: str

    @property
    def where(self) -> str:
        """Where the work without a partner is, after a blank: ` in layers.*.attn`."""
        name = self.place or self.phase
        return f" in {name}" if name else ""


def with_groups_by_region(
    a: ProgramPlaces, b: ProgramPlaces, groups: list[WorkGroup]
) -> list[WorkGroup]:
    """Group open work of one sort in the same part of the program.

    Work in the same place is grouped first, then work in the same phase, then work
    anywhere in the step. This is only done where a side does not say which op some of
    the kernels come from. If all ops are known, work without a partner was added or
    removed.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        groups: All groups so far.

    Returns:
        The groups, with new ones in place of open items.
    """
    for region_of in (_region_by_place, _region_by_phase, _region_by_sort):
        still_open = OpenItems(
            a=sorted(group.a[0] for group in groups if not group.b),
            b=sorted(group.b[0] for group in groups if not group.a),
        )
        matched: list[WorkGroup] = []
        for region, items in _divided(a, b, still_open, region_of).items():
            if items.are_on_both_sides and not _are_all_ops_known(a, b, items):
                matched += _groups_of_one_sort(a, b, items, region)
        groups = with_matches(groups, matched)
    return groups


def _region_by_place(program: ProgramPlaces, item: int) -> _Region | None:
    """Return the place, phase and sort of an item; None for work of no known sort."""
    sort = program.sorts[item]
    if sort == OTHER:
        return None
    return _Region(phase=program.phases[item], place=program.places[item], sort=sort)


def _region_by_phase(program: ProgramPlaces, item: int) -> _Region | None:
    """Return the phase and sort of an item; None for work of no known sort."""
    sort = program.sorts[item]
    if sort == OTHER:
        return None
    return _Region(phase=program.phases[item], place="", sort=sort)


def _region_by_sort(program: ProgramPlaces, item: int) -> _Region | None:
    """Return the sort of an item alone; None for work of no known sort."""
    sort = program.sorts[item]
    return None if sort == OTHER else _Region(phase="", place="", sort=sort)


def _are_all_ops_known(a: ProgramPlaces, b: ProgramPlaces, items: OpenItems) -> bool:
    """Return whether it is known of each item which op it comes from."""
    is_known_a = all(a.items.op_id(item) != NO_OP for item in items.a)
    is_known_b = all(b.items.op_id(item) != NO_OP for item in items.b)
    return is_known_a and is_known_b


def _divided(
    a: ProgramPlaces,
    b: ProgramPlaces,
    items: OpenItems,
    key_of: Callable[[ProgramPlaces, int], T | None],
) -> dict[T, OpenItems]:
    """Divide the items of both sides by a key.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        items: Items of both sides.
        key_of: Returns the key of an item; None leaves the item out.

    Returns:
        The items of each key. A key may have items on one side only.
    """
    items_by_key: defaultdict[T, OpenItems] = defaultdict(lambda: OpenItems(a=[], b=[]))
    for item in items.a:
        key_a = key_of(a, item)
        if key_a is not None:
            items_by_key[key_a].a.append(item)
    for item in items.b:
        key_b = key_of(b, item)
        if key_b is not None:
            items_by_key[key_b].b.append(item)
    return items_by_key


def _groups_of_one_sort(
    a: ProgramPlaces, b: ProgramPlaces, items: OpenItems, region: _Region
) -> list[WorkGroup]:
    """Group the open items of one sort in a region.

    Main work is paired in order. Then each kernel that both sides have becomes one
    group, and then all that is left becomes one group, unless it is copies or fills.
    Five unpaired norms of A and four of B, three of which are one kernel on both sides,
    become a group of 3 and 3, and one of 2 and 1.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        items: The open items of the region.
        region: The region.
    """
    sort = region.sort
    where = region.where
    groups: list[WorkGroup] = []
    if sort in MAIN_SORTS:
        groups = _groups_of_main_work(a, b, items, sort, where)
        items = items.without(groups)

    groups_of_kernels: list[WorkGroup] = []
    for items_of_kernel in _divided(a, b, items, _kernel_id).values():
        groups_of_kernels += _one_group(
            items_of_kernel, f"all unpaired runs of this kernel{where}"
        )
    groups += groups_of_kernels

    if sort not in SORTS_OF_MOVES:
        rest = items.without(groups_of_kernels)
        groups += _one_group(rest, f"all unpaired {sort} work{where}")
    return groups


def _kernel_id(program: ProgramPlaces, item: int) -> int:
    """Return the id of the kernel of an item."""
    return program.items.kernel_id(item)


def _groups_of_main_work(
    a: ProgramPlaces, b: ProgramPlaces, items: OpenItems, sort: str, where: str
) -> list[WorkGroup]:
    """Pair open main work in order, if both sides seem to have the same order.

    If not, the products of each layout are treated by themselves: they are paired in
    order, or become one group if both sides have nearly as many.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        items: Open items of one of MAIN_SORTS.
        sort: That sort.
        where: Where the work is, in words after a blank.
    """
    groups = _pairs_in_order(
        a, b, items, (f"paired in order among the unpaired {sort} work{where}")
    )
    rest = items.without(groups)
    items_by_layout = _divided(a, b, rest, ProgramPlaces.layout)
    for layout, items_of_layout in items_by_layout.items():
        why = f"paired in order among the unpaired {sort} {layout} work{where}"
        pairs = _pairs_in_order(a, b, items_of_layout, why)
        if pairs:
            groups += pairs
        elif items_of_layout.are_nearly_as_many:
            groups += _one_group(
                items_of_layout,
                (f"similar counts of unpaired {sort} {layout} work{where}"),
            )
    return groups


def _one_group(items: OpenItems, why: str) -> list[WorkGroup]:
    """Make one group of all items; no group if a side has no items."""
    if not items.are_on_both_sides:
        return []
    group = WorkGroup(
        a=tuple(items.a),
        b=tuple(items.b),
        why=why,
        matched_as_whole=len(items.a) + len(items.b) > 2,
        by_sort_or_position=True,
    )
    return [group]


def _pairs_in_order(
    a: ProgramPlaces, b: ProgramPlaces, items: OpenItems, why: str
) -> list[WorkGroup]:
    """Pair items in order; the side with more leaves out those that fit the least.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        items: Open items of both sides.
        why: The evidence, for the reader.

    Returns:
        An empty list if one side has far fewer items. Also if the times of too few
        pairs differ by about the same factor: then the two orders differ
        (MAX_RATIO_OF_TIMES).
    """
    smaller, larger = sorted((len(items.a), len(items.b)))
    if not items.are_nearly_as_many or not is_feasible(smaller, larger):
        return []

    times_a = _times_of_items(a, items.a)
    times_b = _times_of_items(b, items.b)
    # The times of A if it were as fast as B.
    scaled_a = times_a * (np.median(times_b) / np.median(times_a))
    positions_a, positions_b = _positions_in_order(scaled_a, times_b)

    log_ratios = np.abs(np.log(scaled_a[positions_a] / times_b[positions_b]))
    is_within_ratio = log_ratios <= math.log(MAX_RATIO_OF_TIMES)
    if np.mean(is_within_ratio) < MIN_SHARE_WITHIN_RATIO:
        return []

    pairs = []
    for position_a, position_b in zip(positions_a, positions_b, strict=True):
        pair = WorkGroup(
            a=(items.a[position_a],),
            b=(items.b[position_b],),
            why=why,
            by_sort_or_position=True,
        )
        pairs.append(pair)
    return pairs


class _PositionsInOrder(NamedTuple):
    """Positions of paired items: the n-th of A is paired with the n-th of B."""

    a: list[int]
    b: list[int]


def _positions_in_order(times_a: Floats, times_b: Floats) -> _PositionsInOrder:
    """Choose which items are paired in order.

    All items of the side with fewer are paired, and those of the other side whose times
    fit best.

    >>> _positions_in_order(np.array([10.0, 50.0]), np.array([11.0, 30.0, 49.0]))
    _PositionsInOrder(a=[0, 1], b=[0, 2])

    Args:
        times_a: The times of the items of A in ns.
        times_b: The times of the items of B in ns.
    """
    ns_a: list[int] = times_a.astype(np.int64).tolist()
    ns_b: list[int] = times_b.astype(np.int64).tolist()
    all_positions = list(range(min(len(ns_a), len(ns_b))))
    if len(ns_a) > len(ns_b):
        return _PositionsInOrder(a=closest(ns_b, ns_a), b=all_positions)
    if len(ns_b) > len(ns_a):
        return _PositionsInOrder(a=all_positions, b=closest(ns_a, ns_b))
    return _PositionsInOrder(a=all_positions, b=all_positions)


def _times_of_items(program: ProgramPlaces, members: Sequence[int]) -> Floats:
    """Return the times of some items in ns, at least 1."""
    times = [max(1, program.items.compared_times[item]) for item in members]
    return np.array(times, dtype=np.float64)
