"""Ops that launch the same kernel at the same place of the step under another name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.evidence import MIN_SHARED_KERNELS, RenamedOp
from fusetui.analysis.diff.groups import WorkGroup
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import ELSEWHERE
from fusetui.analysis.diff.names import identity
from fusetui.trace.model.categories import Role
from fusetui.trace.model.op_names import is_compiler, stem


class _OpPair(msgspec.Struct, frozen=True):
    """The names of the ops, of A and of B, that launch a kernel that both sides have:
    with their namespaces, without what changes when a program is compiled or profiled
    again."""

    before: str
    after: str


def renamed_at_places(
    a: WorkItems,
    b: WorkItems,
    groups: Sequence[WorkGroup],
    by_kernels: Sequence[RenamedOp],
    swapped: frozenset[str],
) -> tuple[RenamedOp, ...]:
    """All ops that were renamed: those of `by_kernels`, but for one that only launches
    its kernels elsewhere, then those that have another namespace, or another name at
    some of their places. `swapped`: words of ops that swapped their names.

    Of the latter, one name occurs on one side only, or both are of ops that swapped
    their names; and it launches at least half of its kernels in the place of the other
    name, and in that of no third one.
    """
    in_place = _op_pairs(a, b, groups, moved=False)
    moved = _op_pairs(a, b, groups, moved=True)
    kept: list[RenamedOp] = []
    known_stems: set[tuple[str, str]] = set()
    for op in by_kernels:
        pair = _OpPair(before=_known_as(op.before), after=_known_as(op.after))
        known_stems.add((_stem(pair.before), _stem(pair.after)))
        if in_place[pair] or not moved[pair]:
            kept.append(op)
    ops_a, ops_b = _ops_of_trace(a), _ops_of_trace(b)
    launched_a = Counter(map(_known_as, a.op_names))
    launched_b = Counter(map(_known_as, b.op_names))
    one_sided = {
        pair: times
        for pair, times in in_place.items()
        if pair.before != pair.after
        and (
            pair.before not in ops_b
            or pair.after not in ops_a
            or swapped.issuperset((_stem(pair.before), _stem(pair.after)))
        )
    }
    names_before = Counter(pair.before for pair in one_sided)
    names_after = Counter(pair.after for pair in one_sided)
    for pair, times in one_sided.items():
        is_known = (_stem(pair.before), _stem(pair.after)) in known_stems
        is_unique = names_before[pair.before] == names_after[pair.after] == 1
        min_times_a = MIN_SHARED_KERNELS * launched_a[pair.before]
        min_times_b = MIN_SHARED_KERNELS * launched_b[pair.after]
        is_most_of_a = pair.before in ops_b or times >= min_times_a
        is_most_of_b = pair.after in ops_a or times >= min_times_b
        if is_unique and is_most_of_a and is_most_of_b and not is_known:
            before, after = _full_name(a, pair.before), _full_name(b, pair.after)
            kept.append(RenamedOp(before=before, after=after, kernels=times))
    return tuple(kept)


def _op_pairs(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup], *, moved: bool
) -> Counter[_OpPair]:
    """How many kernels of a step two ops both launch, at the same place or, if `moved`,
    elsewhere; copies and sets, and what torch.compile puts around a program, tell
    nothing of ops."""
    pairs: Counter[_OpPair] = Counter()
    for group in groups:
        if len(group.a) != 1 or len(group.b) != 1 or (group.why == ELSEWHERE) != moved:
            continue
        i, j = group.a[0], group.b[0]
        names = a.op_names[i], b.op_names[j]
        if not all(names) or any(map(is_compiler, names)) or not a.computes[i]:
            continue
        if a.kernel_word(i) == b.kernel_word(j):
            pairs[_OpPair(before=_known_as(names[0]), after=_known_as(names[1]))] += 1
    return pairs


def _known_as(name: str) -> str:
    namespace, separator, _ = name.rpartition("::")
    return f"{namespace}{separator}{identity(stem(name))}"


def _stem(name: str) -> str:
    return name.rpartition("::")[2]


def _ops_of_trace(side: WorkItems) -> set[str]:
    trace = side.trace
    names = np.unique(trace.name[trace.rows_of(Role.OP)]).tolist()
    return {_known_as(trace.names[name]) for name in names}


def _full_name(side: WorkItems, known_as: str) -> str:
    return next(name for name in side.op_names if _known_as(name) == known_as)
