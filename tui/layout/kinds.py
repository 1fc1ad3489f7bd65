"""What a slice does and what it is called: one kind and one label for each, the same
everywhere."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.kernel_names import short_name
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import is_printable
from fusetui.trace.model.arrays import summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import kept_result, memo
from fusetui.trace.program.regions import MODULE_PREFIX

PYTHON_FRAME = lazy_pattern(r"(?:.*[/\\])?([^/\\]+)\((\d+)\): (.*)\Z", re.DOTALL)
LONGEST = 1000  # characters of a name that a label is made from; no screen is wider
NAMELESS = "(no name)"
DATA_LOADER = lazy_pattern(r"enumerate\(DataLoader\)#\w+\.__next__\Z")
"""The annotation of torch around the next batch (torch/utils/data/dataloader.py)."""
BUILT_IN = lazy_pattern(r"<built-in (?:function|method) ([^ >]+)")
ADDRESS = lazy_pattern(r" at 0x[0-9a-f]+")


class SliceKind(StrEnum):
    """What a slice does, as shown by its color: of GPU work first."""

    GEMM = "gemm"
    ATTENTION = "attention"
    POINTWISE = "pointwise"
    FUSED = "fused"
    REDUCTION = "reduction"
    COPY = "copy"
    COMM = "comm"
    GPU_OTHER = "gpu-other"
    OP = "op"
    CALL = "call"
    ANNOTATION = "annotation"
    PYTHON = "python"
    COMPILED = "compiled"
    OTHER = "other"

    @property
    def token(self) -> str:
        return TOKENS[self]


KINDS = tuple(SliceKind)  # by their numbers
TOKENS = {
    kind: ("kernel." if n <= KINDS.index(SliceKind.GPU_OTHER) else "slice.")
    + kind.removeprefix("gpu-")
    for n, kind in enumerate(KINDS)
}
LETTERS = dict(zip(KINDS, "gapfrcmkolnyjx", strict=True))  # where there is no color
BY_ROLE = {
    **dict.fromkeys((Role.MEMCPY, Role.MEMSET), SliceKind.COPY),
    **dict.fromkeys((Role.ANNOTATION, Role.GPU_ANNOTATION), SliceKind.ANNOTATION),
    **{Role.PYTHON: SliceKind.PYTHON, Role.CALL: SliceKind.CALL},
}
DECODED = (Role.KERNEL, Role.DEVICE)
"""Their names may be those of kernels: also what other devices ran, and ranges around a
kernel."""
BY_WORK = {
    **dict.fromkeys(("gemm", "gemv", "conv"), SliceKind.GEMM),
    **dict.fromkeys(("copy", "fill", "memcpy", "memset"), SliceKind.COPY),
    **dict.fromkeys(("reduction", "softmax", "norm", "loss"), SliceKind.REDUCTION),
    **{"attention": SliceKind.ATTENTION, "elementwise": SliceKind.POINTWISE},
    "comm": SliceKind.COMM,
}
"""The kinds of gpu/kinds.py, as few as there are colors."""
COMPILED_MARKS = (
    "triton_",
    "Torch-Compiled",
    "CompiledFunction",
    "TorchDynamo",
    "AOTDispatcher",
)


@lru_cache(maxsize=65536)
def kind_of(role: int, name: str) -> SliceKind:
    """The kind of a slice by its role and name."""
    if role in DECODED:
        kernel = role_of_kernel(name)
        if kernel.decoded is not None and kernel.decoded.fused_ops:
            return SliceKind.FUSED
        return BY_WORK.get(kernel.kind or "", SliceKind.GPU_OTHER)
    if role == Role.OP:
        marked = name.startswith(COMPILED_MARKS) or "cpp_fused" in name
        return SliceKind.COMPILED if marked else SliceKind.OP
    return BY_ROLE.get(Role(role), SliceKind.OTHER)


@memo()
def numbers_of(trace: Trace) -> NDArray[np.uint8]:
    """The number of the kind of each row, shape [slices]; names are looked at once
    each."""
    by_role = [KINDS.index(BY_ROLE.get(role, SliceKind.OTHER)) for role in Role]
    found: NDArray[np.uint8] = np.array(by_role, dtype=np.uint8)[trace.role]
    for role in (*DECODED, Role.OP):  # whose kind depends on the name
        rows = trace.rows_of(role)
        of_name = np.zeros(len(trace.names) + 1, dtype=np.uint8)
        for name in np.flatnonzero(np.bincount(trace.name[rows])).tolist():
            of_name[name] = KINDS.index(kind_of(int(role), trace.names[name]))
        found[rows] = of_name[trace.name[rows]]
    return found


COMPILE_NOTES = "what the compile log says of slices"
"""The key under which a trace keeps its notes, by row; see lane_notes.py."""


class SliceNote(msgspec.Struct, frozen=True):
    """What happened at a slice: a few words instead of its label, and all of it."""

    label: str
    text: str


def note_of(trace: Trace, row: int) -> SliceNote | None:
    """What the compile log says of a slice; None without a log, and of most slices."""
    notes: dict[int, SliceNote] | None = kept_result(trace, COMPILE_NOTES)
    return None if notes is None else notes.get(row)


@lru_cache(maxsize=65536)
def label_of(role: int, name: str) -> str:
    """A short printable text for a slice, one character per cell; never empty."""
    return _label(role, name[:LONGEST]) or NAMELESS


def _label(role: int, name: str) -> str:
    if role in (*DECODED, Role.MEMCPY, Role.MEMSET):
        return narrow(short_name(name))
    if role == Role.PYTHON:
        if frame := PYTHON_FRAME.match(name):
            return narrow(f"{frame[3]} {frame[1]}:{frame[2]}")
        if built_in := BUILT_IN.match(name):
            return narrow(built_in[1])
        return narrow(ADDRESS.sub("", name.removeprefix(MODULE_PREFIX)))
    if DATA_LOADER.match(name):
        return "DataLoader"
    return narrow(name.strip("# ") or name)


def narrow(text: str) -> str:
    """Replaces every character that is not printable and one cell wide by a dot."""
    if text.isascii() and text.isprintable():
        return text
    from rich.cells import cell_len

    return "".join(c if is_printable(c) and cell_len(c) == 1 else "·" for c in text)


class KindShare(msgspec.Struct, frozen=True):
    """The sum of the durations of one kind, and of all; `of`: of what."""

    kind: SliceKind
    ns: int
    whole_ns: int
    of: str = "GPU"


@memo()
def shares(trace: Trace) -> tuple[KindShare, ...]:
    """Of the GPU events, else of those of other devices, the largest first."""
    of, rows = "GPU", trace.gpu_rows
    if not len(rows):
        of, rows = "device", trace.rows_of(Role.DEVICE)
    sums = summed(numbers_of(trace)[rows], trace.dur[rows], len(KINDS))
    order = [n for n in np.argsort(-sums, kind="stable").tolist() if sums[n]]
    return tuple(KindShare(KINDS[n], int(sums[n]), int(sums.sum()), of) for n in order)
