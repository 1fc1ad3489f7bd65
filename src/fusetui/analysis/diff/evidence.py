"""Makes the items of both sides comparable, even if their ops have different names.

Equal work may have other names on the other side: ops are renamed from one version of
PyTorch to the next, and the kernels of a CUDA graph belong to no op of the program. The
kernel is stronger evidence than the name of its op. So this file finds renamed ops,
kernels that are to be compared without their ops, and streams that are to be compared
as one, before items are aligned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.diff.items import (
    KERNEL_MASK,
    NO_OP,
    OP_SHIFT,
    KnownNames,
    Vocabulary,
    WorkItems,
    make_items,
)
from fusetui.analysis.diff.names import remove_run_numbers
from fusetui.analysis.diff.sequences import count_occurrences
from fusetui.analysis.diff.streams import (
    find_merged_lanes,
    merge_alternating_streams,
    merge_shared_streams,
)
from fusetui.analysis.diff.work import Work, is_launched_by_graph
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.arrays import Flags, Int64s, distinct
from fusetui.trace.model.op_names import stem

MAX_COMPARED_OPS = 256
"""At most this many ops that only one side has are compared with those of the other
side: the first ones of a step."""

MIN_SHARED_KERNELS = 0.5
"""Two ops are one op under two names if they share this part of all kernels of
either."""

MAX_UNUSUAL_STEPS = 64
"""At most this many steps of each side with other work than usual are looked at."""

MIN_EXPLAINED_WORK = 0.6
"""Ops are no evidence if kernels that turn out to be the same on both sides are at
least this share of the pieces of work under ops that differ."""

MIN_EQUAL_COUNTS = 0.9
"""Two steps run a kernel nearly equally often if the smaller count is at least this
share of the larger one."""

PARTS_UNDER_ANY_OP = ("main", "helper", "")
"""Parts of ops whose kernels any op may launch that multiplies, convolves or attends;
and "", what is unknown."""


class RenamedOp(msgspec.Struct, frozen=True):
    """An op that launches the same kernels in both traces, under two names."""

    before: str  # its name in A
    after: str  # its name in B
    kernels: int  # how many kernels of a step both launch


class Evidence(msgspec.Struct, frozen=True, eq=False):
    """The items of both sides with comparable keys, and what was decided for that."""

    a: WorkItems
    b: WorkItems
    renamed: tuple[RenamedOp, ...]
    swapped: frozenset[str]
    """The names, without namespaces, of ops that swapped their kernels: what one of
    them launches in A, another one launches in B."""
    streams_a: list[list[int]]  # groups of lanes of A that are compared as one
    streams_b: list[list[int]]


def make_sides_comparable(work_a: Work, work_b: Work) -> Evidence:
    """Make the items of two traces so that equal keys mean that work may be the same.

    An item is a kernel or copy of the representative step of a trace. The items are
    made anew each time that something becomes known. That may be ops of B that have
    another name in A, or kernels that are compared without their ops. It may also be
    streams that are compared as one.
    """
    words = Vocabulary()
    a = _make_items_with_steady_lanes(work_a, words, KnownNames())
    b = _make_items_with_steady_lanes(work_b, words, KnownNames())

    # Ops of B under the names that they have in A.
    renamed = _find_renamed_ops(a, b)
    name_in_a = {}
    for op in renamed:
        name_in_a[words.get_word(op.after)] = words.get_word(op.before)
    if name_in_a:
        b = make_items(b.work, words, KnownNames(names_on_other_side=name_in_a))

    # Kernels whose ops are no evidence.
    swapped = _find_swapped_ops(a, b)
    without_op = np.union1d(_find_kernels_without_op(a, b), swapped.kernels)
    known_a = KnownNames(kernels_without_op=without_op)
    known_b = KnownNames(names_on_other_side=name_in_a, kernels_without_op=without_op)
    if len(without_op):
        a = _make_items_with_steady_lanes(a.work, words, known_a)
        b = _make_items_with_steady_lanes(b.work, words, known_b)

    # Streams that are compared as one. The work is the very same object if there are
    # none.
    merged_work_a, merged_work_b = merge_shared_streams(a, b)
    if merged_work_a is not a.work:
        a = make_items(merged_work_a, words, known_a)
    if merged_work_b is not b.work:
        b = make_items(merged_work_b, words, known_b)
    return Evidence(
        a=a,
        b=b,
        renamed=_resolve_full_names(a, b, words, renamed),
        swapped=frozenset(words.get_word(op) for op in swapped.ops),
        streams_a=find_merged_lanes(work_a, a.work),
        streams_b=find_merged_lanes(work_b, b.work),
    )


def _resolve_full_names(
    a: WorkItems, b: WorkItems, words: Vocabulary, renamed: list[_RenamedIds]
) -> tuple[RenamedOp, ...]:
    """Replace the ids of renamed ops by their full names in A and in B."""
    ops = []
    for op in renamed:
        ops.append(
            RenamedOp(
                before=_find_full_name(a, words.get_word(op.before)),
                after=_find_full_name(b, words.get_word(op.after)),
                kernels=op.kernels,
            )
        )
    return tuple(ops)


def _make_items_with_steady_lanes(
    work: Work, words: Vocabulary, known: KnownNames
) -> WorkItems:
    """Make the items of a trace, with streams merged that its steps use in turn.

    The streams are compared as one if that makes more steps do the same work. If
    equally many do, it is enough that the unusual steps have more in common with the
    usual one.

    Args:
        work: The kernels and copies of the trace by step.
        words: The ids of names, shared by both traces. New names are added to it.
        known: Names of ops that are to be replaced or ignored.
    """
    separate = make_items(work, words, known)
    merged_work = merge_alternating_streams(separate)
    if merged_work is None:
        return separate
    merged = make_items(merged_work, words, known)

    if len(separate.same_work_steps) != len(merged.same_work_steps):
        return max(separate, merged, key=lambda side: len(side.same_work_steps))
    return max(separate, merged, key=_count_kernels_in_common_with_usual)


def _count_kernels_in_common_with_usual(side: WorkItems) -> int:
    """Count the kernels that unusual steps have in common with the usual one.

    Kernels are the same if their name, their op and their stream are. Only the first
    MAX_UNUSUAL_STEPS unusual steps count.
    """
    in_usual_step = side.work.slice_of_step(side.representative_step)
    usual_kernels = Counter(side.make_keys_with_stream(in_usual_step).tolist())
    common_kernels = 0
    for step in _find_unusual_steps(side):
        in_step = side.work.slice_of_step(step)
        kernels = Counter(side.make_keys_with_stream(in_step).tolist())
        common_kernels += (usual_kernels & kernels).total()
    return common_kernels


def _find_unusual_steps(side: WorkItems) -> list[int]:
    """Return the first steps of a trace that do other work than usual.

    There are at most MAX_UNUSUAL_STEPS; the result has their indices.
    """
    every_step = np.arange(len(side.steps))
    steps = np.setdiff1d(every_step, side.same_work_steps)
    return [*steps[:MAX_UNUSUAL_STEPS].tolist()]


class _RenamedIds(msgspec.Struct, frozen=True):
    """The ids of an op of A and of an op of B that may be the same op."""

    before: int
    after: int
    kernels: int  # how many kernels of a step both launch
    shared: float  # the share that these are of all kernels that either launches
    # The difference of their positions among the ops that only their side has.
    positions_apart: int


def _find_renamed_ops(a: WorkItems, b: WorkItems) -> list[_RenamedIds]:
    """Pair ops that only A or only B has and that launch the same kernels.

    Each op is in at most one pair: the one with the largest share of kernels in common
    and, of equals, with the most similar position in the step.
    """
    candidates = _find_renaming_candidates(
        _count_kernels_by_op(a), _count_kernels_by_op(b)
    )
    candidates.sort(
        key=lambda op: (-op.shared, op.positions_apart, op.before, op.after)
    )
    renamed = []
    paired_ops: set[int] = set()
    for candidate in candidates:
        if candidate.before not in paired_ops and candidate.after not in paired_ops:
            paired_ops.update((candidate.before, candidate.after))
            renamed.append(candidate)
    return renamed


def _find_renaming_candidates(
    kernels_a: dict[int, Counter[int]], kernels_b: dict[int, Counter[int]]
) -> list[_RenamedIds]:
    """List the pairs of ops that share at least MIN_SHARED_KERNELS of their kernels.

    Each pair has an op that only A has and an op that only B has.

    Args:
        kernels_a: {op: {kernel: how often the op launches it}} of A, by ids.
        kernels_b: The same of B.
    """
    only_in_a = [op for op in kernels_a if op != NO_OP and op not in kernels_b]
    only_in_b = [op for op in kernels_b if op != NO_OP and op not in kernels_a]
    candidates = []
    for position_a, before in enumerate(only_in_a[:MAX_COMPARED_OPS]):
        for position_b, after in enumerate(only_in_b[:MAX_COMPARED_OPS]):
            # Of counters, & takes the smaller counts, and | the larger ones.
            launched_by_both = (kernels_a[before] & kernels_b[after]).total()
            launched_by_either = (kernels_a[before] | kernels_b[after]).total()
            shared = launched_by_both / launched_by_either
            if shared >= MIN_SHARED_KERNELS:
                candidate = _RenamedIds(
                    before=before,
                    after=after,
                    kernels=launched_by_both,
                    shared=shared,
                    positions_apart=abs(position_a - position_b),
                )
                candidates.append(candidate)
    return candidates


class _SwappedOps(msgspec.Struct, frozen=True, eq=False):
    """Ops that have swapped their kernels, by ids."""

    ops: frozenset[int]
    kernels: Int64s  # the kernels that they launch, ascending


class _Launch(NamedTuple):
    """A kernel under an op, by their ids."""

    op: int
    kernel: int


def _find_swapped_ops(a: WorkItems, b: WorkItems) -> _SwappedOps:
    """Find kernels that A and B launch equally often, but never under the same op.

    If both traces have all of these ops, the names of the ops say nothing about the
    kernels. Only kernels whose names say what they compute are considered.

    Returns:
        The kernels and their ops, by id.
    """
    telling_kernels = _find_self_describing_kernels(a)
    telling_kernels |= _find_self_describing_kernels(b)
    launches_a = _count_launches(a, telling_kernels)
    launches_b = _count_launches(b, telling_kernels)
    ops_by_kernel_a = _count_ops_by_kernel(launches_a)
    ops_by_kernel_b = _count_ops_by_kernel(launches_b)
    ops_of_a = set(a.op_ids.tolist())
    ops_of_b = set(b.op_ids.tolist())
    ops_of_both = (ops_of_a & ops_of_b) - {NO_OP}

    ops: set[int] = set()
    kernels: set[int] = set()
    for kernel in ops_by_kernel_a.keys() & ops_by_kernel_b.keys():
        ops_a = ops_by_kernel_a[kernel]
        ops_b = ops_by_kernel_b[kernel]
        if _are_ops_swapped(ops_a, ops_b, ops_of_both):
            kernels.add(kernel)
            ops.update(ops_a, ops_b)

    # If most launches that differ are of other kernels, another program does the work.
    differing = (launches_a - launches_b) + (launches_b - launches_a)
    explained_launches = sum(
        times for launch, times in differing.items() if launch.kernel in kernels
    )
    if explained_launches < MIN_EXPLAINED_WORK * differing.total():
        return _SwappedOps(ops=frozenset(), kernels=np.zeros(0, dtype=np.int64))
    return _SwappedOps(
        ops=frozenset(ops), kernels=np.array(sorted(kernels), dtype=np.int64)
    )


def _are_ops_swapped(
    ops_a: Counter[int], ops_b: Counter[int], ops_of_both: set[int]
) -> bool:
    """Return whether a kernel is launched equally often, but never under the same op.

    Args:
        ops_a: {op: how often it launches the kernel} in A.
        ops_b: The same in B.
        ops_of_both: The ops that both traces have. An op that only one has was added or
            removed, so it is not swapped.
    """
    is_equally_often = ops_a.total() == ops_b.total()
    has_common_op = not ops_a.keys().isdisjoint(ops_b)
    every_op = ops_a.keys() | ops_b.keys()
    return is_equally_often and not has_common_op and every_op <= ops_of_both


def _find_self_describing_kernels(side: WorkItems) -> set[int]:
    """Return the kernels whose names say what they compute, whatever their op.

    Kernels of products, convolutions, attention and their helpers are not among them.
    Which of these runs is a matter of shapes and devices, so two ops may swap theirs.
    Copies and fills are not among them either.
    """
    kernels = set()
    for item, name in enumerate(side.names):
        role = role_of_kernel(name)
        tells_op = role.part not in PARTS_UNDER_ANY_OP and not role.is_helper
        if tells_op and side.computes[item]:
            kernels.add(side.kernel_id(item))
    return kernels


def _count_launches(side: WorkItems, kernels: set[int]) -> Counter[_Launch]:
    """Count how often the representative step launches these kernels under each op."""
    launches: Counter[_Launch] = Counter()
    op_ids = side.op_ids.tolist()
    kernel_ids = side.kernel_ids.tolist()
    for op, kernel in zip(op_ids, kernel_ids, strict=True):
        if kernel in kernels:
            launches[_Launch(op=op, kernel=kernel)] += 1
    return launches


def _count_ops_by_kernel(launches: Counter[_Launch]) -> dict[int, Counter[int]]:
    """Turn {(op, kernel): times} into {kernel: {op: times}}, all by ids."""
    ops_by_kernel: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for launch, times in launches.items():
        ops_by_kernel[launch.kernel][launch.op] += times
    return dict(ops_by_kernel)


def _count_kernels_by_op(side: WorkItems) -> dict[int, Counter[int]]:
    """Count how often each op launches each kernel in a step: {op: {kernel: times}}.

    The ops are in the order in which their first kernels start.
    """
    kernels_by_op: defaultdict[int, Counter[int]] = defaultdict(Counter)
    by_start = np.argsort(side.trace.start[side.row], kind="stable")
    op_ids = side.op_ids[by_start].tolist()
    kernel_ids = side.kernel_ids[by_start].tolist()
    for op, kernel in zip(op_ids, kernel_ids, strict=True):
        kernels_by_op[op][kernel] += 1
    return dict(kernels_by_op)


def _find_full_name(side: WorkItems, word: str) -> str:
    """Return the full name of the first op of the step that has this word.

    A word is a name of an op without its namespace and without what changes between
    runs. Returns the word itself if there is no such op.
    """
    for name in side.op_names:
        if remove_run_numbers(stem(name)) == word:
            return name
    return word


class _StepKernels(msgspec.Struct, frozen=True, eq=False):
    """The kernels (and copies) of one step, one entry per kernel."""

    exact_key: Int64s  # equal for the same kernel under the same op
    kernel: Int64s  # its id
    op: Int64s  # the id of its op, NO_OP for none
    by_graph: Flags  # whether a CUDA graph launched it


def _collect_kernels_of_step(side: WorkItems, step: int) -> _StepKernels:
    """Return the kernels of one step of a trace, and how they were launched."""
    in_step = side.work.slice_of_step(step)
    exact_key = side.exact_keys_of_all_steps[in_step]
    return _StepKernels(
        exact_key=exact_key,
        kernel=exact_key & KERNEL_MASK,
        op=exact_key >> OP_SHIFT,
        by_graph=is_launched_by_graph(side.work, side.work.row[in_step]),
    )


def _find_kernels_without_op(a: WorkItems, b: WorkItems) -> Int64s:
    """Return the ids of the kernels that are compared without their ops, ascending.

    These are kernels that two steps run under different ops. The representative steps
    of A and B are compared, and the one of each trace with the steps that do other
    work.
    """
    usual_a = _collect_kernels_of_step(a, a.representative_step)
    usual_b = _collect_kernels_of_step(b, b.representative_step)
    kernels = [_find_kernels_under_other_ops(usual_a, usual_b)]
    for step in _find_unusual_steps(a):
        unusual = _collect_kernels_of_step(a, step)
        kernels.append(_find_kernels_under_other_ops(usual_a, unusual))
    for step in _find_unusual_steps(b):
        unusual = _collect_kernels_of_step(b, step)
        kernels.append(_find_kernels_under_other_ops(usual_b, unusual))
    return distinct(np.concatenate(kernels))


def _find_kernels_under_other_ops(one: _StepKernels, other: _StepKernels) -> Int64s:
    """Return the ids of kernels that two steps run under different ops.

    Each step runs such a kernel more often than the other step under some op. Some of
    that surplus has to be doubtful: its op is unknown or missing in the other step, or
    a graph launched it. Both steps have to run the kernel nearly equally often in all.
    """
    surplus_of_one = _find_surplus(one, other)
    surplus_of_other = _find_surplus(other, one)
    surplus_in_both = np.intersect1d(
        one.kernel[surplus_of_one.is_surplus], other.kernel[surplus_of_other.is_surplus]
    )
    # One id per launch, so a kernel may occur several times.
    doubtful_launches = np.concatenate(
        [
            one.kernel[surplus_of_one.is_doubtful],
            other.kernel[surplus_of_other.is_doubtful],
        ]
    )
    candidates = np.intersect1d(distinct(doubtful_launches), surplus_in_both)

    times_in_one = count_occurrences(candidates, one.kernel)
    times_in_other = count_occurrences(candidates, other.kernel)
    smaller_count = np.minimum(times_in_one, times_in_other)
    larger_count = np.maximum(times_in_one, times_in_other)
    is_equally_often = smaller_count >= MIN_EQUAL_COUNTS * larger_count
    kernels: Int64s = candidates[is_equally_often]

    # If they are few of the doubtful launches, another program does the work, which
    # runs some of the same small kernels.
    explained_launches = np.isin(doubtful_launches, kernels).sum()
    if explained_launches < MIN_EXPLAINED_WORK * len(doubtful_launches):
        return kernels[:0]
    return kernels


class _StepSurplus(msgspec.Struct, frozen=True, eq=False):
    """What a step has more often than another step, one flag per kernel."""

    # The step has more of this kernel under its op than the other step has.
    is_surplus: Flags
    # It is surplus, and the op is unknown, or one that the other step lacks, or a graph
    # launched the kernel.
    is_doubtful: Flags


def _find_surplus(own: _StepKernels, other: _StepKernels) -> _StepSurplus:
    """Flag the kernels that a step runs more often under their op than another step.

    A second flag marks those of them whose op is no evidence: it is unknown, the other
    step lacks it, or a graph launched the kernel.
    """
    own_times = count_occurrences(own.exact_key, own.exact_key)
    other_times = count_occurrences(own.exact_key, other.exact_key)
    is_surplus = own_times > other_times

    has_no_op = own.op == NO_OP
    is_missing_in_other = ~np.isin(own.op, other.op)
    is_op_no_evidence = has_no_op | is_missing_in_other | own.by_graph
    return _StepSurplus(
        is_surplus=is_surplus, is_doubtful=is_surplus & is_op_no_evidence
    )
