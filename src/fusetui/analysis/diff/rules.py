"""The rules that group work with different names.

They go by epilogues of GEMMs, by counts of ops, by the ops around the work, and by its
position. `group_lanes` applies all rules to two aligned lanes, the most reliable
rule first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from fusetui.analysis.diff.align import AlignedLanes
from fusetui.analysis.diff.fusion import group_by_name
from fusetui.analysis.diff.groups import (
    Alignment,
    WorkGroup,
    collect_paired_items,
    count_input_elements,
    order_as_a_and_b,
    replace_matched_groups,
)
from fusetui.analysis.diff.instances import (
    MAX_KERNELS_OF_OP,
    group_launches_in_parts,
    group_rest_of_ops,
    group_with_reduction,
    pair_repetitions,
)
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import ELSEWHERE
from fusetui.analysis.diff.names import classify_work
from fusetui.analysis.diff.sequences import are_similar_times
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.op_names import stem

Rule = Callable[[Alignment], None]
"""Groups items of both sides."""

RuleOfSide = Callable[[Alignment, int], None]
"""Groups items; the side that it is given is the one that may have several of them."""

MIN_KERNELS_WITHOUT_SHAPES = 3
"""From this many kernels of one op against one kernel, no shapes are required."""

MIN_SHARE_OF_ELEMENTS = 0.75
"""A tensor with this share of the elements of several kernels together may be that of
their work in one kernel."""

MIN_SHARE_OF_REGION = 0.25
"""Kernels of one op are counted only where they are this share of all kernels of a side
in the region."""

MAX_UNPAIRED_BY_POSITION = 16
"""Position alone does not match one kernel with more unpaired kernels than this."""

MAX_LOOKED_UP_SHAPES = 16
"""The shapes of this many of several kernels are looked up, because each has to be
parsed."""


def group_lanes(a: WorkItems, b: WorkItems, lanes: AlignedLanes) -> list[WorkGroup]:
    """Group the kernels and copies that do the same work in two aligned lanes.

    A lane is a stream or a thread. The alignment has paired equal work; rules then
    group what is left, such as fused kernels.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        lanes: A lane of A and its partner of B.

    Returns:
        Groups that have each item of the lanes once, without items of repeated blocks.
    """
    alignment = Alignment(a, b, lanes)
    pair_repetitions(alignment)
    for rule in RULES:
        rule(alignment)
    return alignment.finish()


def group_by_epilogue(alignment: Alignment, side: int) -> None:
    """Group a GEMM and the kernel after it with a GEMM that does both in its epilogue.

    The name of the GEMM of the other trace has to say that its epilogue does the op of
    that kernel. The name of the first GEMM must not.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace of the GEMM that is followed by another kernel: 0 for A, 1 for
            B.
    """
    own = alignment.items[side]
    other = alignment.items[1 - side]
    for pair_index, pair in enumerate(alignment.pairs):
        unpaired_after = alignment.gaps[pair_index + 1].unpaired(side)
        if pair is None or not unpaired_after:
            continue
        next_item = unpaired_after[0]
        next_op = stem(own.op_names[next_item])
        if not next_op or not own.computes[next_item]:
            continue

        own_gemm = pair[side]
        other_gemm = pair[1 - side]
        own_words = _split_epilogue(own.names[own_gemm])
        other_words = _split_epilogue(other.names[other_gemm])
        if next_op in other_words - own_words:
            alignment.pairs[pair_index] = None
            unpaired_after.remove(next_item)
            alignment.add_group(
                side,
                own_items=(own_gemm, next_item),
                other_item=other_gemm,
                why=f"the GEMM's epilogue includes {next_op}",
            )


def _split_epilogue(kernel: str) -> set[str]:
    """Return the ops of a GEMM's epilogue: `{"gelu", "bias"}` for `GELU_BIAS`.

    The set is empty if the name of the kernel tells no epilogue.
    """
    decoded = role_of_kernel(kernel).decoded
    if decoded is None or not decoded.epilogue:
        return set()
    return set(decoded.epilogue.lower().split("_"))


def group_by_count(alignment: Alignment, side: int) -> None:
    """Group several kernels of one op with the only one in the other trace.

    Kernels are counted within a region between ops that are equally frequent in both.
    They have to be at least MIN_SHARE_OF_REGION of the kernels of their trace in the
    region. The single kernel has to be large enough to be all of them together. Kernels
    without an op count by their own name.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace with several kernels: 0 for A, 1 for B.
    """
    own = alignment.items[side]
    other = alignment.items[1 - side]
    for region in _find_regions(alignment):
        if not any(gap.unpaired(side) for gap in alignment.list_gaps_in(region)):
            continue

        own_items = _list_items_in_region(alignment, side, region)
        other_items = _list_items_in_region(alignment, 1 - side, region)
        own_by_op = by_key(own_items, own.op_or_kernel.__getitem__)
        others_by_op = by_key(other_items, other.op_or_kernel.__getitem__)
        min_kernels = MIN_SHARE_OF_REGION * len(own_items)
        for op, items_of_op in own_by_op.items():
            others = others_by_op.get(op, [])
            is_several = len(items_of_op) >= max(2, min_kernels)
            if len(others) != 1 or not is_several:
                continue
            (other_item,) = others
            if _may_do_work_of_all(own, other, items_of_op, other_item):
                _group_many_with_one(
                    alignment, side, sorted(items_of_op), other_item, region
                )


def _list_items_in_region(alignment: Alignment, side: int, region: range) -> list[int]:
    """Return the items of a trace in a region of the alignment.

    A region is a range of gaps; a gap lies between two pairs. The items of the pairs in
    the region come first, then those without a counterpart.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace of the items: 0 for A, 1 for B.
        region: The indices of the gaps.
    """
    members = []
    for pair_index in alignment.list_pairs_inside(region):
        pair = alignment.pairs[pair_index]
        if pair is not None:
            members.append(pair[side])
    for gap in alignment.list_gaps_in(region):
        members += gap.unpaired(side)
    return members


def group_by_outer_op(alignment: Alignment, side: int) -> None:
    """Group the unpaired items of a gap that are under the same outermost op.

    A gap lies between two pairs of the alignment. Any number of items of one trace is
    grouped with one item of the other. Several items with several are grouped only when
    the rule is called for side 0, so that it happens once.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace that may have several items: 0 for A, 1 for B.
    """
    other_side = 1 - side
    for gap_index, gap in enumerate(alignment.gaps):
        if not gap.a or not gap.b:
            continue
        own_by_outer_op = _group_by_outermost_op(
            alignment.items[side], gap.unpaired(side)
        )
        others_by_outer_op = _group_by_outermost_op(
            alignment.items[other_side], gap.unpaired(other_side)
        )
        for outer_op, own_items in own_by_outer_op.items():
            others = others_by_outer_op.get(outer_op, [])
            why = f"both under {outer_op.name}"
            if len(others) == 1:
                alignment.group_with_one(
                    side,
                    own_items=own_items,
                    other_item=others[0],
                    gap_index=gap_index,
                    why=why,
                )
            elif others and side == 0:
                _group_several(alignment, own_items, others, why)


def _group_several(
    alignment: Alignment, of_a: list[int], of_b: list[int], why: str
) -> None:
    """Group unpaired kernels of A and of B, one to one or as one group.

    They are grouped one to one if they are the same parts of the work of their ops, in
    the same order. Nothing is grouped if A or B has more than MAX_KERNELS_OF_OP.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        of_a: Unpaired items of A.
        of_b: Unpaired items of B.
        why: The evidence, for the reader.
    """
    if max(len(of_a), len(of_b)) > MAX_KERNELS_OF_OP:
        return
    a, b = alignment.items
    parts_a = [role_of_kernel(a.names[item]).part for item in of_a]
    parts_b = [role_of_kernel(b.names[item]).part for item in of_b]
    if parts_a != parts_b:
        alignment.group_items(of_a, of_b, why)
        return
    for item_a, item_b in zip(of_a, of_b, strict=True):
        alignment.group_items([item_a], [item_b], why)


def group_by_position(alignment: Alignment, side: int) -> None:
    """Group all unpaired kernels of a gap with the only one of the other trace.

    A gap lies between two pairs of the alignment, so the kernels have the same
    neighbors. Nothing is grouped where names contradict it.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace that may have several kernels: 0 for A, 1 for B.
    """
    own = alignment.items[side]
    other = alignment.items[1 - side]
    for gap_index, gap in enumerate(alignment.gaps):
        own_items = [item for item in gap.unpaired(side) if own.computes[item]]
        other_items = [item for item in gap.unpaired(1 - side) if other.computes[item]]
        if len(other_items) != 1:
            continue
        if not 0 < len(own_items) <= MAX_UNPAIRED_BY_POSITION:
            continue
        (other_item,) = other_items
        if _may_correspond_by_position(own, other, own_items, other_item):
            why = "matched by position only, between the same neighbors"
            alignment.group_with_one(
                side,
                own_items=own_items,
                other_item=other_item,
                gap_index=gap_index,
                why=why,
                by_sort_or_position=True,
            )


def _for_both_sides(rule: RuleOfSide) -> Rule:
    """Return a rule that applies this one to A first, and then to B."""

    def apply(alignment: Alignment) -> None:
        rule(alignment, 0)
        rule(alignment, 1)

    return apply


RULES: Final[Sequence[Rule]] = (
    _for_both_sides(group_launches_in_parts),
    _for_both_sides(group_by_epilogue),
    _for_both_sides(group_by_name),
    _for_both_sides(group_by_count),
    group_rest_of_ops,
    _for_both_sides(group_with_reduction),
    _for_both_sides(group_by_outer_op),
    _for_both_sides(group_by_position),
)
"""All rules, in the order in which they are applied."""


def pair_moved_work(
    a: WorkItems, b: WorkItems, groups: list[WorkGroup]
) -> list[WorkGroup]:
    """Pair items without a counterpart that are the same work at another position.

    They have to be the same kernel under the same op, and take about as long once the
    times of A are scaled to those of B. Kernels that are compared without their op are
    left out: they may be anywhere.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        groups: All groups so far.

    Returns:
        The groups, with pairs in place of the items that were moved.
    """
    unpaired_a = [group.a[0] for group in groups if not group.b]
    unpaired_b = [group.b[0] for group in groups if not group.a]
    unpaired_by_key_b: defaultdict[int, list[int]] = defaultdict(list)
    for item_b in unpaired_b:
        if not b.is_without_op[item_b]:
            unpaired_by_key_b[int(b.exact_keys[item_b])].append(item_b)
    slowdown = _measure_slowdown(a, b, groups)

    moved_pairs = []
    for item_a in unpaired_a:
        candidates = unpaired_by_key_b[int(a.exact_keys[item_a])]
        if not candidates:
            continue
        expected_ns = a.compared_times[item_a] * slowdown
        distances_ns = [
            abs(b.compared_times[item] - expected_ns) for item in candidates
        ]
        nearest = candidates[distances_ns.index(min(distances_ns))]
        if are_similar_times(b.compared_times[nearest], expected_ns):
            moved_pairs.append(WorkGroup(a=(item_a,), b=(nearest,), why=ELSEWHERE))
            candidates.remove(nearest)
    return replace_matched_groups(groups, moved_pairs)


def _measure_slowdown(a: WorkItems, b: WorkItems, groups: list[WorkGroup]) -> float:
    """Return the median ratio of the times of kernels in B to those in A.

    Only pairs of the same kernel under the same op count. Returns 1 if there are none.
    """
    items_a, items_b = collect_paired_items(groups)
    ratios = []
    for item_a, item_b in zip(items_a.tolist(), items_b.tolist(), strict=True):
        is_same_work = a.exact_keys[item_a] == b.exact_keys[item_b]
        if is_same_work and a.compared_times[item_a]:
            ratios.append(b.compared_times[item_b] / a.compared_times[item_a])
    return float(np.median(ratios)) if ratios else 1.0


def _find_regions(alignment: Alignment) -> Iterator[range]:
    """Yield the regions between ops that are equally frequent in A and B.

    If an op is called several times in one trace and once in the other, its counterpart
    is searched for within a region only.

    Yields:
        Ranges of indices of gaps (what lies between two pairs), which have each gap
        once.
    """
    ops_a = alignment.items[0].op_or_kernel
    ops_b = alignment.items[1].op_or_kernel
    lane_items_a, lane_items_b = alignment.lane_items
    times_in_a = Counter(ops_a[item] for item in lane_items_a)
    times_in_b = Counter(ops_b[item] for item in lane_items_b)

    first_gap = 0
    for pair_index, pair in enumerate(alignment.pairs):
        if pair is None:
            continue
        item_a, item_b = pair
        op_a = ops_a[item_a]
        op_b = ops_b[item_b]
        is_op_a_equally_frequent = times_in_a[op_a] == times_in_b[op_a]
        is_op_b_equally_frequent = times_in_a[op_b] == times_in_b[op_b]
        if is_op_a_equally_frequent and is_op_b_equally_frequent:
            gap_after_pair = pair_index + 1
            yield range(first_gap, gap_after_pair)
            first_gap = gap_after_pair
    yield range(first_gap, len(alignment.gaps))


def _may_do_work_of_all(
    own: WorkItems, other: WorkItems, own_items: list[int], other_item: int
) -> bool:
    """Return whether one kernel may do the work of several kernels together.

    The alternative is that it does the work of one of them, and the others are gone. It
    may do all if its tensor is larger than each of theirs and has MIN_SHARE_OF_ELEMENTS
    of their sum. If a shape is unknown, they have to be at least
    MIN_KERNELS_WITHOUT_SHAPES. It also has to take much longer than the longest of
    them.

    Args:
        own: The kernels of a step of one trace, A or B.
        other: The kernels of a step of the other trace.
        own_items: Indices of several kernels of one op in `own`.
        other_item: The index of the only kernel of that op in `other`.
    """
    elements_of_other = count_input_elements(other, other_item)
    looked_up = own_items[:MAX_LOOKED_UP_SHAPES]
    elements_of_each = []
    for item in looked_up:
        elements = count_input_elements(own, item)
        if elements is not None:
            elements_of_each.append(elements)

    if elements_of_other is None or len(elements_of_each) < len(looked_up):
        time_ns = other.compared_times[other_item]
        longest_ns = max(own.compared_times[item] for item in own_items)
        is_similar = are_similar_times(time_ns, longest_ns)
        is_much_longer = time_ns > longest_ns and not is_similar
        return len(own_items) >= MIN_KERNELS_WITHOUT_SHAPES and is_much_longer

    # Those that were not looked up are taken to be as large as the others on average.
    elements_of_all = sum(elements_of_each) * len(own_items) // len(looked_up)
    is_larger_than_each = elements_of_other > max(elements_of_each)
    is_about_all = elements_of_other >= MIN_SHARE_OF_ELEMENTS * elements_of_all
    return is_larger_than_each and is_about_all


def _group_many_with_one(
    alignment: Alignment,
    side: int,
    own_items: list[int],
    other_item: int,
    region: range,
) -> None:
    """Group several items of one trace with one of the other, unpaired or not.

    Pairs that have one of them are taken apart. A partner that is not part of the group
    is then without a counterpart.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace of `own_items`: 0 for A, 1 for B.
        own_items: Several items of that trace, ascending.
        other_item: An item of the other trace.
        region: The indices of the gaps (between pairs) that all of them are in or
            between.
    """
    grouped_a, grouped_b = order_as_a_and_b(side, set(own_items), {other_item})
    for pair_index in alignment.list_pairs_inside(region):
        alignment.take_apart(pair_index, grouped_a, grouped_b)
    gaps = alignment.list_gaps_in(region)
    alignment.remove_from_gaps(0, grouped_a, gaps)
    alignment.remove_from_gaps(1, grouped_b, gaps)
    op = alignment.items[side].op_names[own_items[0]] or "the same kernel"
    alignment.add_group(
        side,
        own_items=tuple(own_items),
        other_item=other_item,
        why=f"{op} runs {len(own_items)} times on one side, once on the other",
    )


class _OuterOp(NamedTuple):
    """A call of an outermost op of the program in a gap."""

    name: str
    occurrence: int  # counted from 0 among the calls of that name in the gap


def _group_by_outermost_op(
    items: WorkItems, members: list[int]
) -> dict[_OuterOp, list[int]]:
    """Divide some kernels of a step by the call of the outermost op around them.

    Kernels that do not compute, or that are under no op, are left out. The calls of one
    name are numbered, so that the n-th call in A has the same key as the n-th in B.

    Args:
        items: All kernels of a step.
        members: The indices of the kernels to divide.
    """
    members_by_call: defaultdict[int, list[int]] = defaultdict(list)
    for item in members:
        call = items.outermost_ops[item]
        if call != NO_ROW and items.computes[item]:
            members_by_call[call].append(item)

    calls_so_far: Counter[str] = Counter()
    members_by_op = {}
    for call, members_of_call in members_by_call.items():
        name = items.trace.name_of(call)
        op = _OuterOp(name=name, occurrence=calls_so_far[name])
        members_by_op[op] = members_of_call
        calls_so_far[name] += 1
    return members_by_op


def _may_correspond_by_position(
    own: WorkItems, other: WorkItems, own_items: list[int], other_item: int
) -> bool:
    """Return whether names allow that kernels do the same work, as their position says.

    Several kernels may correspond to one only if all of their ops are known and that of
    the one is not. One kernel may correspond to one if they are of the same kind of
    work. If neither has a kind, their ops have to have the same name, or one op has to
    be unknown.

    Args:
        own: The kernels of a step of one trace, A or B.
        other: The kernels of a step of the other trace.
        own_items: Indices of unpaired kernels of `own` that have the same neighbors; at
            least one.
        other_item: The index of the only unpaired kernel of `other` there.
    """
    other_op = other.op_names[other_item]
    if len(own_items) > 1:
        return other_op == "" and all(own.op_names[item] for item in own_items)

    (own_item,) = own_items
    own_op = own.op_names[own_item]
    own_kind = classify_work(own_op, own.names[own_item])
    other_kind = classify_work(other_op, other.names[other_item])
    if own_kind or other_kind:
        return own_kind == other_kind
    return not own_op or not other_op or stem(own_op) == stem(other_op)
