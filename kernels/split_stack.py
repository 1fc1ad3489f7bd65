"""layer_norm and tanh over many features, one by one or over all of them at once.

Each feature is a [rows, dim] matrix; the results are stacked and go through Linear(dim,
1) and a relu. Split, the small kernels are launched once per feature; combined, only
once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .model import COMPILED, EAGER, Variant, Workload
from .outlines import OUTLINES

OUTLINE = OUTLINES["split-stack"]


class Split(nn.Module):  # type: ignore[misc]
    """Takes the features out of one flat tensor and computes them one by one."""

    def __init__(self, features: int, dim: int) -> None:
        super().__init__()
        self.features = features
        self.dim = dim
        self.head = nn.Linear(dim, 1)

    def forward(self, flat: Tensor) -> Tensor:
        flat_features = torch.split(flat, flat.numel() // self.features)
        results = [normalize(feature.view(-1, self.dim)) for feature in flat_features]
        return torch.relu(self.head(torch.stack(results)))


class Combined(nn.Module):  # type: ignore[misc]
    """The same on one view of all features."""

    def __init__(self, split: Split) -> None:
        super().__init__()
        self.features = split.features
        self.dim = split.dim
        self.head = split.head

    def forward(self, flat: Tensor) -> Tensor:
        features = flat.view(self.features, -1, self.dim)
        return torch.relu(self.head(normalize(features)))


def normalize(features: Tensor) -> Tensor:
    """Return layer norm of the features and then tanh. The norm has no weights and an
    eps of 0, as in the source."""
    return torch.tanh(functional.layer_norm(features, features.shape[-1:], eps=0.0))


WORKLOAD = Workload(
    name="split-stack",
    summary="layer_norm and tanh on 16 features one by one, or on their stack at once",
    dtype="float32",
    gpu_shapes=OUTLINE.gpu_shapes,
    cpu_shapes=OUTLINE.cpu_shapes,
    model=lambda shapes: Split(shapes["features"], shapes["dim"]),
    inputs=lambda shapes: (
        torch.randn(shapes["features"] * shapes["rows"] * shapes["dim"]),
    ),
    variants={
        "split": EAGER,
        "combined": Variant(Combined),
        "split-compiled": COMPILED,
        "combined-compiled": Variant(Combined, compiled=True),
    },
)
