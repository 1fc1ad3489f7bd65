"""torch.add(torch.matmul(x, w), b): two kernels in eager mode, one `addmm` when
compiled."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .model import COMPILED, EAGER, Workload
from .outlines import OUTLINES

OUTLINE = OUTLINES["matmul-add"]


class MatmulAdd(nn.Module):  # type: ignore[misc]
    """x @ w + b for matrices [size, size], written as two calls."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(size, size) / size**0.5)
        self.b = nn.Parameter(torch.randn(size))

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(torch.matmul(x, self.w), self.b)


WORKLOAD = Workload(
    name="matmul-add",
    summary="torch.add(torch.matmul(x, w), b): a GEMM and an addition that can become one call",
    dtype="bfloat16",
    gpu_shapes=OUTLINE.gpu_shapes,
    cpu_shapes=OUTLINE.cpu_shapes,
    model=lambda shapes: MatmulAdd(shapes["size"]),
    inputs=lambda shapes: (torch.randn(shapes["size"], shapes["size"]),),
    variants={"eager": EAGER, "compiled": COMPILED},
)
