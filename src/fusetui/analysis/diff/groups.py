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

from fusetui.analysis.diff.align import Lanes
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.names import helps, part
from fusetui.analysis.diff.sequences import Pair, gaps
from fusetui.gpu.dtypes import scalar_bytes
from fusetui.text.figures import size
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler, stem, words

T = TypeVar("T")
Gap = tuple[list[int], list[int]]  # the open items of A and of B between two pairs
# a fused kernel looks for the ops in its name in so many gaps before and after its own
REACH = 4


class WorkGroup(msgspec.Struct, frozen=True):
    """Items of A, and the items of B that do the same work; one side is empty when
    nothing does.

    `why` is the evidence where the names alone do not give it.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    why: str = ""
    # matched as a whole: which item does the work of which is unknown
    together: bool = False
    named: str = ""  # what to call it, where the names of its ops would say less


class Board:
    """Two aligned lanes: pairs, what is open in the gaps between them, and the groups
    found so far.

    Sides are 0 for A and 1 for B, so that a rule for fusions finds splits with the
    sides swapped. Pair n lies between the gaps n and n + 1.
    """

    def __init__(self, a: WorkItems, b: WorkItems, lanes: Lanes) -> None:
        self.items = (a, b)
        self.ranges = (lanes.a, lanes.b)
        self.pairs: list[Pair | None] = [
            (lanes.a[i], lanes.b[j]) for i, j in lanes.places
        ]
        between = gaps(lanes.places, (0, len(lanes.a), 0, len(lanes.b)))
        self.gaps = [
            ([*lanes.a[i:end_a]], [*lanes.b[j:end_b]]) for i, end_a, j, end_b in between
        ]
        self.groups: list[WorkGroup] = []
        self.known_as = cache(self._known_as)

    def claim(
        self, side: int, many: Iterable[int], one: int, gap: int, why: str
    ) -> None:
        """Groups open items of `side` (in gaps near `gap`) with one open item of the
        other, unless one side has main work and the other only what helps such work."""
        many = tuple(sorted(many))
        if self._fit(oriented(side, many, (one,))):
            self.add(side, many, one, why)
            self.gaps[gap][1 - side].remove(one)
            self.close(
                side, set(many), self.gaps[max(0, gap - REACH) : gap + REACH + 1]
            )

    def claim_both(
        self, of_a: Iterable[int], of_b: Iterable[int], why: str, together: bool = False
    ) -> None:
        """Groups items of both sides, open ones or those of a pair that was taken
        apart. Where one side has main work and the other only what helps such work, the
        helpers are one group, and each main kernel stays alone."""
        sides = tuple(sorted(of_a)), tuple(sorted(of_b))
        for side in (0, 1):
            self.close(side, set(sides[side]), self.gaps)
        if not self._fit(sides):
            both = zip(sides, self.items, strict=True)
            helpers = [[n for n in own if helps(items.names[n])] for own, items in both]
            for side in (0, 1):
                self.groups += _alone(
                    side, [n for n in sides[side] if n not in helpers[side]]
                )
            sides = tuple(helpers[0]), tuple(helpers[1])
        if any(sides):
            self.groups.append(WorkGroup(*sides, why if all(sides) else "", together))

    def close(self, side: int, items: set[int], gaps: Iterable[Gap]) -> None:
        """They are open no more."""
        for gap in gaps:
            if not items.isdisjoint(gap[side]):
                gap[side][:] = [item for item in gap[side] if item not in items]

    def _fit(self, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
        names = [
            {self.items[n].names[i] for i in members} for n, members in enumerate(sides)
        ]
        main = [any(part(name) == "main" for name in of_side) for of_side in names]
        only = [
            all(helps(name) or part(name) == "elementwise" for name in side)
            for side in names
        ]
        return not ((main[0] and only[1]) or (main[1] and only[0]))

    def add(self, side: int, many: tuple[int, ...], one: int, why: str) -> None:
        self.groups.append(WorkGroup(*oriented(side, many, (one,)), why))

    def _known_as(self, side: int, item: int) -> frozenset[str]:
        """Every name under which a compiler may list this work."""
        items = self.items[side]
        return known_names(items.trace, int(items.op[item]))

    def finish(self) -> list[WorkGroup]:
        """All groups: those found, the pairs left, and each open item by itself."""
        self.groups += [
            WorkGroup(pair[:1], pair[1:]) for pair in self.pairs if pair is not None
        ]
        for side in (0, 1):
            self.groups += _alone(
                side, [item for gap in self.gaps for item in gap[side]]
            )
        return self.groups


def oriented(side: int, own: T, other: T) -> tuple[T, T]:
    """What a side has and what the other one has as A's and B's."""
    return (own, other) if side == 0 else (other, own)


def _alone(side: int, items: Iterable[int]) -> list[WorkGroup]:
    return [WorkGroup(*oriented(side, (item,), ())) for item in items]


def pairs_of(groups: Iterable[WorkGroup]) -> Rows:
    """The items of A and of B that are matched one to one; shape [2, pairs]."""
    pairs = [(g.a[0], g.b[0]) for g in groups if len(g.a) == len(g.b) == 1]
    return np.array(pairs, dtype=np.intp).reshape(-1, 2).T


def joined(groups: Iterable[WorkGroup], more: Sequence[WorkGroup]) -> list[WorkGroup]:
    """With `more`, whose items had no partner before."""
    of_a = {item for group in more for item in group.a}
    of_b = {item for group in more for item in group.b}
    left = [
        g
        for g in groups
        if (g.a and g.b) or (of_a.isdisjoint(g.a) and of_b.isdisjoint(g.b))
    ]
    return [*left, *more]


_ALIKE: Final = {
    word: frozenset(alike.split())
    for alike in (
        "copy _to_copy clone to contiguous convert_element_type",
        "fill zero zeros ones full zeros_like ones_like full_like",
        "batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit"
        " _native_batch_norm_legit_functional _native_batch_norm_legit_no_training",
        "softmax _softmax _safe_softmax prepare_softmax_online",
        "dropout native_dropout bernoulli rand inductor_random",
        "max_pool2d_with_indices _low_memory_max_pool_with_offsets",
        "cat stack",
    )
    for word in alike.split()
}
"""Names under which the compiler knows the ops that run eagerly."""

_POINTWISE: Final = words(
    """abs add clamp clamp_min cos div erf exp gelu hardtanh leaky_relu log mish mul neg pow
    reciprocal relu rsqrt rsub sigmoid silu sin softplus sqrt sub tanh where"""
)
"""Ops whose result has the shape of their inputs, broadcast."""

_FLOATS: Final = words("double float c10::bfloat16 c10::half bfloat16 half")


def known_names(trace: Trace, op: int) -> frozenset[str]:
    """Every name under which a compiler may list this work: of its op, and of those
    around."""
    stems: set[str] = set()
    while op >= 0:
        if trace.source_role[op] == Role.OP and not is_compiler(trace.name_of(op)):
            stems.add(stem(trace.name_of(op)))
        op = int(trace.parent[op])
    return frozenset(stems.union(*(_ALIKE.get(word, ()) for word in stems)))


def numel(items: WorkItems, item: int) -> int | None:
    """Elements of the op's first tensor, from its recorded shapes; None when there are
    none."""
    op = int(items.op[item])
    dims = items.trace.args_of(op).get("Input Dims") if op >= 0 else None
    shapes = filter(_is_shape, dims if isinstance(dims, list) else ())
    return next((math.prod(shape) for shape in shapes), None)


def saved(items: WorkItems, members: Sequence[int]) -> str:
    """`[8192, 3072] bfloat16 between them (50.33 MB) ...`; "" unless all but the last
    are known.

    Of n pointwise pieces in a row, n - 1 results are passed on; a kernel that does them
    all need not write these and read them back, unless something else wants them.
    """
    found = [_result(items, member) for member in sorted(members)[:-1]]
    known = [result for result in found if result is not None]
    if not found or len(known) < len(found):
        return ""
    passed = sum(math.prod(shape) * scalar_bytes(dtype) for shape, dtype in known)
    if len({(tuple(shape), dtype) for shape, dtype in known}) > 1:
        return f"{size(passed)} between them may stay in registers"
    shape, dtype = known[0]
    times = f"{len(known)} x " if len(known) > 1 else ""
    name = dtype.removeprefix("c10::")
    return f"{times}{shape} {name} between them ({size(passed)}) may stay in registers"


def _result(items: WorkItems, member: int) -> tuple[list[int], str] | None:
    """Shape and dtype of the result of a pointwise op, from its recorded inputs."""
    op = int(items.op[member])
    if op < 0 or stem(items.op_names[member]) not in _POINTWISE:
        return None
    args = items.trace.args_of(op)
    dims, types = args.get("Input Dims"), args.get("Input type")
    if (
        not isinstance(dims, list)
        or not isinstance(types, list)
        or len(types) != len(dims)
    ):
        return None
    tensors = [n for n, shape in enumerate(dims) if _is_shape(shape)]
    dtypes = {str(types[n]).lower() for n in tensors}
    if len(dtypes) != 1 or not dtypes <= _FLOATS:
        return None
    # the larger of the sizes of each dimension, counted from the last
    sizes = zip_longest(*(reversed(dims[n]) for n in tensors), fillvalue=1)
    return [max(of) for of in sizes][::-1], dtypes.pop()


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(n, int) for n in value)
    )
