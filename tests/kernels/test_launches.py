"""Where the launches of our Triton kernels go and how high their tiles are, on tensors
without data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the kernels take tensors")
pytest.importorskip("triton", reason="needs triton: pip install 'fusetui[triton]'")
launches = pytest.importorskip("tests.kernels.launches")
tiles = pytest.importorskip("fusetui.kernels.tiles")
geglu = pytest.importorskip("fusetui.kernels.geglu")
grouped_gemm = pytest.importorskip("fusetui.kernels.grouped_gemm")
pytestmark = pytest.mark.torch

MATRIX = (32, 48)
PROJECTIONS = ((32, 48), (64, 48), (64, 48))
LAYERS = ((32, 3, 48), (3, 64, 48), (3, 64))
PRODUCTS = ((3, 32, 48), (3, 48, 64), (3, 32, 64))


@pytest.mark.parametrize(
    ("op", "shapes", "count"),
    [
        (geglu.multiply, [MATRIX, MATRIX], 1),
        (geglu.gradients, [MATRIX, MATRIX, MATRIX], 1),
        (geglu.project, PROJECTIONS, 1),
        (grouped_gemm.grouped_gemm, PRODUCTS, 1),
        (geglu.gelu_mul, [MATRIX, MATRIX], 2),
        (geglu.geglu_projections, PROJECTIONS, 2),
        (grouped_gemm.partitioned_linear, LAYERS, 3),
    ],
)
def test_every_launch_is_on_the_gpu_of_its_tensors(
    op: Callable[..., Any],
    shapes: Sequence[tuple[int, ...]],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forward and backward: within a guard that was given one of the tensors."""
    guarded_launches = 0
    with launches.recorded("sm_80") as found:

        @contextmanager
        def device_of(tensor: Any) -> Iterator[None]:
            nonlocal guarded_launches
            assert tensor.device == torch.device("meta")
            before = len(found)
            yield
            guarded_launches += len(found) - before

        monkeypatch.setattr(torch.cuda, "device_of", device_of)
        tensors = [torch.empty(shape, device="meta") for shape in shapes]
        if count > 1:
            op(*(tensor.requires_grad_() for tensor in tensors)).sum().backward()
        else:
            op(*tensors)
    assert len(found) == guarded_launches == count


@pytest.mark.parametrize("batch", [1, 17, 5000])
def test_a_tile_of_grouped_products_is_no_higher_than_their_rows_need(
    batch: int,
) -> None:
    """In the forward pass and for the gradient of x these are the rows of x; for that
    of the weights they are its own."""
    outs = 24
    with launches.recorded("sm_80") as found, torch.device("meta"):
        x = torch.empty(batch, 3, 64, requires_grad=True)
        weight = torch.empty(3, outs, 64, requires_grad=True)
        bias = torch.empty(3, outs, requires_grad=True)
        grouped_gemm.partitioned_linear(x, weight, bias).sum().backward()
        largest = tiles.choose(tiles.TABLES.grouped, x).m
    assert [launch["rows"] for launch in found] == [batch, batch, tiles.padded(outs)]
    for launch in found:
        needed = max(16, 1 << (launch["rows"] - 1).bit_length())
        assert launch["BLOCK_M"] == min(largest, needed)
