"""The module or annotation of the program around each piece of work."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.items import Items
from fusetui.trace.model.categories import LAYERS, STEP_PREFIX, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler
from fusetui.trace.program.origin import hosts_of
from fusetui.trace.program.regions import MODULE_PREFIX, is_module
from fusetui.trace.program.spans import Line, Spans

Rows = NDArray[np.int32]

_NODE = re.compile(r"(?:\w+Backward\d*|torch::autograd::CppNode<.*)\Z", re.DOTALL)
"""Frames of the backward pass; CompiledFunctionBackward is one too."""


def places(items: Items) -> list[str]:
    """Per item the innermost nn.Module frame around its launch, else the innermost annotation."""
    trace, hosts = items.trace, hosts_of(items.trace, items.row)
    module = _around(trace, hosts, Layer.PYTHON, is_module)
    note = _around(trace, hosts, Layer.ANNOTATIONS, _is_note)
    rows = np.where(module >= 0, module, note)
    return [_label(trace, row) for row in rows.tolist()]


BACKWARD = "backward"
FORWARD = "forward"
OPTIMIZER = "optimizer"


def phases(items: Items) -> list[str]:
    """Per item the part of a training step that it belongs to; "" in a trace without a backward
    pass: by the frames of autograd around it, and by the annotations of optimizers."""
    trace, hosts = items.trace, hosts_of(items.trace, items.row)
    note = _around(trace, hosts, Layer.ANNOTATIONS, _is_optimizer) >= 0
    frames = _named(trace, _is_autograd)
    back, row = np.zeros(len(items), dtype=np.bool_), hosts
    while (row >= 0).any():
        back |= (row >= 0) & frames[trace.name[row]]
        row = np.where(row >= 0, trace.parent[row], np.int32(-1))
    if not back.any():
        return [""] * len(items)
    found = np.where(note, OPTIMIZER, np.where(back, BACKWARD, np.where(hosts >= 0, FORWARD, "")))
    phases: list[str] = found.tolist()
    return phases


def _is_autograd(name: str) -> bool:
    return name.startswith("autograd::engine::") or _NODE.match(name) is not None


def _is_optimizer(name: str) -> bool:
    return name.startswith("Optimizer.")


def _around(trace: Trace, hosts: Rows, layer: Layer, test: Callable[[str], bool]) -> Rows:
    """The innermost slice on a layer of each host's thread whose name passes, -1 for none."""
    on_layer = np.array([t.layer is layer and t.subrow == 0 for t in trace.tracks] or [False])
    own = np.array([LAYERS[role] is layer for role in Role])
    taken = (trace.role == Role.CAPTURED) & own[trace.source_role]
    rows = np.flatnonzero(_named(trace, test)[trace.name] & (on_layer[trace.track] | taken))
    spans = Spans(trace, Line(trace), rows)
    return spans.rows_at(spans.around(hosts))


def _named(trace: Trace, test: Callable[[str], bool]) -> NDArray[np.bool_]:
    return np.array([test(name) for name in trace.names] or [False])


def _is_note(name: str) -> bool:
    return not (name.startswith((STEP_PREFIX, MODULE_PREFIX)) or is_compiler(name))


def _label(trace: Trace, row: int) -> str:
    return trace.name_of(row).removeprefix(MODULE_PREFIX) if row >= 0 else ""
