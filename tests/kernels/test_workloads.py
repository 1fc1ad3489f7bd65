"""All variants of a workload compute the same."""

import random
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fusetui import kernels

torch = pytest.importorskip("torch", reason="the workloads are torch modules")
Liger = pytest.importorskip("fusetui.kernels.mlp", reason="needs torch").Liger
pytestmark = pytest.mark.torch


def small_shapes(workload: kernels.Workload) -> dict[str, int]:
    """A different small size for every axis, so that a mixed-up axis shows."""
    return {axis: 3 + index for index, axis in enumerate(workload.gpu_shapes)}


SEED = random.randrange(10**6)
"""Another input for every run of the tests; a failure prints it."""

PAIRS = [
    pytest.param(workload, variant, id=f"{workload.name}-{name}")
    for workload in map(kernels.get, kernels.names())
    for name, variant in workload.variants.items()
    if not variant.needs_gpu
]


def result(
    workload: kernels.Workload, build: Callable[[Any], Callable[..., Any]]
) -> Any:
    """A variant's result in float64 on small random input, the same at every call of a
    test."""
    torch.manual_seed(SEED)
    shapes = small_shapes(workload)
    model = workload.model(shapes).double()
    inputs = [x.double() for x in workload.inputs(shapes)]
    with torch.no_grad():
        return build(model)(*inputs)


@pytest.mark.parametrize(("workload", "variant"), PAIRS)
def test_a_variant_gives_the_models_own_result(
    workload: kernels.Workload, variant: kernels.Variant
) -> None:
    expected = result(workload, lambda model: model)
    torch.testing.assert_close(
        result(workload, variant.build),
        expected,
        msg=lambda text: f"seed {SEED}: {text}",
    )


@pytest.mark.parametrize("name", kernels.names())
def test_the_name_is_the_one_it_is_registered_under(name: str) -> None:
    assert kernels.get(name).name == name


@pytest.mark.parametrize("name", kernels.names())
def test_both_kinds_of_device_have_the_same_axes(name: str) -> None:
    workload = kernels.get(name)
    assert workload.shapes("cpu").keys() == workload.shapes("cuda").keys()


def test_the_mlp_is_down_of_gelu_gate_times_up() -> None:
    torch.manual_seed(1)
    mlp, x = kernels.get("mlp").model({"dim": 2, "hidden": 3}), torch.randn(4, 2)
    gate, up = x @ mlp.gate_proj.weight.T, x @ mlp.up_proj.weight.T
    cubic = gate + 0.044715 * gate**3
    gelu = 0.5 * gate * (1 + torch.tanh((2 / torch.pi) ** 0.5 * cubic))
    torch.testing.assert_close(mlp(x), (gelu * up) @ mlp.down_proj.weight.T)


def test_the_kernel_of_liger_stands_between_the_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def apply(gate: Any, up: Any) -> Any:
        return torch.nn.functional.gelu(gate, approximate="tanh") * up

    package = SimpleNamespace(LigerGELUMulFunction=SimpleNamespace(apply=apply))
    monkeypatch.setitem(sys.modules, "liger_kernel.ops.geglu", package)
    mlp, x = kernels.get("mlp").model({"dim": 2, "hidden": 3}), torch.randn(4, 2)
    torch.testing.assert_close(Liger(mlp)(x), mlp(x))


def test_a_cpu_may_have_a_dtype_of_its_own() -> None:
    mlp, linear = kernels.get("mlp"), kernels.get("linear")
    assert (mlp.dtype_on("cuda"), mlp.dtype_on("cpu")) == ("bfloat16", "float32")
    assert linear.dtype_on("cpu") == linear.dtype_on("cuda") == linear.dtype


def test_on_a_cpu_the_mlp_spends_its_time_on_the_hidden_activations() -> None:
    """Not on products: fusing would not show."""
    shapes = kernels.get("mlp").shapes("cpu")
    assert shapes["hidden"] >= 32 * shapes["dim"]


@pytest.mark.parametrize("name", kernels.names())
def test_each_workload_has_a_variant_that_needs_no_gpu(name: str) -> None:
    """Tests of variants choose by it: if none were left, they would pass without a
    test."""
    variants = kernels.get(name).variants.values()
    assert any(not variant.needs_gpu for variant in variants)
