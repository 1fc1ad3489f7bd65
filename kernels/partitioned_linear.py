"""n different nn.Linear, the i-th on x[:, i]: a list of layers against faster ways to
write it.

All forms are made from the list's weights. The source names three: A is `big`, B is
`loop`, C is `masked`.
"""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from .model import COMPILED, EAGER, TENSOR_CORES, Variant, Workload
from .outlines import OUTLINES

OUTLINE = OUTLINES["partitioned-linear"]


class Form(nn.Module):  # type: ignore[misc]
    """A module for x [batch, n, in] -> [batch, n, out]."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.n = len(weight)
        self.weight, self.bias = (
            nn.Parameter(weight.detach()),
            nn.Parameter(bias.detach()),
        )

    def layers(self) -> tuple[Tensor, Tensor]:
        """The weights [n, out, in] and biases [n, out] of the n layers."""
        return self.weight, self.bias


class Loop(Form):
    """A list of layers and a stack: n GEMMs, whose launches dominate if they are
    small."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        nn.Module.__init__(self)
        n, outs, ins = weight.shape  # skip_init avoids initializing random weights
        self.linears = nn.ModuleList(
            nn.utils.skip_init(nn.Linear, ins, outs) for _ in range(n)
        )
        for linear, w, b in zip(
            self.linears, weight.detach(), bias.detach(), strict=True
        ):
            linear.weight, linear.bias = (
                nn.Parameter(w.clone()),
                nn.Parameter(b.clone()),
            )

    def layers(self) -> tuple[Tensor, Tensor]:
        weights = [linear.weight for linear in self.linears]
        return torch.stack(weights), torch.stack(
            [linear.bias for linear in self.linears]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(
            [linear(x[:, i]) for i, linear in enumerate(self.linears)], dim=1
        )


class Big(Form):
    """One Linear(n * in, n * out) whose weight is block diagonal; training changes the
    zeros."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(torch.block_diag(*weight.detach()), bias.detach().flatten())
        self.n = len(weight)

    def layers(self) -> tuple[Tensor, Tensor]:
        grid = self.weight.unflatten(1, (self.n, -1)).unflatten(0, (self.n, -1))
        blocks = [grid[i, :, i] for i in range(self.n)]
        return torch.stack(blocks), self.bias.unflatten(0, (self.n, -1))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x.flatten(1), self.weight, self.bias).unflatten(
            1, (self.n, -1)
        )


class Masked(Big):
    """The big layer with its off-block weights multiplied by 0 in every forward pass.
    Whatever an optimizer does to an off-block weight has no effect: its gradient is 0,
    and changes from weight decay or momentum are masked out."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(weight, bias)
        self.register_buffer("mask", torch.block_diag(*torch.ones_like(weight)))

    def forward(self, x: Tensor) -> Tensor:
        out = functional.linear(x.flatten(1), self.weight * self.mask, self.bias)
        return out.unflatten(1, (self.n, -1))


class Bmm(Form):
    """One batched GEMM over the stacked weights."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(weight.transpose(1, 2).contiguous(), bias.unsqueeze(1))

    def layers(self) -> tuple[Tensor, Tensor]:
        return self.weight.transpose(1, 2), self.bias.squeeze(1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x.transpose(0, 1), self.weight).transpose(0, 1)


class Grouped(Form):
    """One grouped Triton GEMM that reads and writes the interleaved tensors in
    place."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        from .grouped_gemm import partitioned_linear

        super().__init__(weight.contiguous(), bias.contiguous())
        self.partitioned_linear = partitioned_linear

    def forward(self, x: Tensor) -> Tensor:
        return self.partitioned_linear(x, self.weight, self.bias)


AForm = TypeVar("AForm", bound=Form)


def convert(form: Form, to: type[AForm]) -> AForm:
    """The same layers in another form, with its own copy of the weights."""
    weight, bias = form.layers()
    return to(weight.detach().clone(), bias.detach().clone())


def random_loop(n: int, in_features: int, out_features: int) -> Loop:
    """A list of layers with nn.Linear's own random weights."""
    linears = [nn.Linear(in_features, out_features) for _ in range(n)]
    weights = torch.stack([linear.weight for linear in linears])
    return Loop(weights, torch.stack([linear.bias for linear in linears]))


def _form(form: type[Form], *, compiled: bool = False) -> Variant:
    return Variant(partial(convert, to=form), compiled=compiled)


WORKLOAD = Workload(
    name="partitioned-linear",
    summary="n different nn.Linear on x[:, i]: a list of layers, one big one, one batched GEMM",
    dtype="float32",
    gpu_shapes=OUTLINE.gpu_shapes,
    cpu_shapes=OUTLINE.cpu_shapes,
    model=lambda shapes: random_loop(
        shapes["n"], shapes["in_features"], shapes["out_features"]
    ),
    inputs=lambda shapes: (
        torch.randn(shapes["batch"], shapes["n"], shapes["in_features"]),
    ),
    variants={
        "loop": EAGER,
        "big": _form(Big),
        "masked": _form(Masked),
        "bmm": _form(Bmm),
        "fused": Variant(
            partial(convert, to=Grouped), needs_gpu=True, capability=TENSOR_CORES
        ),
        "loop-compiled": COMPILED,
        "masked-compiled": _form(Masked, compiled=True),
        "bmm-compiled": _form(Bmm, compiled=True),
    },
    sweeps=OUTLINE.sweeps,
)
