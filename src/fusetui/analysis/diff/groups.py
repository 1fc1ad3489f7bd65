"""Groups corresponding pieces of work of A and B.

The rules of `rules.py` start from two aligned lanes (`Alignment`): some items are
paired already, the others are *unpaired* in the gaps between the pairs. The rules turn
pairs and unpaired items into groups (`WorkGroup`). This file also has what the rules
ask about an item: the names under which a compiler may list its op, and the tensors of
the op.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import zip_longest
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from fusetui.analysis.diff.align import AlignedLanes
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.sequences import Pair, Stretch, iterate_gaps
from fusetui.gpu.dtypes import scalar_bytes
from fusetui.gpu.kernel_roles import KernelRole, role_of_kernel
from fusetui.text.figures import size
from fusetui.trace.model.arrays import NO_ROW, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler, stem, words

T = TypeVar("T")

MAX_GAPS_TO_FUSED_OP = 4
"""A fused kernel may do the work of ops in its own gap, and in this many gaps before
and after it."""


class WorkGroup(msgspec.Struct, frozen=True):
    """Items of A, and the items of B that do the same work.

    One of the two is empty where the other side does no such work.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    why: str = ""  # the evidence, where equal names are not all of it
    # Which item of A does the work of which item of B is unknown.
    matched_as_whole: bool = False
    # The evidence is no name of an op or a kernel, only the sort or position of the
    # work.
    by_sort_or_position: bool = False
    title: str = ""  # what to call the work, where the names of its ops would say less


class Gap(msgspec.Struct, frozen=True):
    """The unpaired items of two lanes between two pairs; rules take items out of it."""

    a: list[int]
    b: list[int]

    def unpaired(self, side: int) -> list[int]:
        """Return the unpaired items of A (side 0) or of B (side 1)."""
        return self.a if side == 0 else self.b


class Alignment:
    """Two aligned lanes while rules group their items.

    Each item is in a pair, unpaired in a gap, or in a group. Pair n lies between the
    gaps n and n + 1. A pair becomes None when a rule takes it apart.

    Sides are 0 for A and 1 for B. So a rule that finds fused kernels also finds split
    ones when it is called with the sides swapped.
    """

    def __init__(self, a: WorkItems, b: WorkItems, lanes: AlignedLanes) -> None:
        """Start without groups; unpaired items lie in gaps between the pairs.

        Args:
            a: The items (kernels and copies) of the representative step of A.
            b: The items of the representative step of B.
            lanes: A lane (stream) of A and its partner of B, with their pairs.
        """
        self.items = (a, b)
        self.lane_items = (lanes.a, lanes.b)
        self.pairs: list[Pair | None] = []
        for i, j in lanes.pairs:
            self.pairs.append((lanes.a[i], lanes.b[j]))

        self.gaps: list[Gap] = []
        whole = Stretch(first_a=0, stop_a=len(lanes.a), first_b=0, stop_b=len(lanes.b))
        for between in iterate_gaps(lanes.pairs, whole):
            gap = Gap(
                a=[*lanes.a[between.first_a : between.stop_a]],
                b=[*lanes.b[between.first_b : between.stop_b]],
            )
            self.gaps.append(gap)

        self.groups: list[WorkGroup] = []
        self.known_as = cache(self._known_as)

    def group_with_one(
        self,
        side: int,
        *,
        own_items: Iterable[int],
        other_item: int,
        gap_index: int,
        why: str,
        by_sort_or_position: bool = False,
    ) -> None:
        """Group several unpaired items of one trace with one of the other trace.

        Nothing is grouped where one trace has main work (a product, convolution or
        attention) and the other has only kernels that help such work.

        Args:
            side: The trace that has several items: 0 for A, 1 for B.
            own_items: Unpaired items of that trace, in gaps near the gap of
                `other_item`.
            other_item: An unpaired item of the other trace.
            gap_index: The index of the gap, between two pairs, that has `other_item`.
            why: The evidence, for the reader.
            by_sort_or_position: Whether no name is evidence; see `WorkGroup`.
        """
        members = tuple(sorted(own_items))
        of_a, of_b = order_as_a_and_b(side, members, (other_item,))
        if not self._may_correspond(of_a, of_b):
            return
        self.add_group(
            side,
            own_items=members,
            other_item=other_item,
            why=why,
            by_sort_or_position=by_sort_or_position,
        )
        other_side = 1 - side
        self.gaps[gap_index].unpaired(other_side).remove(other_item)
        self.remove_from_gaps(side, set(members), self.list_gaps_near(gap_index))

    def group_items(
        self,
        of_a: Iterable[int],
        of_b: Iterable[int],
        why: str,
        matched_as_whole: bool = False,
    ) -> None:
        """Group any number of items (kernels and copies) of A and of B.

        Main work, such as a product, is not grouped with kernels that only help such
        work. If A has only the one and B only the other, the helpers of both become one
        group. Each item of main work then becomes a group by itself.

        Args:
            of_a: Items of A without a counterpart, or of a pair that was taken apart.
            of_b: The same of B.
            why: The evidence, for the reader.
            matched_as_whole: Whether it is unknown which item does the work of which.
        """
        members_a = tuple(sorted(of_a))
        members_b = tuple(sorted(of_b))
        self.remove_from_gaps(0, set(members_a), self.gaps)
        self.remove_from_gaps(1, set(members_b), self.gaps)

        if not self._may_correspond(members_a, members_b):
            members_a = self._split_off_main_work(0, members_a)
            members_b = self._split_off_main_work(1, members_b)
        if not members_a and not members_b:
            return

        # What is left may be of one trace only: then nothing corresponds to it.
        has_counterpart = bool(members_a and members_b)
        group = WorkGroup(
            a=members_a,
            b=members_b,
            why=why if has_counterpart else "",
            matched_as_whole=matched_as_whole,
        )
        self.groups.append(group)

    def list_gaps_near(self, gap_index: int) -> list[Gap]:
        """Return the gap with this index, and the gaps around it.

        A gap lies between two pairs, and holds the items of A and of B there, which have
        no counterpart. A fused kernel in a gap may do the work of ops in any of the
        returned gaps.
        """
        first = max(0, gap_index - MAX_GAPS_TO_FUSED_OP)
        last = gap_index + MAX_GAPS_TO_FUSED_OP
        return self.gaps[first : last + 1]

    def list_gaps_in(self, region: range) -> list[Gap]:
        """Return the gaps of a region, which is a range of their indices."""
        return self.gaps[region.start : region.stop]

    def list_pairs_inside(self, region: range) -> range:
        """Return the indices of the pairs that lie between the gaps of a region.

        Args:
            region: The indices of the gaps. Pair n is inside if the gaps n and n + 1
                are.
        """
        return range(region.start, region.stop - 1)

    def take_apart(
        self, pair_index: int, grouped_a: set[int], grouped_b: set[int]
    ) -> None:
        """End a pair if one of its items becomes part of a group.

        The other item, unless it becomes part of the group too, is then without a
        counterpart. It is put into the gap before the pair.

        Args:
            pair_index: The index of the pair.
            grouped_a: The items of A that become a group with those of B.
            grouped_b: The items of B.
        """
        pair = self.pairs[pair_index]
        if pair is None:
            return
        item_a, item_b = pair
        if item_a not in grouped_a and item_b not in grouped_b:
            return

        self.pairs[pair_index] = None
        gap_before = self.gaps[pair_index]
        if item_a not in grouped_a:
            gap_before.a.append(item_a)
        if item_b not in grouped_b:
            gap_before.b.append(item_b)

    def remove_from_gaps(self, side: int, items: set[int], gaps: Iterable[Gap]) -> None:
        """Remove items from these gaps, as they have a counterpart now.

        Args:
            side: The trace of the items: 0 for A, 1 for B.
            items: The items to remove.
            gaps: The gaps that they may be in; they are changed.
        """
        for gap in gaps:
            unpaired = gap.unpaired(side)
            if not items.isdisjoint(unpaired):
                unpaired[:] = [item for item in unpaired if item not in items]

    def add_group(
        self,
        side: int,
        *,
        own_items: tuple[int, ...],
        other_item: int,
        why: str,
        by_sort_or_position: bool = False,
    ) -> None:
        """Group items of one trace with one item of the other.

        The caller takes them out of the pairs and gaps that they are in.

        Args:
            side: The trace that has several items: 0 for A, 1 for B.
            own_items: The items of that trace, ascending.
            other_item: The item of the other trace.
            why: The evidence, for the reader.
            by_sort_or_position: Whether no name is evidence; see `WorkGroup`.
        """
        of_a, of_b = order_as_a_and_b(side, own_items, (other_item,))
        self.groups.append(
            WorkGroup(a=of_a, b=of_b, why=why, by_sort_or_position=by_sort_or_position)
        )

    def finish(self) -> list[WorkGroup]:
        """Return all groups, with one more for each remaining pair and unpaired item.

        The groups that rules made come first, then the pairs, then the items of A and
        of B alone.
        """
        for pair in self.pairs:
            if pair is not None:
                item_a, item_b = pair
                self.groups.append(WorkGroup(a=(item_a,), b=(item_b,)))
        for side in (0, 1):
            for gap in self.gaps:
                for item in gap.unpaired(side):
                    self.groups.append(_make_unmatched_group(side, item))
        return self.groups

    def _split_off_main_work(
        self, side: int, members: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Return the items whose kernels only help other work.

        Such a kernel is the reduction of split-K. Each of the other items becomes a
        group by itself.
        """
        names = self.items[side].names
        helpers = []
        for item in members:
            if role_of_kernel(names[item]).is_helper:
                helpers.append(item)
            else:
                self.groups.append(_make_unmatched_group(side, item))
        return tuple(helpers)

    def _may_correspond(self, of_a: Iterable[int], of_b: Iterable[int]) -> bool:
        """Return whether items of A and of B may do the same work.

        They may not if one trace has main work (a product, convolution or attention)
        and the other has only kernels that help such work.
        """
        roles_a = self._collect_kernel_roles(0, of_a)
        roles_b = self._collect_kernel_roles(1, of_b)
        if _has_main_work(roles_a):
            return not _only_helps(roles_b)
        if _has_main_work(roles_b):
            return not _only_helps(roles_a)
        return True

    def _collect_kernel_roles(
        self, side: int, members: Iterable[int]
    ) -> list[KernelRole]:
        """Return the roles of the kernels of these items of a side."""
        names = self.items[side].names
        return [role_of_kernel(names[item]) for item in members]

    def _known_as(self, side: int, item: int) -> frozenset[str]:
        """Return every name under which a compiler may list the work of an item."""
        items = self.items[side]
        return find_known_names(items.trace, int(items.op[item]))


def _has_main_work(roles: Sequence[KernelRole]) -> bool:
    """Return whether any kernel is a product, a convolution or attention."""
    return any(role.part == "main" for role in roles)


def _only_helps(roles: Sequence[KernelRole]) -> bool:
    """Return whether all kernels are pointwise or help the main kernel of an op."""
    return all(role.is_helper or role.part == "elementwise" for role in roles)


def order_as_a_and_b(side: int, own: T, other: T) -> tuple[T, T]:
    """Put what one trace has and what the other has in the order (A, B).

    >>> order_as_a_and_b(1, own="of B", other="of A")
    ('of A', 'of B')

    Args:
        side: The trace that `own` is of: 0 for A, 1 for B.
        own: What that trace has.
        other: What the other trace has.
    """
    return (own, other) if side == 0 else (other, own)


def _make_unmatched_group(side: int, item: int) -> WorkGroup:
    """Make the group of an item that has no counterpart in the other trace.

    `side` is the trace of the item: 0 for A, 1 for B.
    """
    of_a, of_b = order_as_a_and_b(side, (item,), ())
    return WorkGroup(a=of_a, b=of_b)


class PairedItems(NamedTuple):
    """Items in pairs: the n-th item of A and the n-th item of B are a pair."""

    a: Rows
    b: Rows


def collect_paired_items(groups: Iterable[WorkGroup]) -> PairedItems:
    """Return the items of the groups that have one item of A and one of B.

    An item is the index of a kernel or copy of the representative step.

    Returns:
        The pairs in the order of their groups; empty arrays if there are none.
    """
    items_a: list[int] = []
    items_b: list[int] = []
    for group in groups:
        if len(group.a) == 1 and len(group.b) == 1:
            items_a.append(group.a[0])
            items_b.append(group.b[0])
    return PairedItems(
        a=np.array(items_a, dtype=np.intp), b=np.array(items_b, dtype=np.intp)
    )


def replace_matched_groups(
    groups: Iterable[WorkGroup], matches: Sequence[WorkGroup]
) -> list[WorkGroup]:
    """Replace groups without a counterpart by groups that match their items.

    Say item 3 of A and item 7 of B are groups by themselves, and a match has both. Then
    the match takes the place of the two groups.

    Args:
        groups: All groups so far. A group without a counterpart has items of one trace
            only.
        matches: New groups of items that have no counterpart in `groups`.

    Returns:
        The groups that stay, then `matches`.
    """
    matched_a: set[int] = set()
    matched_b: set[int] = set()
    for match in matches:
        matched_a.update(match.a)
        matched_b.update(match.b)

    staying = []
    for group in groups:
        has_counterpart = bool(group.a) and bool(group.b)
        is_matched_a = not matched_a.isdisjoint(group.a)
        is_matched_b = not matched_b.isdisjoint(group.b)
        if has_counterpart or not (is_matched_a or is_matched_b):
            staying.append(group)
    return [*staying, *matches]


_SETS_OF_ALIASES: Final = (
    words("copy _to_copy clone to contiguous convert_element_type"),
    words("fill zero zeros ones full zeros_like ones_like full_like"),
    words(
        """batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm
        _native_batch_norm_legit _native_batch_norm_legit_functional
        _native_batch_norm_legit_no_training"""
    ),
    words("softmax _softmax _safe_softmax prepare_softmax_online"),
    words("dropout native_dropout bernoulli rand inductor_random"),
    words("max_pool2d_with_indices _low_memory_max_pool_with_offsets"),
    words("cat stack"),
)
_ALIASES: Final = {word: aliases for aliases in _SETS_OF_ALIASES for word in aliases}
"""{name of an op that runs eagerly: the names under which the compiler knows it}."""

_POINTWISE: Final = words(
    """abs add clamp clamp_min cos div erf exp gelu hardtanh leaky_relu log mish mul neg pow
    reciprocal relu rsqrt rsub sigmoid silu sin softplus sqrt sub tanh where"""
)
"""Ops whose result has the shape of their inputs, broadcast."""

_FLOAT_TYPES: Final = words("double float c10::bfloat16 c10::half bfloat16 half")


def find_known_names(trace: Trace, op: int) -> frozenset[str]:
    """Return every name under which a compiler may list the work of an op.

    These are the names of the op and of the ops around it, with their aliases.

    Args:
        trace: The trace that the op is in.
        op: The row of the op, NO_ROW for none.
    """
    known_names: set[str] = set()
    row = op
    while row != NO_ROW:  # which is the parent of an outermost slice
        name = trace.name_of(row)
        if trace.source_role[row] == Role.OP and not is_compiler(name):
            name_in_namespace = stem(name)
            known_names.add(name_in_namespace)
            known_names |= _ALIASES.get(name_in_namespace, frozenset())
        row = int(trace.parent[row])
    return frozenset(known_names)


def count_input_elements(items: WorkItems, item: int) -> int | None:
    """Return how many elements the first input tensor of an item's op has.

    The name is that of `torch.Tensor.numel`. Returns None if no shape was recorded.
    """
    if not items.has_op(item):
        return None
    shapes = items.trace.args_of(int(items.op[item])).get("Input Dims")
    if not isinstance(shapes, list):
        return None
    for shape in shapes:
        if _is_shape(shape):
            return math.prod(shape)
    return None


class _Tensor(msgspec.Struct, frozen=True):
    """A tensor of floats."""

    shape: tuple[int, ...]
    dtype: str  # as the profiler writes it, in lower case

    @property
    def bytes(self) -> int:
        """How many bytes its elements take."""
        return math.prod(self.shape) * scalar_bytes(self.dtype)


def describe_avoided_tensors(items: WorkItems, members: Sequence[int]) -> str:
    """Say which tensors a kernel need not write if it does the work of several.

    Of n pointwise kernels in a row, n - 1 results are passed on to the next one. A
    kernel that does all of them need not write these results and read them back, unless
    something else wants them.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        members: The items whose work one kernel of the other trace does, at least one.

    Returns:
        `intermediate [8192, 3072] bfloat16 (50.33 MB) may stay in registers`, for
        example. "" unless the results of all members but the last are known.
    """
    # The result of the last one is written in any case.
    all_but_last = sorted(members)[:-1]
    passed_on: list[_Tensor] = []
    for member in all_but_last:
        result = _derive_result_of_op(items, member)
        if result is None:
            return ""
        passed_on.append(result)
    if not passed_on:
        return ""

    total = size(sum(tensor.bytes for tensor in passed_on))
    if len(set(passed_on)) > 1:
        return f"intermediate tensors of {total} may stay in registers"

    times = f"{len(passed_on)} x " if len(passed_on) > 1 else ""
    shape = [*passed_on[0].shape]
    dtype = passed_on[0].dtype.removeprefix("c10::")
    tensors = f"{times}{shape} {dtype}"
    return f"intermediate {tensors} ({total}) may stay in registers"


def _derive_result_of_op(items: WorkItems, member: int) -> _Tensor | None:
    """Derive the result of an item's pointwise op from the recorded inputs.

    The shape of the result is that of the inputs, broadcast. Returns None if the op is
    not pointwise, if its inputs were not recorded, or if they have several dtypes.
    """
    is_pointwise = items.stems[member] in _POINTWISE
    if not items.has_op(member) or not is_pointwise:
        return None

    args = items.trace.args_of(int(items.op[member]))
    shapes = args.get("Input Dims")
    types = args.get("Input type")
    if not isinstance(shapes, list) or not isinstance(types, list):
        return None
    if len(types) != len(shapes):
        return None

    tensor_shapes = []
    dtypes: set[str] = set()
    for shape, dtype in zip(shapes, types, strict=True):
        if _is_shape(shape):
            tensor_shapes.append(shape)
            dtypes.add(str(dtype).lower())
    if len(dtypes) != 1 or not dtypes <= _FLOAT_TYPES:
        return None
    (common_dtype,) = dtypes
    return _Tensor(shape=_broadcast_shapes(tensor_shapes), dtype=common_dtype)


def _broadcast_shapes(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the shape to which these shapes are broadcast.

    Shapes are aligned at their last dimension. Of each dimension, the largest size
    counts.

    >>> _broadcast_shapes([[8, 1, 4], [3, 4]])
    (8, 3, 4)
    """
    from_last_dimension = [reversed(shape) for shape in shapes]
    sizes_from_last = []
    for sizes in zip_longest(*from_last_dimension, fillvalue=1):
        sizes_from_last.append(max(sizes))
    return tuple(reversed(sizes_from_last))


def _is_shape(value: object) -> bool:
    """Return whether a recorded value is the shape of a tensor with dimensions."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(extent, int) for extent in value)
