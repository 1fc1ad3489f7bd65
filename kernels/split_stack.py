"""layer_norm and tanh over many features, one by one or over all of them at once.

Each feature is a [rows, dim] matrix; the results are stacked and go through Linear(dim, 1) and a
relu. Split, the small kernels are launched once per feature; combined, only once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .model import Shapes, Variant, Workload
from .variants import COMPILED, EAGER


class Split(nn.Module):  # type: ignore[misc]
    """A loop over the features."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.head = nn.Linear(dim, 1)

    def forward(self, features: Tensor) -> Tensor:
        normed = [torch.tanh(functional.layer_norm(f, f.shape[-1:])) for f in features.unbind(0)]
        return torch.relu(self.head(torch.stack(normed)))


class Combined(nn.Module):  # type: ignore[misc]
    """The same on the stacked tensor."""

    def __init__(self, split: Split) -> None:
        super().__init__()
        self.head = split.head

    def forward(self, features: Tensor) -> Tensor:
        normed = functional.layer_norm(features, features.shape[-1:])
        return torch.relu(self.head(torch.tanh(normed)))


def _model(shapes: Shapes) -> nn.Module:
    return Split(shapes["dim"])


def _inputs(shapes: Shapes) -> tuple[Tensor, ...]:
    return (torch.randn(shapes["features"], shapes["rows"], shapes["dim"]),)


_SHAPES = {"features": 16, "rows": 1024, "dim": 256}

WORKLOAD = Workload(
    name="split-stack",
    summary="layer_norm and tanh on 16 features one by one, or on their stack at once",
    dtype="bfloat16",
    gpu_shapes=_SHAPES,
    cpu_shapes=_SHAPES,
    model=_model,
    inputs=_inputs,
    variants={
        "split": EAGER,
        "combined": Variant(Combined),
        "split-compiled": COMPILED,
        "combined-compiled": Variant(Combined, compiled=True),
    },
)
