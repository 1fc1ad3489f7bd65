"""The module or annotation of the program around each piece of work."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.diff.items import Items
from fusetui.trace.layout.enclosing import enclosing_rows
from fusetui.trace.model.categories import STEP_PREFIX, Layer
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.op_names import is_compiler
from fusetui.trace.program.regions import MODULE_PREFIX, is_module

Rows = NDArray[np.intp]

_NODE = re.compile(r"(?:\w+Backward\d*|torch::autograd::CppNode<.*)\Z", re.DOTALL)
"""Frames of the backward pass; CompiledFunctionBackward is one too."""


def places(items: Items) -> list[str]:
    """Per item the innermost nn.Module frame around its launch, else the innermost annotation."""
    trace = items.trace
    host = _hosts(items)
    module = _around(trace, host, Layer.PYTHON, _named(trace, is_module))
    note = _around(trace, host, Layer.ANNOTATIONS, _named(trace, _is_note))
    rows = np.where(module >= 0, module, note)
    return [_label(trace, row) for row in rows.tolist()]


BACKWARD = "backward"
FORWARD = "forward"
OPTIMIZER = "optimizer"


def phases(items: Items) -> list[str]:
    """Per item the part of a training step that it belongs to; "" in a trace without a backward
    pass: by the frames of autograd around it, and by the annotations of optimizers."""
    trace = items.trace
    host = _hosts(items)
    note = _around(trace, host, Layer.ANNOTATIONS, _named(trace, _is_optimizer)) >= 0
    frames = _named(trace, _is_autograd)
    back, row = np.zeros(len(items), dtype=np.bool_), host
    while (row >= 0).any():
        back |= (row >= 0) & frames[trace.name[row]]
        row = np.where(row >= 0, trace.parent[row], -1)
    if not back.any():
        return [""] * len(items)
    found = np.where(note, OPTIMIZER, np.where(back, BACKWARD, np.where(host >= 0, FORWARD, "")))
    phases: list[str] = found.tolist()
    return phases


def _is_autograd(name: str) -> bool:
    return name.startswith("autograd::engine::") or _NODE.match(name) is not None


def _is_optimizer(name: str) -> bool:
    return name.startswith("Optimizer.")


def _hosts(items: Items) -> Rows:
    """The CPU row that each item comes from: itself, its launch call or its op; -1 for none."""
    if not items.work.gpu:
        return items.row
    launch = items.trace.launch[items.row]
    return np.where(launch >= 0, launch, items.op).astype(np.intp)


def _around(trace: Trace, host: Rows, layer: Layer, wanted: NDArray[np.bool_]) -> Rows:
    """The innermost slice with a wanted name on a layer of the host's thread, -1 for none."""
    found = np.full(len(host), -1, dtype=np.intp)
    for track in (t for t in trace.tracks if t.layer is layer and t.subrow == 0):
        here = np.flatnonzero((host >= 0) & _on_thread(trace, track)[trace.track[host]])
        begins, ends = trace.start[host[here]], trace.end[host[here]]
        rows = enclosing_rows(track, trace.start, trace.end, trace.parent, begins, ends)
        other = (rows >= 0) & ~wanted[trace.name[rows]]
        while other.any():
            rows[other] = trace.parent[rows[other]]
            other = (rows >= 0) & ~wanted[trace.name[rows]]
        found[here] = rows
    return found


def _on_thread(trace: Trace, track: Track) -> NDArray[np.bool_]:
    return np.array([(t.pid, t.tid) == (track.pid, track.tid) for t in trace.tracks])


def _named(trace: Trace, test: Callable[[str], bool]) -> NDArray[np.bool_]:
    return np.array([test(name) for name in trace.names] or [False])


def _is_note(name: str) -> bool:
    return not (name.startswith((STEP_PREFIX, MODULE_PREFIX)) or is_compiler(name))


def _label(trace: Trace, row: int) -> str:
    return trace.name_of(row).removeprefix(MODULE_PREFIX) if row >= 0 else ""
