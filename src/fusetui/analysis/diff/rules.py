"""Finds groups beyond equal names: by epilogues, by counts, by the op around, by
position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from fusetui.analysis.diff.align import Lanes
from fusetui.analysis.diff.fusion import by_name
from fusetui.analysis.diff.groups import (
    Alignment,
    WorkGroup,
    numel,
    oriented,
    pairs_of,
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


def group(a: WorkItems, b: WorkItems, lanes: Lanes) -> list[WorkGroup]:
    """Every item of two lanes in exactly one group."""
    alignment = Alignment(a, b, lanes)
    repeated(alignment)
    for rule in RULES:
        rule(alignment, 0)
        rule(alignment, 1)
    return alignment.finish()


def by_epilogue(alignment: Alignment, side: int) -> None:
    """A GEMM whose epilogue names the op that followed it on the other side."""
    mine, other = alignment.items[side], alignment.items[1 - side]
    for number, pair in enumerate(alignment.pairs):
        following = alignment.gaps[number + 1][side]
        if pair is None or not following:
            continue
        next_item = following[0]
        next_op = stem(mine.op_names[next_item])
        if not next_op or not mine.computes[next_item]:
            continue
        own_words = _words_of_epilogue(mine.names[pair[side]])
        other_words = _words_of_epilogue(other.names[pair[1 - side]])
        if next_op in other_words - own_words:
            alignment.pairs[number] = None
            following.pop(0)
            why = f"the GEMM's epilogue names {next_op}"
            alignment.add(side, (pair[side], next_item), pair[1 - side], why)


def _words_of_epilogue(kernel: str) -> set[str]:
    decoded = role_of_kernel(kernel).decoded
    epilogue = decoded.epilogue if decoded is not None else None
    return {*(epilogue or "").lower().split("_")}


def by_count(alignment: Alignment, side: int) -> None:
    """One op many times on this side, once on the other, between pieces that are as
    many on both.

    Accepted if the one tensor is as large as the many together or, where shapes were
    not recorded, from three pieces on if it takes longer than each; and only where
    there is little other work.
    """
    mine, other = alignment.items[side], alignment.items[1 - side]
    for region in _regions(alignment):
        if not any(gap[side] for gap in alignment.gaps[region.start : region.stop]):
            continue
        own_items = _items_in(alignment, side, region)
        other_items = _items_in(alignment, 1 - side, region)
        others_by_word = by_key(other_items, other.words.__getitem__)
        min_pieces = MIN_SHARE_OF_REGION * len(own_items)
        for word, many in by_key(own_items, mine.words.__getitem__).items():
            ones = others_by_word.get(word, [])
            if len(ones) != 1 or len(many) < 2 or len(many) < min_pieces:
                continue
            if _adds_up(alignment, side, many, ones[0]):
                _take(alignment, side, sorted(many), ones[0], region)


def _items_in(alignment: Alignment, side: int, region: range) -> list[int]:
    """The items of a side in a range of gaps: those of the pairs between these gaps,
    then the open ones."""
    members = []
    for pair in alignment.pairs[region.start : region.stop - 1]:
        if pair is not None:
            members.append(pair[side])
    for gap in alignment.gaps[region.start : region.stop]:
        members += gap[side]
    return members


def by_outer_op(alignment: Alignment, side: int) -> None:
    """Open pieces of both sides under the same op of the program, one against one or
    several. Several against several, one to one or all of them together, are found with
    the first side."""
    for number, gap in enumerate(alignment.gaps):
        if not gap[0] or not gap[1]:
            continue
        mine = _by_outer(alignment, side, gap[side])
        others = _by_outer(alignment, 1 - side, gap[1 - side])
        for outer_op, many in mine.items():
            ones = others.get(outer_op, [])
            why = f"both under {outer_op.name}"
            if len(ones) == 1:
                alignment.claim(side, many, ones[0], number, why)
            elif ones and side == 0:
                _claim_several(alignment, many, ones, why)


def _claim_several(
    alignment: Alignment, of_a: list[int], of_b: list[int], why: str
) -> None:
    """One to one if the parts that they have in the work of their ops correspond, else
    all of them together."""
    if max(len(of_a), len(of_b)) > MAX_PIECES_OF_OP:
        return
    names_a, names_b = alignment.items[0].names, alignment.items[1].names
    parts_a = [role_of_kernel(names_a[item]).part for item in of_a]
    parts_b = [role_of_kernel(names_b[item]).part for item in of_b]
    if parts_a != parts_b:
        alignment.claim_both(of_a, of_b, why)
        return
    for item_a, item_b in zip(of_a, of_b, strict=True):
        alignment.claim_both([item_a], [item_b], why)


def by_position(alignment: Alignment, side: int) -> None:
    """One kernel in the place of open pieces, unless their ops are known and differ."""
    mine, other = alignment.items[side], alignment.items[1 - side]
    for number, gap in enumerate(alignment.gaps):
        many = [item for item in gap[side] if mine.computes[item]]
        ones = [item for item in gap[1 - side] if other.computes[item]]
        if len(ones) != 1 or not 0 < len(many) <= MAX_OPEN_BY_POSITION:
            continue
        if _may_be(alignment, side, many, ones[0]):
            why = "by position only: between the same neighbors"
            alignment.claim(side, many, ones[0], number, why, by_sort_or_place=True)


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


def moved(a: WorkItems, b: WorkItems, groups: list[WorkGroup]) -> list[WorkGroup]:
    """Pairs what is left open on both sides and is the same kernel under the same op,
    if it takes about as long, allowing for how much faster one side is at other such
    kernels. Not where the op is no evidence: a kernel alone may be anywhere."""
    open_a = [group.a[0] for group in groups if not group.b]
    open_b = [group.b[0] for group in groups if not group.a]
    with_op_b = [item for item in open_b if not b.by_kernel[item]]
    open_by_key = by_key(with_op_b, lambda item: int(b.exact[item]))
    slowdown = _slowdown(a, b, groups)
    pairs = []
    for item_a in open_a:
        candidates = open_by_key.get(int(a.exact[item_a]))
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
    """How many times as long B takes as A for the same kernels under the same ops, at
    the median; 1 without such."""
    items_a, items_b = pairs_of(groups)
    ratios = []
    for item_a, item_b in zip(items_a.tolist(), items_b.tolist(), strict=True):
        if a.exact[item_a] == b.exact[item_b] and a.compared_times[item_a]:
            ratios.append(b.compared_times[item_b] / a.compared_times[item_a])
    return float(np.median(ratios)) if ratios else 1.0


def _regions(alignment: Alignment) -> Iterator[range]:
    """Ranges of gaps, divided at pairs whose ops occur equally often on both sides."""
    words_a, words_b = alignment.items[0].words, alignment.items[1].words
    times_a = Counter(words_a[item] for item in alignment.ranges[0])
    times_b = Counter(words_b[item] for item in alignment.ranges[1])
    first = 0
    for number, pair in enumerate(alignment.pairs):
        if pair is None:
            continue
        word_a, word_b = words_a[pair[0]], words_b[pair[1]]
        is_equal_a = times_a[word_a] == times_b[word_a]
        is_equal_b = times_a[word_b] == times_b[word_b]
        if is_equal_a and is_equal_b:
            yield range(first, number + 1)
            first = number + 1
    yield range(first, len(alignment.gaps))


def _adds_up(alignment: Alignment, side: int, many: list[int], one: int) -> bool:
    """Whether the one is more than any of the many: else it may be one, the others
    gone."""
    mine, other = alignment.items[side], alignment.items[1 - side]
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


def _take(
    alignment: Alignment, side: int, many: list[int], one: int, region: range
) -> None:
    """Frees the pairs of these items in a range of gaps and groups them; a partner of
    another op becomes open."""
    members = oriented(side, set(many), {one})
    for number in range(region.start, region.stop - 1):
        pair = alignment.pairs[number]
        if pair is None:
            continue
        if pair[0] not in members[0] and pair[1] not in members[1]:
            continue
        alignment.pairs[number] = None
        for n in (0, 1):
            if pair[n] not in members[n]:
                alignment.gaps[number][n].append(pair[n])
    gaps = alignment.gaps[region.start : region.stop]
    alignment.close(0, members[0], gaps)
    alignment.close(1, members[1], gaps)
    op = alignment.items[side].op_names[many[0]] or "the same kernel"
    alignment.add(side, tuple(many), one, f"{op} {len(many)} times and once")


class _OuterOp(NamedTuple):
    """An outermost op of the program in a gap."""

    name: str
    nth: int  # among the ops of that name in the gap


def _by_outer(
    alignment: Alignment, side: int, open_items: list[int]
) -> dict[_OuterOp, list[int]]:
    """Open items that compute, by the outermost op around them."""
    items = alignment.items[side]
    members = [n for n in open_items if items.outer[n] >= 0 and items.computes[n]]
    ops_of_name: Counter[str] = Counter()
    by_outer_op = {}
    for row, of_row in by_key(members, items.outer.__getitem__).items():
        name = items.trace.name_of(row)
        by_outer_op[_OuterOp(name=name, nth=ops_of_name[name])] = of_row
        ops_of_name[name] += 1
    return by_outer_op


def _may_be(alignment: Alignment, side: int, many: list[int], one: int) -> bool:
    """Whether nothing contradicts a match.

    Several match one only if their ops are known and that of the one is not, as for a
    kernel launched by the user's own code. One matches one if an op is unknown or both
    are of the same kind.
    """
    mine, other = alignment.items[side], alignment.items[1 - side]
    other_op = other.op_names[one]
    if len(many) > 1:
        return other_op == "" and all(mine.op_names[item] for item in many)
    own_op = mine.op_names[many[0]]
    own_kind = work_class(own_op, mine.names[many[0]])
    other_kind = work_class(other_op, other.names[one])
    if own_kind or other_kind:
        return own_kind == other_kind
    return not own_op or not other_op or stem(own_op) == stem(other_op)
