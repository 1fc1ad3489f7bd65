"""nvjet kernels of cuBLAS."""

from tests.gpu.kernel_names.conftest import Says


def test_three_letters(says: Says) -> None:
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


def test_five_letters_and_split_k(says: Says) -> None:
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
    says("nvjet_sm100_ootst_128x256_256x4_2x1_2cta_v_bz_TNT", dtype_a=None, dtype_out="bf16")


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
