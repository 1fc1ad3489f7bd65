"""TensorRT-LLM's generated batched matrix products."""

from tests.gpu.kernel_names.conftest import Says


def test_two_dialects(says: Says) -> None:
    says(
        "bmm_Bfloat16_E2m1E2m1_Fp32_t128x16x512u2_et128x16_m128x16x64_cga1x1x1_16dp256b_TN_transOut"
        "_schedS_bN_dynBatch_sm100a",
        family="trtllm-gen",
        op="gemm",
        dtype_a="fp4_e2m1",
        dtype_acc="fp32",
        dtype_out="bf16",
        tile_m=128,
        tile_n=16,
        tile_k=512,
        mma="128x16x64",
        cluster="1x1x1",
        arch="sm100",
        stages=None,
    )
    says(
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_c1x1x1_rM_TN_transOut"
        "_swiGlu_dynB_sm100f",
        dtype_a="mxfp4_e2m1",
        dtype_b="mxfp8_e4m3",
        stages=3,
        epilogue="swiglu",
    )


def test_a_single_product_is_not_called_batched(says: Says) -> None:
    says(
        "gemm_Bfloat16_E4m3E4m3_Fp32_t128x64x128_s7_et128x64_m128x64x32_cga1x1x4_16dp256b_TN_"
        "schedP_sm100a",
        short="gemm fp8_e4m3->bf16 128x64x128 sm100 s7 schedP",
    )
