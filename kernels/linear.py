"""One nn.Linear: a single GEMM that adds the bias in its epilogue.

The smallest trace worth reading: on a GPU, eager and compiled launch the same kernel,
and the time around it is launch overhead.
"""

from __future__ import annotations

import torch
from torch import nn

from .model import COMPILED, EAGER, Workload
from .outlines import OUTLINES

OUTLINE = OUTLINES["linear"]

WORKLOAD = Workload(
    name="linear",
    summary="one nn.Linear with a bias: a single GEMM with the addition in its epilogue",
    dtype="bfloat16",
    gpu_shapes=OUTLINE.gpu_shapes,
    cpu_shapes=OUTLINE.cpu_shapes,
    model=lambda shapes: nn.Linear(shapes["in_features"], shapes["out_features"]),
    inputs=lambda shapes: (torch.randn(shapes["rows"], shapes["in_features"]),),
    variants={"eager": EAGER, "compiled": COMPILED},
)
