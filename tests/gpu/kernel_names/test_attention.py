"""Fused attention."""

from tests.gpu.kernel_names.conftest import Says

TRAITS = (
    "Flash_fwd_kernel_traits<128, 64, 32, 4, false, false, cutlass::half_t, "
    "Flash_kernel_traits<128, 64, 32, 4, cutlass::half_t> >"
)


def test_flash_attention_2_forward_has_tile_head_dim_and_causal(says: Says) -> None:
    says(
        f"void pytorch_flash::flash_fwd_kernel<{TRAITS}, false, true, false, false>(int)",
        family="flash-attn",
        op="attention",
        pass_="fwd",
        head_dim=128,
        tile_m=64,
        tile_n=32,
        dtype_a="fp16",
        causal=True,
        short="attn fwd fp16 64x32 d128 causal",
    )


def test_split_kv_has_no_dropout_flag(says: Says) -> None:
    says(
        f"void flash::flash_fwd_splitkv_kernel<{TRAITS}, true, false, false>(int)",
        causal=True,
    )
    says(
        f"void flash::flash_fwd_splitkv_combine_kernel<{TRAITS}, 16, 7, false>(int)",
        causal=None,
    )


def test_helper_of_flash_attention_backward_has_no_causal(says: Says) -> None:
    traits = (
        "Flash_bwd_kernel_traits<96, 64, 128, 8, 2, 4, 4, true, false, cutlass::bfloat16_t, "
        "Flash_kernel_traits<96, 64, 128, 8, cutlass::bfloat16_t> >"
    )
    says(
        f"void pytorch_flash::flash_bwd_dot_do_o_kernel<true, {traits} >(int)",
        pass_="bwd",
        head_dim=96,
        causal=None,
    )


def test_flash_attention_3_has_tile_head_dim_and_arch(says: Says) -> None:
    says(
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::"
        "CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, "
        "cute::C<1> >, cute::tuple<"
        "cute::C<128>, cute::C<96>, cute::C<192> >, 128, cutlass::half_t, "
        "float, cutlass::arch::Sm90,"
        " false, false> > > >(int)",
        arch="sm90",
        head_dim=192,
        tile_m=128,
        tile_n=96,
        stages=2,
        cluster="1x1x1",
        causal=False,
        dtype_a="fp16",
    )


def test_memory_efficient_backward_has_tile_and_arch(says: Says) -> None:
    says(
        "fmha_cutlassB_f16_aligned_128x128_k128_dropout_sm80(int)",
        pass_="bwd",
        dtype_a="fp16",
        tile_m=128,
        arch="sm80",
    )


def test_tensorrt_llm_attention_has_arch_tile_and_types(says: Says) -> None:
    says(
        "fmhaSm100fKernel_QkvBfloat16OBfloat16HQk576HV512HVPerCta256P"
        "agedKvDenseP64MultiCtasKvVarSeq"
        "Q16Kv128StaticSwapsAbForGen",
        arch="sm100",
        head_dim=576,
        tile_m=16,
        tile_n=128,
        causal=None,
    )
    says(
        "fmhaSm100aKernel_QE4m3KvE2m1OBfloat16H64PagedKvCausalP16VarSeqQ8Kv128PersistentContext",
        dtype_a="fp8_e4m3",
        dtype_out="bf16",
        causal=True,
    )


def test_tensorrt_llm_attention_decodes_inside_a_namespace(says: Says) -> None:
    says(
        "void trtllm::fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64VarSeqQ8Kv128Static"
        "SwapsAbForGen(int)",
        op="attention",
        head_dim=128,
        causal=True,
        tile_n=128,
    )


def test_a_window_may_be_causal(says: Says) -> None:
    """A causal window is launched as local, with the flag of a causal mask off."""
    local = f"void flash::flash_fwd_kernel<{TRAITS}, false, false, true, false, true, true, false>"
    says(
        f"{local}(int)",
        causal=False,
        local=True,
        short="attn fwd fp16 64x32 d128 local",
    )
    older = f"void flash::flash_fwd_kernel<{TRAITS}, false, false, true, true, false>"
    says(f"{older}(int)", causal=False, local=None)
    says(
        f"void flash::flash_fwd_splitkv_kernel<{TRAITS}, false, true, false, false, true, true>(1)",
        causal=False,
        local=True,
    )


def test_flash_attention_3_with_a_window_is_local(says: Says) -> None:
    found = says(
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::"
        "CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, "
        "cute::tuple<cute::C<128>, cute::C<96>, cute::C<192> >, 128, cutlass::half_t, float, "
        "cutlass::arch::Sm90, false, true> > > >(int)",
        causal=False,
        local=True,
        short="attn fwd fp16 128x96 d192 fa3 s2 local",
    )
    meanings = [part[2] for part in found.parts]
    assert meanings[-2:] == [
        "full causal mask: false",
        "limited to a window (causal or not): true",
    ]


def test_flash_attention_without_a_namespace_decodes_alike(says: Says) -> None:
    says(
        f"void flash_fwd_kernel<{TRAITS}, false, true, true, true, false>(Flash_fwd_params)",
        family="flash-attn",
        head_dim=128,
        causal=True,
    )


def test_tensorrt_llm_with_a_sliding_window_is_local_and_causal(says: Says) -> None:
    """Told apart from the full causal kernel of the same tile, which the same model
    runs too."""
    says(
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvSlidingOrChunkedCausalP16VarSeqQ128Kv128"
        "PersistentContext",
        causal=True,
        local=True,
        short="attn fp8_e4m3 128x128 d64 causal local sm100",
    )


def test_words_of_memory_efficient_attention_are_explained(says: Says) -> None:
    found = says(
        "fmha_cutlassB_f16_aligned_64x64_k128_dropout_seqaligned_sm80", pass_="bwd"
    )
    texts = [found.name[start:end] for start, end, _ in found.parts]
    assert texts[-4:] == ["k128", "dropout", "seqaligned", "80"]
    forward = says("fmha_cutlassF_f16_aligned_32x128_rf_sm80", pass_="fwd")
    assert "the output stays in registers until it is complete" in [
        meaning for _, _, meaning in forward.parts
    ]
