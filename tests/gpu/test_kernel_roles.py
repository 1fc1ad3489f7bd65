"""The part that a kernel has in the work of its op."""

import doctest

import pytest
from msgspec.structs import replace

from fusetui.gpu import kernel_roles
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_roles import KernelRole, role_of_kernel

SPLIT_K = (
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true>"
    "(cublasLt::cublasSplitKParams<float>, float const*, float const*)"
)
DOT = "void dot_kernel<float, 128, 0, cublasDotParams<float> >(cublasDotParams<float>)"


@pytest.mark.parametrize(
    ("name", "role"),
    [
        (
            "ampere_sgemm_128x64_tn",
            KernelRole(
                decoded=None,
                kind="gemm",
                part="main",
                is_helper=False,
                adds_up_parts=False,
            ),
        ),
        (
            SPLIT_K,
            KernelRole(
                decoded=None,
                kind="reduction",
                part="helper",
                is_helper=True,
                adds_up_parts=True,
            ),
        ),
        (  # a product of two vectors, although it is a reduction
            DOT,
            KernelRole(
                decoded=None,
                kind="reduction",
                part="main",
                is_helper=False,
                adds_up_parts=False,
            ),
        ),
        (
            "MIOpenBatchNormFwdTrainSpatial",
            KernelRole(
                decoded=None,
                kind="norm",
                part="norm",
                is_helper=False,
                adds_up_parts=False,
            ),
        ),
        (  # of a library of convolutions, and neither work nor a copy
            "void cudnn::cnn::kern_precompute_indices<false>(int, int)",
            KernelRole(
                decoded=None,
                kind=None,
                part="helper",
                is_helper=True,
                adds_up_parts=False,
            ),
        ),
        (
            "Memset (Device)",
            KernelRole(
                decoded=None,
                kind="memset",
                part="memset",
                is_helper=True,
                adds_up_parts=False,
            ),
        ),
        (  # it needs no product beside it
            "triton_poi_fused_gelu_mul_3",
            KernelRole(
                decoded=None,
                kind="elementwise",
                part="elementwise",
                is_helper=False,
                adds_up_parts=False,
            ),
        ),
        (
            "who_knows",
            KernelRole(
                decoded=None, kind=None, part="", is_helper=False, adds_up_parts=False
            ),
        ),
    ],
)
def test_kernel_name_decides_kind_part_and_helper(name: str, role: KernelRole) -> None:
    assert role_of_kernel(name) == replace(role, decoded=decode(name))


@pytest.mark.parametrize(
    "name",
    [
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)",
        "void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*, int)",
    ],
)
def test_a_change_of_basis_helps_a_convolution(name: str) -> None:
    role = role_of_kernel(name)
    assert role.kind == "conv"
    assert role.part == "helper"
    assert role.is_helper


def test_the_examples_hold() -> None:
    assert doctest.testmod(kernel_roles).failed == 0
