"""The Triton launches of a workload without a GPU: its code runs on tensors without
data, and each launch is recorded instead of carried out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch

from fusetui.kernels import Shapes, Variant, Workload, geglu, grouped_gemm, tiles

KERNELS = {
    "geglu_forward": (geglu, "geglu_forward_kernel_triton"),
    "geglu_backward": (geglu, "geglu_backward_kernel_triton"),
    "geglu_gemm": (geglu, "geglu_gemm_kernel_triton"),
    "grouped_gemm": (grouped_gemm, "grouped_gemm_kernel_triton"),
}
OPTIONS = ("num_warps", "num_stages", "maxnreg")
TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


@dataclass(frozen=True)
class Launch:
    """One launch as Triton specializes it: what differs only in `grid` and `sizes` is
    compiled once. `signature` and `constants` are by argument, `aligned` the arguments
    that 16 divides."""

    kernel: str
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[str, ...]
    options: tuple[tuple[str, int], ...]
    grid: tuple[int, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def code(self) -> tuple[object, ...]:
        """What is compiled."""
        return self.kernel, self.signature, self.constants, self.aligned, self.options

    def __getitem__(self, name: str) -> Any:
        return dict(self.sizes + self.constants)[name]


class Recorder:
    """Stands in for a kernel: `recorder[grid](*args, **constants)` notes the launch."""

    def __init__(self, name: str, kernel: Any, into: list[Launch]) -> None:
        self._name, self._kernel, self._into = name, kernel, into

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any, **given: Any) -> None:
            names = self._kernel.arg_names
            options = tuple((key, given.pop(key)) for key in OPTIONS if key in given)
            values = {**dict(zip(names, args, strict=False)), **given}
            plain = {
                param.name for param in self._kernel.params if param.do_not_specialize
            }
            self._into.append(
                _specialized(self._name, values, given, plain, options, grid)
            )

        return launch


def _specialized(
    name: str,
    values: Mapping[str, Any],
    constants: Mapping[str, Any],
    plain: set[str],
    options: tuple[tuple[str, int], ...],
    grid: tuple[int, ...],
) -> Launch:
    """As Triton does: an integer 1 is a constant, and whether 16 divides an address or
    an integer is known."""
    numbers = {key: value for key, value in values.items() if isinstance(value, int)}
    ones = {
        k: 1 for k, v in numbers.items() if v == 1 and k not in plain | {*constants}
    }
    known = {**ones, **constants}
    kinds, aligned = {}, []
    for key, value in values.items():
        if key in known:
            kinds[key] = "constexpr"
            continue
        is_tensor = isinstance(value, torch.Tensor)
        kinds[key] = f"*{TYPES[value.dtype]}" if is_tensor else "i32"
        number = value.storage_offset() * value.itemsize if is_tensor else value
        if number % 16 == 0 and key not in plain:
            aligned.append(key)
    sizes = tuple(
        (key, value) for key, value in numbers.items() if key not in constants
    )
    return Launch(
        name,
        tuple(kinds.items()),
        tuple(known.items()),
        tuple(aligned),
        options,
        grid,
        sizes,
    )


@contextmanager
def recorded(architecture: str) -> Iterator[list[Launch]]:
    """Within the block, every launch of our kernels is appended to the list that it
    gives."""
    found: list[Launch] = []
    with patch.object(tiles, "architecture", lambda _: architecture):
        patches = [
            patch.object(module, name, Recorder(key, getattr(module, name), found))
            for key, (module, name) in KERNELS.items()
        ]
        for one in patches:
            one.start()
        try:
            yield found
        finally:
            for one in patches:
                one.stop()


def launches(
    workload: Workload,
    variant: Variant,
    shapes: Shapes,
    dtype: torch.dtype,
    architecture: str,
) -> Sequence[Launch]:
    """The launches of a forward and a backward pass."""
    with recorded(architecture) as found, torch.device("meta"):
        model = variant.build(workload.model(shapes).to(dtype))
        inputs = [
            tensor.to(dtype).requires_grad_() for tensor in workload.inputs(shapes)
        ]
        result = model(*inputs)
        result.backward(torch.empty_like(result))
    return tuple(found)
