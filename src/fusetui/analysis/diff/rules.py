"""Finds groups beyond equal names: by epilogues, by counts, by the op around, by
position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from fusetui.analysis.diff.align import AlignedLanes
from fusetui.analysis.diff.fusion import by_name
from fusetui.analysis.diff.groups import (
    Alignment,
    WorkGroup,
    as_a_and_b,
    numel,
    paired_items,
    with_matches,
)
from fusetui.analysis.diff.instances import (
    MAX_PIECES_OF_OP,
    in_parts,
    repeated,
    rest_of_ops,
    with_reduction,
)
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import ELSEWHERE
from fusetui.analysis.diff.names import work_class
from fusetui.analysis.diff.sequences import is_like
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.op_names import stem

Rule = Callable[[Alignment, int], None]
"""Finds groups, of which the given side has the items that may be several."""

MIN_PIECES_WITHOUT_SHAPES = 3
"""From so many pieces of one op against one, no shapes are required."""

MIN_SHARE_OF_ELEMENTS = 0.75
"""A tensor with so large a share of the elements of several pieces is that of their
work in one."""

MIN_SHARE_OF_REGION = 0.25
"""Pieces of one op are counted only where they are this share of all pieces there."""

MAX_OPEN_BY_POSITION = 16
"""Position alone does not match one kernel with more open pieces than this."""

MAX_LOOKED_UP_SHAPES = 16
"""The shapes of so many of several pieces are looked up, because each has to be
parsed."""


def groups_of_lanes(a: WorkItems, b: WorkItems, lanes: AlignedLanes) -> list[WorkGroup]:
    """Groups of what does the same work in two aligned lanes: every item of the lanes
    that is in no block is in exactly one of them."""
    alignment = Alignment(a, b, lanes)
    repeated(alignment)
    for rule in RULES:
        rule(alignment, 0)
        rule(alignment, 1)
    return alignment.finish()


def by_epilogue(alignment: Alignment, side: int) -> None:
    """Groups a GEMM of `side` and the open item right after it with the GEMM of the
    other side, if the name of the latter says that its epilogue does that item's op."""
    mine = alignment.items[side]
    other = alignment.items[1 - side]
    for number, pair in enumerate(alignment.pairs):
        following = alignment.gaps[number + 1][side]
        if pair is None or not following:
            continue
        next_item = following[0]
        next_op = stem(mine.op_names[next_item])
        if not next_op or not mine.computes[next_item]:
            continue
        own_gemm = pair[side]
        other_gemm = pair[1 - side]
        own_words = _words_of_epilogue(mine.names[own_gemm])
        other_words = _words_of_epilogue(other.names[other_gemm])
        if next_op in other_words - own_words:
            alignment.pairs[number] = None
            following.remove(next_item)
            why = f"the GEMM's epilogue names {next_op}"
            alignment.add(side, (own_gemm, next_item), other_gemm, why)


def _words_of_epilogue(kernel: str) -> set[str]:
    """`{"gelu", "bias"}` for a kernel whose decoded epilogue is `GELU_BIAS`."""
    decoded = role_of_kernel(kernel).decoded
    epilogue = decoded.epilogue if decoded is not None else None
    return {*(epilogue or "").lower().split("_")}


def by_count(alignment: Alignment, side: int) -> None:
    """Groups several items of one op of this side with the only item of that op on the
    other side, within a region between ops that are as frequent on both sides.

    Only if the one may be all of them together (`_may_be_all_of`), and if they are at
    least MIN_SHARE_OF_REGION of this side's items in the region. Kernels without an op
    count by their own name.
    """
    mine = alignment.items[side]
    other = alignment.items[1 - side]
    for region in _regions(alignment):
        if not any(gap[side] for gap in alignment.gaps[region.start : region.stop]):
            continue
        own_items = _items_in(alignment, side, region)
        other_items = _items_in(alignment, 1 - side, region)
        own_by_op = by_key(own_items, mine.op_or_kernel.__getitem__)
        others_by_op = by_key(other_items, other.op_or_kernel.__getitem__)
        min_pieces = MIN_SHARE_OF_REGION * len(own_items)
        for op, many in own_by_op.items():
            others = others_by_op.get(op, [])
            if len(others) != 1 or len(many) < 2 or len(many) < min_pieces:
                continue
            one = others[0]
            if _may_be_all_of(alignment, side, many, one):
                _group_many_with_one(alignment, side, sorted(many), one, region)


def _items_in(alignment: Alignment, side: int, region: range) -> list[int]:
    """The items of a side in a region of gaps: those of the pairs between these gaps,
    then the open ones."""
    members = []
    for number in alignment.pairs_inside(region):
        pair = alignment.pairs[number]
        if pair is not None:
            members.append(pair[side])
    for gap in alignment.gaps[region.start : region.stop]:
        members += gap[side]
    return members


def by_outer_op(alignment: Alignment, side: int) -> None:
    """Groups the open items of a gap that are under the same outermost op of the program
    on both sides: any number of `side` with one of the other. Several with several, in
    order or as one group, are found when `side` is A only."""
    for number, gap in enumerate(alignment.gaps):
        if not gap[0] or not gap[1]:
            continue
        own_by_outer_op = _open_by_outer_op(alignment, side, gap[side])
        others_by_outer_op = _open_by_outer_op(alignment, 1 - side, gap[1 - side])
        for outer_op, many in own_by_outer_op.items():
            others = others_by_outer_op.get(outer_op, [])
            why = f"both under {outer_op.name}"
            if len(others) == 1:
                alignment.claim(side, many, others[0], number, why)
            elif others and side == 0:
                _claim_several(alignment, many, others, why)


def _claim_several(
    alignment: Alignment, of_a: list[int], of_b: list[int], why: str
) -> None:
    """Groups open items of both sides: one to one if they have the same parts in the
    work of their ops, in the same order, else all of them as one group. Does nothing if
    they are more than MAX_PIECES_OF_OP on a side."""
    if max(len(of_a), len(of_b)) > MAX_PIECES_OF_OP:
        return
    names_a = alignment.items[0].names
    names_b = alignment.items[1].names
    parts_a = [role_of_kernel(names_a[item]).part for item in of_a]
    parts_b = [role_of_kernel(names_b[item]).part for item in of_b]
    if parts_a != parts_b:
        alignment.claim_both(of_a, of_b, why)
        return
    for item_a, item_b in zip(of_a, of_b, strict=True):
        alignment.claim_both([item_a], [item_b], why)


def by_position(alignment: Alignment, side: int) -> None:
    """Groups all open items of a gap that compute with the only such item of the other
    side, unless their names contradict that (`_may_correspond_by_position`)."""
    mine = alignment.items[side]
    other = alignment.items[1 - side]
    for number, gap in enumerate(alignment.gaps):
        many = [item for item in gap[side] if mine.computes[item]]
        others = [item for item in gap[1 - side] if other.computes[item]]
        if len(others) != 1 or not 0 < len(many) <= MAX_OPEN_BY_POSITION:
            continue
        one = others[0]
        if _may_correspond_by_position(alignment, side, many, one):
            why = "by position only: between the same neighbors"
            alignment.claim(side, many, one, number, why, by_sort_or_position=True)


RULES: Final[Sequence[Rule]] = (
    in_parts,
    by_epilogue,
    by_name,
    by_count,
    rest_of_ops,
    with_reduction,
    by_outer_op,
    by_position,
)


def with_moved_work(
    a: WorkItems, b: WorkItems, groups: list[WorkGroup]
) -> list[WorkGroup]:
    """The groups, in which items of A and B that had no counterpart are pairs now if
    they are the same kernel under the same op at another place and take about as long.
    About as long: after the times of A are scaled by `_slowdown`. Not where a kernel is
    compared without its op: that may be anywhere."""
    open_a = [group.a[0] for group in groups if not group.b]
    open_b = [group.b[0] for group in groups if not group.a]
    with_op_b = [item for item in open_b if not b.is_without_op[item]]
    open_by_key = by_key(with_op_b, lambda item: int(b.exact_keys[item]))
    slowdown = _slowdown(a, b, groups)
    pairs = []
    for item_a in open_a:
        candidates = open_by_key.get(int(a.exact_keys[item_a]))
        if not candidates:
            continue
        expected_ns = a.compared_times[item_a] * slowdown
        distance_ns = {
            item: abs(b.compared_times[item] - expected_ns) for item in candidates
        }
        nearest = min(candidates, key=distance_ns.__getitem__)
        if is_like(b.compared_times[nearest], expected_ns):
            pairs.append(WorkGroup(a=(item_a,), b=(nearest,), why=ELSEWHERE))
            candidates.remove(nearest)
    return with_matches(groups, pairs)


def _slowdown(a: WorkItems, b: WorkItems, groups: list[WorkGroup]) -> float:
    """The median ratio of the times of B to those of A, of the pairs of the same kernel
    under the same op; 1 if there are none."""
    items_a, items_b = paired_items(groups)
    ratios = []
    for item_a, item_b in zip(items_a.tolist(), items_b.tolist(), strict=True):
        if a.exact_keys[item_a] == b.exact_keys[item_b] and a.compared_times[item_a]:
            ratios.append(b.compared_times[item_b] / a.compared_times[item_a])
    return float(np.median(ratios)) if ratios else 1.0


def _regions(alignment: Alignment) -> Iterator[range]:
    """Ranges of numbers of gaps that hold each gap once, divided at pairs whose ops
    occur equally often on both sides: one op that is several on a side is not looked
    for beyond these."""
    ops_a = alignment.items[0].op_or_kernel
    ops_b = alignment.items[1].op_or_kernel
    times_a = Counter(ops_a[item] for item in alignment.lane_items[0])
    times_b = Counter(ops_b[item] for item in alignment.lane_items[1])
    first = 0
    for number, pair in enumerate(alignment.pairs):
        if pair is None:
            continue
        op_a = ops_a[pair[0]]
        op_b = ops_b[pair[1]]
        if times_a[op_a] == times_b[op_a] and times_a[op_b] == times_b[op_b]:
            yield range(first, number + 1)
            first = number + 1
    yield range(first, len(alignment.gaps))


def _may_be_all_of(alignment: Alignment, side: int, many: list[int], one: int) -> bool:
    """Whether one item may do the work of several of `side`, rather than that of one of
    them while the others are gone.

    So it is if its tensor is larger than each of theirs and has MIN_SHARE_OF_ELEMENTS
    of their sum. Where a shape is not known: if there are MIN_PIECES_WITHOUT_SHAPES,
    and it takes much longer than the longest of them.
    """
    mine = alignment.items[side]
    other = alignment.items[1 - side]
    elements = numel(other, one)
    elements_of_many = []
    for item in many[:MAX_LOOKED_UP_SHAPES]:
        elements_of_item = numel(mine, item)
        if elements_of_item is not None:
            elements_of_many.append(elements_of_item)
    looked_up = min(MAX_LOOKED_UP_SHAPES, len(many))
    if elements is None or len(elements_of_many) < looked_up:
        time_ns = other.compared_times[one]
        longest_ns = max(mine.compared_times[item] for item in many)
        is_longer = time_ns > longest_ns and not is_like(time_ns, longest_ns)
        return len(many) >= MIN_PIECES_WITHOUT_SHAPES and is_longer
    total = sum(elements_of_many) * len(many) // len(elements_of_many)
    return (
        elements > max(elements_of_many) and elements >= MIN_SHARE_OF_ELEMENTS * total
    )


def _group_many_with_one(
    alignment: Alignment, side: int, many: list[int], one: int, region: range
) -> None:
    """Groups several items of `side` with one of the other side, all of them in a region
    of gaps, whether they are open or in pairs. These pairs are taken apart: a partner
    that is not in the group becomes open."""
    grouped = as_a_and_b(side, set(many), {one})
    for number in alignment.pairs_inside(region):
        alignment.take_apart(number, grouped)
    gaps = alignment.gaps[region.start : region.stop]
    alignment.close(0, grouped[0], gaps)
    alignment.close(1, grouped[1], gaps)
    op = alignment.items[side].op_names[many[0]] or "the same kernel"
    alignment.add(side, tuple(many), one, f"{op} {len(many)} times and once")


class _OuterOp(NamedTuple):
    """An outermost op of the program in a gap."""

    name: str
    nth: int  # among the ops of that name in the gap


def _open_by_outer_op(
    alignment: Alignment, side: int, open_items: list[int]
) -> dict[_OuterOp, list[int]]:
    """Open items of a gap that compute, by the outermost op around them; without those
    that are under no op."""
    items = alignment.items[side]
    with_outer_op = [
        item
        for item in open_items
        if items.outermost_ops[item] >= 0 and items.computes[item]
    ]
    ops_of_name: Counter[str] = Counter()  # so far
    open_by_outer_op = {}
    for row, members in by_key(with_outer_op, items.outermost_ops.__getitem__).items():
        name = items.trace.name_of(row)
        open_by_outer_op[_OuterOp(name=name, nth=ops_of_name[name])] = members
        ops_of_name[name] += 1
    return open_by_outer_op


def _may_correspond_by_position(
    alignment: Alignment, side: int, many: list[int], one: int
) -> bool:
    """Whether the names of some items of `side` and of one item of the other side allow
    that they do the same work, which only their position says.

    Several items and one: only if the ops of all of them are known and that of the one
    is not, as for a kernel launched by the user's own code. One item and one: if they
    are of the same kind of work or, where neither has a kind, if their ops have the
    same name or an op is unknown.
    """
    mine = alignment.items[side]
    other = alignment.items[1 - side]
    other_op = other.op_names[one]
    if len(many) > 1:
        return other_op == "" and all(mine.op_names[item] for item in many)
    own_op = mine.op_names[many[0]]
    own_kind = work_class(own_op, mine.names[many[0]])
    other_kind = work_class(other_op, other.names[one])
    if own_kind or other_kind:
        return own_kind == other_kind
    return not own_op or not other_op or stem(own_op) == stem(other_op)
