"""cuBLAS hand-tuned kernels."""

from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode


def test_bf16_gemm_with_pipeline(says: Says) -> None:
    found = says(
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
        family="cublas-legacy",
        op="gemm",
        arch="sm80",
        arch_name="Ampere",
        dtype_a="bf16",
        dtype_b="bf16",
        dtype_acc="fp32",
        dtype_out="bf16",
        mma="16x8x16",
        tile_m=128,
        tile_n=256,
        tile_k=64,
        stages=3,
        layout="tn",
        epilogue=None,
        short="gemm bf16 128x256x64 tn sm80 s3",
    )
    texts = {found.name[start:end]: text for start, end, text in found.parts}
    assert texts["tn"] == (
        "tn: A is read transposed, B as stored: the weight of nn.Linear needs no copy"
    )
    assert texts["f2f"].startswith("probably")


def test_no_type_means_the_accumulator(says: Says) -> None:
    says("ampere_sgemm_128x64_tn", dtype_a="fp32", dtype_out="fp32", mma=None, tile_k=None)
    says("ampere_h16816gemm_128x64_ldg8_relu_nn", dtype_a="fp16", epilogue="relu")
    says("maxwell_gzgemm_64x32_lower_cn", dtype_a="c128", layout="cn")


def test_what_the_name_leaves_open(says: Says) -> None:
    says("ampere_s1688gemm_128x128_ldg8_tn", dtype_a=None, dtype_acc="fp32")
    says("volta_igemm_int8_128x128_ldg4_nt", dtype_a="int8", dtype_acc="int32", dtype_out=None)
    says("ampere_cgemm_int8_32x64_tt", dtype_a=None, dtype_acc="c64")
    says("volta_sgemm_32x128_nn", arch=None, arch_name="Volta")
    says("turing_h1688gemm_128x128_ldg8_tt", arch="sm75")


def test_broken_names_are_unknown() -> None:
    assert decode("ampere_sgemm_128x64") is None
    assert decode("ampere_sgemm_128x64_xy") is None
    assert decode("ampere_qgemm_128x64_tn") is None
