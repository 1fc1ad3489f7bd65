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

from fusetui.analysis.diff.groups import WorkGroup, replace_matched_groups
from fusetui.analysis.diff.items import NO_OP
from fusetui.analysis.diff.program_places import OTHER, ProgramPlaces
from fusetui.analysis.diff.sequences import (
    can_choose_closest_partners,
    choose_closest_partners,
)
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


class UnpairedItems(msgspec.Struct, frozen=True):
    """The kernels of A and of B that have no counterpart yet, as ascending indices."""

    a: list[int]
    b: list[int]

    @property
    def are_on_both_sides(self) -> bool:
        """Whether both A and B have items without a counterpart."""
        return bool(self.a) and bool(self.b)

    @property
    def are_nearly_as_many(self) -> bool:
        """Whether both sides have about the same number; see MIN_LIKE_SHARE."""
        fewer = min(len(self.a), len(self.b))
        more = max(len(self.a), len(self.b))
        return fewer > 0 and fewer >= MIN_LIKE_SHARE * more

    def without(self, groups: Sequence[WorkGroup]) -> UnpairedItems:
        """Return the items that are not in these groups."""
        grouped_a: set[int] = set()
        grouped_b: set[int] = set()
        for group in groups:
            grouped_a.update(group.a)
            grouped_b.update(group.b)
        return UnpairedItems(
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


def group_by_region(
    a: ProgramPlaces, b: ProgramPlaces, groups: list[WorkGroup]
) -> list[WorkGroup]:
    """Group unpaired work of one sort in the same part of the program.

    Work in the same module is grouped first, then work in the same phase, then work
    anywhere in the step. This is only done where a trace does not say which op some of
    the kernels come from. If all ops are known, work without a partner was added or
    removed.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        groups: All groups so far.

    Returns:
        The groups, with new ones in place of items without a counterpart.
    """
    for region_of in (
        _make_region_of_place,
        _make_region_of_phase,
        _make_region_of_sort,
    ):
        unpaired = UnpairedItems(
            a=sorted(group.a[0] for group in groups if not group.b),
            b=sorted(group.b[0] for group in groups if not group.a),
        )
        matched: list[WorkGroup] = []
        items_by_region = _divide_by_key(a, b, unpaired, region_of)
        for region, items in items_by_region.items():
            if items.are_on_both_sides and not _are_all_ops_known(a, b, items):
                matched += _group_one_sort(a, b, items, region)
        groups = replace_matched_groups(groups, matched)
    return groups


def _make_region_of_place(program: ProgramPlaces, item: int) -> _Region | None:
    """Return the place, phase and sort of an item; None for work of no known sort."""
    sort = program.sorts[item]
    if sort == OTHER:
        return None
    return _Region(phase=program.phases[item], place=program.places[item], sort=sort)


def _make_region_of_phase(program: ProgramPlaces, item: int) -> _Region | None:
    """Return the phase and sort of an item; None for work of no known sort."""
    sort = program.sorts[item]
    if sort == OTHER:
        return None
    return _Region(phase=program.phases[item], place="", sort=sort)


def _make_region_of_sort(program: ProgramPlaces, item: int) -> _Region | None:
    """Return the sort of an item alone; None for work of no known sort."""
    sort = program.sorts[item]
    return None if sort == OTHER else _Region(phase="", place="", sort=sort)


def _are_all_ops_known(
    a: ProgramPlaces, b: ProgramPlaces, items: UnpairedItems
) -> bool:
    """Return whether the op of every kernel is known, in A and in B.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        items: Kernels and copies of both that are in no group.
    """
    has_unknown_a = (a.items.op_ids[items.a] == NO_OP).any()
    has_unknown_b = (b.items.op_ids[items.b] == NO_OP).any()
    return not has_unknown_a and not has_unknown_b


def _divide_by_key(
    a: ProgramPlaces,
    b: ProgramPlaces,
    items: UnpairedItems,
    key_of: Callable[[ProgramPlaces, int], T | None],
) -> dict[T, UnpairedItems]:
    """Divide the kernels and copies of A and of B by a key, such as their phase.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        items: Indices of kernels and copies of both.
        key_of: Returns the key of an item; None leaves the item out.

    Returns:
        The items of each key. A key may have items of one trace only.
    """
    items_by_key: defaultdict[T, UnpairedItems] = defaultdict(
        lambda: UnpairedItems(a=[], b=[])
    )
    for item in items.a:
        key_a = key_of(a, item)
        if key_a is not None:
            items_by_key[key_a].a.append(item)
    for item in items.b:
        key_b = key_of(b, item)
        if key_b is not None:
            items_by_key[key_b].b.append(item)
    return items_by_key


def _group_one_sort(
    a: ProgramPlaces, b: ProgramPlaces, items: UnpairedItems, region: _Region
) -> list[WorkGroup]:
    """Group the unpaired work of one sort in a part of the program.

    Main work (such as products) is paired in order. Then each kernel that both traces
    have becomes one group. What is left becomes one group, unless it is copies or
    fills. Take five norms of A and four of B, of which three are one kernel in both.
    They become a group of 3 and 3, and one of 2 and 1.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        items: The items (kernels and copies) of the region that are in no group.
        region: The sort of work, and the part of the program.
    """
    sort = region.sort
    where = region.where
    groups: list[WorkGroup] = []
    if sort in MAIN_SORTS:
        groups += _group_main_work(a, b, items, sort, where)

    rest = items.without(groups)
    for items_of_kernel in _divide_by_key(a, b, rest, _get_kernel_id).values():
        why = f"all unpaired runs of this kernel{where}"
        if items_of_kernel.are_on_both_sides:
            groups.append(_make_one_group(items_of_kernel, why))

    if sort not in SORTS_OF_MOVES:
        rest = items.without(groups)
        why = f"all unpaired {sort} work{where}"
        if rest.are_on_both_sides:
            groups.append(_make_one_group(rest, why))
    return groups


def _get_kernel_id(program: ProgramPlaces, item: int) -> int:
    """Return the id of the kernel of an item."""
    return program.items.kernel_id(item)


def _group_main_work(
    a: ProgramPlaces, b: ProgramPlaces, items: UnpairedItems, sort: str, where: str
) -> list[WorkGroup]:
    """Pair main work, such as products, in order if A and B seem to agree on it.

    If not, the products of each layout (`tn`, ...) are treated by themselves. They are
    paired in order, or become one group if A and B have nearly as many.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        items: Items of one of MAIN_SORTS that are in no group.
        sort: That sort.
        where: Where the work is, in words after a blank.
    """
    why = f"paired in order among the unpaired {sort} work{where}"
    groups = _pair_in_order(a, b, items, why)
    rest = items.without(groups)
    items_by_layout = _divide_by_key(a, b, rest, ProgramPlaces.find_layout)
    for layout, items_of_layout in items_by_layout.items():
        why = f"paired in order among the unpaired {sort} {layout} work{where}"
        pairs = _pair_in_order(a, b, items_of_layout, why)
        if pairs:
            groups += pairs
        elif items_of_layout.are_nearly_as_many:
            why = f"similar counts of unpaired {sort} {layout} work{where}"
            groups.append(_make_one_group(items_of_layout, why))
    return groups


def _make_one_group(items: UnpairedItems, why: str) -> WorkGroup:
    """Make one group of all items, of which A and B have at least one each.

    `why` is the evidence, for the reader.
    """
    return WorkGroup(
        a=tuple(items.a),
        b=tuple(items.b),
        why=why,
        matched_as_whole=len(items.a) + len(items.b) > 2,
        by_sort_or_position=True,
    )


def _pair_in_order(
    a: ProgramPlaces, b: ProgramPlaces, items: UnpairedItems, why: str
) -> list[WorkGroup]:
    """Pair items of A and of B in order, by the closest times.

    The trace with more items leaves out those that fit the least.

    Args:
        a: Where the program does the work of A.
        b: Where the program does the work of B.
        items: Kernels and copies of A and of B that are in no group.
        why: The evidence, for the reader.

    Returns:
        An empty list if A or B has far fewer items. Also if the times of too few pairs
        differ by about the same factor: then the two orders differ
        (MAX_RATIO_OF_TIMES).
    """
    is_fast = can_choose_closest_partners(
        shorter_length=min(len(items.a), len(items.b)),
        longer_length=max(len(items.a), len(items.b)),
    )
    if not items.are_nearly_as_many or not is_fast:
        return []

    times_a = _collect_times(a, items.a)
    times_b = _collect_times(b, items.b)
    slowdown = np.median(times_b) / np.median(times_a)
    scaled_a = times_a * slowdown  # the times of A if it were as fast as B
    paired = _choose_positions_in_order(scaled_a, times_b)

    # The logarithm makes a ratio of 2 and one of 1/2 equally far from 1.
    log_ratios = np.log(scaled_a[paired.a] / times_b[paired.b])
    is_within_ratio = np.abs(log_ratios) <= math.log(MAX_RATIO_OF_TIMES)
    if np.mean(is_within_ratio) < MIN_SHARE_WITHIN_RATIO:
        return []

    pairs = []
    for position_a, position_b in zip(paired.a, paired.b, strict=True):
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


def _choose_positions_in_order(times_a: Floats, times_b: Floats) -> _PositionsInOrder:
    """Choose which items are paired in order.

    All items of the side with fewer are paired, and those of the other side whose times
    fit best.

    >>> _choose_positions_in_order(np.array([10.0, 50.0]), np.array([11.0, 30.0, 49.0]))
    _PositionsInOrder(a=[0, 1], b=[0, 2])

    Args:
        times_a: The times of the items of A in ns.
        times_b: The times of the items of B in ns.
    """
    ns_a = times_a.astype(np.int64)
    ns_b = times_b.astype(np.int64)
    all_of_a = list(range(len(ns_a)))
    all_of_b = list(range(len(ns_b)))
    if len(ns_a) > len(ns_b):
        return _PositionsInOrder(a=choose_closest_partners(ns_b, ns_a), b=all_of_b)
    if len(ns_b) > len(ns_a):
        return _PositionsInOrder(a=all_of_a, b=choose_closest_partners(ns_a, ns_b))
    return _PositionsInOrder(a=all_of_a, b=all_of_b)


def _collect_times(program: ProgramPlaces, members: Sequence[int]) -> Floats:
    """Return the times of some items in ns, at least 1."""
    times = [max(1, program.items.compared_times[item]) for item in members]
    return np.array(times, dtype=np.float64)
