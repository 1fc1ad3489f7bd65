"""The gated MLP of a transformer block: down(gelu(gate(x)) * up(x)).

Eager runs five kernels: three GEMMs, a gelu and a multiplication. The last two read and
write the hidden activations, the largest tensors here, and do almost no arithmetic. A
compiler fuses them into one kernel that reads both inputs once and writes the product.
`fused-gemm` goes one step further and computes both projections and the product in one
kernel.
"""

from __future__ import annotations

from importlib import import_module

import torch
from torch import Tensor, nn
from torch.nn import functional

from .model import COMPILED, EAGER, TENSOR_CORES, Variant, Workload
from .outlines import OUTLINES

OUTLINE = OUTLINES["mlp"]


class GegluMlp(nn.Module):  # type: ignore[misc]
    """The GeGLU MLP with the tanh form of gelu and no biases, as in Gemma: x [..., dim]
    -> [..., dim], with `hidden` features between."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj(x)
        up = self.up_proj(x)
        activated = functional.gelu(gate, approximate="tanh")
        return self.down_proj(activated * up)


class _Rewritten(nn.Module):  # type: ignore[misc]
    """The MLP with the projections of another one, and with gelu(gate) * up computed by
    a function `gelu_mul` that a subclass sets."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.gate_proj = mlp.gate_proj
        self.up_proj = mlp.up_proj
        self.down_proj = mlp.down_proj

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj(x)
        up = self.up_proj(x)
        return self.down_proj(self.gelu_mul(gate, up))


class Fused(_Rewritten):
    """Our own Triton kernel for gelu(gate) * up between the three GEMMs."""

    def __init__(self, mlp: nn.Module) -> None:
        from .geglu import gelu_mul

        super().__init__(mlp)
        self.gelu_mul = gelu_mul


class FusedGemm(_Rewritten):
    """Both projections and the activation as one Triton GEMM."""

    def __init__(self, mlp: nn.Module) -> None:
        from .geglu import geglu_projections

        super().__init__(mlp)
        self.projections = geglu_projections

    def forward(self, x: Tensor) -> Tensor:
        product = self.projections(x, self.gate_proj.weight, self.up_proj.weight)
        return self.down_proj(product)


class Liger(_Rewritten):
    """Liger-kernel's gelu(gate) * up, whose backward pass overwrites both with the
    gradients."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__(mlp)
        geglu = import_module("liger_kernel.ops.geglu")
        self.gelu_mul = geglu.LigerGELUMulFunction.apply


def _make_variants() -> dict[str, Variant]:
    """Return all variants of the MLP by name; `liger` is there only if its package is
    installed."""
    variants = {
        "eager": EAGER,
        "compiled": COMPILED,
        "fused": Variant(Fused, needs_gpu=True),
        "fused-gemm": Variant(FusedGemm, needs_gpu=True, capability=TENSOR_CORES),
    }
    if "liger" in OUTLINE.available:
        variants["liger"] = Variant(Liger, needs_gpu=True)
    return variants


WORKLOAD = Workload(
    name="mlp",
    summary="GeGLU MLP: three GEMMs, and a gelu and a multiplication that can be fused",
    dtype="bfloat16",
    gpu_shapes=OUTLINE.gpu_shapes,
    cpu_shapes=OUTLINE.cpu_shapes,
    cpu_dtype="float32",
    model=lambda shapes: GegluMlp(shapes["dim"], shapes["hidden"]),
    inputs=lambda shapes: (torch.randn(shapes["batch"], shapes["seq"], shapes["dim"]),),
    variants=_make_variants(),
)
