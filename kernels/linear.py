"""One nn.Linear: a single GEMM that adds the bias in its epilogue.

The smallest trace worth reading: on a GPU, eager and compiled launch the same kernel, and the time
around it is launch overhead.
"""

from __future__ import annotations

import torch
from torch import nn

from .model import COMPILED, EAGER, Workload

_SHAPES = {"rows": 1024, "in": 32, "out": 64}


WORKLOAD = Workload(
    name="linear",
    summary="one nn.Linear with a bias: a single GEMM with the addition in its epilogue",
    dtype="bfloat16",
    gpu_shapes=_SHAPES,
    cpu_shapes=_SHAPES,
    model=lambda shapes: nn.Linear(shapes["in"], shapes["out"]),
    inputs=lambda shapes: (torch.randn(shapes["rows"], shapes["in"]),),
    variants={"eager": EAGER, "compiled": COMPILED},
)
