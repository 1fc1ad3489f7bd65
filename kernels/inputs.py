"""What the Triton ops take: a kernel reads where it is told to, so whatever does not
fit is refused before; and what autocast makes of their inputs. Launches happen on the
GPU of the tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

SUPPORTED = (torch.float32, torch.bfloat16, torch.float16)


def check_inputs(
    op: str, shapes: Mapping[str, Sequence[int | str]], **tensors: Tensor
) -> None:
    """Raises ValueError unless every tensor has a dtype that the kernels know, the same
    dtype and device as the others, elements, and its shape in `shapes`. There a name
    stands for a size that must be the same wherever it stands; `...` in front for any
    number of axes."""
    first_name, first = next(iter(tensors.items()))
    sizes: dict[str, int] = {}
    for name, tensor in tensors.items():
        if tensor.dtype not in SUPPORTED:
            known = ", ".join(map(_short, SUPPORTED))
            raise ValueError(
                f"{op}: {name} is {_short(tensor.dtype)}, and it takes {known}"
            )
        if tensor.dtype != first.dtype:
            both = f"{first_name} is {_short(first.dtype)}, {name} is {_short(tensor.dtype)}"
            raise ValueError(f"{op}: {both}: it takes one dtype")
        if tensor.device != first.device:
            both = f"{first_name} is on {first.device}, {name} on {tensor.device}"
            raise ValueError(f"{op}: {both}: it takes one device")
        if not tensor.numel():
            raise ValueError(
                f"{op}: {name} has no elements: its shape is {list(tensor.shape)}"
            )
        _check_shape(op, name, tensor, shapes[name], sizes)
    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if first.device.type == "cpu" and not is_interpreted:
        raise ValueError(f"{op}: {first_name} is on cpu, and Triton needs a GPU")


def _check_shape(
    op: str,
    name: str,
    tensor: Tensor,
    wanted: Sequence[int | str],
    sizes: dict[str, int],
) -> None:
    """Compares a shape with what is wanted, and notes the sizes that have a name."""
    axes = list(wanted)
    shape = list(tensor.shape)
    if axes and axes[0] == "...":
        axes = axes[1:]
        shape = shape[len(shape) - len(axes) :] if len(shape) >= len(axes) else shape
    fits = len(shape) == len(axes)
    for size, axis in zip(shape, axes, strict=False):
        expected = sizes.setdefault(axis, size) if isinstance(axis, str) else axis
        fits = fits and size == expected
    if not fits:
        named = ", ".join(str(axis) for axis in wanted)
        known = " ".join(f"{axis}={size}" for axis, size in sizes.items())
        raise ValueError(
            f"{op}: {name} has the shape {list(tensor.shape)}, and it takes [{named}]"
            + (f" with {known}" if known else "")
        )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def cast_for_product(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the dtype of autocast where it is on, as it casts those of a
    matrix product; otherwise as they are. Gradients come back in the dtype of each."""
    kind = tensors[0].device.type
    if not is_autocast_on(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(tensor.to(dtype) for tensor in tensors)


def promoted(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the widest of their dtypes where autocast is on, as it does for
    pointwise ops; otherwise as they are."""
    if not is_autocast_on(tensors[0].device.type):
        return tensors
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return tuple(tensor.to(dtype) for tensor in tensors)


def is_autocast_on(device_type: str) -> bool:
    """Whether autocast is on for a type of device."""
    if device_type not in ("cpu", "cuda"):
        return False
    return bool(torch.is_autocast_enabled(device_type))
