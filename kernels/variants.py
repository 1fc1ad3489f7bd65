"""The two variants that every workload has, and how a variant is prepared for measurement."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .model import Variant

TENSOR_CORES = (8, 0)  # the least compute capability whose tensor cores Triton uses
EAGER = Variant(lambda model: model)
COMPILED = Variant(EAGER.build, compiled=True)


def prepare(variant: Variant, model: nn.Module, mode: str | None = None) -> Callable[..., Tensor]:
    """The callable to measure; `mode` is that of torch.compile, for compiled variants only."""
    call: Callable[..., Tensor] = variant.build(model)
    if variant.compiled:  # shapes are static, because only one is measured
        call = torch.compile(call, dynamic=False, **({} if mode is None else {"mode": mode}))
    return call
