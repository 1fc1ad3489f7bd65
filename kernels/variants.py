"""The two variants that every workload has, and how a variant is prepared for measurement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .model import Variant


def _as_it_is(model: nn.Module) -> nn.Module:
    return model


TENSOR_CORES = (8, 0)
"""The least compute capability whose tensor cores Triton uses."""
EAGER = Variant(_as_it_is)
COMPILED = Variant(_as_it_is, compiled=True)


def compile_mode(mode: str | None) -> dict[str, Any]:
    """The arguments of torch.compile for a mode; shapes are static, because only one is
    measured."""
    return {"dynamic": False} if mode is None else {"dynamic": False, "mode": mode}


def prepare(variant: Variant, model: nn.Module, mode: str | None = None) -> Callable[..., Tensor]:
    """The callable to measure; `mode` is that of torch.compile, for compiled variants only."""
    call: Callable[..., Tensor] = variant.build(model)
    return torch.compile(call, **compile_mode(mode)) if variant.compiled else call
