"""DeepGEMM and TensorRT-LLM."""

from tests.gpu.kernel_names.conftest import Says

ARGS = (
    "0u, 4096u, 1024u, 1u, 256u, 128u, 128u, 128u, 128u, 128u, 3u, 128u, 256u, 2u, true, 132u, "
    "(deep_gemm::GemmType)0, Identity"
)


def test_deep_gemm_fp8_kernel_has_tile_stages_and_arch(says: Says) -> None:
    says(
        f"void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, {ARGS}>(float*)",
        family="deep-gemm",
        op="gemm",
        arch="sm90",
        tile_m=256,
        tile_n=128,
        tile_k=128,
        stages=3,
        dtype_a="fp8_e4m3",
    )


def test_other_argument_lists_stay_open(says: Says) -> None:
    says(
        f"void deep_gemm::sm90_fp8_gemm_1d2d_impl<{ARGS}>(float*)",
        op="gemm",
        tile_m=None,
    )
    says(
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 1u>(float*)",
        tile_m=None,
    )
    says(
        "void deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<24u>(int)",
        arch="sm90",
        dtype_a=None,
    )


def test_deep_gemm_bf16_kernel_has_tile_and_stages(says: Says) -> None:
    says(
        "void deep_gemm::sm90_bf16_gemm_impl<(cute::UMMA::Major)0, (cute::UMMA::Major)0, 0u, "
        "4096u, 7168u, 1u, 128u, 160u, 64u, 128u, 128u, 128u, 4u, 128u, 256u, 1u, true, 132u, "
        "(deep_gemm::GemmType)0, false, cutlass::bfloat16_t>(int)",
        tile_m=128,
        tile_n=160,
        tile_k=64,
        stages=4,
        dtype_a="bf16",
    )


def test_deep_gemm_prenorm_kernel_has_tile_and_stages(says: Says) -> None:
    says(
        "void deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<24u, 16384u, 64u, 32u, 64u, 1u, 128u, 12u, "
        "128u, 128u>(unsigned int)",
        tile_m=64,
        tile_n=32,
        tile_k=64,
        stages=12,
    )


def test_helpers_are_no_products(says: Says) -> None:
    says(
        "void deep_gemm::transpose_fp32<512u, 64u, 56u, 56u>(float const*, float*, unsigned int)",
        family="deep-gemm",
        op=None,
        short="deep_gemm transpose_fp32",
    )


def test_both_dialects_of_trtllm_gen_have_types_tile_and_cluster(says: Says) -> None:
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


def test_operands_that_are_converted_on_the_way(says: Says) -> None:
    says(
        "bmm_Bfloat16_MxInt4Bfloat16_castBfloat16_Fp32_Ab32_t128x16x256_s3_et128x16_m256x16x16_"
        "c2x1x1_rM_BN_transOut_schPd2x1x2x3_biasBfloat16Mn_bN_tma_dynB_sm100f",
        dtype_a="mxint4",
        dtype_b="bf16",
        dtype_acc="fp32",
        dtype_out="bf16",
        math="bf16",
    )


def test_schedules_of_later_releases_are_explained(says: Says) -> None:
    head = "bmm_Bfloat16_E4m3E4m3_Fp32_t128x16x256_s3_et128x16_m256x16x16_c2x1x1"
    found = says(f"{head}_rM_TN_schPd2x1x2x3_dynB_sm100f", stages=3)
    meanings = {found.name[start:end]: meaning for start, end, meaning in found.parts}
    assert meanings["schPd2x1x2x3"] == "persistent blocks"
    assert meanings["dynB"].startswith("the batch sizes")
    assert meanings["TN"].startswith("tn: A is read transposed")
    static = says(f"{head}_TN_schedS_sm100f", stages=3)
    assert "one block for each tile" in [meaning for _, _, meaning in static.parts]


def test_problem_sizes_of_deep_gemm_are_explained(says: Says) -> None:
    found = says(
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 1024u, 1u, 256u, "
        "128u, 64u, 128u, 128u, 128u, 3u, 128u, 256u, 2u, true, 132u, (deep_gemm::GemmType)0, x>"
        "(float*)",
        tile_m=256,
    )
    sizes = [
        found.name[start:end]
        for start, end, meaning in found.parts
        if "0 is any" in meaning
    ]
    assert sizes == ["0u", "4096u", "1024u"]


def test_a_single_product_is_not_called_batched(says: Says) -> None:
    says(
        "gemm_Bfloat16_E4m3E4m3_Fp32_t128x64x128_s7_et128x64_m128x64x32_cga1x1x4_16dp256b_TN_"
        "schedP_sm100a",
        short="gemm fp8_e4m3->bf16 128x64x128 sm100 s7 schedP",
    )
