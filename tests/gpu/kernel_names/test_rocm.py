"""Tensile, MIOpen and Composable Kernel."""

from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import Part, decode

HEAD = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs"


def test_tensile_name_has_tile_types_layout_and_arch(says: Says) -> None:
    says(
        f"{HEAD}_MT128x96x64_MI16x16x1_SN_LDSB1_GSU0_ISA942_MIWT4_6_SK0_WG64_4_1",
        family="tensile",
        op="gemm",
        layout="tn",
        dtype_a="bf16",
        dtype_out="bf16",
        dtype_acc="fp32",
        tile_m=128,
        tile_n=96,
        tile_k=64,
        mma_mn="16x16",
        mma=None,
        arch="gfx942",
        arch_name="CDNA3",
        epilogue="bias",
        split_k=None,
        stream_k=None,
    )


def test_four_numbers_give_the_depth(says: Says) -> None:
    says(
        "Cijk_Ailk_Bjlk_BBS_BH_MT32x32x64_MI16x16x16x1_SN_ISA90a",
        mma="16x16x16",
        layout="nt",
    )


def test_tensile_words_sk_and_gsu_are_stream_k_and_split_k(says: Says) -> None:
    says(
        f"{HEAD}_MT256x240x64_MI16x16x1_GSU4_ISA950_SK3_SKFTR0",
        stream_k=True,
        split_k=4,
    )


def test_groups_of_type_letters_are_operands_result_and_sums(says: Says) -> None:
    tail = "_MT16x16x16_ISA000_K1"
    says(f"Cijk_Ailk_Bljk_SB{tail}", dtype_a="fp32", dtype_acc="fp32", arch=None)
    says(
        f"Cijk_Ailk_Bljk_B_BS_BH_Bias_X{tail}",
        dtype_a="bf16",
        dtype_out="bf16",
        dtype_acc="fp32",
    )
    says(f"Cijk_Ailk_Bljk_S_B_Bias_X{tail}", dtype_a="fp32", dtype_acc="fp32")
    says(f"Cijk_Ailk_Bljk_I8II_BH{tail}", dtype_a="int8", dtype_out="int32")
    says(f"Cijk_Ailk_Bljk_F8B8HS_BH{tail}", dtype_a=None)


def words(name: str) -> dict[str, str]:
    """What the parts of a name mean, by their text."""
    found = decode(name)
    assert found is not None
    return {name[start:end]: meaning for start, end, meaning in found.parts}


def test_both_groups_of_types_are_explained() -> None:
    meanings = words("Cijk_Alik_Bljk_B_BS_BH_Bias_MT64x16x128_MI16x16x1_SN_ISA942")
    assert meanings["B"] == "B: A and B are bf16"
    assert meanings["BS"] == "BS: the result is bf16, the sums fp32"
    assert meanings["BH"].startswith("B: uses beta")
    mixed = words("Cijk_Alik_Bljk_F8B8_HS_BH_MT64x16x128_ISA942")
    assert mixed["F8B8"] == "F8B8: A is fp8_e4m3, B fp8_e5m2"
    assert mixed["HS"] == "HS: the result is fp16, the sums fp32"


def test_types_that_are_not_settled_are_marked_as_types() -> None:
    meanings = words("Custom_Cijk_Ailk_Bljk_F8NH_HHS_BH_Bias_AS_SAB_SAV_gfx942")
    for group in ("F8NH", "HHS"):
        assert meanings[group].endswith("of the result and of the sums")


def test_flags_and_options_are_explained() -> None:
    name = f"{HEAD}_MT16x16x64_MI16x16x1_SN_GSUAMBSK_ISA942_MIWT4_6_PGR2_PLR1_WG64_4_1"
    assert [name[start:end] for start, end, _ in part_list(name)] == [
        *("Alik_Bljk", "BBS", "BH", "Bias", "HA", "S", "SAV", "UserArgs"),
        *("16", "16", "64", "16", "16", "1", "MBSK", "942", "4_6", "2", "1", "64_4_1"),
    ]


def test_text_behind_the_tile_of_a_tensile_name_is_no_flag() -> None:
    name = "Cijk_Alik_Bljk_BBS_MT16x16x64_SN_S_B_ISA942"
    texts = [name[start:end] for start, end, _ in part_list(name)]
    assert texts == ["Alik_Bljk", "BBS", "16", "16", "64", "942"]


def part_list(name: str) -> tuple[Part, ...]:
    found = decode(name)
    assert found is not None
    return found.parts


def test_second_pass_of_a_split_k(says: Says) -> None:
    says("Cijk_S_PostGSU8_VW4", op="reduction", role="splitk_reduce")


def test_miopen_implicit_gemm_has_pass_tile_layout_and_arch(says: Says) -> None:
    name = "_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8_ws1x1_wr1x2_ta1x8x2x1_1x4x1x64_tb1x4x1x2_gkgs"
    says(
        f"igemm_bwd_gtcx2{name}",
        family="miopen",
        op="conv",
        pass_="dgrad",
        dtype_a="bf16",
        layout="nhwc",
        tile_m=128,
        tile_n=64,
        tile_k=32,
        arch="gfx90a",
    )
    says(f"igemm_wrw_gtcx3{name}", pass_="wgrad", arch=None)


def test_other_miopen_kernels_have_operation_and_algorithm(says: Says) -> None:
    says("MIOpenBatchNormFwdTrainSpatialNorm", op="norm", pass_="fwd")
    says("batched_transpose_32x16_half", op="copy")
    says(
        "miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f2x3_stride1", op="conv", algo="winograd"
    )
    says("SubTensorOpWithScalar1d", op=None)


MANGLED = (
    "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28"
    "GridwiseGemm_xdl_cshuffle_v3INS_13tensor_layout4gemm8RowMajorELi7E"
)


def test_composable_kernel_tile_is_found_by_arithmetic(says: Says) -> None:
    numbers = (256, 128, 128, 64, 8, 8, 32, 32, 2, 2)
    found = says(
        MANGLED
        + "".join(f"Li{number}E" for number in numbers)
        + "NS_8SequenceIJLi8EEEE",
        family="ck",
        op="conv",
        pass_="fprop",
        tile_m=128,
        tile_n=128,
        tile_k=64,
        mma_mn="32x32",
    )
    texts = [found.name[start:end] for start, end, _ in found.parts[1:]]
    assert texts == [str(number) for number in numbers]


def test_no_tile_when_the_arithmetic_fails(says: Says) -> None:
    numbers = (256, 128, 128, 64, 8, 8, 32, 32, 2, 1)
    says(
        MANGLED + "".join(f"Li{number}E" for number in numbers), op="conv", tile_m=None
    )


def test_demangled_composable_kernel_has_its_tile(says: Says) -> None:
    says(
        "void ck::kernel_moe_gemm<ck::GridwiseMoeGemm<unsigned short, "
        "(ck::Spec)0, 256, 32, 64, 64, 8,"
        " 8, 16, 16, 2, 1, ck::Sequence<8, 32, 1> >, true>(int)",
        op="gemm",
        tile_m=32,
        tile_n=64,
        tile_k=64,
        mma_mn="16x16",
    )


def test_ck_tile_attention_is_recognized(says: Says) -> None:
    says(
        "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_4FooE",
        op="attention",
    )
