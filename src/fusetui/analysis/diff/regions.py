"""Groups what no rule pairs, by the sort of work in one part of the program."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from fusetui.analysis.diff.groups import WorkGroup, with_matches
from fusetui.analysis.diff.program_places import OTHER, ProgramPlaces
from fusetui.analysis.diff.sequences import closest, is_feasible
from fusetui.trace.model.arrays import Floats

T = TypeVar("T")

MAIN_SORTS: Final = ("GEMM", "convolution", "attention", "communication")
"""Compilers leave work of these sorts as it is, so it is paired in order."""

SORTS_OF_MOVES: Final = ("copy", "fill")
"""Work of these sorts stands for nothing else: a copy more is a copy more."""

MIN_LIKE_SHARE = 0.9
"""Both sides have nearly as many: the one with fewer has at least this share of the
other."""

MAX_RATIO_OF_TIMES, MIN_SHARE_WITHIN_RATIO = 2.0, 0.8
"""Pairs in order are believed where the times of this share of them differ by no more
than this factor, beside the one by which all of them differ."""


class OpenItems(msgspec.Struct, frozen=True):
    """Items of each side that are in no group yet, ascending."""

    a: list[int]
    b: list[int]

    @property
    def are_on_both_sides(self) -> bool:
        """Whether each side has some."""
        return bool(self.a) and bool(self.b)

    @property
    def are_nearly_as_many(self) -> bool:
        """Whether the side with fewer has MIN_LIKE_SHARE of the other's number."""
        fewer, more = sorted((len(self.a), len(self.b)))
        return fewer > 0 and fewer >= MIN_LIKE_SHARE * more

    def without(self, groups: Sequence[WorkGroup]) -> OpenItems:
        """The items that are not in these groups."""
        grouped_a = {item for group in groups for item in group.a}
        grouped_b = {item for group in groups for item in group.b}
        return OpenItems(
            a=[item for item in self.a if item not in grouped_a],
            b=[item for item in self.b if item not in grouped_b],
        )


class _Region(msgspec.Struct, frozen=True):
    """The work of one sort in a part of the program; "" where the whole step is the
    part."""

    phase: str
    place: str
    sort: str

    @property
    def left(self) -> str:
        """`left in layers.*.attn`: that is where no rule has paired the work, in words."""
        name = self.place or self.phase
        return f"left in {name}" if name else "left"


def with_groups_by_region(
    a: ProgramPlaces, b: ProgramPlaces, groups: list[WorkGroup]
) -> list[WorkGroup]:
    """The groups, with more of them for open work of one sort on both sides: in the same
    place of the program, then in the same phase, then anywhere (see `_of_one_sort`).

    Only where a side does not say which op some of these kernels come from: work of
    known ops on both sides was added or removed if it has no partner.
    """
    for region_of in (_of_place, _of_phase, _of_step):
        still_open = OpenItems(
            a=sorted(group.a[0] for group in groups if not group.b),
            b=sorted(group.b[0] for group in groups if not group.a),
        )
        matched: list[WorkGroup] = []
        for region, items in _divided(a, b, still_open, region_of).items():
            if items.are_on_both_sides and not _all_ops_are_known(a, b, items):
                matched += _of_one_sort(a, b, items, region)
        groups = with_matches(groups, matched)
    return groups


def _of_place(program: ProgramPlaces, item: int) -> _Region | None:
    """The region of an item by its place, phase and sort; None for work of no known
    sort, as below."""
    sort = program.sorts[item]
    if sort == OTHER:
        return None
    return _Region(phase=program.phases[item], place=program.places[item], sort=sort)


def _of_phase(program: ProgramPlaces, item: int) -> _Region | None:
    """The region of an item by its phase and sort."""
    sort = program.sorts[item]
    if sort == OTHER:
        return None
    return _Region(phase=program.phases[item], place="", sort=sort)


def _of_step(program: ProgramPlaces, item: int) -> _Region | None:
    """The region of an item by its sort alone."""
    sort = program.sorts[item]
    return None if sort == OTHER else _Region(phase="", place="", sort=sort)


def _all_ops_are_known(a: ProgramPlaces, b: ProgramPlaces, items: OpenItems) -> bool:
    """Whether it is known of each item which op it comes from."""
    is_known_a = all(a.items.op_id(item) for item in items.a)
    is_known_b = all(b.items.op_id(item) for item in items.b)
    return is_known_a and is_known_b


def _divided(
    a: ProgramPlaces,
    b: ProgramPlaces,
    items: OpenItems,
    key: Callable[[ProgramPlaces, int], T | None],
) -> dict[T, OpenItems]:
    """The items of both sides by their keys, without those whose key is None. A key
    may have items on one side only."""
    by_key: defaultdict[T, OpenItems] = defaultdict(lambda: OpenItems(a=[], b=[]))
    for item in items.a:
        key_a = key(a, item)
        if key_a is not None:
            by_key[key_a].a.append(item)
    for item in items.b:
        key_b = key(b, item)
        if key_b is not None:
            by_key[key_b].b.append(item)
    return by_key


def _of_one_sort(
    a: ProgramPlaces, b: ProgramPlaces, items: OpenItems, region: _Region
) -> list[WorkGroup]:
    """Groups of open items of one sort in a region: main work in order, then one group
    for each kernel that both sides have, then one for all that is left, except copies
    and fills."""
    sort = region.sort
    left = region.left
    groups: list[WorkGroup] = []
    if sort in MAIN_SORTS:
        groups = _main_work(a, b, items, sort, left)
        items = items.without(groups)
    of_kernels: list[WorkGroup] = []
    for of_kernel in _divided(a, b, items, _kernel).values():
        of_kernels += _as_one(of_kernel, f"all of this kernel {left}")
    groups += of_kernels
    if sort not in SORTS_OF_MOVES:
        rest = items.without(of_kernels)
        groups += _as_one(rest, f"all {sort} {left}")
    return groups


def _kernel(program: ProgramPlaces, item: int) -> int:
    """The number of the kernel of an item."""
    return program.items.kernel_id(item)


def _main_work(
    a: ProgramPlaces, b: ProgramPlaces, items: OpenItems, sort: str, left: str
) -> list[WorkGroup]:
    """Pairs of open main work in order, if both sides seem to have the same order
    (`_in_order`). If not, the products of each layout by themselves: pairs in order, or
    one group if both sides have nearly as many."""
    groups = _in_order(a, b, items, f"in order among the {sort} {left}")
    rest = items.without(groups)
    for layout, of_layout in _divided(a, b, rest, ProgramPlaces.layout).items():
        why = f"in order among the {sort} {layout} {left}"
        pairs = _in_order(a, b, of_layout, why)
        if pairs:
            groups += pairs
        elif of_layout.are_nearly_as_many:
            groups += _as_one(of_layout, f"as many {sort} {layout} {left}")
    return groups


def _as_one(items: OpenItems, why: str) -> list[WorkGroup]:
    """One group of all items, or none if a side has no items."""
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


def _in_order(
    a: ProgramPlaces, b: ProgramPlaces, items: OpenItems, why: str
) -> list[WorkGroup]:
    """Pairs of items in order; the side with more leaves those out whose times fit the
    least. Empty if one side has far fewer, or if the times of too few pairs differ by
    about the same factor: then the two orders differ (MAX_RATIO_OF_TIMES)."""
    fewer, more = sorted((len(items.a), len(items.b)))
    if not items.are_nearly_as_many or not is_feasible(fewer, more):
        return []
    times_a = _times(a, items.a)
    times_b = _times(b, items.b)
    # the times of A if it were as fast as B
    scaled_a = times_a * (np.median(times_b) / np.median(times_a))
    places_a, places_b = _places_in_order(scaled_a, times_b)
    log_ratios = np.abs(np.log(scaled_a[places_a] / times_b[places_b]))
    is_within_ratio = log_ratios <= math.log(MAX_RATIO_OF_TIMES)
    if np.mean(is_within_ratio) < MIN_SHARE_WITHIN_RATIO:
        return []
    pairs = []
    for place_a, place_b in zip(places_a, places_b, strict=True):
        pair = WorkGroup(
            a=(items.a[place_a],),
            b=(items.b[place_b],),
            why=why,
            by_sort_or_position=True,
        )
        pairs.append(pair)
    return pairs


class _PlacesInOrder(NamedTuple):
    """Places of items of both sides that are paired: the n-th of A with the n-th of B."""

    a: list[int]
    b: list[int]


def _places_in_order(times_a: Floats, times_b: Floats) -> _PlacesInOrder:
    """The places of the items that are paired in order, all of the side with fewer, and
    of the other side those whose times (ns) fit best."""
    ns_a: list[int] = times_a.astype(np.int64).tolist()
    ns_b: list[int] = times_b.astype(np.int64).tolist()
    every_place = list(range(min(len(ns_a), len(ns_b))))
    if len(ns_a) > len(ns_b):
        return _PlacesInOrder(a=closest(ns_b, ns_a), b=every_place)
    if len(ns_b) > len(ns_a):
        return _PlacesInOrder(a=every_place, b=closest(ns_a, ns_b))
    return _PlacesInOrder(a=every_place, b=every_place)


def _times(program: ProgramPlaces, members: Sequence[int]) -> Floats:
    """The times of items (ns), at least 1; shape [members]."""
    times = [max(1, program.items.compared_times[item]) for item in members]
    return np.array(times, dtype=np.float64)
