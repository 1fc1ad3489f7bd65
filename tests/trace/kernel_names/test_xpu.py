"""Kernels of Intel GPUs."""


def test_elementwise_and_onednn(says):
    says(
        "at::native::xpu::VectorizedElementwiseKernel<4, at::native::xpu::GeluErfFunctor<float>>",
        family="xpu",
        op="elementwise",
    )
    says("gemm_kernel", family="xpu", op=None)
