"""Our Triton kernels and their gradients: the arithmetic, run by Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not find_spec("torch"), reason="needs torch"),
    pytest.mark.skipif(
        not find_spec("triton"), reason="needs triton, which torch for a GPU brings along"
    ),
]

# The interpreter must be chosen before triton is imported, so a process of its own runs these.
BEGINNING = """
import warnings
import torch
from torch.nn.functional import gelu
warnings.filterwarnings("ignore", message="overflow encountered in exp")
torch.manual_seed(1)

def everything(function, *tensors):
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    result = function(*tensors)
    gradient = torch.sin(torch.arange(result.numel()).float()).reshape(result.shape)
    return [result, *torch.autograd.grad(result, tensors, gradient)]

def compare(function, reference, *tensors):
    wanted = everything(reference, *[tensor.double() for tensor in tensors])
    for got, want in zip(everything(function, *tensors), wanted, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)

def geglu(gate, up):
    return gelu(gate, approximate="tanh") * up
"""

GELU_MUL = """
from fusetui.kernels.geglu import gelu_mul
for shape in (3, 5, 7), (2, 1024), (1,), (0,):
    compare(gelu_mul, geglu, 3 * torch.randn(shape), torch.randn(shape))
columns = torch.randn(9, 5).t()
assert gelu_mul(columns, columns).stride() == columns.stride()
compare(gelu_mul, geglu, columns, torch.randn(5, 9))
compare(gelu_mul, geglu, *torch.randn(4, 10).chunk(2, dim=1))
"""

GEMM = """
from fusetui.kernels.geglu_gemm import geglu_projections
compare(
    geglu_projections, lambda x, gate, up: geglu(x @ gate.t(), x @ up.t()),
    torch.randn(3, 30, 70), torch.randn(150, 70) / 8, torch.randn(150, 70) / 8,
)
"""

GROUPED = """
from fusetui.kernels.grouped_gemm import partitioned_linear
compare(
    partitioned_linear, lambda x, weight, bias: torch.einsum("bni,noi->bno", x, weight) + bias,
    torch.randn(37, 3, 70), torch.randn(3, 130, 70), torch.randn(3, 130),
)
"""


@pytest.mark.parametrize("script", [GELU_MUL, GEMM, GROUPED], ids=["gelu_mul", "gemm", "grouped"])
def test_a_kernel_and_its_gradients_equal_the_reference_in_float64(script: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-P", "-c", BEGINNING + script]
    subprocess.run(command, env=environment, check=True, timeout=120)


# Without a GPU a kernel cannot run, but it can be compiled for one.
VECTORS = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from fusetui.kernels.geglu import BLOCK, geglu_backward_kernel_triton, geglu_forward_kernel_triton
for kernel in geglu_forward_kernel_triton, geglu_backward_kernel_triton:
    names = kernel.arg_names
    pointers = [name for name in names if name.endswith("_ptr")]
    kinds = {**dict.fromkeys(pointers, "*bf16"), "count": "i32", "BLOCK": "constexpr"}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in pointers}
    source = ASTSource(kernel, kinds, {(names.index("BLOCK"),): BLOCK}, aligned)
    text = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    assert text.count("ld.global.v4") + text.count("st.global.v4") == len(pointers)
"""


def test_an_unknown_element_count_leaves_the_loads_whole() -> None:
    command = [sys.executable, "-W", "ignore", "-P", "-c", VECTORS]
    subprocess.run(command, check=True, timeout=120)
