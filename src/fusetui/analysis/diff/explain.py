"""Turns groups of items into rows, in the words of the user's program."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.diff.groups import WorkGroup, avoided_tensors, paired_items
from fusetui.analysis.diff.items import KERNEL_MASK, WorkItems
from fusetui.analysis.diff.model import (
    ELSEWHERE,
    REPEATED,
    Row,
    RowKind,
    RowShare,
    row_of,
)
from fusetui.analysis.diff.names import differences, identity
from fusetui.analysis.diff.noise import Noise, beyond_noise, noise_of
from fusetui.analysis.diff.program_places import OTHER, ProgramPlaces, sort_of_all
from fusetui.analysis.diff.statistics import mean, resolution
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.text.figures import change, duration, plural
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.op_names import stem
from fusetui.trace.model.quantiles import medians

_OPS_WITH_ALGORITHMS = lazy_pattern(r"cudnn|miopen|convolution")
"""Names of ops for which a library chooses among several algorithms."""

MAX_LOOKED_UP_FUSIONS = 500
"""Shapes are looked up for no more fusions than this, because each has to be parsed."""

MIN_SHOWN_NOISE = 0.25
"""The times of a kernel whose change may be noise are shown if its time changed by at
least this share of A's."""


def rows(
    a: WorkItems,
    b: WorkItems,
    groups: Sequence[WorkGroup],
    programs: tuple[ProgramPlaces, ProgramPlaces],
) -> list[Row]:
    """One row for every group, in the order of the program (`_program_order`).
    `programs`: where in the program the items of A and of B are."""
    program_a, program_b = programs
    groups = _with_savings(a, groups)
    kinds = _kinds(a, b, groups)
    group_rows = []
    for number in _program_order(a, b, groups):
        group = groups[number]
        context = _context(group, program_a, program_b)
        group_rows.append(_row(a, b, group, kinds[number], context))
    return group_rows


class _Context(msgspec.Struct, frozen=True):
    """Fields of a row about the program around it; see `model.Row`."""

    where: str
    phase: str
    work: str
    compiled: str


def _context(group: WorkGroup, a: ProgramPlaces, b: ProgramPlaces) -> _Context:
    """Where the program does the work of a group, by its first item of A, or of B where
    only B has it; and its sort. Repeated blocks have no place, and a phase only if all
    their items are of one."""
    program, members = (a, group.a) if group.a else (b, group.b)
    compiled = ""
    if any(a.is_compiled(item) for item in group.a):
        compiled += "a"
    if any(b.is_compiled(item) for item in group.b):
        compiled += "b"
    first = members[0]
    if not group.title:
        return _Context(
            where=program.places[first],
            phase=program.phases[first],
            work=_sort_of_work(group, a, b),
            compiled=compiled,
        )
    # a block has many places, and may be of the forward and of the backward pass
    phases = {program.phases[item] for item in members}
    return _Context(
        where="",
        phase=program.phases[first] if len(phases) == 1 else "",
        work=REPEATED,
        compiled=compiled,
    )


def _sort_of_work(group: WorkGroup, a: ProgramPlaces, b: ProgramPlaces) -> str:
    """The sort of work of a group: of one or two items the first sort that is known, of
    more items that of all of them together (`sort_of_all`); OTHER if none is known."""
    sorts = [a.sorts[item] for item in group.a] + [b.sorts[item] for item in group.b]
    if len(sorts) > 2:
        return sort_of_all(set(sorts))
    for sort in sorts:
        if sort != OTHER:
            return sort
    return OTHER


def _with_savings(a: WorkItems, groups: Sequence[WorkGroup]) -> Sequence[WorkGroup]:
    """The groups, where the evidence of each fusion of different ops also says which
    tensors between them need not be written (`avoided_tensors`). As they are if these
    fusions are more than MAX_LOOKED_UP_FUSIONS."""
    fusions = []
    for number, group in enumerate(groups):
        ops = {a.op_names[item] for item in group.a}
        if len(group.b) == 1 and len(ops) > 1:
            fusions.append(number)
    if len(fusions) > MAX_LOOKED_UP_FUSIONS:
        return groups
    with_savings = list(groups)
    for number in fusions:
        group = groups[number]
        avoided = avoided_tensors(a, group.a)
        if avoided:
            why = f"{group.why}; {avoided}"
            with_savings[number] = msgspec.structs.replace(group, why=why)
    return with_savings


def _row(
    a: WorkItems, b: WorkItems, group: WorkGroup, kind: RowKind, context: _Context
) -> Row:
    """The row of a group. `kind`: what happened to the work, except that a group that
    was matched elsewhere was moved."""
    if _is_pair(group):
        op = a.op_names[group.a[0]]
        why = _why_of_pair(a, b, group, kind)
        together = False
    else:
        op = group.title or _op(a, b, group)
        why = _why(a, b, group, kind)
        together = group.matched_as_whole
    return row_of(
        RowKind.MOVED if group.why == ELSEWHERE else kind,
        op,
        _share(a, group.a),
        _share(b, group.b),
        why,
        together=together,
        where=context.where,
        phase=context.phase,
        work=context.work,
        compiled=context.compiled,
    )


def _is_pair(group: WorkGroup) -> bool:
    """Whether the group is one item of A and one of B."""
    return len(group.a) == 1 and len(group.b) == 1


def _share(items: WorkItems, members: Sequence[int]) -> RowShare:
    """The sums over some items of a side."""
    return RowShare(
        names=[items.names[item] for item in members],
        ns=sum(items.times[item] for item in members),
        count=len(members),
        median_ns=sum(items.medians[item] for item in members),
        rows=tuple(items.row[[*members]].tolist()),
        hidden_ns=sum(items.hidden_times[item] for item in members),
    )


def _why_of_pair(a: WorkItems, b: WorkItems, group: WorkGroup, kind: RowKind) -> str:
    """What changed of a pair, in words, then the evidence for it: `aten::gelu -> gelu;
    the same kernel, +12 % time`, or how its kernels differ where they were replaced."""
    kernel_a = a.names[group.a[0]]
    kernel_b = b.names[group.b[0]]
    texts = [_renamed_op(a, b, group)]
    if kind is RowKind.REPLACED:
        has_names = kernel_a or kernel_b
        texts.append(differences(kernel_a, kernel_b) if has_names else "")
    else:
        what = "kernel" if a.work.gpu and b.work.gpu else "op"
        texts.append(f"the same {what}{_change_of_time(a, b, group, kind)}")
    texts.append(group.why)
    return "; ".join(text for text in texts if text)


def _renamed_op(a: WorkItems, b: WorkItems, group: WorkGroup) -> str:
    """`aten::gelu -> gelu`: both names of the op of a pair. "" where they are the same
    or unknown, or where each is also the name of the work, as it is without a GPU."""
    item_a = group.a[0]
    item_b = group.b[0]
    before = a.op_names[item_a]
    after = b.op_names[item_b]
    if not before or not after or identity(stem(before)) == identity(stem(after)):
        return ""
    if (before, after) == (a.names[item_a], b.names[item_b]):
        return ""
    return f"{printable(before)} -> {printable(after)}"


def _change_of_time(a: WorkItems, b: WorkItems, group: WorkGroup, kind: RowKind) -> str:
    """`, +12 % time` for a pair of one kernel that is faster or slower. For one whose
    change may be noise (`SAME`) the times between which it varies, if its time changed
    by MIN_SHOWN_NOISE, else ""."""
    item_a = group.a[0]
    item_b = group.b[0]
    a_ns = a.times[item_a]
    b_ns = b.times[item_b]
    if kind is not RowKind.SAME:
        return f", {change(a_ns, b_ns)} time"
    if a_ns <= 0 or abs(b_ns - a_ns) < MIN_SHOWN_NOISE * a_ns:
        return ""
    before = _range(a.samples[:, item_a])
    after = _range(b.samples[:, item_b])
    return f", may be noise: {before} -> {after}"


def _range(times_ns: Int64s) -> str:
    """`5 us to 7 us`: the least and the greatest of some times."""
    return f"{duration(int(times_ns.min()))} to {duration(int(times_ns.max()))}"


def _why(a: WorkItems, b: WorkItems, group: WorkGroup, kind: RowKind) -> str:
    """The evidence for a group that is no pair. Where a library chose other kernels for
    one op, it begins with their numbers: `another algorithm: 2 kernels -> 1; ...`, or
    `2 helpers -> 1; ...` if A's are no main work."""
    if kind is not RowKind.REPLACED or group.matched_as_whole:
        return group.why
    if not _other_algorithm(a, b, group):
        return group.why
    if any(role_of_kernel(a.names[item]).part == "main" for item in group.a):
        kernels = f"another algorithm: {plural(len(group.a), 'kernel')}"
    else:
        kernels = plural(len(group.a), "helper")
    return f"{kernels} -> {len(group.b)}; {group.why}"


def _kinds(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[RowKind]:
    """What happened to the work of each group; shape [groups]. Pairs are of one kernel or
    replaced; times are judged by the noise of all pairs of one kernel."""
    items_a, items_b = paired_items(groups)
    kernel_a = a.exact_keys[items_a] & KERNEL_MASK
    kernel_b = b.exact_keys[items_b] & KERNEL_MASK
    is_same_kernel = kernel_a == kernel_b
    noise = noise_of(
        a.samples[:, items_a[is_same_kernel]],
        b.samples[:, items_b[is_same_kernel]],
        same_steps=np.array_equal(a.alike_steps, b.alike_steps),
    )
    timed = _timed(a, b, a.samples[:, items_a], b.samples[:, items_b], noise)
    kinds = []
    pair = 0  # how many pairs came before; they are in the order of the groups
    for group in groups:
        if not _is_pair(group):
            kinds.append(_kind_of_several(a, b, group, noise))
            continue
        kinds.append(timed[pair] if is_same_kernel[pair] else RowKind.REPLACED)
        pair += 1
    return kinds


def _kind_of_several(
    a: WorkItems, b: WorkItems, group: WorkGroup, noise: Noise
) -> RowKind:
    """What happened to the work of a group that is no pair. One that is matched as a
    whole and runs one kernel is judged by its time, like a pair."""
    if group.matched_as_whole:
        kernels = {a.kernel_id(item) for item in group.a}
        kernels |= {b.kernel_id(item) for item in group.b}
        if len(kernels) > 1:
            return RowKind.REPLACED
        before = a.samples[:, [*group.a]].sum(axis=1, keepdims=True)
        after = b.samples[:, [*group.b]].sum(axis=1, keepdims=True)
        return _timed(a, b, before, after, noise)[0]
    if not group.b:
        return RowKind.REMOVED
    if not group.a:
        return RowKind.ADDED
    if len(group.a) == len(group.b) or _other_algorithm(a, b, group):
        return RowKind.REPLACED
    return RowKind.FUSED if len(group.a) > len(group.b) else RowKind.SPLIT


def _other_algorithm(a: WorkItems, b: WorkItems, group: WorkGroup) -> bool:
    """Whether cuDNN or MIOpen chose other kernels for one op, so that nothing of the
    program was fused or split. Not where both sides have one product, and one of them
    also a kernel that adds up its parts: that product was split."""
    if not _is_of_one_op_with_algorithms(a, group.a):
        return False
    if not _is_of_one_op_with_algorithms(b, group.b):
        return False
    names_a = [a.names[item] for item in group.a]
    names_b = [b.names[item] for item in group.b]
    has_other_kernels = len({identity(name) for name in names_a + names_b}) > 1
    is_one_product = _products(names_a) == 1 and _products(names_b) == 1
    return has_other_kernels and not is_one_product


def _is_of_one_op_with_algorithms(items: WorkItems, members: Sequence[int]) -> bool:
    """Whether all items are under one op for which a library has several algorithms."""
    ops = {items.op_id(item) for item in members}
    first_op = items.stems[members[0]]
    return len(ops) == 1 and _OPS_WITH_ALGORITHMS.search(first_op) is not None


def _products(names: Sequence[str]) -> int:
    """How many of the kernels do more than add up the parts of another one."""
    return sum(not role_of_kernel(name).adds_up_parts for name in names)


def _timed(
    a: WorkItems, b: WorkItems, before: Int64s, after: Int64s, noise: Noise
) -> list[RowKind]:
    """SAME, FASTER or SLOWER for each column of samples of one kernel; `before` and
    `after`: ns, of shape [steps alike, kernels].

    SAME where the change is within noise, or where the means of the usual steps, which
    are the figures of a row, say the opposite of the medians.
    """
    tick_ns = resolution(a.samples, b.samples)
    is_changed = beyond_noise(before, after, tick_ns, noise)
    is_faster = medians(after) < medians(before)
    usual_a = np.isin(a.alike_steps, a.usual_steps)
    usual_b = np.isin(b.alike_steps, b.usual_steps)
    if usual_a.any() and usual_b.any():
        change_ns = mean(after[usual_b]) - mean(before[usual_a])
        is_changed &= np.where(is_faster, change_ns < 0, change_ns > 0)
    kinds = []
    for changed, faster in zip(is_changed.tolist(), is_faster.tolist(), strict=True):
        if not changed:
            kinds.append(RowKind.SAME)
        else:
            kinds.append(RowKind.FASTER if faster else RowKind.SLOWER)
    return kinds


def _op(a: WorkItems, b: WorkItems, group: WorkGroup) -> str:
    """The ops of a group, each call once, as `aten::gelu + aten::mul x2`: those of the
    side that has more items, or of the other one if the group is matched as a whole and
    that side knows none of its ops."""
    has_more_a = len(group.a) >= len(group.b)
    items, members = (a, group.a) if has_more_a else (b, group.b)
    if group.matched_as_whole and not any(items.op_id(item) for item in members):
        items, members = (b, group.b) if has_more_a else (a, group.a)
    if len(members) == 1:
        return items.op_names[members[0]]
    name_of_call = {}  # by the row of the call of the op, or by the item without one
    for item in members:
        call = int(items.op[item]) if items.op_id(item) else -item - 1
        name_of_call[call] = items.op_names[item]
    texts = []
    for name, calls in Counter(name_of_call.values()).items():
        if name:
            texts.append(f"{name} x{calls}" if calls > 1 else name)
    return " + ".join(texts)


def _program_order(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[int]:
    """The numbers of the groups in the order in which A launched the first item of each.
    A group that only B has comes after the matched group whose item comes before it on
    its lane; at the very beginning if there is none. Several such groups at one place
    are in the order in which B launched them."""
    rank_a = _launch_ranks(a)
    rank_b = _launch_ranks(b)
    matched = _matched_groups(rank_a, groups)
    places = []
    for number, group in enumerate(groups):
        if group.a:
            first_rank = min(rank_a[item] for item in group.a)
            place = _PlaceInProgram(rank_a=first_rank, rank_b=-1, number=number)
        else:
            item = group.b[0]
            place = _PlaceInProgram(
                rank_a=_rank_before(b, item, matched),
                rank_b=rank_b[item],
                number=number,
            )
        places.append(place)
    return [place.number for place in sorted(places)]


class _PlaceInProgram(NamedTuple):
    """What groups are sorted by."""

    rank_a: int  # of the launch in A, -1: before all
    rank_b: int  # of the launch in B of what only B has, -1 for what A has
    number: int  # of the group


def _matched_groups(
    rank_a: Sequence[int], groups: Sequence[WorkGroup]
) -> list[_Matched]:
    """The groups that both sides have, in the order of their first items of B."""
    matched = []
    for group in groups:
        if group.a and group.b:
            first_rank = min(rank_a[item] for item in group.a)
            matched.append(_Matched(item_b=min(group.b), rank_a=first_rank))
    return sorted(matched)


class _Matched(NamedTuple):
    """A group that both sides have."""

    item_b: int  # its first item of B
    rank_a: int  # the rank of its first launch in A


def _rank_before(b: WorkItems, item: int, matched: Sequence[_Matched]) -> int:
    """The rank in A of the last matched group whose item is at or before an item of B;
    -1 if there is none, or if that is on another lane. `matched` is sorted."""
    place = bisect_right(matched, item, key=attrgetter("item_b")) - 1
    if place < 0:
        return -1
    before = matched[place]
    return before.rank_a if b.lane[before.item_b] == b.lane[item] else -1


def _launch_ranks(items: WorkItems) -> list[int]:
    """The rank of each item in the order of the calls that launched them, from 0; by
    its own start where the call is not in the file."""
    trace = items.trace
    rows = items.row
    called_ns = trace.start[rows]
    if items.work.gpu:
        launch = trace.launch[rows]
        called_ns = np.where(launch >= 0, trace.start[launch], called_ns)
    order = np.lexsort((trace.start[rows], called_ns))
    return [*np.argsort(order).tolist()]
