"""Families that a namespace, a prefix or words determine."""

import pytest
from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kinds import is_collective, kinds


@pytest.mark.parametrize(
    ("name", "family", "op"),
    [
        ("void vllm::moe::moeTopK<256, int>(float const*)", "vllm-sglang", "moe"),
        (
            "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(int)",
            "vllm-sglang",
            "norm",
        ),
        (
            "void marlin::Marlin<1125899906909952l, 128>(int4 const*)",
            "vllm-sglang",
            "gemm",
        ),
        (
            "void sglang::cross_device_reduce_1stage<__half, 8>(int)",
            "vllm-sglang",
            "comm",
        ),
        ("void vllm::reshape_and_cache_flash_kernel<float>(int)", "vllm-sglang", None),
        ("void fbgemm_gpu::_offsets_range_cuda_kernel<long>(long)", "fbgemm", None),
        (
            "void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(int)",
            "flashinfer-trtllm",
            "norm",
        ),
        (
            "void moe::dev::finalize::finalizeKernel<int>(int)",
            "flashinfer-trtllm",
            "moe",
        ),
        ("void dpsk::ep::internode::dispatch<false, 8>(int4*)", "deepseek", "comm"),
        ("void cuda::cast_back_impl<int>(void const*)", "deepseek", None),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bEEvv", "aiter", "norm"),
        ("aiter::topksoftmax_4x128x8_bf16", "aiter", "moe"),
        ("transformer_engine::fused_rope_forward_kernel", "transformer-engine", "rope"),
        ("void layer_norm::ln_bwd_kernel<float>(int)", "flash-attn-ln", "norm"),
        ("gluon_mxfp4_moe_stage1_kernel.kd", "gluon", "moe"),
    ],
)
def test_namespace_or_prefix_decides_family_and_operation(
    says: Says, name: str, family: str, op: str
) -> None:
    says(name, family=family, op=op)


def test_fwd_or_backward_in_a_name_is_its_pass(says: Says) -> None:
    says("void layer_norm::ln_fwd_kernel<float>(int)", pass_="fwd")
    says(
        "void split_embedding_backward_codegen_rowwise_adagrad_weighted_kernel_cta_per_row_1<float>"
        "(int)",
        op="embedding",
        pass_="bwd",
    )


@pytest.mark.parametrize(
    ("base", "direction"),
    [
        ("swiglu_weight_backward_with_weight_impl", "bwd"),
        ("swiglu_forward_with_weight_impl", "fwd"),
        ("swiglu_forward_backward_with_weight_impl", None),  # it does both
        ("swiglu_backwards_impl", None),
    ],
)
def test_the_usual_words_say_the_direction(
    says: Says, base: str, direction: str | None
) -> None:
    name = f"void cuda::{base}<__nv_bfloat16>(float*, __nv_bfloat16 const*, int)"
    says(name, family="deepseek", pass_=direction, dtype="bf16")


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ("c10::Half, 8", "fp16"),
        ("float, float, long, true", "fp32"),
        ("(Pattern)1, __nv_bfloat16, 8", "bf16"),
        ("moe::Params<cutlass::bfloat16_t, cutlass::bfloat16_t, 4>", "bf16"),
        ("c10::Half, &(float vllm::gelu<float>(float const&)), true", "fp16"),
        ("float, c10::Half", None),
        ("__nv_bfloat16, unsigned char", None),  # of fp8, which is stored as bytes
        ("float2, float", None),
        ("int", None),
        ("short", None),
    ],
)
def test_one_element_type_in_the_template_is_the_dtype(
    says: Says, arguments: str, dtype: str | None
) -> None:
    """Types of the parameters of the function do not count, nor do indices."""
    says(f"void vllm::any_kernel<{arguments}>(double*)", dtype=dtype)


def test_one_element_type_in_a_mangled_name_is_the_dtype(says: Says) -> None:
    says("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_", dtype="bf16")
    says("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bfLi256EEEvPT0_", dtype=None)
    says("_ZN5aiter24add_rmsnorm_quant_kernelILi256EDF16bEEvPT0_", dtype=None)
    says("_ZN7sgl_hip18act_and_mul_kernelI14__hip_bfloat16EEvi", dtype="bf16")


def test_mxfp_and_nvfp_words_are_block_scaled_dtypes(says: Says) -> None:
    says("gluon_mxfp4_moe_stage1_kernel.kd", dtype="mxfp4_e2m1")
    says("void transformer_engine::cast_mxfp8_kernel<__nv_fp8_e4m3>(i)", dtype="mxfp8")
    says("void torchao::nvfp4_quant<float>(int)", dtype="nvfp4_e2m1")
    says("void torchao::my_mxfp88_quant<float>(int)", dtype="fp32")


def test_activation_and_mul_is_elementwise_and_other_multiplications_are_unknown(
    says: Says,
) -> None:
    says("void vllm::masked_swigluoai_and_mul_kernel<float>(int)", op="elementwise")
    says("void vllm::cat_and_multiply_kernel<float>(int)", op=None)


def test_aiter_attention_has_head_dim_type_and_pass(says: Says) -> None:
    says("aiter::fmha_fwd_hd128_bf16_rtz", head_dim=128, dtype_a="bf16", pass_="fwd")


def test_apex_multi_tensor_apply_is_optimizer_or_foreach_by_its_functor(
    says: Says,
) -> None:
    says(
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
        family="apex",
        op="optimizer",
        functor="AdamFunctor",
        dtype="fp32",
    )
    says(
        "void multi_tensor_apply_kernel<TensorListMetadata<2>, ScaleFunctor<float, __half>, float>"
        "(int)",
        functor="ScaleFunctor",
        dtype=None,
    )


def test_aiter_attention_is_causal_only_if_the_name_says_so(says: Says) -> None:
    says("_ZN5aiter26fmha_fwd_hd128_bf16_causalE", head_dim=128, causal=True)
    says("aiter::fmha_fwd_hd128_bf16_rtz", causal=None)


@pytest.mark.parametrize(
    ("name", "family", "op"),
    [
        (
            "kernel_cutlass_kernel_flash_attncuteflash_bwd_sm100FlashAttentionBackwardSm100_object_"
            "at__tensor0000o11101213_0",
            "flash-attn",
            "attention",
        ),
        (
            "kernel_cutlass_kernel_amperetensorop_gemmTensorOpGemm_object_at__tensorptrf16gmem",
            "cute-dsl",
            "gemm",
        ),
        ("multistage_gemm_kernel", "mojo", "gemm"),
        (
            "kernel_cutlass_kernel___main__PersistentDenseGemmKernel_object_at__",
            "cute-dsl",
            "gemm",
        ),
        ("flash_fwd_sm100_kernel", "flash-attn", "attention"),
        ("linalg_matmul_gpu_sm90_kernel", "mojo", "gemm"),
        ("main_kernel", "tilelang", None),
        ("mha_fwd_tilelang_kernel", "tilelang", "attention"),
        ("fp8_gemm_tilelang", "tilelang", "gemm"),
        ("mhc_post_tilelang_kernel", "tilelang", None),
        (
            "void kittens::prototype::lcf::kernel<matmul_template<2> >(int)",
            "thunderkittens",
            "gemm",
        ),
        ("void attend_ker<128, false>(int)", "thunderkittens", "attention"),
        (
            "void kQuantizeBlockwise<__half, 4096, 4, 0, 2>(float*)",
            "bitsandbytes",
            "quant",
        ),
        (
            "void kgemm_4bit_inference_naive<__half, 128, 16>(int)",
            "bitsandbytes",
            "gemm",
        ),
        ("void kOptimizer32bit2State<float, 3>(int)", "bitsandbytes", "optimizer"),
        (
            "void gptq_marlin::Marlin<__half, 256, 4>(int4 const*)",
            "vllm-sglang",
            "gemm",
        ),
        ("void Marlin<256, 4, 16, 4, -1>(int4 const*)", "vllm-sglang", "gemm"),
        ("void gptq_marlin_repack_kernel<256, 4, true>(int)", "vllm-sglang", "copy"),
        (
            "void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>(int)",
            "vllm-sglang",
            "gemm",
        ),
        ("void vllm::awq::dequantize_weights(int*)", "vllm-sglang", "quant"),
        ("void torchao::mxfp8_quantize_kernel<float>(int)", "torchao", "quant"),
        ("void nvshmemi_proxy_rma_entrypoint(void*, void*)", "nvshmem", "comm"),
        ("oneccl_reduce_base<float, 2, 16, 1, 1, 2>", "oneccl", "comm"),
        ("void cuApplyLayerNorm<float, float, float>(float*)", "apex", "norm"),
        ("void scaled_masked_softmax_warp_backward<__half, 7>(int)", "apex", "softmax"),
        (
            "void cutlass::device_kernel<machete::MacheteKernelTemplate<cutlass::half_t> >(int)",
            "cutlass3",
            "gemm",
        ),
        (
            "void ck_tile::MoeSortingKernel<ck_tile::MoeSortingProblem<int> >(int)",
            "ck",
            "moe",
        ),
        (
            "void vllm::moe::moe_align_block_size_kernel<int>(int*)",
            "vllm-sglang",
            "moe",
        ),
        (
            "void vllm::dynamic_per_token_scaled_fp8_quant_kernel<float>(int)",
            "vllm-sglang",
            "quant",
        ),
        (
            "_ZN5aiter37dynamic_per_group_scaled_quant_kernelIDF16bEEvv",
            "aiter",
            "quant",
        ),
        (
            "void transformer_engine::mxfp8_kernel::cast_mxfp8<1>(int)",
            "transformer-engine",
            "quant",
        ),
    ],
)
def test_other_libraries_have_family_and_operation(
    says: Says, name: str, family: str, op: str | None
) -> None:
    says(name, family=family, op=op)


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void nvshmemi_proxy_rma_entrypoint(void*, void*)",
        "oneccl_reduce_base<float, 2, 16, 1, 1, 2>",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(int)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(int)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(int)",
    ],
)
def test_communication_counts_as_communication(says: Says, name: str) -> None:
    says(name, op="comm")
    assert "comm" in kinds(name)
    assert is_collective(name)


def test_layer_norm_with_a_residual_type_is_of_flash_attention_else_of_apex(
    says: Says,
) -> None:
    """They share the namespace; FlashAttention has a type for the residual."""
    four = "__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float"
    five = f"__nv_bfloat16, {four}"
    for types, family in ((four, "apex"), (five, "flash-attn-ln")):
        traits = (
            f"layer_norm::Kernel_traits<{types}, unsigned int, 4096u, 1u, 1u, 4u, 16u>"
        )
        says(
            f"void layer_norm::ln_fwd_kernel<{traits} >(layer_norm::FwdParams)",
            family=family,
        )


@pytest.mark.parametrize(
    ("name", "op"),
    [
        (
            "void cub::DeviceRadixSortOnesweepKernel<cub::Policy<long>::Policy800, false>(int)",
            "sort",
        ),
        (
            "void at_cuda_detail::cub::DeviceScanKernel<cub::AgentScanPolicy<128> >(int)",
            "scan",
        ),
        ("void cub::DeviceReduceByKeyKernel<int>(int)", "reduction"),
        ("void cub::DeviceCompactInitKernel<int>(int)", None),
        (
            "void rocprim::ROCPRIM_400400_NS::detail::trampoline_kernel<r"
            "ocprim::ROCPRIM_400400_NS::"
            "default_config, rocprim::ROCPRIM_400400_NS::detail::reduce_c"
            "onfig_selector<bool> >(int)",
            "reduction",
        ),
        (
            "void rocprim::N::detail::trampoline_kernel<rocprim::N::detai"
            "l::wrapped_scan_config<int> >"
            "(int)",
            "scan",
        ),
        (
            "void rocprim::N::detail::trampoline_kernel<rocprim::N::default_config, "
            "rocprim::N::detail::partition_config_selector<long> >(int)",
            None,
        ),
    ],
)
def test_cub_kernels_have_their_operation(says: Says, name: str, op: str) -> None:
    says(name, family="cub", op=op)


def test_words_in_a_name_decide_the_operation_of_other_kernels(says: Says) -> None:
    says("__amd_rocclr_fillBufferAligned.kd", family="other", op="fill")
    says("void (anonymous namespace)::fused_rope_kernel<true, 128l>(int)", op="rope")
    says("void (anonymous namespace)::fused_qknorm_warp<128l>(int)", op="norm")
    says("void rotary_embedding_kernel<c10::BFloat16, true>(long const*)", op="rope")


def test_name_without_a_known_word_is_not_decoded() -> None:
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
def test_words_of_experts_and_quantization_decide_the_operation(
    says: Says, name: str, op: str
) -> None:
    says(name, family="other", op=op)
