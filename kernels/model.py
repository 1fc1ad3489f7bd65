"""The definition of a workload: a model, its inputs, and variants that compute the same
result.

`EAGER` and `COMPILED` are the variants that most workloads share; `prepare` makes the
callable of a variant that is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .outlines import Shapes

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Variant:
    """One way to compute a workload's result.

    `build` turns the workload's model (already on its device, in its dtype) into the
    module that is measured, with the model's weights or others made from them.
    `compiled`: `prepare` compiles that module. `needs_gpu`: it does not run on a CPU.
    `capability` is the least compute capability that an NVIDIA GPU must have.
    """

    build: Callable[[nn.Module], nn.Module]
    compiled: bool = False
    needs_gpu: bool = False
    capability: tuple[int, int] = (0, 0)


TENSOR_CORES = (8, 0)
"""The least compute capability whose tensor cores Triton uses."""
EAGER = Variant(lambda model: model)
COMPILED = Variant(EAGER.build, compiled=True)


def prepare(
    variant: Variant, model: nn.Module, mode: str | None = None
) -> Callable[..., Tensor]:
    """Return the callable of a variant that is measured. `mode` is that of
    torch.compile, and has no effect on a variant that is not compiled."""
    module: Callable[..., Tensor] = variant.build(model)
    if not variant.compiled:
        return module
    import torch

    # Static shapes, because only one shape is measured; a mode of None is the default.
    compiled: Callable[..., Tensor] = torch.compile(module, dynamic=False, mode=mode)
    return compiled


@dataclass(frozen=True)
class Workload:
    """A piece of a network that is worth profiling.

    `model` makes the eager module and `inputs` its arguments, both random, in float32
    on the CPU; the caller seeds the generator and moves them. `variants` are compared
    with the first one. `sweeps` are ranges of sizes by name, `batch=64,128 n=2,4`.
    `cpu_dtype` is the default dtype on a CPU if it differs from `dtype`.
    """

    name: str
    summary: str
    dtype: str
    gpu_shapes: Shapes
    cpu_shapes: Shapes
    model: Callable[[Shapes], nn.Module]
    inputs: Callable[[Shapes], tuple[Tensor, ...]]
    variants: Mapping[str, Variant]
    sweeps: Mapping[str, str] = field(default_factory=dict)
    cpu_dtype: str | None = None

    def shapes(self, device_kind: str) -> Shapes:
        """Return the default sizes of all axes. On a CPU they are small, so that a
        capture takes only seconds."""
        return self.cpu_shapes if device_kind == "cpu" else self.gpu_shapes

    def dtype_on(self, device_kind: str) -> str:
        """The default dtype, by its name in torch."""
        if device_kind == "cpu" and self.cpu_dtype is not None:
            return self.cpu_dtype
        return self.dtype
