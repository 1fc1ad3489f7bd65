"""Turns groups of work into the rows of a diff, with the names of the user's
program."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.diff.groups import (
    WorkGroup,
    collect_paired_items,
    describe_avoided_tensors,
)
from fusetui.analysis.diff.items import NO_OP, WorkItems
from fusetui.analysis.diff.model import (
    ELSEWHERE,
    REPEATED,
    Row,
    RowKind,
    RowShare,
    make_row,
)
from fusetui.analysis.diff.names import describe_differences, remove_run_numbers
from fusetui.analysis.diff.noise import Noise, estimate_noise, is_beyond_noise
from fusetui.analysis.diff.program_places import (
    OTHER,
    ProgramPlaces,
    choose_sort_of_all,
)
from fusetui.analysis.diff.statistics import detect_tick_ns, mean
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.text.figures import change, duration, plural
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import NO_ROW, Int64s, rank_of_each
from fusetui.trace.model.op_names import stem
from fusetui.trace.model.quantiles import medians

_OPS_WITH_ALGORITHMS = lazy_pattern(r"cudnn|miopen|convolution")
"""Names of ops for which a library chooses among several algorithms."""

MAX_LOOKED_UP_FUSIONS = 500
"""With more fusions than this, no shapes are looked up, because each has to be
parsed."""

BEFORE_ALL = -1
"""The rank of what comes before the first launch: ranks are counted from 0."""

MIN_SHOWN_NOISE = 0.25
"""The times of a kernel whose change may be noise are shown if its time changed by at
least this share of A's."""


def make_rows(
    a: WorkItems,
    b: WorkItems,
    groups: Sequence[WorkGroup],
    program_a: ProgramPlaces,
    program_b: ProgramPlaces,
) -> list[Row]:
    """Make one row for each group of work, in the order of the program.

    A group has the items (kernels and copies) of A and of B that do the same work.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        groups: Which items do the same work; each item is in one group.
        program_a: Where the program does the work of A.
        program_b: Where the program does the work of B.
    """
    groups = _add_avoided_tensors(a, groups)
    kinds = _judge_groups(a, b, groups)

    group_rows = []
    for group_index in _sort_by_program_order(a, b, groups):
        group = groups[group_index]
        context = _find_context(group, program_a, program_b)
        group_rows.append(_make_row_of_group(a, b, group, kinds[group_index], context))
    return group_rows


class _Context(msgspec.Struct, frozen=True):
    """The fields of a row that say where in the program it is; see `model.Row`."""

    where: str
    phase: str
    work: str
    compiled: str


def _find_context(group: WorkGroup, a: ProgramPlaces, b: ProgramPlaces) -> _Context:
    """Determine where the program does the work of a group, and of which sort it is.

    The place is that of the first item (kernel or copy) of A, or of B where only B has
    the work. Repeated blocks, such as layers, have no place. They have a phase only if
    all of their items are of one phase.

    Args:
        group: The items of A and of B that do the same work.
        a: Where the program does the work of A.
        b: Where the program does the work of B.
    """
    compiled_sides = ""
    if any(a.is_compiled(item) for item in group.a):
        compiled_sides += "a"
    if any(b.is_compiled(item) for item in group.b):
        compiled_sides += "b"

    if group.a:
        program = a
        members = group.a
    else:
        program = b
        members = group.b
    first = members[0]
    is_repeated_block = group.title != ""
    if is_repeated_block:
        # It has many places, and may be of the forward and of the backward pass.
        phases = {program.phases[item] for item in members}
        return _Context(
            where="",
            phase=program.phases[first] if len(phases) == 1 else "",
            work=REPEATED,
            compiled=compiled_sides,
        )
    return _Context(
        where=program.places[first],
        phase=program.phases[first],
        work=_find_sort_of_group(group, a, b),
        compiled=compiled_sides,
    )


def _find_sort_of_group(group: WorkGroup, a: ProgramPlaces, b: ProgramPlaces) -> str:
    """Return the sort of work of a group, such as `GEMM`.

    Of one or two items, the first known sort counts. Of more items, it is the sort of
    all of them together (`choose_sort_of_all`).

    Returns:
        OTHER if no sort is known.
    """
    sorts = [a.sorts[item] for item in group.a]
    sorts += [b.sorts[item] for item in group.b]
    if len(sorts) > 2:
        return choose_sort_of_all(set(sorts))
    for sort in sorts:
        if sort != OTHER:
            return sort
    return OTHER


def _add_avoided_tensors(
    a: WorkItems, groups: Sequence[WorkGroup]
) -> Sequence[WorkGroup]:
    """Add to the evidence of fusions which tensors need not be written any more.

    Only fusions of different ops are considered. If they are more than
    MAX_LOOKED_UP_FUSIONS, the groups stay as they are.
    """
    fusions = [group for group in groups if _is_fusion_of_ops(a, group)]
    if len(fusions) > MAX_LOOKED_UP_FUSIONS:
        return groups

    with_tensors = []
    for group in groups:
        tensors = ""
        if _is_fusion_of_ops(a, group):
            tensors = describe_avoided_tensors(a, group.a)
        if tensors:
            group = msgspec.structs.replace(group, why=f"{group.why}; {tensors}")
        with_tensors.append(group)
    return with_tensors


def _is_fusion_of_ops(a: WorkItems, group: WorkGroup) -> bool:
    """Return whether one kernel of B does the work of several ops of A."""
    ops = {a.op_names[item] for item in group.a}
    return len(group.b) == 1 and len(ops) > 1


def _make_row_of_group(
    a: WorkItems, b: WorkItems, group: WorkGroup, kind: RowKind, context: _Context
) -> Row:
    """Make the row of a group: of kernels of A and kernels of B that do the same work.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        group: Which items of A and of B do the work.
        kind: What happened to the work. If it only moved to another place, the row is
            MOVED instead.
        context: Where the program does the work.
    """
    if _is_pair(group):
        op = a.op_names[group.a[0]]
        why = _explain_pair(a, b, group, kind)
        matched_as_whole = False
    else:
        op = group.title or _list_ops_of_group(a, b, group)
        why = _explain_several(a, b, group, kind)
        matched_as_whole = group.matched_as_whole
    return make_row(
        kind=RowKind.MOVED if group.why == ELSEWHERE else kind,
        op=op,
        a=_add_up_items(a, group.a),
        b=_add_up_items(b, group.b),
        why=why,
        together=matched_as_whole,
        where=context.where,
        phase=context.phase,
        work=context.work,
        compiled=context.compiled,
    )


def _is_pair(group: WorkGroup) -> bool:
    """Return whether the group is one item of A and one item of B."""
    return len(group.a) == 1 and len(group.b) == 1


def _add_up_items(items: WorkItems, members: Sequence[int]) -> RowShare:
    """Add up the times, counts and rows of some items of a trace.

    An item is a kernel or copy; `members` has the indices of the items to add up.
    """
    return RowShare(
        names=[items.names[item] for item in members],
        ns=sum(items.mean_times[item] for item in members),
        count=len(members),
        median_ns=sum(items.median_times[item] for item in members),
        rows=tuple(items.row[[*members]].tolist()),
        hidden_ns=sum(items.hidden_times[item] for item in members),
    )


def _explain_pair(a: WorkItems, b: WorkItems, group: WorkGroup, kind: RowKind) -> str:
    """Say what changed of a pair, then the evidence for it.

    For example `aten::gelu -> gelu; the same kernel takes 12 % more time`. If the
    kernel was replaced, it is how the names of the two kernels differ.
    """
    kernel_a = a.names[group.a[0]]
    kernel_b = b.names[group.b[0]]
    texts = [_describe_renamed_op(a, b, group)]
    if kind is RowKind.REPLACED:
        if kernel_a or kernel_b:
            texts.append(describe_differences(kernel_a, kernel_b))
    else:
        what = "kernel" if a.work.gpu and b.work.gpu else "op"
        texts.append(f"the same {what}{_describe_change_of_time(a, b, group, kind)}")
    texts.append(group.why)
    return "; ".join(text for text in texts if text)


def _describe_renamed_op(a: WorkItems, b: WorkItems, group: WorkGroup) -> str:
    """Write `aten::gelu -> gelu` if the op of a pair has two names.

    Returns "" if the names are the same or unknown, or if they are also the names of
    the work, as without a GPU.
    """
    item_a = group.a[0]
    item_b = group.b[0]
    before = a.op_names[item_a]
    after = b.op_names[item_b]
    if (
        not before
        or not after
        or remove_run_numbers(stem(before)) == remove_run_numbers(stem(after))
    ):
        return ""
    is_name_of_work = before == a.names[item_a] and after == b.names[item_b]
    if is_name_of_work:
        return ""
    return f"{printable(before)} -> {printable(after)}"


def _describe_change_of_time(
    a: WorkItems, b: WorkItems, group: WorkGroup, kind: RowKind
) -> str:
    """Say how the time of a pair of one kernel changed.

    It is ` takes 12.0 % more time` if the kernel is faster or slower. If the change may
    be noise (SAME), it is `, may be noise: 5 us to 7 us -> 8 us to 9 us`. It is "" if
    that change is a smaller share of the time of A than MIN_SHOWN_NOISE, or if A takes
    no time.
    """
    item_a = group.a[0]
    item_b = group.b[0]
    a_ns = a.mean_times[item_a]
    b_ns = b.mean_times[item_b]
    if kind is not RowKind.SAME:
        return f" takes {change(a_ns, b_ns)} time"
    if a_ns <= 0 or abs(b_ns - a_ns) < MIN_SHOWN_NOISE * a_ns:
        return ""
    before = _format_range(a.samples[:, item_a])
    after = _format_range(b.samples[:, item_b])
    return f", may be noise: {before} -> {after}"


def _format_range(times_ns: Int64s) -> str:
    """Write the least and the greatest of some times: `5 us to 7 us`; one if equal."""
    shortest = duration(int(times_ns.min()))
    longest = duration(int(times_ns.max()))
    return shortest if shortest == longest else f"{shortest} to {longest}"


def _explain_several(
    a: WorkItems, b: WorkItems, group: WorkGroup, kind: RowKind
) -> str:
    """Say the evidence for a group that is no pair.

    If a library chose other kernels for one op, it begins with the numbers of kernels:
    `another algorithm: 2 kernels -> 1; ...`. It begins with `2 helpers -> 1; ...` if
    none of A's kernels is main work.
    """
    if kind is not RowKind.REPLACED or group.matched_as_whole:
        return group.why
    if not _is_other_algorithm(a, b, group):
        return group.why
    if any(role_of_kernel(a.names[item]).part == "main" for item in group.a):
        kernels = f"different algorithm: {plural(len(group.a), 'kernel')}"
    else:
        kernels = plural(len(group.a), "helper kernel")
    return f"{kernels} -> {len(group.b)}; {group.why}"


def _judge_groups(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[RowKind]:
    """Decide what happened to the work of each group: SAME, FASTER, FUSED, ...

    A pair of two different kernels is REPLACED. A pair of one kernel is judged by its
    times, against the noise of all such pairs.

    Returns:
        One kind per group.
    """
    items_a, items_b = collect_paired_items(groups)
    is_same_kernel = a.kernel_ids[items_a] == b.kernel_ids[items_b]
    noise = estimate_noise(
        a.samples[:, items_a[is_same_kernel]],
        b.samples[:, items_b[is_same_kernel]],
        same_steps=np.array_equal(a.same_work_steps, b.same_work_steps),
    )
    kinds_by_time = _judge_by_time(
        a, b, a.samples[:, items_a], b.samples[:, items_b], noise
    )

    # Each item is in one group, so the item of A tells which pair it is.
    kind_of_item_a: dict[int, RowKind] = {}
    for item_a, kind_by_time, is_same in zip(
        items_a.tolist(), kinds_by_time, is_same_kernel.tolist(), strict=True
    ):
        kind_of_item_a[item_a] = kind_by_time if is_same else RowKind.REPLACED

    kinds: list[RowKind] = []
    for group in groups:
        if _is_pair(group):
            kinds.append(kind_of_item_a[group.a[0]])
        else:
            kinds.append(_judge_group_of_several(a, b, group, noise))
    return kinds


def _judge_group_of_several(
    a: WorkItems, b: WorkItems, group: WorkGroup, noise: Noise
) -> RowKind:
    """Decide what happened to the work of a group that is no pair of one item each.

    Work of B only is ADDED, of A only REMOVED. Fewer kernels in B mean FUSED, more mean
    SPLIT, and other kernels of a library for one op REPLACED. A group of one kernel
    that was matched as a whole is judged by its time.
    """
    if group.matched_as_whole:
        kernels = {a.kernel_id(item) for item in group.a}
        kernels |= {b.kernel_id(item) for item in group.b}
        if len(kernels) > 1:
            return RowKind.REPLACED
        # The time of all of them together is one column.
        before = a.samples[:, [*group.a]].sum(axis=1, keepdims=True)
        after = b.samples[:, [*group.b]].sum(axis=1, keepdims=True)
        (kind,) = _judge_by_time(a, b, before, after, noise)
        return kind
    if not group.b:
        return RowKind.REMOVED
    if not group.a:
        return RowKind.ADDED
    if len(group.a) == len(group.b) or _is_other_algorithm(a, b, group):
        return RowKind.REPLACED
    has_fewer_in_b = len(group.b) < len(group.a)
    return RowKind.FUSED if has_fewer_in_b else RowKind.SPLIT


def _is_other_algorithm(a: WorkItems, b: WorkItems, group: WorkGroup) -> bool:
    """Return whether cuDNN or MIOpen chose other kernels for one op.

    Then nothing of the program was fused or split. It is False where A and B each have
    one product, and one of them also a kernel that adds up its parts. In that case the
    product was split.
    """
    if not _is_of_one_op_with_algorithms(a, group.a):
        return False
    if not _is_of_one_op_with_algorithms(b, group.b):
        return False
    names_a = [a.names[item] for item in group.a]
    names_b = [b.names[item] for item in group.b]
    has_other_kernels = (
        len({remove_run_numbers(name) for name in names_a + names_b}) > 1
    )
    is_one_product = _count_products(names_a) == 1 and _count_products(names_b) == 1
    return has_other_kernels and not is_one_product


def _is_of_one_op_with_algorithms(items: WorkItems, members: Sequence[int]) -> bool:
    """Return whether all items are of one op that has several algorithms.

    cuDNN and MIOpen have several for convolutions. `members` are the indices of at
    least one item.
    """
    ops = {items.op_id(item) for item in members}
    first_op = items.stems[members[0]]
    return len(ops) == 1 and _OPS_WITH_ALGORITHMS.search(first_op) is not None


def _count_products(names: Sequence[str]) -> int:
    """Count the kernels that do more than add up the parts of another kernel."""
    return sum(1 for name in names if not role_of_kernel(name).adds_up_parts)


def _judge_by_time(
    a: WorkItems, b: WorkItems, before: Int64s, after: Int64s, noise: Noise
) -> list[RowKind]:
    """Judge the times of kernels, one per column: SAME, FASTER or SLOWER.

    A column is SAME if its change is within noise. It is also SAME if its mean over the
    usual steps, which is the figure that is shown, changes the other way than its
    median.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        before: Times of A in ns, [steps with the usual work, columns].
        after: Times of B in ns, with the same columns.
        noise: The noise of the comparison.
    """
    tick_ns = detect_tick_ns(a.samples, b.samples)
    is_changed = is_beyond_noise(before, after, tick_ns, noise)
    is_faster = medians(after) < medians(before)

    is_usual_a = np.isin(a.same_work_steps, a.usual_steps)
    is_usual_b = np.isin(b.same_work_steps, b.usual_steps)
    if is_usual_a.any() and is_usual_b.any():
        change_ns = mean(after[is_usual_b]) - mean(before[is_usual_a])
        is_changed &= np.where(is_faster, change_ns < 0, change_ns > 0)

    kinds = []
    for changed, faster in zip(is_changed.tolist(), is_faster.tolist(), strict=True):
        if not changed:
            kinds.append(RowKind.SAME)
        elif faster:
            kinds.append(RowKind.FASTER)
        else:
            kinds.append(RowKind.SLOWER)
    return kinds


def _list_ops_of_group(a: WorkItems, b: WorkItems, group: WorkGroup) -> str:
    """List the ops of a group, as `aten::gelu + aten::mul x2`.

    They are the ops of A or of B, whichever has more kernels. If the group is matched
    as a whole and that trace knows none of its ops, they are those of the other one.
    """
    use_a = len(group.a) >= len(group.b)
    if group.matched_as_whole:
        has_op_in_a = any(a.op_id(item) != NO_OP for item in group.a)
        has_op_in_b = any(b.op_id(item) != NO_OP for item in group.b)
        if use_a and not has_op_in_a:
            use_a = False
        elif not use_a and not has_op_in_b:
            use_a = True
    return _list_ops(a, group.a) if use_a else _list_ops(b, group.b)


def _list_ops(items: WorkItems, members: Sequence[int]) -> str:
    """List the ops that launched some kernels, as `aten::gelu + aten::mul x2`.

    An op that launched several of the kernels in one call counts once.

    Args:
        items: All kernels of a step.
        members: The indices of the kernels.
    """
    if len(members) == 1:
        return items.op_names[members[0]]

    calls: set[int] = set()
    calls_by_name: Counter[str] = Counter()
    for item in members:
        name = items.op_names[item]
        call = int(items.op[item])
        if items.op_id(item) == NO_OP:  # it is compared without its op
            calls_by_name[name] += 1
        elif call not in calls:
            calls.add(call)
            calls_by_name[name] += 1

    texts = []
    for name, times in calls_by_name.items():
        if name:
            texts.append(f"{name} x{times}" if times > 1 else name)
    return " + ".join(texts)


def _sort_by_program_order(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[int]:
    """Sort the groups in the order in which A launched the first kernel of each.

    A group that only B has comes after the group of both whose kernel precedes it on
    its stream. It comes at the very beginning if there is none. Several such groups at
    one position are in the order in which B launched them.

    Returns:
        Indices of groups.
    """
    rank_a = _rank_by_launch(a)
    rank_b = _rank_by_launch(b)
    matched = _list_matched_groups(rank_a, groups)

    positions = []
    for group_index, group in enumerate(groups):
        if group.a:
            position = _ProgramPosition(
                rank_a=min(rank_a[item] for item in group.a),
                rank_b=BEFORE_ALL,
                group_index=group_index,
            )
        else:
            item = group.b[0]
            position = _ProgramPosition(
                rank_a=_find_rank_of_preceding_match(b, item, matched),
                rank_b=rank_b[item],
                group_index=group_index,
            )
        positions.append(position)
    return [position.group_index for position in sorted(positions)]


class _ProgramPosition(NamedTuple):
    """The key by which groups are sorted."""

    rank_a: int  # of the first launch in A, or BEFORE_ALL
    rank_b: int  # of the launch in B, for groups that only B has; else BEFORE_ALL
    group_index: int


def _list_matched_groups(
    rank_a: Sequence[int], groups: Sequence[WorkGroup]
) -> list[_MatchedGroup]:
    """List the groups that both A and B have, in the order of their items of B.

    Args:
        rank_a: The rank of each item of A in the order of the launches.
        groups: All groups of work.
    """
    matched = []
    for group in groups:
        if group.a and group.b:
            first_rank = min(rank_a[item] for item in group.a)
            matched.append(_MatchedGroup(item_b=min(group.b), rank_a=first_rank))
    return sorted(matched)


class _MatchedGroup(NamedTuple):
    """A group that both sides have."""

    item_b: int  # its first item of B
    rank_a: int  # the rank of its first launch in A


def _find_rank_of_preceding_match(
    b: WorkItems, item: int, matched: Sequence[_MatchedGroup]
) -> int:
    """Return the rank in A of the last group of both traces at or before an item of B.

    An item is a kernel or copy; its rank is its place in the order of the launches.

    Args:
        b: The items of the representative step of B.
        item: An item of B.
        matched: The groups that A and B have, sorted by `item_b`.

    Returns:
        BEFORE_ALL if there is no such group, or if it is on another lane (stream).
    """
    groups_until_item = bisect_right(matched, item, key=attrgetter("item_b"))
    if groups_until_item == 0:
        return BEFORE_ALL
    preceding = matched[groups_until_item - 1]
    is_on_same_lane = b.lane[preceding.item_b] == b.lane[item]
    return preceding.rank_a if is_on_same_lane else BEFORE_ALL


def _rank_by_launch(items: WorkItems) -> list[int]:
    """Return the rank of each item in the order of the calls that launched them.

    An item whose call is not in the file is ordered by its own start.
    """
    trace = items.trace
    rows = items.row
    launched_ns = trace.start[rows]
    if items.work.gpu:
        launch = trace.launch[rows]
        has_launch = launch != NO_ROW
        launched_ns = np.where(has_launch, trace.start[launch], launched_ns)

    by_launch_then_start = np.lexsort((trace.start[rows], launched_ns))
    return [*rank_of_each(by_launch_then_start).tolist()]
