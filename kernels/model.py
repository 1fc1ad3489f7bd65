"""The definition of a workload: a model, its inputs, and variants that compute the same
result; the two variants that every workload has, and how a variant is prepared for
measurement."""

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
    module that is measured, with the model's weights or others made from them;
    `prepare` compiles it if `compiled` is set. `capability` is the least that an NVIDIA
    GPU must have.
    """

    build: Callable[[nn.Module], nn.Module]
    compiled: bool = False
    needs_gpu: bool = False
    capability: tuple[int, int] = (0, 0)


TENSOR_CORES = (8, 0)  # the least compute capability whose tensor cores Triton uses
EAGER = Variant(lambda model: model)
COMPILED = Variant(EAGER.build, compiled=True)


def prepare(
    variant: Variant, model: nn.Module, mode: str | None = None
) -> Callable[..., Tensor]:
    """The callable to measure; `mode` is that of torch.compile, for compiled variants
    only."""
    call: Callable[..., Tensor] = variant.build(model)
    if variant.compiled:  # shapes are static, because only one is measured
        import torch

        call = torch.compile(
            call, dynamic=False, **({} if mode is None else {"mode": mode})
        )
    return call


@dataclass(frozen=True)
class Workload:
    """A piece of a network that is worth profiling.

    `model` makes the eager module and `inputs` its arguments, both random, in float32
    on the CPU; the caller seeds the generator and moves them. The other variants are
    compared with the first one. `sweeps` are named ranges of sizes, axis by axis.
    `cpu_dtype` is the default dtype on a CPU, if that differs.
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
        """The default shapes, which are small on a CPU, so that a capture takes
        seconds."""
        return self.cpu_shapes if device_kind == "cpu" else self.gpu_shapes

    def dtype_on(self, device_kind: str) -> str:
        """The default dtype."""
        return self.cpu_dtype or self.dtype if device_kind == "cpu" else self.dtype
