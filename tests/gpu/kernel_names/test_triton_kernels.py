"""Hand-written Triton kernels."""

import pytest
from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode


def test_matmul_ogs_has_types_tile_and_epilogue(says: Says) -> None:
    says(
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
        family="triton",
        op="gemm",
        dtype_out="bf16",
        dtype_a="bf16",
        dtype_b="mxfp4_e2m1",
        tile_m=16,
        tile_n=128,
        tile_k=256,
        epilogue="swiglu",
        split_k=None,
    )


def test_words_block_size_are_the_tile(says: Says) -> None:
    says(
        "_gemm_a8w8_kernel_BLOCK_SIZE_M_128_BLOCK_SIZE_N_64_BLOCK_SIZE_K_32_GROUP_SIZE_M_1",
        op="gemm",
        tile_m=128,
        tile_n=64,
        tile_k=32,
    )


def test_names_of_triton_libraries_have_operation_and_pass(says: Says) -> None:
    says("_swiglu_bwd_kernel", op="elementwise", pass_="bwd")
    says("liger_cross_entropy_kernel", op="loss", pass_=None)
    says("attn_fwd", op="attention", pass_="fwd")
    says("chunk_fwd_kernel_o", op=None, pass_=None)


def test_any_function_name_is_unknown() -> None:
    assert decode("my_function") is None
    assert decode("Kernel") is None


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("_per_token_group_quant_fp8", "quant"),
        ("weight_dequant_kernel", "quant"),
        ("awq_gemm_kernel", "gemm"),
        ("awq_dequantize_kernel", "quant"),
    ],
)
def test_quant_words_of_triton_kernels_are_quantization(
    says: Says, name: str, op: str
) -> None:
    says(name, family="triton", op=op)


def test_triton_kernels_of_inference_servers_have_their_operation(says: Says) -> None:
    says("fused_moe_kernel", family="triton", op="moe")
    says("_fwd_grouped_kernel_stage1", family="triton", op="attention")
