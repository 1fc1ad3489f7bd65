"""The part of the program around each piece of work, and what sort of work it is;
groups what no rule pairs, by the sort of work in one part; and finds layers, or other
repeated blocks, that only one side has, with what the CPU did for them."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.align import Lanes
from fusetui.analysis.diff.blocks import Block
from fusetui.analysis.diff.groups import WorkGroup, with_matches
from fusetui.analysis.diff.items import WorkItems, ancestors
from fusetui.analysis.diff.names import work_class
from fusetui.analysis.diff.periods import mark_periods
from fusetui.analysis.diff.sequences import closest, is_feasible
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kinds import kinds_of
from fusetui.text.figures import count, plural
from fusetui.text.patterns import late
from fusetui.trace.model.arrays import Flags, Int32s
from fusetui.trace.model.categories import LAYERS, STEP_PREFIX, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.op_names import is_compiler
from fusetui.trace.program.origin import hosts_of
from fusetui.trace.program.regions import MODULE_PREFIX, Spans, ThreadLine, is_module

SORTS: Final = {
    **{"attention": "attention", "conv": "convolution", "gemm": "GEMM", "gemv": "GEMM"},
    **{
        "moe": "mixture of experts",
        "comm": "communication",
        "memcpy": "copy",
        "memset": "fill",
    },
    **{
        kind: kind
        for kind in ("norm", "softmax", "embedding", "optimizer", "reduction")
    },
    **{"copy": "copy", "fill": "fill"},
    **dict.fromkeys(("foreach", "pointwise", "triton"), "pointwise"),
}
"""Kinds of kernels and what they are called here; of several, the first one counts."""

OTHER: Final = "other"
_RANK: Final = {sort: n for n, sort in enumerate(dict.fromkeys(SORTS.values()))}


def of_all(found: Iterable[str]) -> str:
    """The sort of several pieces that belong together: attention, even if products are
    in it."""
    return min(found, key=lambda sort: _RANK.get(sort, len(_RANK)), default=OTHER)


@cache
def _sort(role: int, kernel: str, op: str) -> str:
    """One of the values of SORTS, or `other`: by the kernel, else by the op that
    launched it."""
    told = [(Role(role), kernel), *([(Role.OP, op)] if op.startswith("aten::") else [])]
    each = (kinds_of(*one) for one in told)
    return next(
        (called for kinds in each for kind, called in SORTS.items() if kind in kinds),
        OTHER,
    )


_NUMBER = late(r"\d+")
_NODE = late(
    r"autograd::engine::|(?:\w+Backward\d*|torch::autograd::CppNode<.*)\Z", re.DOTALL
)
"""Frames of the backward pass; CompiledFunctionBackward is one too."""


class ProgramPlaces:
    """Per item of a side: its sort of work; its place, the innermost module, else the
    innermost annotation, around its launch; and its phase, by the frames of autograd
    around it and by the annotations of optimizers. `at` has the latter two, with stars
    for the numbers of places: indices of modules shift."""

    def __init__(self, items: WorkItems) -> None:
        self.items = items
        trace, hosts = items.trace, hosts_of(items.trace, items.row)
        self.sorts = [
            *map(_sort, trace.role[items.row].tolist(), items.names, items.op_names)
        ]
        module = _around(trace, hosts, Layer.PYTHON, is_module)
        rows = np.where(
            module >= 0, module, _around(trace, hosts, Layer.ANNOTATIONS, _is_note)
        )
        names = [trace.name_of(n) if n >= 0 else "" for n in rows.tolist()]
        self.places = [name.removeprefix(MODULE_PREFIX) for name in names]
        # "" in a trace without a backward pass
        back = _below(items, hosts, lambda name: _NODE.match(name) is not None)
        steps = _around(
            trace, hosts, Layer.ANNOTATIONS, lambda name: name.startswith("Optimizer.")
        )
        phases = np.where(back, "backward", np.where(hosts >= 0, "forward", ""))
        phases = np.where(steps >= 0, "optimizer", phases)
        self.phases = [*phases.tolist()] if back.any() else [""] * len(items)
        starred = (_NUMBER.sub("*", place) for place in self.places)
        self.at = list(zip(self.phases, starred, strict=True))
        self._inside: list[bool] = _below(items, items.op, is_compiler).tolist()

    def compiled(self, item: int) -> bool:
        """Whether a region that torch.compile made launched it."""
        op = self.items.op_names[item]
        return self._inside[item] or op.startswith(("triton_", "cpp_fused", "graph_"))

    def layout(self, item: int) -> str | None:
        """Of the operands of a product whose name tells it."""
        known = decode(self.items.names[item])
        return known.layout or None if known is not None else None


def _is_note(name: str) -> bool:
    return not (name.startswith((STEP_PREFIX, MODULE_PREFIX)) or is_compiler(name))


def _below(
    items: WorkItems, rows: NDArray[np.integer], test: Callable[[str], bool]
) -> Flags:
    """Whether the name of each row, or of any around it, passes."""
    named, found = items.trace.named(test), np.zeros(len(items), dtype=np.bool_)
    for row in ancestors(items.trace, rows):
        found |= (row >= 0) & named[items.trace.name[row]]
    return found


def _around(
    trace: Trace, hosts: Int32s, layer: Layer, test: Callable[[str], bool]
) -> Int32s:
    """The innermost slice on a layer of each host's thread whose name passes, -1 for
    none."""
    on_layer = np.array(
        [t.layer is layer and t.subrow == 0 for t in trace.tracks] or [False]
    )
    own = np.array([LAYERS[role] is layer for role in Role])
    taken = (trace.role == Role.CAPTURED) & own[trace.source_role]
    rows = np.flatnonzero(
        trace.named(test)[trace.name] & (on_layer[trace.track] | taken)
    )
    spans = Spans(trace, ThreadLine(trace), rows)
    return spans.rows_at(spans.around(hosts))


T = TypeVar("T")

# compilers leave these as they are
MAIN = ("GEMM", "convolution", "attention", "communication")
# kernels that stand for nothing else: a copy more is a copy more
MOVES = ("copy", "fill")
# nearly as much on both sides: the one with less has this share of the other
LIKE = 0.9
FACTOR, MOST = 2.0, 0.8
"""Pairs in order are believed when MOST times are as far apart as all are, but for this
factor."""


def by_region(
    a: ProgramPlaces, b: ProgramPlaces, groups: list[WorkGroup]
) -> list[WorkGroup]:
    """Joins open work of one sort on both sides, in the same place, then in the same
    phase, then anywhere, where a side does not say which ops its kernels come from.

    Main work comes first, then the same kernels; the rest is joined as a whole, except
    copies and fills. Those, and ops that both sides know, were added or removed if they
    have no partner.
    """
    for parts in (2, 1, 0):  # of (phase, place)
        sides = (
            sorted(group.a[0] for group in groups if not group.b),
            sorted(group.b[0] for group in groups if not group.a),
        )

        def key(
            program: ProgramPlaces, item: int, parts: int = parts
        ) -> tuple[str, ...] | None:
            where = (program.phases[item], program.places[item])[:parts]
            return (
                (*where, program.sorts[item]) if program.sorts[item] != OTHER else None
            )

        found = []
        for (*where, sort), both in _divided(a, b, sides, key).items():
            known = [*map(a.items.op_word, both[0]), *map(b.items.op_word, both[1])]
            if all(both) and not all(known):
                place = next((word for word in where[::-1] if word), "")
                found += _of_one_sort(
                    a, b, both, sort, f"left in {place}" if place else "left"
                )
        groups = with_matches(groups, found)
    return groups


Sides = tuple[list[int], list[int]]


def _divided(
    a: ProgramPlaces,
    b: ProgramPlaces,
    sides: Sides,
    key: Callable[[ProgramPlaces, int], T | None],
) -> dict[T, Sides]:
    """Items of both sides by a key that they have in common, without those that have
    none."""
    found: defaultdict[T, Sides] = defaultdict(lambda: ([], []))
    for side, program in enumerate((a, b)):
        for item in sides[side]:
            if (own := key(program, item)) is not None:
                found[own][side].append(item)
    return found


def _of_one_sort(
    a: ProgramPlaces, b: ProgramPlaces, sides: Sides, sort: str, left: str
) -> list[WorkGroup]:
    """Main work in order, the same kernels as one group each, then all that is left as
    a whole."""
    found: list[WorkGroup] = []
    if sort in MAIN:
        found = _in_order(a, b, sides, f"in order among the {sort} {left}")
        sides = _without(sides, found)
        for layout, both in _divided(a, b, sides, ProgramPlaces.layout).items():
            pairs = _in_order(a, b, both, f"in order among the {sort} {layout} {left}")
            as_many = (
                _as_one(both, f"as many {sort} {layout} {left}") if _alike(both) else []
            )
            found += pairs or as_many
        sides = _without(sides, found)
    kernels = _divided(
        a, b, sides, lambda of, item: of.items.kernel_word(item)
    ).values()
    same = [
        one for both in kernels for one in _as_one(both, f"all of this kernel {left}")
    ]
    rest = [] if sort in MOVES else _as_one(_without(sides, same), f"all {sort} {left}")
    return [*found, *same, *rest]


def _as_one(sides: Sides, why: str) -> list[WorkGroup]:
    of_a, of_b = map(tuple, sides)
    group = WorkGroup(
        a=of_a,
        b=of_b,
        why=why,
        together=len(of_a) + len(of_b) > 2,
        by_sort_or_place=True,
    )
    return [group] if of_a and of_b else []


def _alike(sides: Sides) -> bool:
    few, many = sorted(map(len, sides))
    return 0 < few >= LIKE * many


def _in_order(
    a: ProgramPlaces, b: ProgramPlaces, sides: Sides, why: str
) -> list[WorkGroup]:
    """Pairs in order, where there is nearly as much on both sides and the times of most
    pairs differ by the same factor, as those of two different orders would not."""
    few, many = sorted(map(len, sides))
    if not _alike(sides) or not is_feasible(few, many):
        return []
    times_a, times_b = (
        np.array(
            [max(1, program.items.compared_times[n]) for n in items], dtype=np.float64
        )
        for program, items in zip((a, b), sides, strict=True)
    )
    scaled = times_a * (np.median(times_b) / np.median(times_a))
    as_a, as_b = scaled.astype(np.int64).tolist(), times_b.astype(np.int64).tolist()
    places_a = closest(as_b, as_a) if len(as_a) > len(as_b) else list(range(few))
    places_b = closest(as_a, as_b) if len(as_b) > len(as_a) else list(range(few))
    apart = np.abs(np.log(scaled[places_a] / times_b[places_b]))
    if np.mean(apart <= math.log(FACTOR)) < MOST:
        return []
    pairs = zip(places_a, places_b, strict=True)
    return [
        WorkGroup(a=(sides[0][i],), b=(sides[1][j],), why=why, by_sort_or_place=True)
        for i, j in pairs
    ]


def _without(sides: Sides, found: Sequence[WorkGroup]) -> Sides:
    of_a = {item for group in found for item in group.a}
    of_b = {item for group in found for item in group.b}
    return [i for i in sides[0] if i not in of_a], [
        j for j in sides[1] if j not in of_b
    ]


def surplus(a: WorkItems, b: WorkItems, aligned: Sequence[Lanes]) -> list[WorkGroup]:
    """One group for all blocks that occur as often: a layer has some in each pass, on
    each lane."""
    blocks = (block for lanes in aligned for block in lanes.blocks)
    alike = by_key(blocks, lambda block: (block.a, block.b))
    return [_group((a, b)[found[0].side], found) for found in alike.values()]


def _group(items: WorkItems, found: Sequence[Block]) -> WorkGroup:
    first = found[0]
    members = tuple(
        sorted(item for block in found for item in (*block.items, *block.beside))
    )
    more = abs(first.a - first.b)
    layers = any(_attentions(items, block) == more for block in found)
    word = "layer" if layers else "repeated block"
    title = f"{plural(first.a, word)} -> {count(first.b)}"
    why = f"{plural(round(len(members) / more), 'piece')} of work in each"
    of_a, of_b = ((), members) if first.side else (members, ())
    return WorkGroup(a=of_a, b=of_b, why=why, title=title)


def _attentions(items: WorkItems, block: Block) -> int:
    """How often a block computes attention: in one kernel or several in a row, or with
    a softmax between products. A block may begin in the middle of it."""
    kinds = [
        work_class(items.op_names[item], items.names[item]) for item in block.items
    ]
    found = [kind == "attention" for kind in kinds]
    starts = sum(
        now and not before
        for before, now in zip(found[-1:] + found, found, strict=False)
    )
    return starts or kinds.count("softmax")


def around(a: WorkItems, b: WorkItems, aligned: Sequence[Lanes]) -> tuple[Flags, Flags]:
    """Per row of each trace: whether the CPU did it for such a block, in any step
    alike."""
    sides = (a, b)
    found = (
        np.zeros(len(a.trace), dtype=np.bool_),
        np.zeros(len(b.trace), dtype=np.bool_),
    )
    for lanes in aligned:
        for block in lanes.blocks:
            mark_periods(found[block.side], sides[block.side], block.items)
    return found
