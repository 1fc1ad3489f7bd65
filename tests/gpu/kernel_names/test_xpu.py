"""Kernels of Intel GPUs."""

from tests.gpu.kernel_names.conftest import Says


def test_elementwise_and_onednn(says: Says) -> None:
    says(
        "at::native::xpu::VectorizedElementwiseKernel<4, at::native::xpu::GeluErfFunctor<float>>",
        family="xpu",
        op="elementwise",
    )
    says("gemm_kernel", family="xpu", op=None)
