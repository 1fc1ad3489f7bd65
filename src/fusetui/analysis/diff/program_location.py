"""The part of the program around each piece of work, and what sort of work it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.items import Items, ancestors
from fusetui.gpu.kinds import kinds_of
from fusetui.trace.model.arrays import Flags
from fusetui.trace.model.categories import LAYERS, STEP_PREFIX, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler
from fusetui.trace.program.origin import hosts_of
from fusetui.trace.program.regions import MODULE_PREFIX, Spans, ThreadLine, is_module

SORTS: Final = {
    **{"attention": "attention", "conv": "convolution", "gemm": "GEMM", "gemv": "GEMM"},
    **{"moe": "mixture of experts", "comm": "communication", "memcpy": "copy", "memset": "fill"},
    **{kind: kind for kind in ("norm", "softmax", "embedding", "optimizer", "reduction")},
    **{"copy": "copy", "fill": "fill"},
    **dict.fromkeys(("foreach", "pointwise", "triton"), "pointwise"),
}
"""Kinds of kernels and what they are called here; of several, the first one counts."""

OTHER: Final = "other"
_RANK: Final = {sort: n for n, sort in enumerate(dict.fromkeys(SORTS.values()))}


def sorts(items: Items) -> list[str]:
    """Per item: one of the values of SORTS, or `other`."""
    return [*map(_sort, items.trace.role[items.row].tolist(), items.names, items.op_names)]


def of_all(found: Iterable[str]) -> str:
    """The sort of several pieces that belong together: attention, even if products are part of
    it."""
    return min(found, key=lambda sort: _RANK.get(sort, len(_RANK)), default=OTHER)


@cache
def _sort(role: int, kernel: str, op: str) -> str:
    """By the kernel, else by the op that launched it."""
    found = _named(role, kernel)
    return _named(int(Role.OP), op) if found == OTHER and op.startswith("aten::") else found


def _named(role: int, name: str) -> str:
    kinds = kinds_of(Role(role), name)
    return next((called for kind, called in SORTS.items() if kind in kinds), OTHER)


Hosts = NDArray[np.int32]

_NODE = re.compile(
    r"autograd::engine::|(?:\w+Backward\d*|torch::autograd::CppNode<.*)\Z", re.DOTALL
)
"""Frames of the backward pass; CompiledFunctionBackward is one too."""

_NUMBER = re.compile(r"\d+")


class ProgramPlaces:
    """Per item of a side: its sort of work, its phase, and the module or annotation around it;
    `at` has the latter two, with stars for the numbers of places: indices of modules shift."""

    def __init__(self, items: Items) -> None:
        self.items = items
        self.sorts = sorts(items)
        self.phases = _phases(items)
        self.places = places(items)
        starred = (_NUMBER.sub("*", place) for place in self.places)
        self.at = list(zip(self.phases, starred, strict=True))
        self._inside: list[bool] = _below(items, items.op, is_compiler).tolist()

    def compiled(self, item: int) -> bool:
        """Whether a region that torch.compile made launched it."""
        op = self.items.op_names[item]
        return self._inside[item] or op.startswith(("triton_", "cpp_fused", "graph_"))


def places(items: Items) -> list[str]:
    """Per item the innermost nn.Module frame around its launch, else the innermost annotation."""
    trace, hosts = items.trace, hosts_of(items.trace, items.row)
    module = _around(trace, hosts, Layer.PYTHON, is_module)
    note = _around(trace, hosts, Layer.ANNOTATIONS, _is_note)
    rows = np.where(module >= 0, module, note).tolist()
    return [trace.name_of(n).removeprefix(MODULE_PREFIX) if n >= 0 else "" for n in rows]


def _phases(items: Items) -> list[str]:
    """Per item the part of a training step that it belongs to; "" in a trace without a backward
    pass: by the frames of autograd around it, and by the annotations of optimizers."""
    trace, hosts = items.trace, hosts_of(items.trace, items.row)
    back = _below(items, hosts, lambda name: _NODE.match(name) is not None)
    if not back.any():
        return [""] * len(items)
    optimizes = _around(trace, hosts, Layer.ANNOTATIONS, lambda name: name.startswith("Optimizer."))
    found = np.where(back, "backward", np.where(hosts >= 0, "forward", ""))
    phases: list[str] = np.where(optimizes >= 0, "optimizer", found).tolist()
    return phases


def _below(items: Items, rows: NDArray[np.integer], test: Callable[[str], bool]) -> Flags:
    """Whether the name of each row, or of any around it, passes."""
    named, found = items.trace.named(test), np.zeros(len(items), dtype=np.bool_)
    for row in ancestors(items.trace, rows):
        found |= (row >= 0) & named[items.trace.name[row]]
    return found


def _is_note(name: str) -> bool:
    return not (name.startswith((STEP_PREFIX, MODULE_PREFIX)) or is_compiler(name))


def _around(trace: Trace, hosts: Hosts, layer: Layer, test: Callable[[str], bool]) -> Hosts:
    """The innermost slice on a layer of each host's thread whose name passes, -1 for none."""
    on_layer = np.array([t.layer is layer and t.subrow == 0 for t in trace.tracks] or [False])
    own = np.array([LAYERS[role] is layer for role in Role])
    taken = (trace.role == Role.CAPTURED) & own[trace.source_role]
    rows = np.flatnonzero(trace.named(test)[trace.name] & (on_layer[trace.track] | taken))
    spans = Spans(trace, ThreadLine(trace), rows)
    return spans.rows_at(spans.around(hosts))
