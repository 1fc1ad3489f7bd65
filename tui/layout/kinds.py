"""The kind and the label of a slice, the same everywhere."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.kernel_names import short_name
from fusetui.gpu.kinds import legend_kind
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import is_printable
from fusetui.trace.model.arrays import summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import kept_result, memo
from fusetui.trace.program.regions import MODULE_PREFIX

PYTHON_FRAME = lazy_pattern(r"(?:.*[/\\])?([^/\\]+)\((\d+)\): (.*)\Z", re.DOTALL)
MAX_NAME_CHARS = 1000  # of a name, from which a label is made; no screen is wider
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
        """The token of its color."""
        return TOKENS[self]


KINDS = tuple(SliceKind)  # by their numbers


def _tokens() -> dict[SliceKind, str]:
    """The token of the color of each kind: of GPU work `kernel.`, else `slice.`."""
    tokens = {}
    last_of_gpu = KINDS.index(SliceKind.GPU_OTHER)
    for number, kind in enumerate(KINDS):
        group = "kernel" if number <= last_of_gpu else "slice"
        tokens[kind] = f"{group}.{kind.removeprefix('gpu-')}"
    return tokens


TOKENS = _tokens()
LETTERS = dict(zip(KINDS, "gapfrcmkolnyjx", strict=True))  # where there is no color
BY_ROLE = {
    Role.MEMCPY: SliceKind.COPY,
    Role.MEMSET: SliceKind.COPY,
    Role.ANNOTATION: SliceKind.ANNOTATION,
    Role.GPU_ANNOTATION: SliceKind.ANNOTATION,
    Role.PYTHON: SliceKind.PYTHON,
    Role.CALL: SliceKind.CALL,
}
DECODED = (Role.KERNEL, Role.DEVICE)
"""Their names may be those of kernels: also what other devices ran, and ranges around a
kernel."""
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
        kind = legend_kind(name)
        return SliceKind.GPU_OTHER if kind == "other" else SliceKind(kind)
    if role == Role.OP:
        is_compiled = name.startswith(COMPILED_MARKS) or "cpp_fused" in name
        return SliceKind.COMPILED if is_compiled else SliceKind.OP
    return BY_ROLE.get(Role(role), SliceKind.OTHER)


@memo()
def numbers_of(trace: Trace) -> NDArray[np.uint8]:
    """The number of the kind of each row, shape [slices]; names are looked at once
    each."""
    kind_of_role = [BY_ROLE.get(role, SliceKind.OTHER) for role in Role]
    number_of_role = [KINDS.index(kind) for kind in kind_of_role]
    numbers: NDArray[np.uint8] = np.array(number_of_role, dtype=np.uint8)[trace.role]
    for role in (*DECODED, Role.OP):  # whose kind depends on the name
        rows = trace.rows_of(role)
        names = trace.name[rows]
        number_of_name = np.zeros(len(trace.names) + 1, dtype=np.uint8)
        for name in np.flatnonzero(np.bincount(names)).tolist():
            kind = kind_of(int(role), trace.names[name])
            number_of_name[name] = KINDS.index(kind)
        numbers[rows] = number_of_name[names]
    return numbers


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
    return _label(role, name[:MAX_NAME_CHARS]) or NAMELESS


def _label(role: int, name: str) -> str:
    """A short printable text for a slice; "" for a name of nothing that is shown."""
    if role in (*DECODED, Role.MEMCPY, Role.MEMSET):
        return narrow(short_name(name))
    if role == Role.PYTHON:
        return narrow(_frame_label(name))
    if DATA_LOADER.match(name):
        return "DataLoader"
    return narrow(name.strip("# ") or name)


def _frame_label(name: str) -> str:
    """A Python frame in short: `forward my_model.py:42`, the name of a built-in
    function, or that of a module without addresses."""
    frame = PYTHON_FRAME.match(name)
    if frame:
        file, line, function = frame.groups()
        return f"{function} {file}:{line}"
    built_in = BUILT_IN.match(name)
    if built_in:
        return built_in[1]
    return ADDRESS.sub("", name.removeprefix(MODULE_PREFIX))


def narrow(text: str) -> str:
    """Replaces every character that is not printable and one cell wide by a dot."""
    if text.isascii() and text.isprintable():
        return text
    from rich.cells import cell_len

    characters = []
    for character in text:
        is_narrow = is_printable(character) and cell_len(character) == 1
        characters.append(character if is_narrow else "·")
    return "".join(characters)


class KindShare(msgspec.Struct, frozen=True):
    """The durations of one kind added up, those of all kinds, and of what: `GPU` or
    `device`."""

    kind: SliceKind
    ns: int
    whole_ns: int
    of: str = "GPU"


@memo()
def shares(trace: Trace) -> tuple[KindShare, ...]:
    """The share of each kind in the time of GPU events, else of events of other
    devices, the largest first; none for kinds without any time."""
    rows = trace.gpu_rows
    of = "GPU"
    if not len(rows):
        rows = trace.rows_of(Role.DEVICE)
        of = "device"
    ns_of_kind = summed(numbers_of(trace)[rows], trace.dur[rows], len(KINDS))
    whole_ns = int(ns_of_kind.sum())
    largest_first = np.argsort(-ns_of_kind, kind="stable").tolist()
    return tuple(
        KindShare(
            kind=KINDS[number], ns=int(ns_of_kind[number]), whole_ns=whole_ns, of=of
        )
        for number in largest_first
        if ns_of_kind[number]
    )
