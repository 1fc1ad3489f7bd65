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
    """The stable names (see `_stable_name`) of two ops, of A and of B, that launch the
    same kernel."""

    before: str
    after: str

    @property
    def without_namespaces(self) -> _OpPair:
        """The pair of the names without their namespaces."""
        return _OpPair(
            before=_without_namespace(self.before),
            after=_without_namespace(self.after),
        )


def renamed_at_places(
    a: WorkItems,
    b: WorkItems,
    groups: Sequence[WorkGroup],
    by_kernels: Sequence[RenamedOp],
    swapped: frozenset[str],
) -> tuple[RenamedOp, ...]:
    """All ops that were renamed: those of `by_kernels` first, without one that launches
    its kernels only at other places; then those that launch the same kernels at the
    same places under another name, or under a name with another namespace (see
    `_SidesOfPairs`). No name is in two pairs.

    `swapped`: words of ops that swapped their names.
    """
    in_place = _op_pairs(a, b, groups, moved=False)
    elsewhere = _op_pairs(a, b, groups, moved=True)
    renamed: list[RenamedOp] = []
    known_pairs: set[_OpPair] = set()
    for op in by_kernels:
        pair = _OpPair(before=_stable_name(op.before), after=_stable_name(op.after))
        known_pairs.add(pair.without_namespaces)
        if in_place[pair] or not elsewhere[pair]:
            renamed.append(op)
    sides = _SidesOfPairs(a, b)
    candidates = [pair for pair in in_place if sides.may_be_renamed(pair, swapped)]
    pairs_of_before = Counter(pair.before for pair in candidates)
    pairs_of_after = Counter(pair.after for pair in candidates)
    for pair in candidates:
        if pair.without_namespaces in known_pairs:
            continue
        if pairs_of_before[pair.before] > 1 or pairs_of_after[pair.after] > 1:
            continue
        if sides.launch_enough(pair, in_place[pair]):
            renamed.append(sides.renamed(pair, in_place[pair]))
    return tuple(renamed)


class _SidesOfPairs:
    """Both sides, as far as pairs of ops are judged by them."""

    def __init__(self, a: WorkItems, b: WorkItems) -> None:
        """The pairs are of ops of these two sides."""
        self._a = a
        self._b = b
        self._names_in_a = _names_in_trace(a)
        self._names_in_b = _names_in_trace(b)
        self._kernels_of_a = Counter(map(_stable_name, a.op_names))
        self._kernels_of_b = Counter(map(_stable_name, b.op_names))

    def may_be_renamed(self, pair: _OpPair, swapped: frozenset[str]) -> bool:
        """Whether the two names differ, and at least one of them occurs in its own
        trace only, or both are `swapped`."""
        if pair.before == pair.after:
            return False
        if pair.before not in self._names_in_b or pair.after not in self._names_in_a:
            return True
        stems = pair.without_namespaces
        return stems.before in swapped and stems.after in swapped

    def launch_enough(self, pair: _OpPair, kernels: int) -> bool:
        """Whether each name that is in its own trace only launches at least
        MIN_SHARED_KERNELS of its kernels in the place of the other name: `kernels`."""
        min_of_a = MIN_SHARED_KERNELS * self._kernels_of_a[pair.before]
        min_of_b = MIN_SHARED_KERNELS * self._kernels_of_b[pair.after]
        is_enough_of_a = pair.before in self._names_in_b or kernels >= min_of_a
        is_enough_of_b = pair.after in self._names_in_a or kernels >= min_of_b
        return is_enough_of_a and is_enough_of_b

    def renamed(self, pair: _OpPair, kernels: int) -> RenamedOp:
        """The pair with the full names of the ops, which both launch so many
        kernels."""
        return RenamedOp(
            before=_name_in_trace(self._a, pair.before),
            after=_name_in_trace(self._b, pair.after),
            kernels=kernels,
        )


def _op_pairs(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup], *, moved: bool
) -> Counter[_OpPair]:
    """How many kernels of a step the ops of each pair both launch: at the same place of
    the step or, if `moved`, elsewhere. Copies and sets do not count, nor what
    torch.compile puts around a program: they tell nothing of ops."""
    pairs: Counter[_OpPair] = Counter()
    for group in groups:
        if len(group.a) != 1 or len(group.b) != 1:
            continue
        if (group.why == ELSEWHERE) != moved:
            continue
        item_a = group.a[0]
        item_b = group.b[0]
        if not a.computes[item_a]:
            continue
        if a.kernel_id(item_a) != b.kernel_id(item_b):
            continue
        before = a.op_names[item_a]
        after = b.op_names[item_b]
        if _is_op_of_program(before) and _is_op_of_program(after):
            pair = _OpPair(before=_stable_name(before), after=_stable_name(after))
            pairs[pair] += 1
    return pairs


def _is_op_of_program(name: str) -> bool:
    """Whether this is the name of an op, and none that torch.compile inserts."""
    return name != "" and not is_compiler(name)


def _stable_name(name: str) -> str:
    """The name of an op with its namespace, without what changes when a program is
    compiled or profiled again.

    >>> _stable_name("aten::mm")
    'aten::mm'
    """
    namespace, separator, _ = name.rpartition("::")
    return f"{namespace}{separator}{identity(stem(name))}"


def _without_namespace(name: str) -> str:
    """`mm` for `aten::mm`."""
    return name.rpartition("::")[2]


def _names_in_trace(side: WorkItems) -> set[str]:
    """The names of all ops of the trace, as `_stable_name` has them."""
    trace = side.trace
    names = np.unique(trace.name[trace.rows_of(Role.OP)]).tolist()
    return {_stable_name(trace.names[name]) for name in names}


def _name_in_trace(side: WorkItems, stable_name: str) -> str:
    """The full name of the first op of the step that has this stable name."""
    return next(name for name in side.op_names if _stable_name(name) == stable_name)
