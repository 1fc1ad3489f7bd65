"""Measures how much of the work of both sides has the same names.

It shows whether the two traces are of one program at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fusetui.analysis.diff.groups import WorkGroup
from fusetui.analysis.diff.items import NO_OP, WorkItems
from fusetui.analysis.diff.names import classify_work


class CommonWork(msgspec.Struct, frozen=True):
    """The share of the time of each side (0 to 1) that is the same work by its names.

    It is the time in groups of both sides that have a kernel or an op in common, or
    that were matched by other evidence in names.
    """

    share_of_a: float
    share_of_b: float


def measure_common_work(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> CommonWork | None:
    """Measure which share of the time of A and B is work with the same name.

    It is the time of groups that have a kernel or an op in common, or that were matched
    by other evidence in names.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        groups: Which items do the same work.

    Returns:
        None if A or B does no work that takes time.
    """
    total_a_ns = int(a.mean_ns.sum())
    total_b_ns = int(b.mean_ns.sum())
    if not total_a_ns or not total_b_ns:
        return None

    common_a_ns = 0
    common_b_ns = 0
    for group in groups:
        if group.a and group.b and _has_name_in_common(a, b, group):
            common_a_ns += sum(a.mean_times[item] for item in group.a)
            common_b_ns += sum(b.mean_times[item] for item in group.b)
    return CommonWork(
        share_of_a=common_a_ns / total_a_ns, share_of_b=common_b_ns / total_b_ns
    )


def _has_name_in_common(a: WorkItems, b: WorkItems, group: WorkGroup) -> bool:
    """Return whether names show that A and B do the same work in a group.

    They do if A and B have the same kernel or the same op. Ops that convolve forward
    count as one op, whatever library they call, and so do those that convolve backward.
    They do too if the group was matched by other evidence than the sort or position of
    the work.
    """
    kernels_a = {a.kernel_id(item) for item in group.a}
    kernels_b = {b.kernel_id(item) for item in group.b}
    ops_a = {a.op_id(item) for item in group.a} - {NO_OP}
    ops_b = {b.op_id(item) for item in group.b} - {NO_OP}
    if kernels_a & kernels_b or ops_a & ops_b:
        return True

    has_evidence_in_names = group.why != "" and not group.by_sort_or_position
    if has_evidence_in_names:
        return True

    # Each vendor's library has its own name for convolutions.
    convolutions_a = _find_convolutions(a.op_names[item] for item in group.a)
    convolutions_b = _find_convolutions(b.op_names[item] for item in group.b)
    return not convolutions_a.isdisjoint(convolutions_b)


def _find_convolutions(op_names: Iterable[str]) -> set[str]:
    """Return which of `conv` and `conv backward` are among these ops."""
    kinds = {classify_work(op, "") for op in op_names}
    return {kind for kind in kinds if kind.startswith("conv")}
