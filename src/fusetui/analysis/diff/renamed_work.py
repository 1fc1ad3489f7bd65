"""Finds ops that launch the same kernel at the same place under a different name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from fusetui.analysis.diff.evidence import MIN_SHARED_KERNELS, RenamedOp
from fusetui.analysis.diff.groups import WorkGroup, collect_paired_items
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import ELSEWHERE
from fusetui.analysis.diff.names import remove_run_numbers
from fusetui.trace.model.arrays import distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.op_names import is_compiler, stem


class _OpPair(msgspec.Struct, frozen=True):
    """An op of A and an op of B that launch the same kernel, by `_make_stable_name`."""

    before: str
    after: str

    @property
    def without_namespaces(self) -> _OpPair:
        """The pair of the names without their namespaces."""
        return _OpPair(
            before=_remove_namespace(self.before),
            after=_remove_namespace(self.after),
        )


def find_renamed_ops(
    a: WorkItems,
    b: WorkItems,
    groups: Sequence[WorkGroup],
    by_kernels: Sequence[RenamedOp],
    swapped: frozenset[str],
) -> tuple[RenamedOp, ...]:
    """List all ops that were renamed, once it is known which work is the same.

    Ops of `by_kernels` come first, without those that launch their kernels only at
    other positions. Then come ops that launch the same kernels at the same positions
    under another name or namespace. No name is in two pairs.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        groups: Which items do the same work.
        by_kernels: Ops that were renamed by the evidence of their kernels.
        swapped: The names of ops that swapped their kernels: what one launches in A,
            another launches in B.
    """
    kernels_in_place = _count_kernels_of_op_pairs(a, b, groups, moved=False)
    kernels_elsewhere = _count_kernels_of_op_pairs(a, b, groups, moved=True)
    renamed: list[RenamedOp] = []
    known_pairs: set[_OpPair] = set()
    for op in by_kernels:
        pair = _OpPair(
            before=_make_stable_name(op.before), after=_make_stable_name(op.after)
        )
        known_pairs.add(pair.without_namespaces)
        is_only_elsewhere = kernels_elsewhere[pair] and not kernels_in_place[pair]
        if not is_only_elsewhere:
            renamed.append(op)

    judge = _PairJudge(a, b)
    candidates = [
        pair for pair in kernels_in_place if judge.may_be_renamed(pair, swapped)
    ]
    for pair in _select_unambiguous_pairs(candidates):
        kernels = kernels_in_place[pair]
        is_known = pair.without_namespaces in known_pairs
        if not is_known and judge.launch_enough(pair, kernels):
            renamed.append(judge.make_renamed_op(pair, kernels))
    return tuple(renamed)


def _select_unambiguous_pairs(pairs: Sequence[_OpPair]) -> list[_OpPair]:
    """Return the pairs of names of which no other pair has either name."""
    pairs_with_before = Counter(pair.before for pair in pairs)
    pairs_with_after = Counter(pair.after for pair in pairs)
    unambiguous = []
    for pair in pairs:
        if pairs_with_before[pair.before] == 1 and pairs_with_after[pair.after] == 1:
            unambiguous.append(pair)
    return unambiguous


class _PairJudge:
    """Judges whether two ops are one renamed op, by names and kernels of both sides."""

    def __init__(self, a: WorkItems, b: WorkItems) -> None:
        """Collect the names of the ops of both sides, and the kernels that each has."""
        self._a = a
        self._b = b
        self._names_in_a = _collect_names_of_ops(a)
        self._names_in_b = _collect_names_of_ops(b)
        self._kernels_of_a = Counter(_make_stable_name(name) for name in a.op_names)
        self._kernels_of_b = Counter(_make_stable_name(name) for name in b.op_names)

    def may_be_renamed(self, pair: _OpPair, swapped: frozenset[str]) -> bool:
        """Return whether the names of a pair allow that it is one renamed op.

        The names have to differ, and one of them has to occur in its own trace only.
        Else both have to be among the `swapped` ones.
        """
        if pair.before == pair.after:
            return False
        if pair.before not in self._names_in_b or pair.after not in self._names_in_a:
            return True
        stems = pair.without_namespaces
        return stems.before in swapped and stems.after in swapped

    def launch_enough(self, pair: _OpPair, kernels: int) -> bool:
        """Return whether two ops launch enough of the same kernels to be one op.

        A name that only its own trace has must share at least MIN_SHARED_KERNELS of its
        kernels with the other name.

        Args:
            pair: An op of A and an op of B.
            kernels: How many kernels they launch at the same places.
        """
        min_of_a = 0.0
        if pair.before not in self._names_in_b:
            min_of_a = MIN_SHARED_KERNELS * self._kernels_of_a[pair.before]
        min_of_b = 0.0
        if pair.after not in self._names_in_a:
            min_of_b = MIN_SHARED_KERNELS * self._kernels_of_b[pair.after]
        return kernels >= max(min_of_a, min_of_b)

    def make_renamed_op(self, pair: _OpPair, kernels: int) -> RenamedOp:
        """Return the pair with the full names of its ops.

        Args:
            pair: Two ops.
            kernels: How many kernels of a step both launch.
        """
        return RenamedOp(
            before=_find_first_full_name(self._a, pair.before),
            after=_find_first_full_name(self._b, pair.after),
            kernels=kernels,
        )


def _count_kernels_of_op_pairs(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup], *, moved: bool
) -> Counter[_OpPair]:
    """Count the kernels of a step that the two ops of each pair both launch.

    Copies and fills do not count, nor does what torch.compile puts around a program:
    they tell nothing of ops.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        groups: Which items do the same work.
        moved: Whether to count kernels that moved to another position instead of those
            that stayed.
    """
    counted_groups = []
    for group in groups:
        has_moved = group.why == ELSEWHERE
        if has_moved == moved:
            counted_groups.append(group)

    kernels_of_pair: Counter[_OpPair] = Counter()
    items_a, items_b = collect_paired_items(counted_groups)
    for item_a, item_b in zip(items_a.tolist(), items_b.tolist(), strict=True):
        is_same_kernel = a.kernel_id(item_a) == b.kernel_id(item_b)
        if not is_same_kernel or not a.computes[item_a]:
            continue
        before = a.op_names[item_a]
        after = b.op_names[item_b]
        if _is_op_of_program(before) and _is_op_of_program(after):
            pair = _OpPair(
                before=_make_stable_name(before), after=_make_stable_name(after)
            )
            kernels_of_pair[pair] += 1
    return kernels_of_pair


def _is_op_of_program(name: str) -> bool:
    """Return whether this is the name of an op that torch.compile did not insert."""
    return name != "" and not is_compiler(name)


def _make_stable_name(name: str) -> str:
    """Return the name of an op with its namespace, without what changes between runs.

    >>> _make_stable_name("inductor::triton_poi_fused_gelu_3")
    'inductor::triton_poi_fused_gelu'
    """
    namespace, separator, _ = name.rpartition("::")
    return f"{namespace}{separator}{remove_run_numbers(stem(name))}"


def _remove_namespace(name: str) -> str:
    """Return `mm` for `aten::mm`."""
    _, _, name_in_namespace = name.rpartition("::")
    return name_in_namespace


def _collect_names_of_ops(items: WorkItems) -> set[str]:
    """Return the names of all ops of the trace, without what changes between runs."""
    trace = items.trace
    name_indices = distinct(trace.name[trace.rows_of(Role.OP)]).tolist()
    return {_make_stable_name(trace.names[index]) for index in name_indices}


def _find_first_full_name(items: WorkItems, stable_name: str) -> str:
    """Return the full name of the first op of the step that has this stable name.

    A stable name is without what changes between runs. Raises StopIteration if no op
    has it.
    """
    return next(
        name for name in items.op_names if _make_stable_name(name) == stable_name
    )
