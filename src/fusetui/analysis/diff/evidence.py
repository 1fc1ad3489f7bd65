"""What is the same work on both sides whatever it is called there: keys that compare.

The kernel is stronger evidence than the name of its op: names of ops change from one
version of PyTorch to the next, and the kernels of a CUDA graph belong to no op of the
program.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
import numpy as np

from fusetui.analysis.diff.items import (
    KERNEL_MASK,
    OP_SHIFT,
    KnownNames,
    Vocabulary,
    WorkItems,
    items,
)
from fusetui.analysis.diff.names import identity
from fusetui.analysis.diff.sequences import occurrences
from fusetui.analysis.diff.streams import alternating, as_one, shared
from fusetui.analysis.diff.work import Work, is_launched_by_graph
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.trace.model.op_names import stem

MAX_COMPARED_OPS = 256
"""No more ops that only one side has are compared with those of the other side: the
first ones of a step."""

MIN_SHARED_KERNELS = 0.5
"""Two ops are one under two names if they share this part of all kernels of either."""

MAX_UNUSUAL_STEPS = 64
"""So many steps of each side, the first with other work than the usual one, are looked
at."""

MIN_EXPLAINED_WORK = 0.6
"""Ops are no evidence if kernels that are found to be the same on both sides are at
least this share of the pieces of work under ops that differ."""

MIN_EQUAL_COUNTS = 0.9
"""Nearly as many of a kernel on both sides: the fewer are at least this share of the
others."""

PARTS_UNDER_ANY_OP = ("main", "helper", "")
"""Parts of ops whose kernels any op may launch that multiplies, convolves or attends;
and "", what is unknown."""


class RenamedOp(msgspec.Struct, frozen=True):
    """An op that has one name in A and another one in B: both launch the same
    kernels."""

    before: str
    after: str
    kernels: int  # how many of a step both launch


class Evidence(msgspec.Struct, frozen=True, eq=False):
    """Both sides with keys that compare, and what had to be decided for that."""

    a: WorkItems
    b: WorkItems
    renamed: tuple[RenamedOp, ...]
    swapped: frozenset[str]
    """The stems of ops that swapped their names: what one of them launches in A,
    another one launches in B."""
    streams_a: list[list[int]]  # lanes of A that are compared as one, in groups
    streams_b: list[list[int]]


def comparable(work_a: Work, work_b: Work) -> Evidence:
    """The representative steps of both sides, with keys that are equal for what may be
    the same work.

    The items are made anew each time that something becomes known: ops of B that have
    another name in A, kernels that are compared without their op, streams that are
    compared as one.
    """
    words = Vocabulary()
    a = _steady(work_a, words, KnownNames())
    b = _steady(work_b, words, KnownNames())
    renamed = _renamed(a, b)
    names_of_a = {
        words.word_of_id(op.after): words.word_of_id(op.before) for op in renamed
    }
    if names_of_a:
        b = items(b.work, words, KnownNames(names_on_other_side=names_of_a))
    swapped = _swapped(a, b)
    without_op = np.union1d(_kernels_without_op(a, b), swapped.kernels)
    known_a = KnownNames(kernels_without_op=without_op)
    known_b = KnownNames(names_on_other_side=names_of_a, kernels_without_op=without_op)
    if len(without_op):
        a = _steady(a.work, words, known_a)
        b = _steady(b.work, words, known_b)
    merged_a, merged_b = shared(a, b)
    if merged_a is not a.work:
        a = items(merged_a, words, known_a)
    if merged_b is not b.work:
        b = items(merged_b, words, known_b)
    return Evidence(
        a=a,
        b=b,
        renamed=_with_full_names(a, b, words, renamed),
        swapped=frozenset(words.word_of_id(op) for op in swapped.ops),
        streams_a=as_one(work_a, a.work),
        streams_b=as_one(work_b, b.work),
    )


def _with_full_names(
    a: WorkItems, b: WorkItems, words: Vocabulary, renamed: list[_RenamedNumbers]
) -> tuple[RenamedOp, ...]:
    """These ops, given by the numbers of their words, with their full names."""
    ops = []
    for op in renamed:
        ops.append(
            RenamedOp(
                before=_full_name(a, words.word_of_id(op.before)),
                after=_full_name(b, words.word_of_id(op.after)),
                kernels=op.kernels,
            )
        )
    return tuple(ops)


def _steady(work: Work, words: Vocabulary, known: KnownNames) -> WorkItems:
    """The items of one side. Streams between which the steps alternate are one lane if
    more steps are alike then or, with equally many, if the unusual steps have more in
    common with the usual one."""
    separate = items(work, words, known)
    merged_work = alternating(separate)
    if merged_work is None:
        return separate
    merged = items(merged_work, words, known)

    def steadiness(side: WorkItems) -> tuple[int, int]:
        return len(side.alike_steps), _in_common_with_usual(side)

    return max(separate, merged, key=steadiness)


def _in_common_with_usual(side: WorkItems) -> int:
    """How many pieces of work the unusual steps, of which the first MAX_UNUSUAL_STEPS
    count, together have in common with the usual one, by kernel, op and lane."""
    usual = Counter(
        side.keys_of(side.work.slice_of_window(side.representative_step)).tolist()
    )
    common_pieces = 0
    for step in _unusual_steps(side):
        keys = side.keys_of(side.work.slice_of_window(step)).tolist()
        common_pieces += (usual & Counter(keys)).total()
    return common_pieces


def _unusual_steps(side: WorkItems) -> list[int]:
    """The first steps that do other work than the usual ones, no more than
    MAX_UNUSUAL_STEPS."""
    steps = np.setdiff1d(np.arange(len(side.work.windows)), side.alike_steps)
    return [*steps[:MAX_UNUSUAL_STEPS].tolist()]


class _RenamedNumbers(msgspec.Struct, frozen=True):
    """The numbers of an op of A and of one of B that may be the same op."""

    before: int
    after: int
    kernels: int  # how many of a step both launch
    shared: float  # the share that these are of all kernels that either launches
    places_apart: int  # between their places among the ops that only their side has


def _renamed(a: WorkItems, b: WorkItems) -> list[_RenamedNumbers]:
    """Pairs of ops that only one side has and that launch the same kernels, at least
    MIN_SHARED_KERNELS of them. Each op is in one pair: the one with the largest share
    of kernels in common and, of equals, with the most similar place in the step."""
    candidates = _may_be_renamed(_kernels_by_op(a), _kernels_by_op(b))
    candidates.sort(key=lambda op: (-op.shared, op.places_apart, op.before, op.after))
    renamed = []
    ops_in_pairs: set[int] = set()
    for candidate in candidates:
        ops = {candidate.before, candidate.after}
        if ops_in_pairs.isdisjoint(ops):
            ops_in_pairs |= ops
            renamed.append(candidate)
    return renamed


def _may_be_renamed(
    kernels_a: dict[int, Counter[int]], kernels_b: dict[int, Counter[int]]
) -> list[_RenamedNumbers]:
    """All pairs of an op that only A has and one that only B has of which at least
    MIN_SHARED_KERNELS of the kernels are the same. Arguments: {op: {kernel: times}}."""
    only_a = [op for op in kernels_a if op and op not in kernels_b]
    only_b = [op for op in kernels_b if op and op not in kernels_a]
    candidates = []
    for place_a, before in enumerate(only_a[:MAX_COMPARED_OPS]):
        for place_b, after in enumerate(only_b[:MAX_COMPARED_OPS]):
            common = (kernels_a[before] & kernels_b[after]).total()
            either = (kernels_a[before] | kernels_b[after]).total()
            if common < MIN_SHARED_KERNELS * either:
                continue
            candidate = _RenamedNumbers(
                before=before,
                after=after,
                kernels=common,
                shared=common / either,
                places_apart=abs(place_a - place_b),
            )
            candidates.append(candidate)
    return candidates


class _Swapped(msgspec.Struct, frozen=True, eq=False):
    """Ops that have swapped names, and the kernels that they launch: numbers of both."""

    ops: frozenset[int]
    kernels: Int64s  # ascending


def _swapped(a: WorkItems, b: WorkItems) -> _Swapped:
    """The kernels that the two sides launch equally often, but never under the same op,
    although both sides have all of these ops: there the names of ops tell nothing.

    No kernels where such ones are less than MIN_EXPLAINED_WORK of all launches that one
    side has more of under some op: then another program does the work. Only kernels
    that tell their op count in all of this (`_kernels_that_tell_their_op`).
    """
    telling_kernels = _kernels_that_tell_their_op(a) | _kernels_that_tell_their_op(b)
    launches_a = _launches_of(a, telling_kernels)
    launches_b = _launches_of(b, telling_kernels)
    ops_a = _ops_by_kernel(launches_a)
    ops_b = _ops_by_kernel(launches_b)
    ops_of_both = (_ops_of(a) & _ops_of(b)) - {0}
    kernels: set[int] = set()
    for kernel in ops_a.keys() & ops_b.keys():
        if _are_swapped(ops_a[kernel], ops_b[kernel], ops_of_both):
            kernels.add(kernel)
    differing = (launches_a - launches_b) + (launches_b - launches_a)
    explained = _launches_of_kernels(differing, kernels)
    if explained < MIN_EXPLAINED_WORK * differing.total():
        kernels = set()
    ops: set[int] = set()
    for kernel in kernels:
        ops.update(ops_a[kernel], ops_b[kernel])
    return _Swapped(
        ops=frozenset(ops), kernels=np.array(sorted(kernels), dtype=np.int64)
    )


def _are_swapped(
    before: Counter[int], after: Counter[int], ops_of_both: set[int]
) -> bool:
    """Whether the ops that launch a kernel in A (`before`) and in B, {op: times}, do so
    equally often in all, have none in common, and are all ops of both sides."""
    if before.total() != after.total():
        return False
    has_common_op = bool(before.keys() & after.keys())
    all_ops = before.keys() | after.keys()
    return not has_common_op and all_ops <= ops_of_both


def _launches_of_kernels(launches: Counter[int], kernels: set[int]) -> int:
    """How many launches, {exact key: times}, are of these kernels under any op."""
    return sum(times for key, times in launches.items() if key & KERNEL_MASK in kernels)


def _kernels_that_tell_their_op(side: WorkItems) -> set[int]:
    """The kernels of a step whose names tell what they compute, whichever op launches
    them. Not those of products, convolutions, attention and their helpers: which kernel
    does these is a matter of shapes and devices, so that two ops may swap theirs. Nor
    copies and sets."""
    kernels = set()
    for item, name in enumerate(side.names):
        role = role_of_kernel(name)
        tells_op = role.part not in PARTS_UNDER_ANY_OP and not role.is_helper
        if tells_op and side.computes[item]:
            kernels.add(side.kernel_id(item))
    return kernels


def _launches_of(side: WorkItems, kernels: set[int]) -> Counter[int]:
    """How often the step launches each of these kernels under each op: {exact key:
    times}."""
    keys = side.exact_keys.tolist()
    return Counter(key for key in keys if key & KERNEL_MASK in kernels)


def _ops_of(side: WorkItems) -> set[int]:
    """The numbers of the ops of the step that launch work; with 0 if some work is under
    no op."""
    return {*(side.exact_keys >> OP_SHIFT).tolist()}


def _ops_by_kernel(launches: Counter[int]) -> dict[int, Counter[int]]:
    """How often each op launches each kernel, {kernel: {op: times}}, from {exact key:
    times}."""
    ops_by_kernel: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for key, times in launches.items():
        ops_by_kernel[key & KERNEL_MASK][key >> OP_SHIFT] += times
    return dict(ops_by_kernel)


def _kernels_by_op(side: WorkItems) -> dict[int, Counter[int]]:
    """How often each op launches each kernel in a step: {op: {kernel: times}}, the ops
    in the order of time of their first kernels. The op 0 stands for none."""
    kernels_by_op: defaultdict[int, Counter[int]] = defaultdict(Counter)
    order = np.argsort(side.trace.start[side.row], kind="stable")
    for key in side.exact_keys[order].tolist():
        kernels_by_op[key >> OP_SHIFT][key & KERNEL_MASK] += 1
    return dict(kernels_by_op)


def _full_name(side: WorkItems, word: str) -> str:
    """The full name of the first op of the step whose name is stored as `word` in the
    vocabulary; the word itself where there is none."""
    for name in side.op_names:
        if identity(stem(name)) == word:
            return name
    return word


class _Step(msgspec.Struct, frozen=True, eq=False):
    """The pieces of work of a step; arrays of shape [pieces]."""

    exact_keys: Int64s  # the key of its kernel under its op
    by_graph: Flags  # whether a graph launched it

    @property
    def op(self) -> Int64s:
        """The numbers of the ops, 0 for none."""
        return self.exact_keys >> OP_SHIFT

    @property
    def kernel(self) -> Int64s:
        """The numbers of the kernels."""
        return self.exact_keys & KERNEL_MASK


def _step_of(side: WorkItems, number: int) -> _Step:
    """The step of a side that has this number."""
    span = side.work.slice_of_window(number)
    return _Step(
        exact_keys=side.exact_keys_of_all_steps[span],
        by_graph=is_launched_by_graph(side.work, side.work.row[span]),
    )


def _kernels_without_op(a: WorkItems, b: WorkItems) -> Int64s:
    """The numbers of the kernels that are to be compared without regard to their op,
    ascending: by the usual steps of both sides, or by the usual step of a side and one
    of its unusual steps. See `_without_evidence`."""
    usual_a = _step_of(a, a.representative_step)
    usual_b = _step_of(b, b.representative_step)
    kernels = [_without_evidence(usual_a, usual_b)]
    for side, usual in ((a, usual_a), (b, usual_b)):
        for step in _unusual_steps(side):
            kernels.append(_without_evidence(usual, _step_of(side, step)))
    return np.unique(np.concatenate(kernels))


def _without_evidence(one: _Step, other: _Step) -> Int64s:
    """The numbers of the kernels whose op is no evidence between two steps.

    Each of the two steps runs such a kernel more often than the other under some op,
    and some of that work is doubtful (`_Surplus`). Two conditions exclude kernels:

    * Both steps have nearly as many of the kernel in all; otherwise later rules for
      parts of the program tell how many each has.
    * Such kernels are at least MIN_EXPLAINED_WORK of all doubtful work, or there are
      none: then another program does the work, which runs some of the same small
      kernels.
    """
    surplus_one = _surplus(one, other)
    surplus_other = _surplus(other, one)
    kernels_one = one.kernel[surplus_one.more]
    kernels_other = other.kernel[surplus_other.more]
    in_both = np.intersect1d(kernels_one, kernels_other)
    doubtful_one = one.kernel[surplus_one.doubtful]
    doubtful_other = other.kernel[surplus_other.doubtful]
    doubtful_work = np.concatenate([doubtful_one, doubtful_other])
    kernels = np.intersect1d(np.unique(doubtful_work), in_both)
    times_one = occurrences(kernels, one.kernel)
    times_other = occurrences(kernels, other.kernel)
    fewer = np.minimum(times_one, times_other)
    more = np.maximum(times_one, times_other)
    kernels = kernels[fewer >= MIN_EQUAL_COUNTS * more]
    explained = np.isin(doubtful_work, kernels).sum()
    if explained < MIN_EXPLAINED_WORK * len(doubtful_work):
        return kernels[:0]
    return np.asarray(kernels)


class _Surplus(msgspec.Struct, frozen=True, eq=False):
    """For each piece of one of two steps, flags of shape [pieces]."""

    # this step has more of its kernel under its op than the other step has
    more: Flags
    # and the op is unknown, or one that the other step lacks, or a graph launched it
    doubtful: Flags


def _surplus(one: _Step, other: _Step) -> _Surplus:
    """What the step `one` has more often than the step `other`."""
    keys, key_of_piece, times = np.unique(
        one.exact_keys, return_inverse=True, return_counts=True
    )
    is_more_often = times > occurrences(keys, other.exact_keys)
    more = is_more_often[key_of_piece]
    is_of_unknown_op = (one.op == 0) | ~np.isin(one.op, other.op) | one.by_graph
    return _Surplus(more=more, doubtful=more & is_of_unknown_op)
