"""DeepGEMM."""

from tests.gpu.kernel_names.conftest import Says

ARGS = (
    "0u, 4096u, 1024u, 1u, 256u, 128u, 128u, 128u, 128u, 128u, 3u, 128u, 256u, 2u, true, 132u, "
    "(deep_gemm::GemmType)0, Identity"
)


def test_known_form(says: Says) -> None:
    says(
        f"void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, {ARGS}>(float*)",
        family="deep-gemm",
        op="gemm",
        arch="sm90",
        tile_m=256,
        tile_n=128,
        tile_k=128,
        stages=3,
        dtype_a="fp8_e4m3",
    )


def test_other_argument_lists_stay_open(says: Says) -> None:
    says(f"void deep_gemm::sm90_fp8_gemm_1d2d_impl<{ARGS}>(float*)", op="gemm", tile_m=None)
    says("void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 1u>(float*)", tile_m=None)
    says("void deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<24u>(int)", arch="sm90", dtype_a=None)


def test_bf16(says: Says) -> None:
    says(
        "void deep_gemm::sm90_bf16_gemm_impl<(cute::UMMA::Major)0, (cute::UMMA::Major)0, 0u, "
        "4096u, 7168u, 1u, 128u, 160u, 64u, 128u, 128u, 128u, 4u, 128u, 256u, 1u, true, 132u, "
        "(deep_gemm::GemmType)0, false, cutlass::bfloat16_t>(int)",
        tile_m=128,
        tile_n=160,
        tile_k=64,
        stages=4,
        dtype_a="bf16",
    )


def test_prenorm(says: Says) -> None:
    says(
        "void deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<24u, 16384u, 64u, 32u, 64u, 1u, 128u, 12u, "
        "128u, 128u>(unsigned int)",
        tile_m=64,
        tile_n=32,
        tile_k=64,
        stages=12,
    )


def test_helpers_are_no_products(says: Says) -> None:
    says(
        "void deep_gemm::transpose_fp32<512u, 64u, 56u, 56u>(float const*, float*, unsigned int)",
        family="deep-gemm",
        op=None,
        short="deep_gemm transpose_fp32",
    )
