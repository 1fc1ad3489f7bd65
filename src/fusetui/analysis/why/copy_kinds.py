"""Classify PyTorch's copies: conversion to another type, change of layout, or
concatenation.

The names of their kernels tell, else the recorded types of the op.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.kernels import Kernels
from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.text.patterns import MAX_SEARCHED_CHARS, lazy_pattern
from fusetui.trace.model.arrays import used_ids
from fusetui.trace.model.categories import Role


class CopyKind(IntEnum):
    """What a copy does."""

    CAST = 0
    COPY = 1  # the type stays: it changes the layout, or where the data is
    EITHER = 2  # a cast or a copy
    JOIN = 3  # concatenates tensors


_CASTS = lazy_pattern(
    r"LoadWithCast|elementwise_kernel_manual_unroll<.*gpu_kernel_impl<"
)
"""Matches kernels that cast, see aten/src/ATen/native/cuda/CUDALoops.cuh.

ROCm unrolls by hand since casts have a function of their own.
"""
_KEEPS_TYPE = lazy_pattern(r"nocast|LoadWithoutCast|vectorized_elementwise_kernel")
"""Matches kernels that copy without a cast."""
_STRIDED = lazy_pattern(
    r"\belementwise_kernel<(?:\(int\))?\d+, (?:\(int\))?(?P<unroll>\d+), .*gpu_kernel_impl<"
)
"""Matches the loop over strided tensors.

Where types stay it handles two elements at once, or four of types below 4 bytes. Where
they change it always handles four.
"""
_WITHOUT_CASTS = "gpu_kernel_impl_nocast"
"""Versions of torch that name this function use the other one for casts alone."""
_ONLY_COPIES = ("direct_copy_kernel_cuda", "copy_device_to_device")
"""Functors of any copy.

The others are those of one conversion, such as bfloat16_copy_kernel_cuda.
"""
_WIDE_TYPES = frozenset({"fp32", "fp64", "int32", "int64", "c64", "c128"})
"""Words of a decoded name for types of 4 bytes or more."""
_COPY_OPS = frozenset({"aten::copy_"})
_TYPES = 1
"""The index of `Input type` among the recorded inputs."""


def classify_copies(kernels: Kernels) -> NDArray[np.int8]:
    """Classify the copies among some GPU events.

    Returns:
        The CopyKind of each event; it means something for copies alone.
    """
    trace = kernels.trace
    casts_are_apart = any(_WITHOUT_CASTS in name for name in trace.names)

    # By name, looking at each name once.
    kind_of_name = np.full(len(trace.names), CopyKind.EITHER, dtype=np.int8)
    name_of_row = trace.name[kernels.rows]
    for name_index in used_ids(name_of_row):
        name = trace.names[name_index][:MAX_SEARCHED_CHARS]
        kernel = decode(name)
        if kernel is not None:
            kind_of_name[name_index] = _classify_by_name(
                kernel, casts_are_apart=casts_are_apart
            )

    kinds = kind_of_name[name_of_row]
    kinds[trace.role[kernels.rows] == Role.MEMCPY] = CopyKind.COPY

    # By the types of the op, where names do not tell.
    unclear = np.flatnonzero(kinds == CopyKind.EITHER)
    if len(unclear):
        kinds[unclear] = _classify_by_types(kernels)[unclear]
    return kinds


def _classify_by_name(kernel: KernelName, *, casts_are_apart: bool) -> CopyKind:
    """Classify a kernel that is a copy by its name.

    Args:
        casts_are_apart: Whether the version of torch has another function for copies
            without casts.
    """
    name = kernel.name
    if "CatArray" in name:
        return CopyKind.JOIN

    is_conversion = kernel.functor is not None and kernel.functor not in _ONLY_COPIES
    if is_conversion or _CASTS.search(name):
        return CopyKind.CAST
    if _KEEPS_TYPE.search(name):
        return CopyKind.COPY

    strided = _STRIDED.search(name)
    if strided is None:
        return CopyKind.EITHER
    if strided["unroll"] == "2":
        return CopyKind.COPY

    has_wide_type = not _WIDE_TYPES.isdisjoint(kernel.short.split())
    if casts_are_apart or has_wide_type:
        return CopyKind.CAST
    return CopyKind.EITHER


def _classify_by_types(kernels: Kernels) -> NDArray[np.int8]:
    """Classify events by the types of both tensors of aten::copy_.

    Returns:
        The CopyKind of each event, EITHER for other ops and where types were not
        recorded.
    """
    inputs = kernels.inputs
    kind_of_inputs = [_classify_type_pair(texts[_TYPES]) for texts in inputs.distinct]
    kind_of_inputs.append(CopyKind.EITHER)  # index -1 finds it: no recorded inputs
    kinds = np.array(kind_of_inputs, dtype=np.int8)[inputs.number]

    is_copy = kernels.mark_launched_by_ops(_COPY_OPS)
    return np.where(is_copy, kinds, CopyKind.EITHER).astype(np.int8)


def _classify_type_pair(types_text: bytes) -> CopyKind:
    """Classify a copy by the first two of a list of types, given as JSON.

    EITHER if one of them is missing or empty.
    """
    types = types_text.replace(b" ", b"").strip(b"[]").split(b",")
    if len(types) < 2 or not all(types[:2]):
        return CopyKind.EITHER
    return CopyKind.COPY if types[0] == types[1] else CopyKind.CAST
