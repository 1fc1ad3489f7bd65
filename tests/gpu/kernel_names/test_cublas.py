"""Kernels of cuBLAS."""

import pytest
from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode


def test_cublas_bf16_gemm_has_tile_stages_layout_and_instruction(says: Says) -> None:
    found = says(
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
        family="cublas-legacy",
        op="gemm",
        arch="sm80",
        arch_name="Ampere",
        dtype_a="bf16",
        dtype_b="bf16",
        dtype_acc="fp32",
        dtype_out="bf16",
        mma="16x8x16",
        tile_m=128,
        tile_n=256,
        tile_k=64,
        stages=3,
        layout="tn",
        epilogue=None,
        short="gemm bf16 128x256x64 tn sm80 s3",
    )
    texts = {found.name[start:end]: text for start, end, text in found.parts}
    assert texts["tn"] == (
        "tn: A is read transposed, B as stored: the weight of nn.Linear needs no copy"
    )
    assert texts["f2f"].startswith("probably")


def test_cublas_name_without_types_has_that_of_the_accumulator(says: Says) -> None:
    says(
        "ampere_sgemm_128x64_tn",
        dtype_a="fp32",
        dtype_out="fp32",
        mma=None,
        tile_k=None,
    )
    says("ampere_h16816gemm_128x64_ldg8_relu_nn", dtype_a="fp16", epilogue="relu")
    says("maxwell_gzgemm_64x32_lower_cn", dtype_a="c128", layout="cn")


def test_fields_that_a_cublas_name_leaves_open_are_none(says: Says) -> None:
    says("ampere_s1688gemm_128x128_ldg8_tn", dtype_a=None, dtype_acc="fp32")
    says(
        "volta_igemm_int8_128x128_ldg4_nt",
        dtype_a="int8",
        dtype_acc="int32",
        dtype_out=None,
    )
    says("ampere_cgemm_int8_32x64_tt", dtype_a=None, dtype_acc="c64")
    says("volta_sgemm_32x128_nn", arch=None, arch_name="Volta")
    says("turing_h1688gemm_128x128_ldg8_tt", arch="sm75")


def test_broken_names_are_unknown() -> None:
    assert decode("ampere_sgemm_128x64") is None
    assert decode("ampere_sgemm_128x64_xy") is None
    assert decode("ampere_qgemm_128x64_tn") is None


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
        (
            "void scal_kernel<float, float, 1>(cublasTransposeParams<float>, float const*)",
            None,
        ),
    ],
)
def test_gemv_dot_and_scale_kernels_have_their_operation(
    says: Says, name: str, op: str
) -> None:
    says(name, family="cublas-aux", op=op, dtype_a=None)


def test_only_kernels_of_gemvx_are_called_so(says: Says) -> None:
    says(
        "void cublasLt::kernel<float>(cublasLtParams const&)",
        family="cublas-aux",
        op=None,
        short="kernel fp32",
    )


def test_gemmsn_kernel_is_a_gemm_with_its_layout(says: Says) -> None:
    says("void gemmSN_TN_kernel<float, 128, 16>(int)", op="gemm", layout="tn")


GEMV_TENSOR = "cublasGemvTensorStridedBatched"


def test_the_tensors_of_a_small_product_have_its_types(says: Says) -> None:
    """Not the number before them, which is the type of the arithmetic."""
    tensors = (
        f"{GEMV_TENSOR}<__half const>, {GEMV_TENSOR}<float const>, {GEMV_TENSOR}<float>"
    )
    types = {"dtype_a": "fp16", "dtype_b": "fp32", "dtype_out": "fp32"}
    says(f"void gemmk1_kernel<float, 256, 5, {tensors}, float>(int)", **types)
    says(f"void gemmSN_NN_kernel<float, 128, {tensors}>(int)", layout="nn", **types)
    says(f"void gemv2N_kernel<int, cublasGemvParams<{tensors}, float> >(int)", **types)
    # as nsys writes them
    says(
        f"void gemv2N_kernel<int, cublasGemvParams<{GEMV_TENSOR}<const float2>, "
        f"{GEMV_TENSOR}<float2>, float2>>(T1)",
        dtype_a="c64",
        dtype_b="c64",
        dtype_out="c64",
    )


def test_tensors_among_the_parameters_are_none_of_the_template(says: Says) -> None:
    says(f"void gemmk1_kernel<float, 256>({GEMV_TENSOR}<float const>)", dtype_a=None)


def test_block_scaled_operands_are_explained(says: Says) -> None:
    found = says(
        "nvjet_qqtst_128x256_128x6_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT",
        dtype_a="fp8",
    )
    assert sum("mxfp8" in meaning for _, _, meaning in found.parts) == 2


def test_letter_of_largek_gemm_decides_its_types(says: Says) -> None:
    name = "void sgemm_largek_lds64<true, true, 6, 3, 4, 5, 2, 66>(float*)"
    says(name, op="gemm", dtype_a="fp32", dtype_acc="fp32", dtype_out="fp32")
    says(name.replace("sgemm", "dgemm"), dtype_a="fp64")


def test_split_k_second_pass(says: Says) -> None:
    says(
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(int)",
        role="splitk_reduce",
    )
    says(
        "_ZN8cublasLt19splitKreduce_kernelILi32ELi16EEEvv",
        op="reduction",
        role="splitk_reduce",
    )


def test_nvjet_name_with_three_letters_has_types_tile_and_cluster(says: Says) -> None:
    says(
        "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN",
        family="nvjet",
        op="gemm",
        arch="sm90",
        dtype_a="bf16",
        dtype_acc="fp32",
        dtype_out="bf16",
        tile_m=128,
        tile_n=256,
        tile_k=64,
        stages=4,
        cluster="2x1",
        layout="nt",
        split_k=None,
    )


def test_nvjet_name_with_five_letters_has_fp8_inputs_and_split_k(says: Says) -> None:
    says(
        "nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_bias_splitK_TNT",
        arch=None,
        dtype_a="fp8",
        dtype_b="fp8",
        dtype_out="bf16",
        epilogue="bias",
        split_k=True,
        layout="tn",
    )


def test_letters_known_from_patterns_only(says: Says) -> None:
    says(
        "nvjet_sm100_ootst_128x256_256x4_2x1_2cta_v_bz_TNT",
        dtype_a=None,
        dtype_out="bf16",
    )


def test_later_forms_settle_the_target_only(says: Says) -> None:
    name = "nvjet_sm121_tst_mma_128x128x64_3_64x32x64_tmaAB_splitK_TNNN"
    says(name, op="gemm", arch="sm121", tile_m=None)


def test_unknown_operands_are_not_called_by_the_type_of_the_sums(says: Says) -> None:
    says(
        "nvjet_ooost_128x128_128x6_2x1_v_bz_TNT",
        dtype_a=None,
        dtype_acc="fp32",
        short="gemm ->bf16 128x128x128 tn s6 2x1",
    )


def test_sgemm_without_tensor_cores_has_tile_and_layout(says: Says) -> None:
    found = says(
        "void sgemm_32x32x32_NT_vec<int>(int)",
        family="cublas-aux",
        op="gemm",
        dtype_a="fp32",
        tile_m=32,
        tile_k=32,
        layout="nt",
    )
    ((start, end, _),) = found.parts
    assert found.name[start:end] == "NT"
