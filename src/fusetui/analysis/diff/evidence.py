"""What is the same work on both sides whatever it is called there: keys that compare.

The kernel is stronger evidence than the name of its op: names of ops change from one version of
PyTorch to the next, and the kernels of a CUDA graph belong to no op of the program.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
import numpy as np

from fusetui.analysis.diff.items import KERNEL_MASK, OP_SHIFT, Vocabulary, WorkItems, items
from fusetui.analysis.diff.streams import alternating, shared
from fusetui.analysis.diff.work import Work, by_graph
from fusetui.trace.model.arrays import Int64s

COMPARED = 256  # ops of each side, the first of a step, that are compared with those of the other
ALIKE = 0.5  # two ops are one under two names if they share this part of all kernels of either

AS_MANY = 0.9  # nearly as many of a kernel on both sides: the fewer have this share of the others


class RenamedOp(msgspec.Struct, frozen=True):
    """An op that only A has, and one that only B has and that launches the same kernels."""

    before: str
    after: str
    kernels: int  # of a step that both launch


class Evidence(msgspec.Struct, frozen=True, eq=False):
    """Both sides with keys that compare, and what had to be settled for that."""

    a: WorkItems
    b: WorkItems
    renamed: tuple[RenamedOp, ...]


def comparable(work_a: Work, work_b: Work) -> Evidence:
    """The representative steps of both sides, with one key for what is the same work on both."""
    words = Vocabulary()
    a, b = (_steady(work, words) for work in (work_a, work_b))
    renamed = _renamed(a, b)
    names = {words.text_of(after): words.text_of(before) for before, after in renamed}
    b = items(b.work, words, names) if names else b
    merged_a, merged_b = shared(*_by_kernel(a, b))
    a = a if merged_a is a.work else items(merged_a, words)
    b = b if merged_b is b.work else items(merged_b, words, names)
    told = tuple(_told(a, b, before, kernels) for (before, _), kernels in renamed.items())
    return Evidence(*_by_kernel(a, b), told)


def _steady(work: Work, words: Vocabulary) -> WorkItems:
    """The step of one side; streams between which the steps alternate are one lane, if that makes
    more steps alike."""
    found = items(work, words)
    merged = alternating(found)
    if merged is None:
        return found
    other = items(merged, words)
    return other if len(other.alike) > len(found.alike) else found


def _renamed(a: WorkItems, b: WorkItems) -> dict[tuple[int, int], int]:
    """The words of ops that only one side has, A's and B's, and how many kernels they share: each
    op once, those that share most of their kernels first, and of equals those that come at about
    the same place in the step."""
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


def _kernels_by_op(of: WorkItems) -> dict[int, Counter[int]]:
    """Per op, in the order of their first kernels: how often it launches each kernel in a step."""
    found: defaultdict[int, Counter[int]] = defaultdict(Counter)
    order = np.argsort(of.trace.start[of.row], kind="stable")
    for exact in of.exact[order].tolist():
        found[exact >> OP_SHIFT][exact & KERNEL_MASK] += 1
    return dict(found)


def _told(a: WorkItems, b: WorkItems, word: int, kernels: int) -> RenamedOp:
    """By the full names, those of the first item of each side under this op."""
    before, after = (
        of.op_names[int((of.exact >> OP_SHIFT == word).argmax())] for of in (a, b)
    )
    return RenamedOp(before, after, kernels)


def _by_kernel(a: WorkItems, b: WorkItems) -> tuple[WorkItems, WorkItems]:
    """Both sides, with keys that leave out the op of every kernel whose op is no evidence: each side
    has it more often than the other under some op, and for one of them that is an op that it does
    not tell, or that the other side does not have. Only if both have nearly as many of the kernel:
    else regions tell how many each has."""
    more_a, more_b = _more(a, b), _more(b, a)
    doubtful = np.union1d(more_a.doubtful, more_b.doubtful)
    kernels = np.intersect1d(doubtful, np.intersect1d(more_a.kernels, more_b.kernels))
    counts = np.stack([_count(of, kernels) for of in (a, b)])
    kernels = kernels[counts.min(axis=0) >= AS_MANY * counts.max(axis=0)]
    return _without_op(a, kernels), _without_op(b, kernels)


def _count(of: WorkItems, kernels: Int64s) -> Int64s:
    """How often a step launches each of these kernels."""
    found = np.sort(of.exact & KERNEL_MASK)
    return np.searchsorted(found, kernels, "right") - np.searchsorted(found, kernels)


class _Surplus(msgspec.Struct, frozen=True, eq=False):
    """Kernels that a side launches more often under some op than the other side does; `doubtful`
    where that op is no evidence."""

    kernels: Int64s
    doubtful: Int64s


def _more(of: WorkItems, twin: WorkItems) -> _Surplus:
    op = of.exact >> OP_SHIFT
    doubtful = (op == 0) | ~np.isin(op, twin.exact >> OP_SHIFT) | by_graph(of.work, of.row)
    keys, place, times = np.unique(of.exact, return_inverse=True, return_counts=True)
    others = np.sort(twin.exact)
    there = np.searchsorted(others, keys, "right") - np.searchsorted(others, keys)
    more = (times > there)[place]
    kernel = of.exact & KERNEL_MASK
    return _Surplus(np.unique(kernel[more]), np.unique(kernel[more & doubtful]))


def _without_op(of: WorkItems, kernels: Int64s) -> WorkItems:
    if not len(kernels):
        return of
    kernel, every = of.exact & KERNEL_MASK, of.every & KERNEL_MASK
    alone = np.isin(kernel, kernels)
    return msgspec.structs.replace(
        of,
        exact=np.where(alone, kernel, of.exact),
        by_op=np.where(alone, -kernel - 1, of.by_op),
        alone=np.where(alone, 0, of.alone),
        every=np.where(np.isin(every, kernels), every, of.every),
        by_kernel=alone,
    )
