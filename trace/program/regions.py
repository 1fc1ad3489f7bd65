"""The slices that name a part of the program: module calls and annotations.

If stacks are recorded, torch names a module call by its class and a number, `nn.Module: Qwen2MLP_3`
(torch/csrc/autograd/profiler_python.cpp). Annotations come from record_function.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.categories import STEP_PREFIX, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import rows_there
from fusetui.trace.program.spans import Line, Spans, cpu_rows

MODULE_PREFIX = "nn.Module: "
COLLECTIVE = re.compile(r"(?:nccl|rccl|gloo|mpi|ucc|xccl|hccl|mccl|c10d):")
"""Annotations of torch.distributed: they last as long as the collective, whatever their thread does
meanwhile, so they are not parts of the program."""

NUMBER = re.compile(r"_[0-9]+\Z")
INDEX = re.compile(r"(?<![A-Za-z0-9=])[0-9]+(?![A-Za-z0-9])")


def is_module(name: str) -> bool:
    return name.startswith(MODULE_PREFIX)


def is_region(role: Role, name: str) -> bool:
    """Whether a slice with this role and name is a part of the program."""
    if role == Role.PYTHON:
        return is_module(name)
    if role != Role.ANNOTATION:
        return False
    return not name.startswith(STEP_PREFIX) and not COLLECTIVE.match(name)


def label_of(name: str, expanded: bool = False) -> str:
    """The label of a region: without torch's prefix and, unless `expanded`, with `*` for indices.

    >>> label_of("nn.Module: Qwen2MLP_3"), label_of("layers.12.mlp"), label_of("Conv2d fp16")
    ('Qwen2MLP_*', 'layers.*.mlp', 'Conv2d fp16')
    """
    plain = name.removeprefix(MODULE_PREFIX)
    if expanded:
        return plain
    return NUMBER.sub("_*", plain) if is_module(name) else INDEX.sub("*", plain)


def regions(trace: Trace, line: Line) -> Spans:
    """All regions of the CPU threads."""
    chosen = np.zeros(len(trace), dtype=np.bool_)
    for role in (Role.PYTHON, Role.ANNOTATION):
        rows = rows_there(trace, role)
        flags = np.zeros(len(trace.names) + 1, dtype=np.bool_)
        for number in np.flatnonzero(np.bincount(trace.name[rows])).tolist():
            flags[number] = is_region(role, trace.names[number])
        chosen[rows] = flags[trace.name[rows]]
    return Spans(trace, line, np.flatnonzero(chosen & cpu_rows(trace)))


def frames(trace: Trace, line: Line, wanted: NDArray[np.bool_] | None = None) -> Spans:
    """The Python frames of functions, without those of modules; `wanted`: only frames with these
    names, shape [names]."""
    chosen = np.array([not is_module(name) for name in trace.names] or [False])
    if wanted is not None:
        chosen &= wanted
    rows = rows_there(trace, Role.PYTHON)
    rows = rows[cpu_rows(trace, rows)]
    return Spans(trace, line, rows[chosen[trace.name[rows]]])
