"""Pieces of work that belong together, what is still open while rules look for them,
the CPU ops around a piece, and the tensors that they pass on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import zip_longest
from typing import Final, TypeVar

import msgspec
import numpy as np

from fusetui.analysis.diff.align import AlignedLanes
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.sequences import Pair, Stretch, gaps
from fusetui.gpu.dtypes import scalar_bytes
from fusetui.gpu.kernel_roles import KernelRole, role_of_kernel
from fusetui.text.figures import size
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler, stem, words

T = TypeVar("T")
Gap = tuple[list[int], list[int]]
"""The open items of A and of B between two pairs."""

MAX_GAPS_TO_FUSED_OP = 4
"""A fused kernel does the work of ops in its own gap, and in so many gaps before and
after that one."""


class WorkGroup(msgspec.Struct, frozen=True):
    """Items of A, and the items of B that do the same work; one side is empty where the
    other side does no such work."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    why: str = ""  # the evidence, where the names alone do not give it
    # matched as a whole: which item does the work of which is unknown
    matched_as_whole: bool = False
    # no name of an op or a kernel says that it is the same work
    by_sort_or_position: bool = False
    title: str = ""  # what to call it, where the names of its ops would say less


class Alignment:
    """Two aligned lanes: pairs, what is open in the gaps between them, and the groups
    made so far. Rules turn open items and pairs into groups.

    Sides are 0 for A and 1 for B, so that a rule for fusions finds splits with the
    sides swapped. Pair n lies between the gaps n and n + 1; it is None once a rule has
    taken it apart. An item is in a pair, open in a gap, or in a group.
    """

    def __init__(self, a: WorkItems, b: WorkItems, lanes: AlignedLanes) -> None:
        """`lanes`: a lane of A and its partner of B, aligned."""
        self.items = (a, b)
        self.lane_items = (lanes.a, lanes.b)
        self.pairs: list[Pair | None] = []
        for i, j in lanes.pairs:
            self.pairs.append((lanes.a[i], lanes.b[j]))
        self.gaps: list[Gap] = []
        whole = Stretch(first_a=0, last_a=len(lanes.a), first_b=0, last_b=len(lanes.b))
        for gap in gaps(lanes.pairs, whole):
            open_a = [*lanes.a[gap.first_a : gap.last_a]]
            open_b = [*lanes.b[gap.first_b : gap.last_b]]
            self.gaps.append((open_a, open_b))
        self.groups: list[WorkGroup] = []
        self.known_as = cache(self._known_as)

    def claim(
        self,
        side: int,
        many: Iterable[int],
        one: int,
        gap: int,
        why: str,
        by_sort_or_position: bool = False,
    ) -> None:
        """Groups open items of `side`, from gaps near number `gap`, with one open item
        of the other side, from that gap. Does nothing where one side has main work and
        the other only what helps such work."""
        members = tuple(sorted(many))
        of_a, of_b = as_a_and_b(side, members, (one,))
        if not self._may_correspond(of_a, of_b):
            return
        self.add(side, members, one, why, by_sort_or_position)
        self.gaps[gap][1 - side].remove(one)
        self.close(side, set(members), self.gaps_near(gap))

    def claim_both(
        self, of_a: Iterable[int], of_b: Iterable[int], why: str, together: bool = False
    ) -> None:
        """Groups items of both sides, open ones or those of a pair that was taken
        apart. Where one side has main work and the other only what helps such work, main
        work is not grouped with helpers: the helpers of both sides are one group, and
        each item of main work is one by itself."""
        members_a = tuple(sorted(of_a))
        members_b = tuple(sorted(of_b))
        self.close(0, set(members_a), self.gaps)
        self.close(1, set(members_b), self.gaps)
        if not self._may_correspond(members_a, members_b):
            members_a = self._only_helpers(0, members_a)
            members_b = self._only_helpers(1, members_b)
        if not members_a and not members_b:
            return
        is_matched = bool(members_a and members_b)
        group = WorkGroup(
            a=members_a,
            b=members_b,
            why=why if is_matched else "",
            matched_as_whole=together,
        )
        self.groups.append(group)

    def gaps_near(self, gap: int) -> list[Gap]:
        """The gap with this number and MAX_GAPS_TO_FUSED_OP on each side of it, whose
        ops a fused kernel in it may do the work of."""
        first = max(0, gap - MAX_GAPS_TO_FUSED_OP)
        return self.gaps[first : gap + MAX_GAPS_TO_FUSED_OP + 1]

    def pairs_inside(self, region: range) -> range:
        """The numbers of the pairs between the gaps of a region, a range of numbers of
        gaps: pair n is inside if the gaps n and n + 1 are in it."""
        return range(region.start, region.stop - 1)

    def take_apart(self, number: int, grouped: tuple[set[int], set[int]]) -> None:
        """Ends a pair if one of its items is among the grouped ones of its side (of A,
        of B). Its other item, unless that is too, becomes open in the gap before."""
        pair = self.pairs[number]
        if pair is None:
            return
        item_a, item_b = pair
        grouped_a, grouped_b = grouped
        if item_a not in grouped_a and item_b not in grouped_b:
            return
        self.pairs[number] = None
        open_a, open_b = self.gaps[number]
        if item_a not in grouped_a:
            open_a.append(item_a)
        if item_b not in grouped_b:
            open_b.append(item_b)

    def close(self, side: int, items: set[int], gaps: Iterable[Gap]) -> None:
        """Removes items of a side from the open ones of these gaps."""
        for gap in gaps:
            if not items.isdisjoint(gap[side]):
                gap[side][:] = [item for item in gap[side] if item not in items]

    def add(
        self,
        side: int,
        many: tuple[int, ...],
        one: int,
        why: str,
        by_sort_or_position: bool = False,
    ) -> None:
        """Groups items of `side` with one of the other side, whatever they are. The
        caller takes them out of the pairs and gaps that they are in."""
        of_a, of_b = as_a_and_b(side, many, (one,))
        self.groups.append(
            WorkGroup(a=of_a, b=of_b, why=why, by_sort_or_position=by_sort_or_position)
        )

    def finish(self) -> list[WorkGroup]:
        """All groups: those made, then one for each pair that is left, then one for each
        open item."""
        for pair in self.pairs:
            if pair is not None:
                self.groups.append(WorkGroup(a=(pair[0],), b=(pair[1],)))
        for side in (0, 1):
            for gap in self.gaps:
                self.groups += [_unmatched(side, item) for item in gap[side]]
        return self.groups

    def _only_helpers(self, side: int, members: tuple[int, ...]) -> tuple[int, ...]:
        """The items that help other work. Adds a group for each of the others."""
        names = self.items[side].names
        helpers = []
        for item in members:
            if role_of_kernel(names[item]).is_helper:
                helpers.append(item)
            else:
                self.groups.append(_unmatched(side, item))
        return tuple(helpers)

    def _may_correspond(self, of_a: Iterable[int], of_b: Iterable[int]) -> bool:
        """Whether items of A and B may do the same work: not if one side has main work
        (a product, convolution or attention) and the other only what helps it."""
        roles_a = self._roles(0, of_a)
        roles_b = self._roles(1, of_b)
        only_b_is_main = _has_main_work(roles_b) and _only_helps(roles_a)
        only_a_is_main = _has_main_work(roles_a) and _only_helps(roles_b)
        return not only_a_is_main and not only_b_is_main

    def _roles(self, side: int, members: Iterable[int]) -> list[KernelRole]:
        """The roles of the kernels of these items of a side."""
        names = self.items[side].names
        return [role_of_kernel(names[item]) for item in members]

    def _known_as(self, side: int, item: int) -> frozenset[str]:
        """Every name under which a compiler may list the work of an item of a side."""
        items = self.items[side]
        return known_names(items.trace, int(items.op[item]))


def _has_main_work(roles: Sequence[KernelRole]) -> bool:
    """Whether any of the kernels is main work: a product, convolution or attention."""
    return any(role.part == "main" for role in roles)


def _only_helps(roles: Sequence[KernelRole]) -> bool:
    """Whether none of the kernels is main work, or work of another kind than
    pointwise."""
    return all(role.is_helper or role.part == "elementwise" for role in roles)


def as_a_and_b(side: int, own: T, other: T) -> tuple[T, T]:
    """What a side has and what the other side has, in the order (A's, B's)."""
    return (own, other) if side == 0 else (other, own)


def _unmatched(side: int, item: int) -> WorkGroup:
    """The group of an item of a side that has no counterpart."""
    of_a, of_b = as_a_and_b(side, (item,), ())
    return WorkGroup(a=of_a, b=of_b)


def paired_items(groups: Iterable[WorkGroup]) -> Rows:
    """The items of A and of B that are matched one to one; shape [2, pairs]."""
    pairs = []
    for group in groups:
        if len(group.a) == 1 and len(group.b) == 1:
            pairs.append((group.a[0], group.b[0]))
    return np.array(pairs, dtype=np.intp).reshape(-1, 2).T


def with_matches(
    groups: Iterable[WorkGroup], more: Sequence[WorkGroup]
) -> list[WorkGroup]:
    """The groups, then `more`, which match items that had no counterpart so far: their
    groups of one side are left out."""
    matched_a = {item for group in more for item in group.a}
    matched_b = {item for group in more for item in group.b}
    kept = []
    for group in groups:
        has_both_sides = bool(group.a) and bool(group.b)
        is_still_open = matched_a.isdisjoint(group.a) and matched_b.isdisjoint(group.b)
        if has_both_sides or is_still_open:
            kept.append(group)
    return [*kept, *more]


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
"""By the name of an op that runs eagerly, the names under which the compiler knows
it."""

_POINTWISE: Final = words(
    """abs add clamp clamp_min cos div erf exp gelu hardtanh leaky_relu log mish mul neg pow
    reciprocal relu rsqrt rsub sigmoid silu sin softplus sqrt sub tanh where"""
)
"""Ops whose result has the shape of their inputs, broadcast."""

_FLOAT_TYPES: Final = words("double float c10::bfloat16 c10::half bfloat16 half")


def known_names(trace: Trace, op: int) -> frozenset[str]:
    """Every name under which a compiler may list the work of an op: its own, and those
    of the ops around it, with their aliases. `op` is a row of the trace, -1 for
    none."""
    stems: set[str] = set()
    row = op
    while row >= 0:
        name = trace.name_of(row)
        if trace.source_role[row] == Role.OP and not is_compiler(name):
            stems.add(stem(name))
        row = int(trace.parent[row])
    aliases = (_ALIASES.get(word, frozenset()) for word in stems)
    return frozenset(stems.union(*aliases))


def numel(items: WorkItems, item: int) -> int | None:
    """How many elements the first tensor has that the op of an item was given, by its
    recorded shapes; None where no shape was recorded."""
    op = int(items.op[item])
    if op < 0:
        return None
    shapes = items.trace.args_of(op).get("Input Dims")
    if not isinstance(shapes, list):
        return None
    for shape in shapes:
        if _is_shape(shape):
            return math.prod(shape)
    return None


class _Tensor(msgspec.Struct, frozen=True):
    """A tensor of floats; `dtype` as the profiler writes it, in lower case."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """How many bytes its elements take."""
        return math.prod(self.shape) * scalar_bytes(self.dtype)


def avoided_tensors(items: WorkItems, members: Sequence[int]) -> str:
    """What a kernel that does the work of all members at once need not write, in words:
    `[8192, 3072] bfloat16 between them (50.33 MB) may stay in registers`. "" unless the
    results of all members but the last are known. `members`: items of one side.

    Of n pointwise pieces in a row, n - 1 results are passed on; a kernel that does them
    all need not write these and read them back, unless something else wants them.
    """
    passed_on: list[_Tensor] = []
    for member in sorted(members)[:-1]:
        result = _result(items, member)
        if result is None:
            return ""
        passed_on.append(result)
    if not passed_on:
        return ""
    total = size(sum(tensor.bytes for tensor in passed_on))
    if len(set(passed_on)) > 1:
        return f"{total} between them may stay in registers"
    times = f"{len(passed_on)} x " if len(passed_on) > 1 else ""
    shape = [*passed_on[0].shape]
    dtype = passed_on[0].dtype.removeprefix("c10::")
    tensors = f"{times}{shape} {dtype}"
    return f"{tensors} between them ({total}) may stay in registers"


def _result(items: WorkItems, member: int) -> _Tensor | None:
    """The result of an item's op if it is a pointwise one: the recorded shapes of its
    inputs, broadcast. None where these do not determine it, or differ in their
    dtypes."""
    op = int(items.op[member])
    if op < 0 or stem(items.op_names[member]) not in _POINTWISE:
        return None
    args = items.trace.args_of(op)
    shapes = args.get("Input Dims")
    types = args.get("Input type")
    if not isinstance(shapes, list) or not isinstance(types, list):
        return None
    if len(types) != len(shapes):
        return None
    tensors = [n for n, shape in enumerate(shapes) if _is_shape(shape)]
    dtypes = {str(types[n]).lower() for n in tensors}
    if len(dtypes) != 1 or not dtypes <= _FLOAT_TYPES:
        return None
    shape = _broadcast([shapes[n] for n in tensors])
    return _Tensor(shape=shape, dtype=dtypes.pop())


def _broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The shape to which these are broadcast: of each dimension, counted from the last,
    the larger size."""
    from_last = [reversed(shape) for shape in shapes]
    sizes = [max(dimension) for dimension in zip_longest(*from_last, fillvalue=1)]
    return tuple(reversed(sizes))


def _is_shape(value: object) -> bool:
    """Whether a recorded value is the shape of a tensor with dimensions."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(extent, int) for extent in value)
