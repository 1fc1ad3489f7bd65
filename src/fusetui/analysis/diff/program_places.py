"""Where in the program each piece of work is, and what sort of work it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.items import WorkItems, ancestors
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.gpu.kinds import kinds_of
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Flags, Int32s
from fusetui.trace.model.categories import LAYERS, STEP_PREFIX, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler
from fusetui.trace.program.origin import launching_calls
from fusetui.trace.program.regions import MODULE_PREFIX, Spans, ThreadLine, is_module

SORT_OF_KIND: Final = {
    "attention": "attention",
    "conv": "convolution",
    "gemm": "GEMM",
    "gemv": "GEMM",
    "moe": "mixture of experts",
    "comm": "communication",
    "memcpy": "copy",
    "memset": "fill",
    "norm": "norm",
    "softmax": "softmax",
    "embedding": "embedding",
    "optimizer": "optimizer",
    "reduction": "reduction",
    "copy": "copy",
    "fill": "fill",
    "foreach": "pointwise",
    "pointwise": "pointwise",
    "triton": "pointwise",
}
"""The sort of work of each kind of kernel; of several kinds, the first one counts."""

OTHER: Final = "other"
"""The sort of work of no such kind."""

_RANK_OF_SORT: Final = {
    sort: rank for rank, sort in enumerate(dict.fromkeys(SORT_OF_KIND.values()))
}

_NUMBER = lazy_pattern(r"\d+")

_BACKWARD_NODE = lazy_pattern(
    r"autograd::engine::|(?:\w+Backward\d*|torch::autograd::CppNode<.*)\Z", re.DOTALL
)
"""Frames of the backward pass; CompiledFunctionBackward is one too."""

_COMPILED_OPS = ("triton_", "cpp_fused", "graph_")
"""How the names of ops begin that torch.compile made."""


def sort_of_all(sorts: Iterable[str]) -> str:
    """The sort of several pieces that belong together: of their sorts the first one in
    SORT_OF_KIND, so that attention is attention even if products are in it; OTHER of
    none."""
    after_all = len(_RANK_OF_SORT)

    def rank(sort: str) -> int:
        return _RANK_OF_SORT.get(sort, after_all)

    return min(sorts, key=rank, default=OTHER)


@cache
def sort_of_work(role: int, kernel: str, op: str) -> str:
    """The sort of a kernel: by its name, else by the op of PyTorch that launched it;
    OTHER where neither tells. `role`: the `Role` of its event."""
    kinds_by_evidence = [kinds_of(Role(role), kernel)]
    if op.startswith("aten::"):
        kinds_by_evidence.append(kinds_of(Role.OP, op))
    for kinds in kinds_by_evidence:
        for kind, sort in SORT_OF_KIND.items():
            if kind in kinds:
                return sort
    return OTHER


class StarredPlace(msgspec.Struct, frozen=True):
    """A phase and a place, with stars for the numbers of the place: indices of modules
    shift."""

    phase: str
    place: str


class ProgramPlaces:
    """Where the program does the work of a side; lists of shape [items].

    `sorts`: the sort of work. `places`: the innermost module, else the innermost
    annotation, around the launch; "" for none. `phases`: forward, backward or
    optimizer, by the frames of autograd around it and by the annotations of optimizers;
    "" in a trace without a backward pass. `starred_places`: both, to compare with the other
    side.
    """

    def __init__(self, items: WorkItems) -> None:
        """`items`: those of one side."""
        self.items = items
        calls = launching_calls(items.trace, items.row)
        self.sorts = _sorts(items)
        self.places = _places(items.trace, calls)
        self.phases = _phases(items, calls)
        self.starred_places: list[StarredPlace] = []
        for phase, place in zip(self.phases, self.places, strict=True):
            starred = _NUMBER.sub("*", place)
            self.starred_places.append(StarredPlace(phase=phase, place=starred))
        is_inside = _is_below(items, items.op, is_compiler)
        self._is_inside_region: list[bool] = is_inside.tolist()

    def is_compiled(self, item: int) -> bool:
        """Whether a region that torch.compile made launched an item."""
        op = self.items.op_names[item]
        return self._is_inside_region[item] or op.startswith(_COMPILED_OPS)

    def layout(self, item: int) -> str | None:
        """The layout of the operands of a product, as `tn`; None where the kernel's name
        does not tell it."""
        decoded = role_of_kernel(self.items.names[item]).decoded
        if decoded is None:
            return None
        return decoded.layout or None


def _sorts(items: WorkItems) -> list[str]:
    """The sort of work of each item."""
    roles = items.trace.role[items.row].tolist()
    sorts = []
    for role, kernel, op in zip(roles, items.names, items.op_names, strict=True):
        sorts.append(sort_of_work(role, kernel, op))
    return sorts


def _places(trace: Trace, calls: Int32s) -> list[str]:
    """The name of the innermost module around each of these calls, else of the innermost
    annotation; "" for none."""
    modules = _innermost(trace, calls, Layer.PYTHON, is_module)
    annotations = _innermost(trace, calls, Layer.ANNOTATIONS, _is_place)
    rows = np.where(modules >= 0, modules, annotations)
    names = [trace.name_of(row) if row >= 0 else "" for row in rows.tolist()]
    return [name.removeprefix(MODULE_PREFIX) for name in names]


def _phases(items: WorkItems, calls: Int32s) -> list[str]:
    """`optimizer`, `backward` or `forward` for each item, "" where its call is not in
    the file (-1), or for all if no item is of a backward pass. `calls`: the rows of the
    calls that launched the items."""
    is_backward = _is_below(items, calls, _is_backward_node)
    if not is_backward.any():
        return [""] * len(items)
    optimizers = _innermost(items.trace, calls, Layer.ANNOTATIONS, _is_optimizer)
    phases = np.where(calls >= 0, "forward", "")
    phases = np.where(is_backward, "backward", phases)
    phases = np.where(optimizers >= 0, "optimizer", phases)
    return [*phases.tolist()]


def _is_backward_node(name: str) -> bool:
    """Whether a frame of this name is of the backward pass."""
    return _BACKWARD_NODE.match(name) is not None


def _is_optimizer(name: str) -> bool:
    """Whether an annotation of this name is around a step of an optimizer."""
    return name.startswith("Optimizer.")


def _is_place(name: str) -> bool:
    """Whether an annotation says where in the program it is: not one of a step, of a
    module, or of torch.compile."""
    if name.startswith((STEP_PREFIX, MODULE_PREFIX)):
        return False
    return not is_compiler(name)


def _is_below(
    items: WorkItems, rows: NDArray[np.integer], test: Callable[[str], bool]
) -> Flags:
    """Whether the name of each row, or of a slice around it, passes a test; shape
    [items], that of `rows`."""
    passes = items.trace.named(test)
    is_below = np.zeros(len(items), dtype=np.bool_)
    for row in ancestors(items.trace, rows):
        is_below |= (row >= 0) & passes[items.trace.name[row]]
    return is_below


def _innermost(
    trace: Trace, calls: Int32s, layer: Layer, test: Callable[[str], bool]
) -> Int32s:
    """The row of the innermost slice around each call, on a layer of its thread, whose
    name passes a test; -1 for none. Slices that were captured with a graph count as
    those that they are copies of."""
    is_track_of_layer = []
    for track in trace.tracks:
        is_track_of_layer.append(track.layer is layer and track.subrow == 0)
    is_on_layer = np.array(is_track_of_layer or [False])[trace.track]
    is_role_of_layer = np.array([LAYERS[role] is layer for role in Role])
    is_captured = trace.role == Role.CAPTURED
    is_captured &= is_role_of_layer[trace.source_role]
    passes = trace.named(test)[trace.name]
    rows = np.flatnonzero(passes & (is_on_layer | is_captured))
    spans = Spans(trace, ThreadLine(trace), rows)
    return spans.rows_at(spans.around(calls))
