"""Composable Kernel, mangled or not."""

from tests.gpu.kernel_names.conftest import Says

MANGLED = (
    "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28"
    "GridwiseGemm_xdl_cshuffle_v3INS_13tensor_layout4gemm8RowMajorELi7E"
)


def test_tile_by_arithmetic(says: Says) -> None:
    numbers = (256, 128, 128, 64, 8, 8, 32, 32, 2, 2)
    found = says(
        MANGLED + "".join(f"Li{number}E" for number in numbers) + "NS_8SequenceIJLi8EEEE",
        family="ck",
        op="conv",
        pass_="fprop",
        tile_m=128,
        tile_n=128,
        tile_k=64,
        mma_mn="32x32",
    )
    assert (found.name[slice(*found.parts[-1][:2])]) == "64"


def test_no_tile_when_the_arithmetic_fails(says: Says) -> None:
    numbers = (256, 128, 128, 64, 8, 8, 32, 32, 2, 1)
    says(MANGLED + "".join(f"Li{number}E" for number in numbers), op="conv", tile_m=None)


def test_demangled(says: Says) -> None:
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


def test_ck_tile(says: Says) -> None:
    says(
        "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_4FooE",
        op="attention",
    )
