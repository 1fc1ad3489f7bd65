"""n different nn.Linear, the i-th on x[:, i]: a list of layers compared with faster
implementations.

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
    """n linear layers as one module: x [batch, n, in] -> [batch, n, out]. A subclass
    may keep the weights in another layout."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """`weight` [n, out, in] and `bias` [n, out], for a subclass as it keeps
        them."""
        super().__init__()
        self.n = len(weight)
        self.weight = nn.Parameter(weight.detach())
        self.bias = nn.Parameter(bias.detach())

    def layers(self) -> tuple[Tensor, Tensor]:
        """The weights [n, out, in] and biases [n, out] of the n layers."""
        return self.weight, self.bias


class Loop(Form):
    """A list of layers, whose results are stacked: n GEMMs. If they are small, their
    launches take most of the time."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """`weight` is [n, out_features, in_features], `bias` [n, out_features]; both are
        copied."""
        nn.Module.__init__(self)
        n, out_features, in_features = weight.shape
        self.linears = nn.ModuleList()

        for layer in range(n):
            # skip_init does not compute random weights, which would be replaced
            linear = nn.utils.skip_init(nn.Linear, in_features, out_features)
            layer_weight = weight[layer].detach().clone()
            layer_bias = bias[layer].detach().clone()
            linear.weight = nn.Parameter(layer_weight)
            linear.bias = nn.Parameter(layer_bias)
            self.linears.append(linear)

    def layers(self) -> tuple[Tensor, Tensor]:
        weights = [linear.weight for linear in self.linears]
        biases = [linear.bias for linear in self.linears]
        return torch.stack(weights), torch.stack(biases)

    def forward(self, x: Tensor) -> Tensor:
        outs = [linear(x[:, i]) for i, linear in enumerate(self.linears)]
        return torch.stack(outs, dim=1)


class Big(Form):
    """One Linear(n * in, n * out) whose weight is block diagonal. Training changes the
    zeros too, so it does not stay n layers."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(torch.block_diag(*weight.detach()), bias.detach().flatten())
        self.n = len(weight)

    def layers(self) -> tuple[Tensor, Tensor]:
        # [n * out, n * in] -> [n, out, n, in]
        grid = self.weight.unflatten(1, (self.n, -1)).unflatten(0, (self.n, -1))
        diagonal = [grid[i, :, i] for i in range(self.n)]
        return torch.stack(diagonal), self.bias.unflatten(0, (self.n, -1))

    def forward(self, x: Tensor) -> Tensor:
        out = functional.linear(x.flatten(1), self.weight, self.bias)
        return out.unflatten(1, (self.n, -1))


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
    """Return the same layers in another form, with a copy of the weights."""
    weight, bias = form.layers()
    return to(weight.detach().clone(), bias.detach().clone())


def random_loop(n: int, in_features: int, out_features: int) -> Loop:
    """Return a list of layers with nn.Linear's own random weights."""
    linears = [nn.Linear(in_features, out_features) for _ in range(n)]
    weights = torch.stack([linear.weight for linear in linears])
    biases = torch.stack([linear.bias for linear in linears])
    return Loop(weights, biases)


def _make_form_variant(form: type[Form], *, compiled: bool = False) -> Variant:
    """Return the variant that converts the layers to a form, compiled if that is asked
    for."""
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
        "big": _make_form_variant(Big),
        "masked": _make_form_variant(Masked),
        "bmm": _make_form_variant(Bmm),
        "fused": Variant(
            partial(convert, to=Grouped), needs_gpu=True, capability=TENSOR_CORES
        ),
        "loop-compiled": COMPILED,
        "masked-compiled": _make_form_variant(Masked, compiled=True),
        "bmm-compiled": _make_form_variant(Bmm, compiled=True),
    },
    sweeps=OUTLINE.sweeps,
)
