"""What only a GPU can show: the Triton variants' results, and no recompilation for new
shapes."""

from typing import Any

import pytest

from fusetui import kernels
from fusetui.kernels.model import Variant, Workload
from fusetui.kernels.outlines import Shapes

torch = pytest.importorskip("torch", reason="the workloads are torch modules")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

SIZES = (17, 40, 64, 130)
PAIRS = [
    pytest.param(workload, variant, id=f"{workload.name}-{name}")
    for workload in map(kernels.get, kernels.names())
    for name, variant in workload.variants.items()
    if variant.needs_gpu
]


def everything(call: Any, inputs: list[Any]) -> list[Any]:
    """The result and the gradients of the inputs, in float64."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    result = call(*leaves)
    gradient = torch.sin(torch.arange(result.numel(), device="cuda")).reshape(
        result.shape
    )
    result.backward(gradient.to(result.dtype))
    return [
        tensor.double() for tensor in (result.detach(), *(leaf.grad for leaf in leaves))
    ]


def shapes_of(workload: Workload, size: int) -> Shapes:
    return {axis: size + index for index, axis in enumerate(workload.gpu_shapes)}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("workload", "variant"), PAIRS)
def test_a_triton_variant_equals_the_reference_in_float64(
    workload: Workload, variant: Variant, size: int, dtype: str
) -> None:
    shapes, kind = shapes_of(workload, size), getattr(torch, dtype)
    model = workload.model(shapes).to("cuda", kind)
    inputs = [tensor.to("cuda", kind) for tensor in workload.inputs(shapes)]
    found = everything(variant.build(model), inputs)
    wanted = everything(model.double(), [tensor.double() for tensor in inputs])
    for got, want in zip(found, wanted, strict=True):
        allowed = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 4e-3}[dtype]
        assert (got - want).abs().max() <= allowed * want.abs().max()


def test_no_shape_compiles_the_pointwise_kernels_again() -> None:
    from fusetui.kernels import geglu

    def compiled() -> int:
        both = (geglu.geglu_forward_kernel_triton, geglu.geglu_backward_kernel_triton)
        return sum(
            len(kernel.device_caches[torch.cuda.current_device()][0]) for kernel in both
        )

    def run(*shape: int) -> None:
        gate, up = (
            torch.randn(shape, device="cuda", requires_grad=True) for _ in range(2)
        )
        geglu.gelu_mul(gate, up).sum().backward()

    run(64, 64)
    before = compiled()
    for shape in [(1,), (16,), (3, 5, 7), (1000, 1000), (4096, 3072), (2, 1)]:
        run(*shape)
    assert compiled() == before
