"""Kernels of CUTLASS, 2.x and 3.x."""

import pytest
from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_names.vocabulary import cxx_type


def test_cutlass_wmma_gemm_has_tile_stages_layout_and_alignment(says: Says) -> None:
    says(
        "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8",
        family="cutlass2",
        op="gemm",
        arch="sm80",
        mma="16x16x16",
        dtype_a="bf16",
        dtype_acc="fp32",
        dtype_out="bf16",
        tile_m=32,
        tile_n=32,
        tile_k=32,
        stages=1,
        layout="tn",
        align=8,
        short="gemm bf16 32x32x32 tn sm80 s1 a8 wmma",
    )


def test_cutlass_name_inside_kernel2_is_decoded_at_its_place(says: Says) -> None:
    body = "cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_tt_align8"
    found = says(
        f"void cutlass::Kernel2<{body}>({body}::Params)", epilogue="relu", stages=3
    )
    assert found.name[found.parts[0][0] : found.parts[0][1]] == "80"


def test_cutlass_tf32_arithmetic_is_told_from_tf32_operands(says: Says) -> None:
    says(
        "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4",
        math="tf32",
        dtype_a="fp32",
    )
    says(
        "cutlass_tensorop_s1688tf32gemm_256x128_16x3_nn_align4", math="tf32", arch=None
    )
    says(
        "cutlass_tensorop_tf32_s1688gemm_tf32_256x128_16x3_nn_align4",
        math=None,
        dtype_a="tf32",
    )
    says(
        "cutlass_80_simt_sgemm_128x32_8x5_nn_align1",
        math=None,
        dtype_a="fp32",
        mma=None,
    )


def test_types_printed_only_when_they_differ(says: Says) -> None:
    says(
        "cutlass_75_tensorop_s1688gemm_f16_64x128_tn_align2",
        dtype_a="fp16",
        dtype_out="fp32",
        tile_k=None,
        stages=None,
    )
    says(
        "cutlass_75_tensorop_i8816gemm_s8_128x256_tn_align16",
        dtype_a="int8",
        dtype_out="int32",
    )
    says(
        "cutlass_80_tensorop_bf16_s16816gemm_planar_complex_bf16_128x64_32x2_nn_align2",
        dtype_a=None,
        dtype_acc=None,
    )


def test_cutlass_dgrad_has_direction_layout_and_alignment(says: Says) -> None:
    says(
        "void cutlass::Kernel<cutlass_tensorop_h16816dgrad_optimized_64x128_64x3_nhwc_unity_stride_"
        "align8>(int)",
        op="conv",
        pass_="dgrad",
        layout="nhwc",
        dtype_a="fp16",
        align=8,
    )


def test_cutlass_name_of_unknown_grammar_is_not_decoded() -> None:
    assert decode("cutlass_80_tensorop_gemm") is None


def test_cutlass_inside_a_foreign_namespace_is_decoded(says: Says) -> None:
    says(
        "void mine::cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_nn"
        "_align8>(int)",
        family="cutlass2",
        op="gemm",
        tile_m=64,
        stages=6,
    )


def test_cutlass3_procedural_name_has_types_tile_cluster_and_layout(says: Says) -> None:
    says(
        "cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_f16_f16_256x128x64_2x1x1_0_tnt_align8"
        "_warpspecialized_pingpong_epi_tma",
        family="cutlass3",
        arch="sm90",
        mma="64x128x16",
        dtype_a="fp16",
        dtype_acc="fp32",
        dtype_out="fp16",
        tile_m=256,
        tile_n=128,
        tile_k=64,
        cluster="2x1x1",
        layout="tn",
        align=8,
        stages=None,
        epilogue=None,
    )


def test_cutlass3_block_scaled_gemm_has_types_and_epilogue(says: Says) -> None:
    says(
        "cutlass3x_sm100_bstensorop_s256x128x32gemm_block_scaled_ue8m0xe4m3_ue8m0xe5m2_f32_f16_f16"
        "_256x128x128_0_tnn_align16_q_2sm_bias_f16_relu_stream_k",
        dtype_a="fp8_e4m3",
        dtype_b="fp8_e5m2",
        dtype_out="fp16",
        epilogue="bias_relu",
        stream_k=True,
        cluster=None,
    )


def test_types_with_scales_are_explained(says: Says) -> None:
    found = says(
        "cutlass3x_sm100_bstensorop_s128x128x64gemm_block_scaled_ue8m0xe4m3_ue4m3xf4_f32_bf16_bf16"
        "_128x128x256_0_tnn_align32_o_vs16_1sm",
        dtype_a="fp8_e4m3",
        dtype_b="fp4",
    )
    meanings = [meaning for _, _, meaning in found.parts]
    assert "type of A: ue8m0xe4m3, which is e4m3 with ue8m0 scales (mxfp8)" in meanings
    # f4 fixes the width only
    assert "type of B: ue4m3xf4, which is f4 with ue4m3 scales" in meanings
    assert "type of the result: bf16" in meanings


@pytest.mark.parametrize(
    ("word", "dtype"),
    [
        ("cutlass::mx_float8_t<cutlass::float_e4m3_t>", "mxfp8_e4m3"),
        ("cutlass::mx_float4_t<cutlass::float_e2m1_t>", "mxfp4_e2m1"),
        ("cutlass::nv_float4_t<cutlass::float_e2m1_t>", "nvfp4_e2m1"),
        ("cutlass::mx_float8_t<my::type>", None),
    ],
)
def test_block_scaled_cxx_types_are_named_by_their_format(
    word: str, dtype: str | None
) -> None:
    assert cxx_type(word) == dtype


def test_cutlass3_width_without_format_is_fp8(says: Says) -> None:
    says(
        "cutlass3x_sm100_tensorop_s64x64x32gemm_f8_f8_f32_bf16_e4m3_64x64x128_1x1x1_0_ntn_align4"
        "_1sm_bias_bf16_relu_aux_scalemax_stream_k",
        dtype_a="fp8",
        dtype_out="fp8_e4m3",
        epilogue="bias_relu_aux_scalemax",
    )


def test_complex_stays_open(says: Says) -> None:
    says(
        "cutlass3x_sm100_tensorop_c256x64x16_9xbf16gemm_cf32_cf32_cf32_cf32_cf32_256x64x32_0_ttn"
        "_align2_2sm",
        dtype_a=None,
        dtype_acc=None,
        mma="256x64x16",
        math=None,
    )


def test_other_shapes_settle_target_and_op_only(says: Says) -> None:
    says(
        "cutlass3x_sm100_tensorop_s128x256x16gemm_bgrada_f16_f16_f32_f16_f16_128x256x16_nnn_align8"
        "_1sm",
        op="gemm",
        arch="sm100",
        tile_m=None,
    )


def test_vllm_wrapper_of_cutlass3_has_tile_cluster_and_types(says: Says) -> None:
    tile = "cute::tuple<cute::C<128>, cute::C<64>, cute::C<256> >"
    cluster = "cute::tuple<cute::C<2>, cute::C<1>, cute::C<1> >"
    says(
        f"void cutlass::device_kernel<vllm::cutlass_3x_gemm<signed char, cutlass::bfloat16_t, "
        f"vllm::c3x::ScaledEpilogue, {tile}, {cluster}, "
        f"cutlass::gemm::KernelTma>::GemmKernel>(int)",
        family="cutlass3",
        op="gemm",
        dtype_a="int8",
        dtype_out="bf16",
        tile_m=128,
        tile_n=64,
        tile_k=256,
        cluster="2x1x1",
    )
    says(
        f"void cutlass::device_kernel<vllm::cutlass_3x_gemm_fp8_blockwise<cutlass::half_t, 1, 128, "
        f"128, {tile}, {cluster}, false>::GemmKernel>(int)",
        dtype_a=None,
        dtype_out="fp16",
        tile_k=256,
    )


def test_older_blockwise_form_is_not_read_by_place(says: Says) -> None:
    says(
        "void cutlass::device_kernel<vllm::cutlass_3x_gemm_fp8_blockwise<cutlass::half_t, 1, 128, "
        "128, cute::C<128>, cute::tuple<cute::C<2>, cute::C<1>, cute::C<1> > >::GemmKernel>(int)",
        op="gemm",
        tile_m=None,
        cluster=None,
    )


def test_cutlass3_main_loop_has_stages_cluster_and_schedule(says: Says) -> None:
    says(
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUnive"
        "rsal<cute::tuple<int, int, int, "
        "int>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::"
        "MainloopSm90TmaGmmaWarpSpecialized<4, cute::tuple<cute::C<2>, cute::C<1>, cute::C<1> >, "
        "cutlass::gemm::KernelTmaWarpSpecializedPingpong>, cute::tuple<cute::C<64>, cute::C<128>, "
        "cute::C<64> >, cutlass::half_t> > >(int)",
        arch="sm90",
        stages=4,
        cluster="2x1x1",
        tile_m=64,
        tile_n=128,
        tile_k=64,
    )


def test_attention_on_cutlass_is_no_gemm(says: Says) -> None:
    says(
        "void cutlass::device_kernel<cutlass::fmha::kernel::Sm100FmhaMlaKernelTmaWarpspecialized<"
        "cutlass::gemm::collective::Foo> >(int)",
        op="attention",
    )


def test_cutlass3_tf32_gemm_has_fp32_operands_and_tf32_math(says: Says) -> None:
    says(
        "cutlass3x_sm100_tensorop_s128x64x8tf32gemm_f32_f32_f32_f32_f32_128x64x32_0_tnn_align4_2sm",
        dtype_a="fp32",
        math="tf32",
        mma="128x64x8",
    )


def test_a_long_scope_is_cut_between_names(says: Says) -> None:
    says(
        "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>(int)",
        op="gemm",
        short="gemm cuda::fp8_ptp128c::GemmKernel",
    )


def test_cutlass_convolution_decodes_with_and_without_alignment(says: Says) -> None:
    body = "cutlass_tensorop_s1688fprop_optimized_tf32_64x64_16x10_nhwc"
    for name in (body, f"{body}_align4"):
        says(
            name,
            family="cutlass2",
            op="conv",
            pass_="fprop",
            tile_k=16,
            stages=10,
            layout="nhwc",
        )


def test_cutlass_convolution_inside_a_mangled_wrapper_is_of_cudnn(says: Says) -> None:
    body = "cutlass_tensorop_s1688fprop_optimized_tf32_64x64_16x10_nhwc_align4"
    says(
        f"_ZN13cutlass_cudnn6KernelI{len(body)}{body}EEvNT_6ParamsE",
        family="cudnn",
        op="conv",
        pass_="fprop",
        align=4,
    )


def test_cutlass2_gemm_in_cxx_has_its_tile(says: Says) -> None:
    block = "cutlass::gemm::threadblock::MmaPipelined<cutlass::gemm::GemmShape<128, 128, 32>, int>"
    says(
        f"void cutlass::Kernel<cutlass::gemm::kernel::Gemm<{block}, int, int, false> >(int)",
        family="cutlass2",
        op="gemm",
        tile_m=128,
        tile_n=128,
        tile_k=32,
        dtype_a=None,
    )


def test_a_kernel_of_2x_whose_name_does_not_say_what_it_does(says: Says) -> None:
    says(
        "void cutlass::Kernel<cutlass::gemm::kernel::Other<int> >(int)",
        op=None,
        tile_m=None,
    )
    assert decode("void cutlass::Kernel<my::Gemm<int> >(int)") is None
