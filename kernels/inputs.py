"""The inputs of the Triton ops: their checks, and their dtypes under autocast.

A kernel does not check where it reads, so tensors that do not fit are refused before it
is launched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

SUPPORTED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def check_inputs(
    op: str, shapes: Mapping[str, Sequence[int | str]], **tensors: Tensor
) -> None:
    """Raise ValueError unless the tensors fit the op. They need one dtype, which the
    kernels support, one device, which is a GPU, at least one element each, and the
    shapes in `shapes`.

    A shape gives each axis as a number, or as a name for a size that is the same in all
    shapes. `...` in front stands for any number of axes. `op` is the name of the op in
    errors.

        shapes = {"x": ("...", "dim"), "weight": ("hidden", "dim")}
    """
    first_name, first = next(iter(tensors.items()))
    named_sizes: dict[str, int] = {}
    for name, tensor in tensors.items():
        problem = _find_problem(name, tensor, first_name, first)
        if problem:
            raise ValueError(f"{op}: {problem}")
        _check_shape(op, name, tensor, shapes[name], named_sizes)

    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"  # on a CPU, in tests
    if first.device.type == "cpu" and not is_interpreted:
        raise ValueError(f"{op}: {first_name} is on cpu, and Triton needs a GPU")


def _find_problem(name: str, tensor: Tensor, first_name: str, first: Tensor) -> str:
    """Return why a tensor does not fit the kernels, or does not match the first tensor;
    "" if it fits."""
    dtype = _name_dtype(tensor.dtype)
    if tensor.dtype not in SUPPORTED_DTYPES:
        supported_names = ", ".join(
            _name_dtype(supported) for supported in SUPPORTED_DTYPES
        )
        return f"{name} is {dtype}, and it takes {supported_names}"

    if tensor.dtype != first.dtype:
        both = f"{first_name} is {_name_dtype(first.dtype)}, {name} is {dtype}"
        return f"{both}: it takes one dtype"

    if tensor.device != first.device:
        both = f"{first_name} is on {first.device}, {name} on {tensor.device}"
        return f"{both}: it takes one device"

    if not tensor.numel():
        return f"{name} has no elements: its shape is {list(tensor.shape)}"

    return ""


def _check_shape(
    op: str,
    name: str,
    tensor: Tensor,
    wanted: Sequence[int | str],
    named_sizes: dict[str, int],
) -> None:
    """Raise ValueError unless a tensor has the wanted shape, as `check_inputs`
    describes it. Sizes of named axes are compared with those in `named_sizes`, and new
    ones are added there."""
    axes = list(wanted)
    shape = list(tensor.shape)
    if axes and axes[0] == "...":
        axes = axes[1:]
        leading = max(len(shape) - len(axes), 0)
        shape = shape[leading:]

    fits = len(shape) == len(axes)
    for size, axis in zip(shape, axes, strict=False):
        if isinstance(axis, str):
            expected = named_sizes.setdefault(axis, size)
        else:
            expected = axis
        fits = fits and size == expected

    if not fits:
        takes = ", ".join(str(axis) for axis in wanted)
        known_sizes = " ".join(f"{axis}={size}" for axis, size in named_sizes.items())
        with_known = f" with {known_sizes}" if known_sizes else ""
        raise ValueError(
            f"{op}: {name} has the shape {list(tensor.shape)}, "
            f"and it takes [{takes}]{with_known}"
        )


def _name_dtype(dtype: torch.dtype) -> str:
    """Return the name of a dtype without `torch.`, such as `float32`."""
    return str(dtype).removeprefix("torch.")


def cast_for_product(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors in the dtype of autocast if it is on, as it casts the operands
    of a matrix product; otherwise as they are. Each gets its gradient in the dtype that
    it had."""
    device_type = tensors[0].device.type
    if not is_autocast_on(device_type):
        return tensors
    dtype = torch.get_autocast_dtype(device_type)
    return tuple(tensor.to(dtype) for tensor in tensors)


def promote_dtypes(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors in the widest of their dtypes if autocast is on, as it casts
    the operands of a pointwise op. Otherwise they are returned as they are."""
    if not is_autocast_on(tensors[0].device.type):
        return tensors
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return tuple(tensor.to(dtype) for tensor in tensors)


def is_autocast_on(device_type: str) -> bool:
    """Return whether autocast is on for `cpu` or `cuda`; False for other devices."""
    if device_type not in ("cpu", "cuda"):
        return False
    return bool(torch.is_autocast_enabled(device_type))
