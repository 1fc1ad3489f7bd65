"""Small cuBLAS kernels."""

import pytest
from tests.gpu.kernel_names.conftest import Says


@pytest.mark.parametrize(
    ("name", "op"),
    [
        (
            "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2>(int)",
            "gemv",
        ),
        ("void gemvNSP_kernel<float, float, float, float, 1, 32>(int)", "gemv"),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half>(int)",
            "gemv",
        ),
        ("void gemmk1_kernel<float, 256, 5, false>(int)", "gemm"),
        ("void dot_kernel<float, 128, 0>(int)", "reduction"),
        ("void scal_kernel<float, float, 1>(cublasTransposeParams<float>, float const*)", None),
    ],
)
def test_operation(says: Says, name: str, op: str) -> None:
    says(name, family="cublas-aux", op=op, dtype_a=None)


def test_small_n(says: Says) -> None:
    says("void gemmSN_TN_kernel<float, 128, 16>(int)", op="gemm", layout="tn")


def test_split_k_second_pass(says: Says) -> None:
    says("void cublasLt::splitKreduce_kernel<32, 16, int, float>(int)", role="splitk_reduce")
    says("_ZN8cublasLt19splitKreduce_kernelILi32ELi16EEEvv", op="reduction", role="splitk_reduce")
