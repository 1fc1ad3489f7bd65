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
    Known,
    Vocabulary,
    WorkItems,
    items,
)
from fusetui.analysis.diff.names import helps, identity, part
from fusetui.analysis.diff.streams import alternating, as_one, shared
from fusetui.analysis.diff.work import Work, by_graph
from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.trace.model.op_names import stem

# ops of each side, the first of a step, that are compared with those of the other
COMPARED = 256
# two ops are one under two names if they share this part of all kernels of either
ALIKE = 0.5

# of each side, the first with other work than the usual one, are looked at
ODD_STEPS = 64
MOSTLY = 0.6  # of the pieces under ops that are no evidence
NOT_TELLING = ("main", "helper", "")
"""Parts of ops whose kernels any op may launch that multiplies, convolves or attends;
and what is unknown."""
# nearly as many of a kernel on both sides: the fewer have this share of the others
AS_MANY = 0.9


class RenamedOp(msgspec.Struct, frozen=True):
    """An op that only A has, and one that only B has and that launches the same
    kernels."""

    before: str
    after: str
    kernels: int  # of a step that both launch


class Evidence(msgspec.Struct, frozen=True, eq=False):
    """Both sides with keys that compare, and what had to be settled for that."""

    a: WorkItems
    b: WorkItems
    renamed: tuple[RenamedOp, ...]
    swapped: frozenset[str]
    """Words of ops that launch, on both sides, what other ones of them launch there."""
    streams_a: list[list[int]]  # lanes of A that are compared as one, in groups
    streams_b: list[list[int]]


def comparable(work_a: Work, work_b: Work) -> Evidence:
    """The representative steps of both sides, with one key for what is the same work on
    both."""
    words = Vocabulary()
    a, b = (_steady(work, words, Known()) for work in (work_a, work_b))
    renamed = _renamed(a, b)
    names = {words.text_of(after): words.text_of(before) for before, after in renamed}
    if names:
        b = items(b.work, words, Known(names))
    swapped = _swapped(a, b)
    alone = np.union1d(_alone(a, b), swapped.kernels)
    known_a, known_b = Known(alone=alone), Known(names, alone)
    if len(alone):
        a, b = _steady(a.work, words, known_a), _steady(b.work, words, known_b)
    merged_a, merged_b = shared(a, b)
    a = a if merged_a is a.work else items(merged_a, words, known_a)
    b = b if merged_b is b.work else items(merged_b, words, known_b)
    told = tuple(
        _told(a, b, words.text_of(before), words.text_of(after), kernels)
        for (before, after), kernels in renamed.items()
    )
    return Evidence(
        a=a,
        b=b,
        renamed=told,
        swapped=frozenset(words.text_of(op) for op in swapped.ops),
        streams_a=as_one(work_a, a.work),
        streams_b=as_one(work_b, b.work),
    )


def _steady(work: Work, words: Vocabulary, known: Known) -> WorkItems:
    """The step of one side; streams between which the steps alternate are one lane, if
    that makes more steps alike, or those that differ more so."""
    found = items(work, words, known)
    merged = alternating(found)
    if merged is None:
        return found
    other = items(merged, words, known)
    return max(found, other, key=lambda of: (len(of.alike), _in_common(of)))


def _in_common(of: WorkItems) -> int:
    """How much of the usual work on its lanes other steps do too."""
    usual = Counter(of.keys_of(of.work.of_window(of.window)).tolist())
    odd = np.setdiff1d(np.arange(len(of.work.windows)), of.alike)[:ODD_STEPS].tolist()
    spans = [of.work.of_window(number) for number in odd]
    return sum((usual & Counter(of.keys_of(span).tolist())).total() for span in spans)


def _renamed(a: WorkItems, b: WorkItems) -> dict[tuple[int, int], int]:
    """The words of ops that only one side has, A's and B's, and how many kernels they
    share: each op once, those that share most of their kernels first, and of equals
    those that come at about the same place in the step."""
    of_a, of_b = _kernels_by_op(a), _kernels_by_op(b)
    only_a = [op for op in of_a if op and op not in of_b][:COMPARED]
    only_b = [op for op in of_b if op and op not in of_a][:COMPARED]
    candidates: list[tuple[float, int, int, int, int]] = []
    for place_a, before in enumerate(only_a):
        for place_b, after in enumerate(only_b):
            common = (of_a[before] & of_b[after]).total()
            either = (of_a[before] | of_b[after]).total()
            if common >= ALIKE * either:
                apart = abs(place_a - place_b)
                candidates.append((-common / either, apart, before, after, common))
    found: dict[tuple[int, int], int] = {}
    taken: set[int] = set()
    for *_, before, after, common in sorted(candidates):
        if taken.isdisjoint((before, after)):
            taken |= {before, after}
            found[before, after] = common
    return found


class _Swapped(msgspec.Struct, frozen=True, eq=False):
    """Ops that have swapped names, and the kernels that they launch on both sides."""

    ops: frozenset[int]
    kernels: Int64s


def _swapped(a: WorkItems, b: WorkItems) -> _Swapped:
    """Kernels that the two sides launch equally often, but never under the same op,
    although both sides have these ops: there the names of ops tell nothing. Only if
    most of the kernels that tell their op, and that one side launches more often under
    some op than the other, are such kernels: else another program does the work.

    Products, convolutions, attention and their helpers do not count: which kernel does
    these is a matter of shapes and devices, so that two ops may swap theirs. Nor do
    copies and sets.
    """
    tells = _tell_their_op(a) | _tell_their_op(b)
    sides = [
        Counter({key: n for key, n in side.items() if (key & KERNEL_MASK) in tells})
        for side in (Counter(a.exact.tolist()), Counter(b.exact.tolist()))
    ]
    ops_of = [_ops_by_kernel(side) for side in sides]
    words = [{int(key) >> OP_SHIFT for key in side.exact.tolist()} for side in (a, b)]
    known = (words[0] & words[1]) - {0}
    kernels = {
        kernel
        for kernel in ops_of[0].keys() & ops_of[1].keys()
        if not ops_of[0][kernel].keys() & ops_of[1][kernel].keys()
        and ops_of[0][kernel].keys() | ops_of[1][kernel].keys() <= known
        and ops_of[0][kernel].total() == ops_of[1][kernel].total()
    }
    more = (sides[0] - sides[1]) + (sides[1] - sides[0])
    explained = sum(n for key, n in more.items() if (key & KERNEL_MASK) in kernels)
    if explained < MOSTLY * more.total():
        kernels = set()
    ops = {op for side in ops_of for kernel in kernels for op in side[kernel]}
    return _Swapped(frozenset(ops), np.array(sorted(kernels), dtype=np.int64))


def _ops_by_kernel(side: Counter[int]) -> dict[int, Counter[int]]:
    """Per kernel, how often each op launches it, by exact keys."""
    found: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for exact, times in side.items():
        found[exact & KERNEL_MASK][exact >> OP_SHIFT] += times
    return dict(found)


def _tell_their_op(of: WorkItems) -> set[int]:
    """The kernels whose names tell what they compute, whichever op launches them."""
    return {
        of.kernel_word(item)
        for item, name in enumerate(of.names)
        if of.computes[item] and part(name) not in NOT_TELLING and not helps(name)
    }


def _kernels_by_op(of: WorkItems) -> dict[int, Counter[int]]:
    """Per op, in the order of their first kernels: how often it launches each kernel in
    a step."""
    found: defaultdict[int, Counter[int]] = defaultdict(Counter)
    order = np.argsort(of.trace.start[of.row], kind="stable")
    for exact in of.exact[order].tolist():
        found[exact >> OP_SHIFT][exact & KERNEL_MASK] += 1
    return dict(found)


def _told(
    a: WorkItems, b: WorkItems, before: str, after: str, kernels: int
) -> RenamedOp:
    """By the full names of the ops, without their namespaces where none has that
    word."""
    return RenamedOp(_full_name(a, before), _full_name(b, after), kernels)


def _full_name(of: WorkItems, word: str) -> str:
    return next((name for name in of.op_names if identity(stem(name)) == word), word)


class _Step(msgspec.Struct, frozen=True, eq=False):
    """The pieces of work of a step."""

    exact: Int64s
    graph: Flags  # a graph launched it

    @property
    def op(self) -> Int64s:
        return self.exact >> OP_SHIFT

    @property
    def kernel(self) -> Int64s:
        return self.exact & KERNEL_MASK

    def count(self, kernels: Int64s) -> Int64s:
        """How often it launches each of these kernels."""
        found = np.sort(self.kernel)
        return np.searchsorted(found, kernels, "right") - np.searchsorted(
            found, kernels
        )


def _alone(a: WorkItems, b: WorkItems) -> Int64s:
    """The kernels whose op is no evidence: not between the two sides, or not between
    the usual step of a side and another one."""
    usual = [_step_of(of, of.window) for of in (a, b)]
    pairs = [(usual[0], usual[1])]
    for of, step in zip((a, b), usual, strict=True):
        odd = np.setdiff1d(np.arange(len(of.work.windows)), of.alike)
        pairs += [(step, _step_of(of, number)) for number in odd[:ODD_STEPS].tolist()]
    found = [_without_evidence(one, other) for one, other in pairs]
    return np.unique(np.concatenate(found))


def _step_of(of: WorkItems, number: int) -> _Step:
    span = of.work.of_window(number)
    return _Step(of.every[span], by_graph(of.work, of.work.row[span]))


def _without_evidence(one: _Step, other: _Step) -> Int64s:
    """Kernels that each of two steps has more often than the other under some op, and
    for one of them that is an op that it does not tell, or that the other does not
    have. Only if both have nearly as many of the kernel: else regions tell how many
    each has. And only if most of what is under such ops are such kernels: else another
    program does the work, which runs some of the same small kernels."""
    more, more_too = _more(one, other), _more(other, one)
    in_both = np.intersect1d(one.kernel[more.more], other.kernel[more_too.more])
    doubtful = np.union1d(one.kernel[more.doubtful], other.kernel[more_too.doubtful])
    kernels = np.intersect1d(doubtful, in_both)
    counts = np.stack([one.count(kernels), other.count(kernels)])
    kernels = np.asarray(kernels[counts.min(axis=0) >= AS_MANY * counts.max(axis=0)])
    doubtful_work = np.concatenate(
        [one.kernel[more.doubtful], other.kernel[more_too.doubtful]]
    )
    explained = np.isin(doubtful_work, kernels).sum()
    return kernels if explained >= MOSTLY * len(doubtful_work) else kernels[:0]


class _Surplus(msgspec.Struct, frozen=True, eq=False):
    """Per piece of a step: whether the step has more of its kernel under its op than
    the other step has, and whether that op is no evidence."""

    more: Flags
    doubtful: Flags


def _more(one: _Step, other: _Step) -> _Surplus:
    doubtful = (one.op == 0) | ~np.isin(one.op, other.op) | one.graph
    keys, place, times = np.unique(one.exact, return_inverse=True, return_counts=True)
    others = np.sort(other.exact)
    there = np.searchsorted(others, keys, "right") - np.searchsorted(others, keys)
    more = (times > there)[place]
    return _Surplus(more, more & doubtful)
