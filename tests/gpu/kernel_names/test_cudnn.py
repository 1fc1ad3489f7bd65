"""cuDNN kernels."""

import pytest
from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode


def test_tuned_convolution_has_algorithm_tile_and_split_k(says: Says) -> None:
    says(
        "cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
        family="cudnn",
        op="conv",
        arch_name="Volta",
        arch=None,
        algo="winograd",
        epilogue="relu",
        tile_m=128,
        dtype_a="fp32",
    )
    says(
        "volta_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1", split_k=True, algo=None
    )
    says(
        "_5x_cudnn_ampere_fp16_scudnn_fp16_128x32_relu_small_nn_v1",
        arch="sm80",
        dtype_a=None,
    )


@pytest.mark.parametrize(
    ("name", "op", "direction"),
    [
        (
            "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(float)",
            "norm",
            "fwd",
        ),
        ("void cudnn::bn_bw_1C11_singleread<float, 512>(float)", "norm", "bwd"),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128>(int)", "conv", "wgrad"),
        ("void wgrad_alg0_engine<float, 128>(int)", "conv", "wgrad"),
        ("void cudnn::detail::dgrad2d_alg1_1<float, 0>(int)", "conv", "dgrad"),
        ("void implicit_convolve_sgemm<float, float, 1024>(int)", "conv", None),
        ("void cudnn::ops::nchwToNhwcKernel<float, float>(int)", "copy", None),
        ("void fft2d_r2c_32x32<float, false>(float2*)", "conv", None),
        (
            "_Z15fft2d_r2c_32x32IfLb0ELj1ELb0EEvP6float2PKT_iiiiiiiiiN5cudnn15reduced_divisorEb4int2ii",
            "conv",
            None,
        ),
        (
            "void flip_filter<float, float>(T2 *, const T1 *, int, int, int, int)",
            "copy",
            None,
        ),
        (
            "void cudnn::cnn::im2col4d_kernel<float, long>(cudnn::cnn::im2col4d_params)",
            "copy",
            None,
        ),
        ("void im2col4d_kernel<float, int>(im2col4d_params, int)", "copy", None),
        (
            "void cudnn::ops::scalePackedTensor_kernel<float, float>(long, float*, float)",
            "elementwise",
            None,
        ),
        ("void cask_cudnn::computeOffsetsKernel<false, false>(int)", None, None),
    ],
)
def test_base_name_decides_operation_and_direction_of_cudnn(
    says: Says, name: str, op: str, direction: str
) -> None:
    says(name, family="cudnn", op=op, pass_=direction)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (
            "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)",
            "fp32",
        ),
        ("void wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)", "fp32"),
        ("void implicit_convolve_sgemm<float, float, 1024>(int)", "fp32"),
        ("void cudnn::detail::dgrad_engine<__half, 512>(int)", "fp16"),
        ("void cudnn::cnn::conv2d_grouped_direct_kernel<false, true>(int)", None),
        ("void cudnn::bn_bw_1C11_singleread<float, 512>(float)", None),
    ],
)
def test_engine_of_a_convolution_has_the_type_of_its_template(
    says: Says, name: str, dtype: str | None
) -> None:
    says(name, dtype_a=dtype)


def test_cutlass_bundled_with_cudnn_is_of_the_family_cudnn(says: Says) -> None:
    says(
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816f"
        "prop_optimized_bf16_256x64_32x4"
        "_nhwc_align8>(int)",
        family="cudnn",
        op="conv",
        pass_="fprop",
        layout="nhwc",
        stages=4,
    )
    says(
        "void cutlass_cudnn_train::Kernel<cutlass_cudnn_train::reduct"
        "ion::kernel::ReduceSplitK<int> >"
        "(int)",
        op="reduction",
        role="splitk_reduce",
    )


def test_generated_sdpa_backward_is_attention_with_arch_and_cluster(says: Says) -> None:
    says(
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x4x1_"
        "cga1x1x1",
        op="attention",
        arch="sm90",
        pass_="bwd",
        cluster="1x1x1",
        dtype_a=None,
    )


def test_implicit_gemm_of_cudnn_7_is_a_convolution_for_volta(says: Says) -> None:
    name = "Volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1"
    says(name, family="cudnn", op="conv", pass_="fprop", arch_name="Volta")


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("gemm::kernel::cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4", "gemm"),
        (
            "conv::kernel::ImplicitGemmConvolution<cutlass_cudnn_train::conv::threadblock::X>",
            "conv",
        ),
        ("gemm::kernel::GemmUniversal<float>", "gemm"),
    ],
)
def test_kernels_of_cudnns_copy_of_cutlass_are_of_family_cudnn(
    says: Says, kernel: str, op: str
) -> None:
    name = f"void cutlass_cudnn_train::Kernel2<cutlass_cudnn_train::{kernel}>(int)"
    says(name, family="cudnn", op=op)


def test_a_name_that_was_cut_in_its_arguments(says: Says) -> None:
    says(
        "void cudnn::detail::dgrad_engine<float", op="conv", pass_="dgrad", dtype_a=None
    )


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("void flip_filter<float, float>(float*, float const*, int)", "fp32"),
        ("void im2col4d_kernel<float, int>(im2col4d_params, int)", "fp32"),
        ("void cudnn::ops::nchwToNhwcKernel<__half, float, float>(int)", None),
    ],
)
def test_a_copy_has_a_type_if_its_template_has_one(
    name: str, dtype: str | None
) -> None:
    decoded = decode(name)
    assert decoded is not None
    assert decoded.dtype == dtype
