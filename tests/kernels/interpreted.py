"""The arithmetic of our Triton kernels in Triton's interpreter, at sizes, strides and
dtypes that hypothesis chooses, against float64. test_triton.py runs all of them; a
single one:

    TRITON_INTERPRET=1 python -P tests/kernels/interpreted.py PROPERTY
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import gelu
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from fusetui import kernels
from fusetui.kernels import geglu as geglu_module
from fusetui.kernels import tiles, tuning
from fusetui.kernels.geglu import (
    geglu_projections,
    gelu_mul,
    gradients,
    multiply,
    project,
)
from fusetui.kernels.grouped_gemm import grouped_gemm, partitioned_linear

Function = Callable[..., Tensor]
EXAMPLES = int(os.environ.get("FUSETUI_EXAMPLES", "30")) // 4
OF_PRODUCTS = (EXAMPLES + 1) // 2  # each in all dtypes
ALLOWED = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""The largest error, as a share of the largest value: as in capture/check.py."""
SIZES = st.integers(1, 70)
DTYPES = st.sampled_from(tuple(ALLOWED))
GPUS = st.sampled_from(("sm_80", "gfx942"))
"""Two that differ in their tiles and in how a tile is stored."""
SEEDS = st.integers(0, 2**16)


def laid_out(data: st.DataObject, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A random tensor: contiguous, transposed, part of a larger one, or not aligned."""
    way = data.draw(st.sampled_from(("contiguous", "transposed", "part", "shifted")))
    if way == "transposed":
        return (
            torch.randn(*reversed(shape))
            .to(dtype)
            .permute(*reversed(range(len(shape))))
        )
    if way == "part":
        return torch.randn(*shape[:-1], shape[-1] + 3).to(dtype)[..., 2:-1]
    if way == "shifted":
        count = torch.Size(shape).numel()
        return torch.randn(count + 1).to(dtype)[1:].reshape(shape)
    return torch.randn(*shape).to(dtype)


def multiply_bfloat16() -> None:
    """The interpreter keeps bfloat16 as integers, and would multiply those. Tensor
    cores multiply exactly and add in float32: that is the product of the same matrices
    in float32."""
    product = InterpreterBuilder.create_dot

    def widened(builder: InterpreterBuilder, matrix: TensorHandle) -> TensorHandle:
        is_kept_as_integers = matrix.dtype.scalar == tl.bfloat16
        return (
            builder.create_fp_ext(matrix, tl.float32) if is_kept_as_integers else matrix
        )

    def create_dot(
        builder: InterpreterBuilder, a: Any, b: Any, *rest: Any
    ) -> TensorHandle:
        return product(builder, widened(builder, a), widened(builder, b), *rest)

    InterpreterBuilder.create_dot = create_dot


def everything(
    function: Function, tensors: Sequence[Tensor], gradient: Tensor
) -> list[Tensor]:
    """The result and the gradients of all inputs, in float64."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    result = function(*leaves)
    gradients = torch.autograd.grad(result, leaves, gradient.to(result.dtype))
    return [tensor.double() for tensor in (result.detach(), *gradients)]


def compare(function: Function, reference: Function, *tensors: Tensor) -> None:
    """Both on the same values; gradients of those that float64 computes."""
    exact = [tensor.double() for tensor in tensors]
    gradient = torch.randn(reference(*exact).shape).to(tensors[0].dtype)
    wanted = everything(reference, exact, gradient)
    for got, want in zip(everything(function, tensors, gradient), wanted, strict=True):
        assert got.shape == want.shape
        if want.numel():
            assert (got - want).abs().max() <= ALLOWED[tensors[0].dtype] * max(
                want.abs().max(), 1
            )


def geglu(gate: Tensor, up: Tensor) -> Tensor:
    """The reference."""
    return gelu(gate, approximate="tanh") * up


def linears(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The reference."""
    return torch.einsum("bni,noi->bno", x, weight) + bias


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data(), st.lists(SIZES, min_size=1, max_size=3), DTYPES, SEEDS)
def pointwise(
    data: st.DataObject, shape: list[int], dtype: torch.dtype, seed: int
) -> None:
    """gelu(gate) * up."""
    torch.manual_seed(seed)
    gate, up = (laid_out(data, shape, dtype) for _ in range(2))
    compare(gelu_mul, geglu, gate, up)


@settings(max_examples=OF_PRODUCTS, deadline=None)
@given(st.data(), SIZES, SIZES, SIZES, GPUS, SEEDS)
def gemm(
    data: st.DataObject, rows: int, dim: int, hidden: int, gpu: str, seed: int
) -> None:
    """gelu(x @ gate.T) * (x @ up.T)."""
    torch.manual_seed(seed)

    def reference(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
        return geglu(x @ gate.t(), x @ up.t())

    for dtype in ALLOWED:
        x = laid_out(data, (1, rows, dim), dtype)
        weights = [laid_out(data, (hidden, dim), dtype) / 8 for _ in range(2)]
        with patch.object(tiles, "architecture", lambda _: gpu):
            compare(geglu_projections, reference, x, *weights)


@settings(max_examples=OF_PRODUCTS, deadline=None)
@given(st.data(), SIZES, st.integers(1, 3), SIZES, SIZES, GPUS, SEEDS)
def grouped(
    data: st.DataObject, batch: int, n: int, ins: int, outs: int, gpu: str, seed: int
) -> None:
    """n linear layers at once."""
    torch.manual_seed(seed)
    for dtype in ALLOWED:
        x = laid_out(data, (batch, n, ins), dtype)
        weight = laid_out(data, (n, outs, ins), dtype) / 4
        bias = laid_out(data, (n, outs), dtype)
        with patch.object(tiles, "architecture", lambda _: gpu):
            compare(partitioned_linear, linears, x, weight, bias)


def layouts() -> None:
    """A product has the layout of its gate, and a single row has one too."""
    columns = torch.randn(9, 5).t()
    assert gelu_mul(columns, columns).stride() == columns.stride()
    row, weight = torch.randn(5), torch.randn(7, 5)
    expected = geglu(row @ weight.t(), row @ weight.t())
    torch.testing.assert_close(geglu_projections(row, weight, weight), expected)


@dataclass(frozen=True)
class Op:
    """A public op, tensors that fit, and one of each shape that does not, by
    argument."""

    call: Callable[..., object]
    fitting: Mapping[str, Tensor]
    wrong: Mapping[str, Tensor]


def ones(*shape: int) -> Tensor:
    return torch.ones(shape)


OPS = (
    Op(gelu_mul, {"gate": ones(4, 6), "up": ones(4, 6)}, {"up": ones(4, 5)}),
    Op(multiply, {"gate": ones(4, 6), "up": ones(4, 6)}, {"up": ones(24)}),
    Op(
        gradients,
        {"grad": ones(4, 6), "gate": ones(4, 6), "up": ones(4, 6)},
        {"grad": ones(3, 6), "up": ones(4, 5)},
    ),
    Op(
        geglu_projections,
        {"x": ones(2, 4, 6), "gate_weight": ones(8, 6), "up_weight": ones(8, 6)},
        {"x": ones(2, 4, 5), "gate_weight": ones(8, 7), "up_weight": ones(7, 6)},
    ),
    Op(
        project,
        {"x": ones(4, 6), "gate_weight": ones(8, 6), "up_weight": ones(8, 6)},
        {"x": ones(4, 5), "gate_weight": ones(8, 6, 1), "up_weight": ones(9, 6)},
    ),
    Op(
        partitioned_linear,
        {"x": ones(4, 3, 6), "weight": ones(3, 5, 6), "bias": ones(3, 5)},
        {"x": ones(4, 2, 6), "weight": ones(3, 5, 7), "bias": ones(3, 6)},
    ),
    Op(
        grouped_gemm,
        {
            "a": ones(3, 4, 6),
            "b": ones(3, 6, 5),
            "out": ones(3, 4, 5),
            "bias": ones(3, 5),
        },
        {
            "a": ones(2, 4, 6),
            "b": ones(3, 7, 5),
            "out": ones(3, 4, 4),
            "bias": ones(3, 4),
        },
    ),
)


def refused(op: Op, tensors: Mapping[str, Tensor], *said: str) -> None:
    """The op raises ValueError, and says all of this."""
    message = ""
    try:
        op.call(**tensors)
    except ValueError as error:
        message = str(error)
    assert message, f"{op.call.__name__} took {tensors}"
    assert all(text in message for text in said), message


def refusals() -> None:
    """What does not fit is refused: a kernel would read and write out of bounds."""
    for op in OPS:
        op.call(**op.fitting)
        for name, tensor in op.wrong.items():
            refused(op, {**op.fitting, name: tensor}, op.call.__name__)
        for name, tensor in op.fitting.items():
            narrow = {**op.fitting, name: tensor.to(torch.bfloat16)}
            refused(op, narrow, "bfloat16", "one dtype")
            elsewhere = {**op.fitting, name: tensor.to("meta")}
            refused(op, elsewhere, "meta", "one device")
        double = {name: tensor.double() for name, tensor in op.fitting.items()}
        refused(op, double, "float64", "float32, bfloat16, float16")
        empty = {name: tensor[:0] for name, tensor in op.fitting.items()}
        refused(op, empty, "has no elements")


def autocast() -> None:
    """Under autocast a product has its dtype, gradients that of their inputs; and a
    pointwise op the wider dtype of its two."""
    x = torch.randn(5, 6, requires_grad=True)
    weights = [torch.randn(8, 6, requires_grad=True) for _ in range(2)]
    layers = [torch.randn(4, 3, 6), torch.randn(3, 5, 6), torch.randn(3, 5)]
    layers = [tensor.requires_grad_() for tensor in layers]
    with torch.autocast("cpu", torch.bfloat16):
        activated = geglu_projections(x, *weights)
        outputs = partitioned_linear(*layers)
        mixed = gelu_mul(torch.ones(3), torch.ones(3, dtype=torch.bfloat16))
    assert (activated.dtype, outputs.dtype) == (torch.bfloat16, torch.bfloat16)
    assert mixed.dtype == torch.float32
    (activated.sum() + outputs.sum()).backward()
    for leaf in (x, *weights, *layers):
        assert leaf.grad is not None
        assert leaf.grad.dtype == torch.float32
    exact = geglu(x @ weights[0].t(), x @ weights[1].t())
    allowed = ALLOWED[torch.bfloat16] * float(exact.detach().abs().max())
    assert (activated - exact).abs().max() <= allowed


def few_rows() -> None:
    """A tile is no higher than the rows need, for each GPU and dtype, and its result is
    right."""
    for dtype, gpu in product(
        ALLOWED, ("sm_80", "sm_90", "sm_120", "gfx942", "gfx950")
    ):
        with patch.object(tiles, "architecture", lambda _, gpu=gpu: gpu):
            for rows in (1, 16, 17, 40, 5000):
                x = torch.empty(rows, 64, dtype=dtype)
                largest = tiles.choose(tiles.TABLES.geglu, x)
                tile = tiles.shrink_to_rows(largest, rows, x)
                assert tile.m == min(largest.m, max(16, 1 << (rows - 1).bit_length()))
                assert 1 <= tile.warps <= largest.warps
            torch.manual_seed(rows)
            x, gate, up = (torch.randn(n, 33).to(dtype) for n in (3, 20, 20))
            expected = geglu(
                x.double() @ gate.double().t(), x.double() @ up.double().t()
            )
            got = geglu_projections(x, gate, up).double()
            assert (got - expected).abs().max() <= ALLOWED[dtype] * expected.abs().max()


def autocast_of_the_forward_pass() -> None:
    """A backward pass has the autocast state of its forward pass on a GPU, whatever it
    is by then. There is no GPU here, and only the state is looked at."""
    states: list[bool] = []

    def noted(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        states.append(torch.is_autocast_enabled("cuda"))
        return gradients(*tensors)

    gate, up = (torch.randn(8, requires_grad=True) for _ in range(2))
    with (
        patch.object(geglu_module, "gradients", noted),
        patch.object(torch.cuda.amp.common, "amp_definitely_not_available", bool),
    ):
        for is_on in (True, False):
            with torch.autocast("cuda", enabled=is_on):
                product = gelu_mul(gate, up)
            with torch.autocast("cuda", enabled=not is_on):
                product.sum().backward()
    assert states == [True, False]


def tuned() -> None:
    """The fastest candidate is used and kept; one that fails is passed over; off by
    default."""
    x, weight = torch.randn(40, 64), torch.randn(64, 64)
    times: dict[tiles.Tile, float] = {}
    near = {"rtol": 1e-4, "atol": 1e-4}

    def timed(call: Callable[[], None]) -> float:
        call()
        return times.setdefault(used[-1], 100.0 - len(times))

    used: list[tiles.Tile] = []
    fastest = tuning.fastest

    def watched(
        found: Sequence[tiles.Tile], launch: tuning.Launch, timer: tuning.Timer
    ) -> tiles.Tile:
        def noted(tile: tiles.Tile) -> None:
            used.append(tile)
            if tile.warps == 2:
                raise RuntimeError("out of registers")
            launch(tile)

        return fastest(found, noted, timer)

    with TemporaryDirectory() as folder, patch.object(tuning, "bench", timed):
        path = Path(folder, "choices.json")
        expected = geglu(x @ weight.t(), x @ weight.t())
        with patch.object(tuning, "fastest", watched):
            geglu_projections(x, weight, weight)
            assert not used
            with patch.dict(os.environ, {tuning.VARIABLE: str(path)}):
                torch.testing.assert_close(
                    geglu_projections(x, weight, weight), expected, **near
                )
                tried = len(used)
                assert tried > 2
                best = min(times, key=lambda tile: times[tile])
                assert list(tuning.read(path.absolute()).values()) == [best]
                tuning._choices_of_file.clear()  # another process
                torch.testing.assert_close(
                    geglu_projections(x, weight, weight), expected, **near
                )
                assert len(used) == tried
                path.write_text("not JSON")
                tuning._choices_of_file.clear()
                geglu_projections(x, weight, weight)
                assert len(used) == 2 * tried


def tuned_groups() -> None:
    """n products are tuned as the others are, and what is kept of one size is not used
    for another."""
    with TemporaryDirectory() as folder, patch.object(tuning, "bench", lambda _: 1.0):
        path = Path(folder, "choices.json")
        with patch.dict(os.environ, {tuning.VARIABLE: str(path)}):
            for depth in (16, 32):
                layers = [torch.randn(20, 2, depth), torch.randn(2, 24, depth)]
                layers.append(torch.randn(2, 24))
                torch.testing.assert_close(
                    partitioned_linear(*layers), linears(*layers), rtol=1e-4, atol=1e-4
                )
        kept = list(tuning.read(path))
    assert len(kept) == 2
    assert all(key.startswith("grouped_gemm sm_80 fp32") for key in kept)


def kept_for_another_depth() -> None:
    """A choice that was kept for other tiles, as an earlier version may have had them,
    is not used: with a depth that does not divide its inputs a kernel reads beyond
    them."""
    x, weight = torch.randn(16, 64), torch.randn(64, 64)
    expected = geglu(x @ weight.t(), x @ weight.t())
    with TemporaryDirectory() as folder, patch.object(tuning, "bench", lambda _: 1.0):
        path = Path(folder, "choices.json")
        with patch.dict(os.environ, {tuning.VARIABLE: str(path)}):
            geglu_projections(x, weight, weight)
            ((key, chosen),) = tuning.read(path).items()
            tuning.write(path, {key: chosen._replace(k=4 * x.shape[1])})
            tuning._choices_of_file.clear()  # another process
            found = geglu_projections(x, weight, weight)
        assert tuning.read(path) == {key: chosen}
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def variants() -> None:
    """The modules that need a GPU give their model's own result."""
    for workload in map(kernels.get, ("mlp", "partitioned-linear")):
        shapes = {axis: 17 + number for number, axis in enumerate(workload.gpu_shapes)}
        model, inputs = workload.model(shapes), workload.inputs(shapes)
        for name, variant in workload.variants.items():
            if variant.needs_gpu and name != "liger":
                torch.testing.assert_close(
                    variant.build(model)(*inputs), model(*inputs)
                )


PROPERTIES = {
    "pointwise": pointwise,
    "gemm": gemm,
    "grouped": grouped,
    "layouts": layouts,
    "refusals": refusals,
    "autocast": autocast,
    "autocast-of-the-forward-pass": autocast_of_the_forward_pass,
    "few-rows": few_rows,
    "tuned": tuned,
    "tuned-groups": tuned_groups,
    "kept-for-another-depth": kept_for_another_depth,
    "variants": variants,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="overflow encountered in exp")
    multiply_bfloat16()
    for name in sys.argv[1:] or PROPERTIES:
        PROPERTIES[name]()
