"""AMD's Tensile and hipBLASLt kernels."""

from tests.gpu.kernel_names.conftest import Says

HEAD = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs"


def test_hipblaslt(says: Says) -> None:
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
    says("Cijk_Ailk_Bjlk_BBS_BH_MT32x32x64_MI16x16x16x1_SN_ISA90a", mma="16x16x16", layout="nt")


def test_stream_k_and_split_k(says: Says) -> None:
    says(f"{HEAD}_MT256x240x64_MI16x16x1_GSU4_ISA950_SK3_SKFTR0", stream_k=True, split_k=4)


def test_type_groups(says: Says) -> None:
    tail = "_MT16x16x16_ISA000_K1"
    says(f"Cijk_Ailk_Bljk_SB{tail}", dtype_a="fp32", dtype_acc="fp32", arch=None)
    says(f"Cijk_Ailk_Bljk_B_BS_BH_Bias_X{tail}", dtype_a="bf16", dtype_out="bf16", dtype_acc="fp32")
    says(f"Cijk_Ailk_Bljk_S_B_Bias_X{tail}", dtype_a="fp32", dtype_acc="fp32")
    says(f"Cijk_Ailk_Bljk_I8II_BH{tail}", dtype_a="int8", dtype_out="int32")
    says(f"Cijk_Ailk_Bljk_F8B8HS_BH{tail}", dtype_a=None)


def test_second_pass_of_a_split_k(says: Says) -> None:
    says("Cijk_S_PostGSU8_VW4", op="reduction", role="splitk_reduce")
