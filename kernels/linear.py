"""One nn.Linear: a single GEMM that adds the bias in its epilogue.

The smallest trace worth reading: on a GPU, eager and compiled launch the same kernel, and the time
around it is launch overhead.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .model import Shapes, Workload
from .variants import COMPILED, EAGER

_SHAPES = {"rows": 1024, "in": 32, "out": 64}


def _model(shapes: Shapes) -> nn.Module:
    return nn.Linear(shapes["in"], shapes["out"])


def _inputs(shapes: Shapes) -> tuple[Tensor, ...]:
    return (torch.randn(shapes["rows"], shapes["in"]),)


WORKLOAD = Workload(
    name="linear",
    summary="one nn.Linear with a bias: a single GEMM with the addition in its epilogue",
    dtype="bfloat16",
    gpu_shapes=_SHAPES,
    cpu_shapes=_SHAPES,
    model=_model,
    inputs=_inputs,
    variants={"eager": EAGER, "compiled": COMPILED},
)
