"""xmma kernels of cuBLAS and cuDNN."""

from tests.gpu.kernel_names.conftest import Says


def test_xmma_gemm_has_types_tile_stages_and_layout(says: Says) -> None:
    says(
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize32x32x64_stage6_warpsize2x2x1_tensor16x8x16"
        "_execute_kernel_trt",
        family="xmma",
        op="gemm",
        arch="sm80",
        dtype_a="fp16",
        dtype_b="fp16",
        dtype_out="fp16",
        dtype_acc="fp32",
        mma="16x8x16",
        tile_k=64,
        stages=6,
        layout="tn",
        role=None,
    )


def test_split_k_is_a_reduction(says: Says) -> None:
    says(
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32"
        "_stage5_warpsize2x2x1_g1_tensor16x8x8_t1r1s1_execute_split_k_kernel__5x_cudnn",
        op="reduction",
        role="splitk_reduce",
        split_k=True,
        pass_="wgrad",
        dtype_a="tf32",
        dtype_out="fp32",
        layout=None,
    )


def test_xmma_gemm_with_three_types_has_each_and_its_epilogue(says: Says) -> None:
    says(
        "sm89_xmma_gemm_e4m3e5m2e4m3_e4m3e5m2f32_f32_tn_n_tilesize256x64x64_stage4_warpsize8x1x1"
        "_tensor16x8x32_bias_f16_algo2_execute_kernel__5x_cublas",
        dtype_a="fp8_e4m3",
        dtype_b="fp8_e5m2",
        dtype_out="fp8_e4m3",
        epilogue="bias",
    )


def test_xmma_gemm_in_tf32_has_fp32_operands_and_tf32_math(says: Says) -> None:
    says(
        "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x32_cgasize1x1x1_warpgroupsize1x1x1"
        "_execute_segment_k_off_kernel__5x_cublas",
        dtype_a="fp32",
        math="tf32",
        cluster="1x1x1",
        mma=None,
    )


def test_complex_stays_open(says: Says) -> None:
    says(
        "sm80_xmma_gemm_cf32cf32_f32f32_cf32_tt_n_tilesize32x64x8_stage3_warpsize2x2x1_ffma"
        "_execute_kernel__5x_cublas",
        dtype_a=None,
        dtype_acc=None,
        tile_m=32,
    )
    says("sm90_xmma_gemm_something_new_entirely", op="gemm", arch="sm90", tile_m=None)
