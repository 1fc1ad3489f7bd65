"""Determines the place of each item in the program, and its kind of work.

A *place* is the module around a launch, else the annotation around it. A *phase* is the
forward pass, the backward pass or the optimizer. A *sort* is what a kernel does, in the
words of the summary: GEMM, copy, communication, ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.items import WorkItems, iterate_enclosing_slices
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.gpu.kinds import kinds_of
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import NO_ROW, Flags, Int32s
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
"""{kind of kernel: sort of work}. Of a kernel of several kinds, the first counts."""

OTHER: Final = "other"
"""The sort of work whose kind is not in SORT_OF_KIND."""

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


def choose_sort_of_all(sorts: Iterable[str]) -> str:
    """Return the sort of work, such as `attention`, of several kernels together.

    Of their sorts, the first one in SORT_OF_KIND counts. So attention is attention even
    if products are part of it.

    Returns OTHER if none of the sorts is known.
    """
    known_sorts = [sort for sort in sorts if sort in _RANK_OF_SORT]
    return min(known_sorts, key=_RANK_OF_SORT.__getitem__, default=OTHER)


@cache
def find_sort_of_work(role: int, kernel: str, op: str) -> str:
    """Return the sort of work of a kernel.

    The name of the kernel tells it, else the op of PyTorch that launched it.

    >>> find_sort_of_work(Role.KERNEL, "ampere_sgemm_128x64_tn", op="")
    'GEMM'
    >>> find_sort_of_work(Role.KERNEL, "my_kernel", op="aten::mm")
    'GEMM'

    Args:
        role: The `Role` of its event.
        kernel: The name of the kernel.
        op: The name of the op; "" if unknown.

    Returns:
        OTHER if neither tells it.
    """
    kinds_by_evidence = [kinds_of(Role(role), kernel)]
    if op.startswith("aten::"):  # other ops may do anything
        kinds_by_evidence.append(kinds_of(Role.OP, op))
    for kinds in kinds_by_evidence:
        for kind, sort in SORT_OF_KIND.items():
            if kind in kinds:
                return sort
    return OTHER


class StarredPlace(msgspec.Struct, frozen=True):
    """A phase, and a place with stars for its numbers.

    The numbers are left out because indices of modules shift when one is added.
    """

    phase: str
    place: str


class ProgramPlaces:
    """Where in the program the items of a side are, as lists with one entry per item.

    Attributes:
        items: The items.
        sorts: The sort of work.
        places: The innermost module around the launch, else the innermost annotation;
            "" for none.
        phases: `forward`, `backward` or `optimizer`, by the frames of autograd around
            the launch and by the annotations of optimizers; "" in a trace without a
            backward pass.
        starred_places: Phase and place, to be compared with the other side.
    """

    def __init__(self, items: WorkItems) -> None:
        """Determine the places of the items of one side."""
        self.items = items
        calls = launching_calls(items.trace, items.row)
        self.sorts = _find_sorts(items)
        self.places = _find_places(items.trace, calls)
        self.phases = _find_phases(items, calls)

        self.starred_places: list[StarredPlace] = []
        for phase, place in zip(self.phases, self.places, strict=True):
            starred = _NUMBER.sub("*", place)
            self.starred_places.append(StarredPlace(phase=phase, place=starred))

        is_inside = _is_inside_slice_named(items, items.op, is_compiler)
        self._is_inside_compiled_region: list[bool] = is_inside.tolist()

    def is_compiled(self, item: int) -> bool:
        """Return whether a region that torch.compile made launched an item."""
        op = self.items.op_names[item]
        return self._is_inside_compiled_region[item] or op.startswith(_COMPILED_OPS)

    def find_layout(self, item: int) -> str | None:
        """Return the layout of the operands of a product, as `tn`.

        Returns None if the name of the kernel does not tell it.
        """
        decoded = role_of_kernel(self.items.names[item]).decoded
        if decoded is None or not decoded.layout:
            return None
        return decoded.layout


def _find_sorts(items: WorkItems) -> list[str]:
    """Return the sort of work of each kernel or copy, such as `GEMM`."""
    roles = items.trace.role[items.row].tolist()
    sorts = []
    for role, kernel, op in zip(roles, items.names, items.op_names, strict=True):
        sorts.append(find_sort_of_work(role, kernel, op))
    return sorts


def _find_places(trace: Trace, calls: Int32s) -> list[str]:
    """Return the name of the innermost module around each call, else of the annotation.

    The name is "" where neither is around a call.
    """
    modules = _find_innermost_around(trace, calls, Layer.PYTHON, is_module)
    annotations = _find_innermost_around(
        trace, calls, Layer.ANNOTATIONS, _is_place_annotation
    )
    places = []
    for row in np.where(modules != NO_ROW, modules, annotations).tolist():
        name = trace.name_of(row) if row != NO_ROW else ""
        places.append(name.removeprefix(MODULE_PREFIX))
    return places


def _find_phases(items: WorkItems, calls: Int32s) -> list[str]:
    """Return the phase of training in which each kernel was launched.

    It is `optimizer`, `backward` or `forward`.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        calls: The row of the call that launched each item, NO_ROW if it is not in the
            file.

    Returns:
        "" for items without a call, and for all items if none is of a backward pass.
    """
    is_backward = _is_inside_slice_named(items, calls, _is_backward_node)
    if not is_backward.any():
        return [""] * len(items)
    optimizers = _find_innermost_around(
        items.trace, calls, Layer.ANNOTATIONS, _is_optimizer
    )
    # The later ones win: an optimizer may run inside of a hook of the backward pass.
    phases = np.full(len(items), "forward", dtype=np.object_)
    phases[calls == NO_ROW] = ""
    phases[is_backward] = "backward"
    phases[optimizers != NO_ROW] = "optimizer"
    return [*phases.tolist()]


def _is_backward_node(name: str) -> bool:
    """Return whether a frame of this name is of the backward pass."""
    return _BACKWARD_NODE.match(name) is not None


def _is_optimizer(name: str) -> bool:
    """Return whether an annotation of this name is around a step of an optimizer."""
    return name.startswith("Optimizer.")


def _is_place_annotation(name: str) -> bool:
    """Return whether an annotation says where in the program it is.

    Annotations of steps, of modules and of torch.compile do not.
    """
    if name.startswith((STEP_PREFIX, MODULE_PREFIX)):
        return False
    return not is_compiler(name)


def _is_inside_slice_named(
    items: WorkItems, rows: NDArray[np.integer], is_wanted: Callable[[str], bool]
) -> Flags:
    """Return whether each row is a slice of a wanted name, or inside such a slice.

    Args:
        items: The items (kernels and copies) of the representative step of a side.
        rows: A row of the trace for each item, NO_ROW for none.
        is_wanted: Returns whether a name is wanted.
    """
    has_wanted_name = items.trace.named(is_wanted)
    is_inside = np.zeros(len(items), dtype=np.bool_)
    for row in iterate_enclosing_slices(items.trace, rows):
        is_inside |= (row != NO_ROW) & has_wanted_name[items.trace.name[row]]
    return is_inside


def _find_innermost_around(
    trace: Trace, calls: Int32s, layer: Layer, is_wanted: Callable[[str], bool]
) -> Int32s:
    """Return the row of the innermost slice of a wanted name around each call.

    Slices that were captured with a graph count as the slices that they are copies of.

    Args:
        trace: A trace.
        calls: Rows of calls.
        layer: The layer of the thread of the call on which slices are searched.
        is_wanted: Returns whether a name is wanted.

    Returns:
        A row for each call, NO_ROW for none.
    """
    is_track_of_layer = []
    for track in trace.tracks:
        is_track_of_layer.append(track.layer is layer and track.subrow == 0)
    is_on_layer = np.array(is_track_of_layer, dtype=np.bool_)[trace.track]

    is_role_of_layer = np.array([LAYERS[role] is layer for role in Role])
    is_captured = trace.role == Role.CAPTURED
    is_captured &= is_role_of_layer[trace.source_role]

    has_wanted_name = trace.named(is_wanted)[trace.name]
    rows = np.flatnonzero(has_wanted_name & (is_on_layer | is_captured))
    spans = Spans(trace, ThreadLine(trace), rows)
    return spans.rows_at(spans.around(calls))
