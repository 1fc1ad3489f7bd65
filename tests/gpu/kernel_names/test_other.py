"""Kernels whose names say what they do."""

import pytest
from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode


def test_words(says: Says) -> None:
    says("__amd_rocclr_fillBufferAligned.kd", family="other", op="fill")
    says("void (anonymous namespace)::fused_rope_kernel<true, 128l>(int)", op="rope")
    says("void (anonymous namespace)::fused_qknorm_warp<128l>(int)", op="norm")
    says("void rotary_embedding_kernel<c10::BFloat16, true>(long const*)", op="rope")


def test_no_word_no_guess() -> None:
    assert decode("void (anonymous namespace)::store_kvcache<2048l, 4>(int)") is None
    assert decode("rotary_fwd_kv_kernel.kd") is None


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("void moe_sorting_kernel<int>(int)", "moe"),
        ("void moe_align_block_size_kernel<int>(int)", "moe"),
        ("void static_scaled_fp8_quant<float>(int)", "quant"),
        ("void quantize_fp8_kernel(float*)", "quant"),
    ],
)
def test_experts_and_quantization(says: Says, name: str, op: str) -> None:
    says(name, family="other", op=op)
