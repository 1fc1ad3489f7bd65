"""Creates rows for work that only one step has or lacks; each row names the step.

An *unusual step* does other work than the representative step of its trace. A *kernel*
is one GPU event, or one CPU op in a trace without a GPU. An *item* is a kernel of the
representative step, by its index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from fusetui.analysis.diff.blocks import find_consecutive_runs
from fusetui.analysis.diff.fusion import FusedOps, find_fused_ops
from fusetui.analysis.diff.groups import (
    WorkGroup,
    collect_paired_items,
    find_known_names,
)
from fusetui.analysis.diff.instances import MAX_KERNELS_OF_OP
from fusetui.analysis.diff.items import NO_OP, OP_SHIFT, WorkItems
from fusetui.analysis.diff.model import Row, RowKind, RowShare, make_row
from fusetui.analysis.diff.sequences import (
    are_similar_times,
    can_choose_closest_partners,
    choose_closest_partners,
    pair_equal_numbers,
)
from fusetui.text.figures import plural
from fusetui.trace.model.arrays import NO_ROW, Flags, Int64s, Rows, distinct
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key, grouped

MAX_KERNELS_FOR_FUSION = 16
"""A step that differs in more kernels is not searched for fused kernels."""

MAX_KINDS_OF_WORK = 8
"""A step that differs in more kinds of work than this is one row."""

NO_KERNEL = -1
"""The index of the kernel of an item that an unusual step lacks."""


class UnusualStep(msgspec.Struct, frozen=True, eq=False):
    """A step that does other work than the representative step of its trace.

    Its kernels are counted from 0. Items are the kernels of the representative step.
    """

    index: int  # of the step
    row: Rows  # the row of the trace of each of its kernels
    ns: Int64s  # their times
    exact_keys: Int64s  # their keys: equal for the same kernel under the same op
    missing_items: list[int]  # the items that it lacks, ascending
    extra_kernels: list[int]  # its kernels that are none of the items, ascending
    kernel_of_item: Rows  # one per item, NO_KERNEL if it lacks the item
    expected_ns: list[int]  # the time that each item would take in it

    @property
    def has_item(self) -> Flags:
        """Whether the step runs each item."""
        return np.asarray(self.kernel_of_item != NO_KERNEL)


def find_unusual_steps(
    items: WorkItems, other_side: WorkItems
) -> Iterator[UnusualStep]:
    """Yield each step of a trace that does other work than its representative step.

    The representative step is the step of median length among those that do the most
    common work. The steps of the other trace tell how long work would take.
    """
    all_steps = np.arange(len(items.steps))
    for step in np.setdiff1d(all_steps, items.same_work_steps).tolist():
        expected_ns = _estimate_item_times(items, other_side, step)
        yield _compare_unusual_step(items, step, expected_ns)


def _compare_unusual_step(
    items: WorkItems, step: int, expected_ns: list[int]
) -> UnusualStep:
    """Compare the kernels of an unusual step with those of the representative step.

    Args:
        items: The items, which are the kernels of the representative step.
        step: The index of the unusual step.
        expected_ns: The time (ns) that each item would take in that step.
    """
    work = items.work
    in_step = work.slice_of_step(step)
    in_usual_step = work.slice_of_step(items.representative_step)
    kernels = _TimedKernels(
        keys=items.make_keys_with_stream(in_step), ns=work.ns[in_step].tolist()
    )
    usual = _TimedKernels(
        keys=items.make_keys_with_stream(in_usual_step), ns=expected_ns
    )

    pairs = pair_equal_numbers(usual.keys, kernels.keys)
    paired_items_of_step = {item for item, _ in pairs}
    paired_kernels = {kernel for _, kernel in pairs}
    missing_items = _find_unpaired_kernels(usual, kernels, paired=paired_items_of_step)
    extra_kernels = _find_unpaired_kernels(kernels, usual, paired=paired_kernels)
    return UnusualStep(
        index=step,
        row=work.row[in_step],
        ns=work.ns[in_step],
        exact_keys=items.exact_keys_of_all_steps[in_step],
        missing_items=missing_items,
        extra_kernels=extra_kernels,
        kernel_of_item=_match_items_to_kernels(
            usual.keys, kernels.keys, missing_items, extra_kernels
        ),
        expected_ns=expected_ns,
    )


def _estimate_item_times(
    items: WorkItems, other_side: WorkItems, step: int
) -> list[int]:
    """Estimate how long each item would take in another step of its trace (ns).

    An item is a kernel of the representative step. A step may be slow or fast as a
    whole, so the best estimate is the time of the item in the same step of the other
    trace. If that step is unknown or does other work, it is the usual time of the item.
    """
    has_as_many_steps = len(items.steps) == len(other_side.steps)
    has_same_work = np.array_equal(items.exact_keys, other_side.exact_keys)
    is_this_step = other_side.same_work_steps == step  # one flag per row of `samples`
    if not has_as_many_steps or not has_same_work or not is_this_step.any():
        return items.mean_times

    (times_in_step,) = other_side.samples[is_this_step].tolist()
    return [*times_in_step]


def collect_rows_by_step(items: WorkItems, other_side: WorkItems) -> Rows:
    """Return the row of the trace that has each item in every step.

    An item is a kernel of the representative step. It is looked for in all steps, also
    in those that do other work.

    Returns:
        Rows of shape [steps, items]; NO_ROW where a step lacks the item.
    """
    work = items.work
    rows = np.full((len(work.steps), len(items)), NO_ROW, dtype=np.intp)
    for step in items.same_work_steps.tolist():
        rows[step] = work.row[work.slice_of_step(step)]

    for unusual in find_unusual_steps(items, other_side):
        has_item = unusual.has_item
        rows[unusual.index, has_item] = unusual.row[unusual.kernel_of_item[has_item]]
    return rows


def _match_items_to_kernels(
    usual_keys: Int64s,
    unusual_keys: Int64s,
    missing_items: list[int],
    extra_kernels: list[int],
) -> Rows:
    """Find the kernel of an unusual step that does the work of each usual kernel.

    The n-th kernel with a key in one step is the n-th kernel with this key in the
    other, without counting those that only one of the steps has.

    >>> usual, unusual = np.array([7, 8, 7, 9]), np.array([8, 7, 6, 7])
    >>> _match_items_to_kernels(usual, unusual, missing_items=[3], extra_kernels=[2])
    array([ 1,  0,  3, -1])

    Args:
        usual_keys: A key for each kernel of the usual step, equal for equal work.
        unusual_keys: The same for the kernels of the unusual step.
        missing_items: The kernels of the usual step that the unusual one lacks.
        extra_kernels: The kernels of the unusual step that the usual one lacks.

    Returns:
        For each kernel of the usual step, an index into the kernels of the unusual one;
        NO_KERNEL if it has none. All are NO_KERNEL if the steps differ by more than
        these kernels.
    """
    kernel_of_item = np.full(len(usual_keys), NO_KERNEL, dtype=np.intp)
    common_items = np.setdiff1d(np.arange(len(usual_keys)), missing_items)
    common_kernels = np.setdiff1d(np.arange(len(unusual_keys)), extra_kernels)

    # Equal keys keep their order, so that the n-th of one meets the n-th of the other.
    items_by_key = common_items[grouped(usual_keys[common_items]).order]
    kernels_by_key = common_kernels[grouped(unusual_keys[common_kernels]).order]
    if np.array_equal(usual_keys[items_by_key], unusual_keys[kernels_by_key]):
        kernel_of_item[items_by_key] = kernels_by_key
    return kernel_of_item


class _TimedKernels(msgspec.Struct, frozen=True, eq=False):
    """The kernels of a step."""

    keys: Int64s  # one per kernel, equal for equal work
    ns: list[int]  # their times


def _find_unpaired_kernels(
    own: _TimedKernels, other: _TimedKernels, *, paired: set[int]
) -> list[int]:
    """Find the kernels of one step that have no partner in the other step.

    An alignment by keys (numbers that are equal for equal work) is arbitrary among
    neighbors with equal keys. Then times decide. Take 10 and 50 us in one step against
    49 us in the other: the one of 10 us has no partner.

    Args:
        own: The kernels of one step.
        other: The kernels of the other step.
        paired: The indices of the kernels of `own` that the alignment paired.

    Returns:
        Indices of kernels of `own`, ascending.
    """
    unpaired = set(range(len(own.keys))) - paired
    ambiguous = _find_ambiguous_kernels(own.keys, sorted(unpaired))
    certain = unpaired.difference(ambiguous)
    for key in distinct(own.keys[ambiguous]).tolist():
        with_key = np.flatnonzero(own.keys == key).tolist()
        candidates = [kernel for kernel in with_key if kernel not in certain]
        partners = np.flatnonzero(other.keys == key).tolist()
        if len(partners) >= len(candidates):
            continue  # times cannot tell which candidate has no partner
        is_fast = can_choose_closest_partners(
            shorter_length=len(partners), longer_length=len(candidates)
        )
        if is_fast:
            unpaired.difference_update(candidates)
            unpaired.update(_reject_closest(own, candidates, other, partners))
    return sorted(unpaired)


def _reject_closest(
    own: _TimedKernels, candidates: list[int], other: _TimedKernels, partners: list[int]
) -> list[int]:
    """Return the candidates that remain after each partner took the closest one.

    The partners are paired in order, so that the sum of the differences of time is
    least.

    Args:
        own: The kernels of one step.
        candidates: Indices of some of them.
        other: The kernels of the other step.
        partners: Indices of some of these, fewer than there are candidates.
    """
    partners_ns = [other.ns[kernel] for kernel in partners]
    candidates_ns = [own.ns[kernel] for kernel in candidates]
    positions = choose_closest_partners(partners_ns, candidates_ns)
    with_partner = {candidates[position] for position in positions}
    return [kernel for kernel in candidates if kernel not in with_partner]


def _find_ambiguous_kernels(keys: Int64s, unpaired: list[int]) -> list[int]:
    """Find the unpaired kernels that could change places with a paired neighbor.

    A run of unpaired kernels is ambiguous if it could as well lie one position earlier
    or later: the sequence of the other keys would be the same.

        >>> _find_ambiguous_kernels(np.array([5, 6, 6, 7]), unpaired=[2])  # or the other 6
        [2]
        >>> _find_ambiguous_kernels(np.array([5, 6, 6, 7]), unpaired=[2, 3])
        []

    Args:
        keys: A key for each kernel of a step, equal for equal work.
        unpaired: The indices of the kernels without a partner, ascending.
    """
    ambiguous: list[int] = []
    for first, last in find_consecutive_runs(np.array(unpaired, dtype=np.intp)):
        may_be_earlier = first > 0 and keys[first - 1] == keys[last]
        may_be_later = last + 1 < len(keys) and keys[last + 1] == keys[first]
        if may_be_earlier or may_be_later:
            ambiguous += range(first, last + 1)
    return ambiguous


class OutlierKernel(msgspec.Struct, frozen=True):
    """A kernel that a step has and usual steps lack, or the reverse."""

    step: int  # the index of the step
    is_missing: bool  # the step lacks it, and usual steps have it
    row: int  # of the trace; if it is missing, in the representative step
    ns: int
    exact_key: int  # equal for the same kernel under the same op
    usual_kernels_before: int  # how many kernels of usual work precede it in the step

    @property
    def op_id(self) -> int:
        """The id of its op, NO_OP for none."""
        return self.exact_key >> OP_SHIFT


Kernels = Sequence[OutlierKernel]


class _Deviation(msgspec.Struct, frozen=True):
    """What kernels have in common that cancel out if both traces have them."""

    step: int | None  # None if the n-th steps of both have nothing in common
    is_missing: bool
    exact_key: int


def make_rows(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[Row]:
    """Make the rows of the work that single steps of a trace have or lack.

    The rows are not part of the sum that explains the change, because that sum is about
    usual steps. Three kinds of work get no row here:

        - What both traces have or lack alike; in the same step if they have equally
          many.
        - Work that B does in all steps in the place of a kernel of A.
        - Work that only one trace has, in all its steps: it has a row already.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        groups: Which items of A and B do the same work.

    Returns:
        The rows about A first.
    """
    replaced_key_in_a = _map_keys_to_replaced(a, b, groups)
    keys_of_one_side = _find_one_sided_keys(a, b, groups)
    has_same_steps = len(a.steps) == len(b.steps)

    kernels_a = _find_differing_kernels(a, b, without=keys_of_one_side)
    kernels_b = _find_differing_kernels(b, a, without=keys_of_one_side)
    by_deviation_a = _group_by_deviation(
        kernels_a, replaced_key_in_a, has_same_steps=has_same_steps
    )
    by_deviation_b = _group_by_deviation(
        kernels_b, replaced_key_in_a, has_same_steps=has_same_steps
    )
    surplus_of_a = _select_surplus(own=by_deviation_a, other=by_deviation_b)
    surplus_of_b = _select_surplus(own=by_deviation_b, other=by_deviation_a)
    return [
        *_make_rows_of_side(a, surplus_of_a, "A"),
        *_make_rows_of_side(b, surplus_of_b, "B"),
    ]


def _group_by_deviation(
    kernels: Kernels, replaced_key_in_a: dict[int, int], *, has_same_steps: bool
) -> dict[_Deviation, list[OutlierKernel]]:
    """Group extra and missing kernels by what has to agree for them to cancel out.

    Args:
        kernels: Kernels that single steps of a trace have or lack.
        replaced_key_in_a: {exact key that only B has: key of what it replaces in A}.
            Such a kernel counts as the one that it replaces.
        has_same_steps: Whether the n-th steps of both traces belong together. If not,
            the step does not have to agree.
    """
    kernels_by_deviation: defaultdict[_Deviation, list[OutlierKernel]]
    kernels_by_deviation = defaultdict(list)
    for kernel in kernels:
        deviation = _Deviation(
            step=kernel.step if has_same_steps else None,
            is_missing=kernel.is_missing,
            exact_key=replaced_key_in_a.get(kernel.exact_key, kernel.exact_key),
        )
        kernels_by_deviation[deviation].append(kernel)
    return kernels_by_deviation


def _select_surplus(
    *,
    own: dict[_Deviation, list[OutlierKernel]],
    other: dict[_Deviation, list[OutlierKernel]],
) -> Kernels:
    """Return the deviations of one trace that the other trace does not share.

    A deviation is an extra or missing kernel of a step; both arguments group them by
    what has to agree. Three of one trace and two of the other leave the last one of the
    three.
    """
    surplus: list[OutlierKernel] = []
    for deviation, kernels in own.items():
        shared = len(other.get(deviation, ()))
        surplus += kernels[shared:]
    return surplus


def _map_keys_to_replaced(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> dict[int, int]:
    """Return which work of A was replaced by work that only B has.

    Work is named by its exact key, a number that is equal for the same kernel under the
    same op.

    Returns:
        {exact key that only B has: exact key in A}, without keys whose pairs replace
        different work of A.
    """
    items_a, items_b = collect_paired_items(groups)
    keys_before = a.exact_keys[items_a].tolist()
    keys_after = b.exact_keys[items_b].tolist()
    replaced_by_key: defaultdict[int, set[int]] = defaultdict(set)
    for key_before, key_after in zip(keys_before, keys_after, strict=True):
        replaced_by_key[key_after].add(key_before)

    keys_of_a = set(a.exact_keys.tolist())
    key_in_a = {}
    for key_after, replaced_keys in replaced_by_key.items():
        is_only_in_b = key_after not in keys_of_a
        if is_only_in_b and len(replaced_keys) == 1:
            (replaced_key,) = replaced_keys
            key_in_a[key_after] = replaced_key
    return key_in_a


def _find_one_sided_keys(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> set[int]:
    """Return the exact keys of the usual work that only one of the two traces does.

    An exact key is a number that is equal for the same kernel under the same op. The
    work has no counterpart in its group, and no step of the other trace has its key.
    """
    only_in_a: set[int] = set()
    only_in_b: set[int] = set()
    for group in groups:
        if not group.b:
            only_in_a.update(a.exact_keys[[*group.a]].tolist())
        if not group.a:
            only_in_b.update(b.exact_keys[[*group.b]].tolist())
    only_in_a.difference_update(b.exact_keys_of_all_steps.tolist())
    only_in_b.difference_update(a.exact_keys_of_all_steps.tolist())
    return only_in_a | only_in_b


def _find_differing_kernels(
    items: WorkItems, other_side: WorkItems, *, without: set[int]
) -> Kernels:
    """List the kernels that unusual steps of a trace have in addition, or lack.

    A kernel that merely runs at another position of the step is left out. It shows as
    one missing and one extra kernel of the same op, which take about as long. Missing
    kernels are assumed to take their expected time.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        other_side: Those of the other trace.
        without: Exact keys (a kernel under an op) of kernels that are left out.
    """
    kernels = []
    for step in find_unusual_steps(items, other_side):
        extra_kernels = list(step.extra_kernels)
        for item in step.missing_items:
            moved_kernel = _find_moved_kernel(items, step, item, extra_kernels)
            if moved_kernel is None:
                kernels.append(_describe_missing_item(items, step, item))
            else:
                extra_kernels.remove(moved_kernel)
        kernels += [_describe_extra_kernel(step, kernel) for kernel in extra_kernels]
    return [kernel for kernel in kernels if kernel.exact_key not in without]


def _find_moved_kernel(
    items: WorkItems, step: UnusualStep, item: int, extra_kernels: list[int]
) -> int | None:
    """Find the extra kernel of an unusual step that is an item which it seems to lack.

    The item may run at another position of the step. So the kernel has to be the same
    one under the same op and take about as long. Of several such kernels, the one with
    the closest time is returned.

    Args:
        items: The items, which are the kernels of the representative step.
        step: A step that does other work.
        item: An item that the step lacks.
        extra_kernels: The indices of the kernels to choose from.

    Returns:
        The index of the kernel; None if there is none.
    """
    key = items.exact_keys[item]
    expected_ns = step.expected_ns[item]
    distance_ns = {}
    for kernel in extra_kernels:
        ns = int(step.ns[kernel])
        if step.exact_keys[kernel] == key and are_similar_times(ns, expected_ns):
            distance_ns[kernel] = abs(ns - expected_ns)
    return min(distance_ns, key=distance_ns.__getitem__, default=None)


def _describe_missing_item(
    items: WorkItems, step: UnusualStep, item: int
) -> OutlierKernel:
    """Describe an item (a kernel of the representative step) that a step lacks.

    Its row is that in the representative step, and its time is the expected one.
    """
    return OutlierKernel(
        step=step.index,
        is_missing=True,
        row=int(items.row[item]),
        ns=step.expected_ns[item],
        exact_key=int(items.exact_keys[item]),
        usual_kernels_before=int(step.has_item[:item].sum()),
    )


def _describe_extra_kernel(step: UnusualStep, kernel: int) -> OutlierKernel:
    """Describe a kernel that a step has and the representative step lacks.

    `kernel` is its index in the step.
    """
    is_before = step.has_item & (step.kernel_of_item < kernel)
    return OutlierKernel(
        step=step.index,
        is_missing=False,
        row=int(step.row[kernel]),
        ns=int(step.ns[kernel]),
        exact_key=int(step.exact_keys[kernel]),
        usual_kernels_before=int(is_before.sum()),
    )


def _make_rows_of_side(items: WorkItems, kernels: Kernels, side: str) -> list[Row]:
    """Make the rows of the kernels that single steps of one trace have or lack.

    Rows of ops that run other kernels in a step come first, then those of fused
    kernels, then the rest. The rest has one row for each step and kind of work (the
    same kernel under the same op). If a step has or lacks more than MAX_KINDS_OF_WORK
    kinds, it has one row for all of them.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        kernels: The extra and missing kernels that the other trace does not share.
        side: `A` or `B`.
    """
    replaced = _make_rows_of_replaced_kernels(items, kernels, side)
    fused = _make_rows_of_fused_kernels(items, replaced.rest, side)
    rows = [*replaced.rows, *fused.rows]
    by_step = by_key(fused.rest, lambda kernel: (kernel.step, kernel.is_missing))
    for kernels_of_step in by_step.values():
        kinds_of_work = by_key(kernels_of_step, lambda kernel: kernel.exact_key)
        if len(kinds_of_work) > MAX_KINDS_OF_WORK:
            row = _make_row_of_kernels(items, kernels_of_step, side, are_many=True)
            rows.append(row)
            continue
        for kernels_of_kind in kinds_of_work.values():
            row = _make_row_of_kernels(items, kernels_of_kind, side, are_many=False)
            rows.append(row)
    return rows


class _RowsAndRest(msgspec.Struct, frozen=True):
    """Rows, and the kernels that are not in them."""

    rows: list[Row]
    rest: Kernels


def _make_rows_of_replaced_kernels(
    items: WorkItems, kernels: Kernels, side: str
) -> _RowsAndRest:
    """Make a row for each call of an op that runs other kernels in one step than usual.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        kernels: Kernels that single steps of the trace have or lack.
        side: `A` or `B`.

    Returns:
        The rows, and the kernels that are in none of them.
    """
    rows: list[Row] = []
    rest: list[OutlierKernel] = []
    for kernels_of_call in _group_kernels_by_call(kernels):
        extra = [kernel for kernel in kernels_of_call if not kernel.is_missing]
        missing = [kernel for kernel in kernels_of_call if kernel.is_missing]
        if _are_other_kernels(extra, missing):
            rows.append(_make_row_of_other_kernels(items, extra, missing, side))
        else:
            rest += [*extra, *missing]
    return _RowsAndRest(rows=rows, rest=rest)


def _are_other_kernels(extra: Kernels, missing: Kernels) -> bool:
    """Return whether a call of an op ran a few other kernels instead of the usual ones.

    It did if some kernels are missing and different ones are there instead. A kernel
    that only ran at another position is among both, so the result is False. It is False
    too for more than MAX_KINDS_OF_WORK kernels, and for kernels without an op.

    Args:
        extra: The kernels that the call ran and usually does not run.
        missing: The kernels that it usually runs, and did not run this time.
    """
    if not extra or not missing or extra[0].op_id == NO_OP:
        return False
    if len(extra) + len(missing) > MAX_KINDS_OF_WORK:
        return False
    extra_keys = {kernel.exact_key for kernel in extra}
    missing_keys = {kernel.exact_key for kernel in missing}
    return extra_keys.isdisjoint(missing_keys)


def _group_kernels_by_call(kernels: Kernels) -> Iterator[list[OutlierKernel]]:
    """Yield the kernels of each call of an op in each step.

    The call is not recorded with the kernels. So two kernels of an op belong to
    different calls if more than MAX_KERNELS_OF_OP kernels of usual work lie between
    them.
    """
    by_op = by_key(kernels, lambda kernel: (kernel.step, kernel.op_id))
    for kernels_of_op in by_op.values():
        kernels_of_op.sort(key=lambda kernel: kernel.usual_kernels_before)
        call = kernels_of_op[:1]
        for previous, kernel in pairwise(kernels_of_op):
            kernels_between = (
                kernel.usual_kernels_before - previous.usual_kernels_before
            )
            if kernels_between > MAX_KERNELS_OF_OP:
                yield call
                call = []
            call.append(kernel)
        yield call


def _make_rows_of_fused_kernels(
    items: WorkItems, kernels: Kernels, side: str
) -> _RowsAndRest:
    """Make a row for each kernel that does the work of several others in one step.

    The name of such a kernel lists ops. The others are consecutive kernels of these ops
    that the step lacks. The reverse counts too: the step lacks the fused kernel and has
    the several kernels instead.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        kernels: Kernels that single steps have or lack.
        side: `A` or `B`.

    Returns:
        The rows, and the kernels that are in none of them.
    """
    rows: list[Row] = []
    explained: set[OutlierKernel] = set()
    for kernels_of_step in by_key(kernels, lambda kernel: kernel.step).values():
        # So many differences are other work rather than a fusion, and slow to search.
        if len(kernels_of_step) > MAX_KERNELS_FOR_FUSION:
            continue
        kernels_of_step.sort(key=lambda kernel: kernel.row)
        for fusion in _find_fusions_in_step(items.trace, kernels_of_step):
            row = _make_row_of_other_kernels(items, fusion.extra, fusion.missing, side)
            rows.append(row)
            explained.update(fusion.extra, fusion.missing)
    rest = [kernel for kernel in kernels if kernel not in explained]
    return _RowsAndRest(rows=rows, rest=rest)


class _Fusion(msgspec.Struct, frozen=True):
    """Kernels of a step that do the work of others that the step lacks."""

    extra: Kernels
    missing: Kernels


def _find_fusions_in_step(trace: Trace, kernels: Kernels) -> Iterator[_Fusion]:
    """Yield the kernels of a step that do the work of several others, or the reverse.

    Each of the several kernels belongs to at most one fusion.

    Args:
        trace: The trace.
        kernels: The kernels that the step has or lacks, in the order of their rows.
    """
    used_parts: set[OutlierKernel] = set()
    for fused in kernels:
        fused_ops = find_fused_ops(trace.name_of(fused.row))
        if fused_ops is None:
            continue
        # A fused kernel that the step has replaces some that it lacks, or the reverse.
        candidates = []
        for kernel in kernels:
            if kernel.is_missing != fused.is_missing and kernel not in used_parts:
                candidates.append(kernel)
        parts = _find_fused_parts(trace, candidates, fused_ops)
        if not parts:
            continue
        used_parts.update(parts)
        if fused.is_missing:
            yield _Fusion(extra=parts, missing=[fused])
        else:
            yield _Fusion(extra=[fused], missing=parts)


def _find_fused_parts(trace: Trace, kernels: Kernels, fused_ops: FusedOps) -> Kernels:
    """Return the first consecutive kernels whose ops are named by a fused kernel.

    `fused_ops` holds the ops that the name of the fused kernel lists, and its core: the
    ops that it cannot do without.

    Returns:
        The kernels. Empty if they are fewer than two or than the name requires, or
        if none is of an op of the core.
    """
    parts: list[OutlierKernel] = []
    has_core = False
    for kernel in kernels:
        op = int(trace.op[kernel.row])
        listed_names = find_known_names(trace, op) & fused_ops.names
        if listed_names:
            parts.append(kernel)
            has_core |= bool(listed_names & fused_ops.core)
        elif parts:
            break
    is_enough = len(parts) >= max(fused_ops.min_kernels, 2)
    return parts if is_enough and has_core else ()


def _make_row_of_other_kernels(
    items: WorkItems, extra: Kernels, missing: Kernels, side: str
) -> Row:
    """Make the row of a step that does its work with other kernels than usual.

    The kernels of the step stand under the name of its trace, and the usual kernels
    under that of the other trace. A step of B that runs one kernel instead of the usual
    three gives a row with three kernels of A and one of B: FUSED.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        extra: The kernels that the step runs instead of the usual ones.
        missing: The usual kernels that they replace.
        side: The trace of the step, `A` or `B`.
    """
    share_of_step = _add_rows_to_share(_sum_kernels(items, extra), extra)
    usual_share = _sum_kernels(items, missing)
    if side == "A":
        a = share_of_step
        b = usual_share
    else:
        a = usual_share
        b = share_of_step

    if a.count == b.count:
        kind = RowKind.REPLACED
    elif a.count > b.count:
        kind = RowKind.FUSED
    else:
        kind = RowKind.SPLIT
    return make_row(
        kind=kind,
        op=_get_op_name(items.trace, extra[0]),
        a=a,
        b=b,
        why=_describe_step(items, extra[0], side),
        counts=False,
    )


def _make_row_of_kernels(
    items: WorkItems, kernels: Kernels, side: str, *, are_many: bool
) -> Row:
    """Make the row of kernels that one step has in addition, or that it lacks.

    The row is ADDED if a step of B has them in addition or a step of A lacks them. Else
    it is REMOVED. A missing kernel is shown where the representative step has it.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        kernels: Kernels of one step: all of them are missing, or none is.
        side: The trace of the step, `A` or `B`.
        are_many: Whether the row says how many they are, instead of their op.
    """
    is_missing = kernels[0].is_missing
    is_more_in_b = is_missing if side == "A" else not is_missing
    work = _sum_kernels(items, kernels)
    share_of_a = RowShare() if is_more_in_b else work
    share_of_b = work if is_more_in_b else RowShare()
    # The rows are of the trace of the step, whichever trace does more work.
    if side == "A":
        share_of_a = _add_rows_to_share(share_of_a, kernels)
    else:
        share_of_b = _add_rows_to_share(share_of_b, kernels)

    if are_many:
        what = f"{plural(len(kernels), 'piece')} of work"
    else:
        what = _get_op_name(items.trace, kernels[0])
    where = _describe_step(items, kernels[0], side)
    return make_row(
        kind=RowKind.ADDED if is_more_in_b else RowKind.REMOVED,
        op=what,
        a=share_of_a,
        b=share_of_b,
        why=f"missing {where}" if is_missing else where,
        counts=False,
    )


def _get_op_name(trace: Trace, kernel: OutlierKernel) -> str:
    """Return the name of the op of a kernel; "" when unknown."""
    op = int(trace.op[kernel.row])
    return trace.name_of(op) if op != NO_ROW else ""


def _describe_step(items: WorkItems, kernel: OutlierKernel, side: str) -> str:
    """Say in which step the kernel is: `only in step 12 of B`."""
    return f"only in step {items.steps.labels[kernel.step]} of {side}"


def _sum_kernels(items: WorkItems, kernels: Kernels) -> RowShare:
    """Add up the times of kernels of one step, and list their names; without rows."""
    ns = sum(kernel.ns for kernel in kernels)
    return RowShare(
        names=[items.trace.name_of(kernel.row) for kernel in kernels],
        ns=ns,
        count=len(kernels),
        median_ns=ns,  # of one step
    )


def _add_rows_to_share(share: RowShare, kernels: Kernels) -> RowShare:
    """Add the rows of the trace that the app shows for these kernels."""
    rows = tuple(kernel.row for kernel in kernels)
    return msgspec.structs.replace(share, rows=rows)
