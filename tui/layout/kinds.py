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
        """The name of the style for this kind of slices."""
        return TOKENS[self]


KINDS = tuple(SliceKind)  # by their numbers


def _name_styles() -> dict[SliceKind, str]:
    """Return the name of the style for each kind: `kernel.` and the kind for GPU work,
    `slice.` for all else."""
    tokens = {}
    last_of_gpu = KINDS.index(SliceKind.GPU_OTHER)
    for number, kind in enumerate(KINDS):
        group = "kernel" if number <= last_of_gpu else "slice"
        tokens[kind] = f"{group}.{kind.removeprefix('gpu-')}"
    return tokens


TOKENS = _name_styles()
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
def classify_slice(role: int, name: str) -> SliceKind:
    """Return the kind of a slice, which decides its color, from its role and name. A
    kernel is classified by its name, an op by whether it was compiled, and others by
    role."""
    if role in DECODED:
        kind = legend_kind(name)
        return SliceKind.GPU_OTHER if kind == "other" else SliceKind(kind)
    if role == Role.OP:
        is_compiled = name.startswith(COMPILED_MARKS) or "cpp_fused" in name
        return SliceKind.COMPILED if is_compiled else SliceKind.OP
    return BY_ROLE.get(Role(role), SliceKind.OTHER)


@memo()
def number_kinds(trace: Trace) -> NDArray[np.uint8]:
    """Return the kind of each row of a trace as an index into KINDS; shape [rows].

    Each distinct name is classified only once, because names are few and slices many.
    """
    kind_of_role = [BY_ROLE.get(role, SliceKind.OTHER) for role in Role]
    number_of_role = [KINDS.index(kind) for kind in kind_of_role]
    numbers: NDArray[np.uint8] = np.array(number_of_role, dtype=np.uint8)[trace.role]
    for role in (*DECODED, Role.OP):  # whose kind depends on the name
        rows = trace.rows_of(role)
        name_of_row = trace.name[rows]
        number_of_name = np.zeros(len(trace.names) + 1, dtype=np.uint8)
        # each name once that any row of this role has
        for name_number in np.flatnonzero(np.bincount(name_of_row)).tolist():
            kind = classify_slice(int(role), trace.names[name_number])
            number_of_name[name_number] = KINDS.index(kind)
        numbers[rows] = number_of_name[name_of_row]
    return numbers


COMPILE_NOTES = "what the compile log says of slices"
"""The key under which a trace keeps its notes, by row; see lane_notes.py."""


class SliceNote(msgspec.Struct, frozen=True):
    """What happened at a slice: a few words instead of its label, and all of it."""

    label: str
    text: str


def find_note(trace: Trace, row: int) -> SliceNote | None:
    """Return what the compile log says about a slice, such as a graph break. None means
    that it says nothing, or that no log was opened."""
    notes: dict[int, SliceNote] | None = kept_result(trace, COMPILE_NOTES)
    return None if notes is None else notes.get(row)


@lru_cache(maxsize=65536)
def label_of(role: int, name: str) -> str:
    """Return a short label for a slice: printable, one cell for each character, and
    never empty."""
    return _make_label(role, name[:MAX_NAME_CHARS]) or NAMELESS


def _make_label(role: int, name: str) -> str:
    """Return a short label for a slice with a role and name; "" if nothing of the name
    can be shown.

    Kernels and Python frames have names with a structure, of which only the main parts
    are kept.
    """
    if role in (*DECODED, Role.MEMCPY, Role.MEMSET):
        return narrow(short_name(name))
    if role == Role.PYTHON:
        return narrow(_label_frame(name))
    if DATA_LOADER.match(name):
        return "DataLoader"
    return narrow(name.strip("# ") or name)


def _label_frame(name: str) -> str:
    """Return a short label for a Python frame, such as `forward my_model.py:42`. A
    built-in function is shown by its name, a module without its address in memory."""
    frame = PYTHON_FRAME.match(name)
    if frame:
        file, line, function = frame.groups()
        return f"{function} {file}:{line}"
    built_in = BUILT_IN.match(name)
    if built_in:
        return built_in[1]
    return ADDRESS.sub("", name.removeprefix(MODULE_PREFIX))


def narrow(text: str) -> str:
    """Replace each character that is not printable or not one cell wide by a dot. The
    length of the result then equals its width on the screen."""
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
def compute_kind_shares(trace: Trace) -> tuple[KindShare, ...]:
    """Return the share of each kind of work in the GPU time, the largest first.

    Without GPU events the shares are of the time of other devices. Kinds without any
    time are left out.
    """
    rows = trace.gpu_rows
    device_word = "GPU"
    if not len(rows):
        rows = trace.rows_of(Role.DEVICE)
        device_word = "device"
    ns_of_kind = summed(number_kinds(trace)[rows], trace.dur[rows], len(KINDS))
    whole_ns = int(ns_of_kind.sum())
    largest_first = np.argsort(-ns_of_kind, kind="stable").tolist()
    return tuple(
        KindShare(
            kind=KINDS[number],
            ns=int(ns_of_kind[number]),
            whole_ns=whole_ns,
            of=device_word,
        )
        for number in largest_first
        if ns_of_kind[number]
    )
