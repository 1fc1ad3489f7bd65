"""Families that a namespace or a prefix determines."""

import pytest
from tests.trace.kernel_names.conftest import Says


@pytest.mark.parametrize(
    ("name", "family", "op"),
    [
        ("void vllm::moe::moeTopK<256, int>(float const*)", "vllm-sglang", "moe"),
        ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(int)", "vllm-sglang", "norm"),
        ("void marlin::Marlin<1125899906909952l, 128>(int4 const*)", "vllm-sglang", "gemm"),
        ("void sglang::cross_device_reduce_1stage<__half, 8>(int)", "vllm-sglang", "comm"),
        ("void vllm::reshape_and_cache_flash_kernel<float>(int)", "vllm-sglang", None),
        ("void fbgemm_gpu::_offsets_range_cuda_kernel<long>(long)", "fbgemm", None),
        (
            "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(int)",
            "flashinfer-trtllm",
            "norm",
        ),
        ("void moe::dev::finalize::finalizeKernel<int>(int)", "flashinfer-trtllm", "moe"),
        ("void dpsk::ep::internode::dispatch<false, 8>(int4*)", "deepseek", "comm"),
        ("void cuda::cast_back_impl<int>(void const*)", "deepseek", None),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bEEvv", "aiter", "norm"),
        ("aiter::topksoftmax_4x128x8_bf16", "aiter", "moe"),
        ("transformer_engine::fused_rope_forward_kernel", "transformer-engine", "rope"),
        ("void layer_norm::ln_bwd_kernel<float>(int)", "flash-attn-ln", "norm"),
        ("gluon_mxfp4_moe_stage1_kernel.kd", "gluon", None),
    ],
)
def test_family_and_operation(says: Says, name: str, family: str, op: str) -> None:
    says(name, family=family, op=op)


def test_direction(says: Says) -> None:
    says("void layer_norm::ln_fwd_kernel<float>(int)", pass_="fwd")
    says(
        "void split_embedding_backward_codegen_rowwise_adagrad_weighted_kernel_cta_per_row_1<float>"
        "(int)",
        op="embedding",
        pass_="bwd",
    )


def test_aiter_attention(says: Says) -> None:
    says("aiter::fmha_fwd_hd128_bf16_rtz", head_dim=128, dtype_a="bf16", pass_="fwd")


def test_apex(says: Says) -> None:
    says(
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
        family="apex",
        op="optimizer",
        functor="AdamFunctor",
    )
