"""CUTLASS 2.x kernels."""

from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode


def test_wmma_gemm(says: Says) -> None:
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


def test_inside_a_kernel_wrapper(says: Says) -> None:
    body = "cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_tt_align8"
    found = says(f"void cutlass::Kernel2<{body}>({body}::Params)", epilogue="relu", stages=3)
    assert found.name[found.parts[0][0] : found.parts[0][1]] == "80"


def test_tf32_arithmetic(says: Says) -> None:
    says("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", math="tf32", dtype_a="fp32")
    says("cutlass_tensorop_s1688tf32gemm_256x128_16x3_nn_align4", math="tf32", arch=None)
    says("cutlass_tensorop_tf32_s1688gemm_tf32_256x128_16x3_nn_align4", math=None, dtype_a="tf32")
    says("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", math=None, dtype_a="fp32", mma=None)


def test_types_printed_only_when_they_differ(says: Says) -> None:
    says(
        "cutlass_75_tensorop_s1688gemm_f16_64x128_tn_align2",
        dtype_a="fp16",
        dtype_out="fp32",
        tile_k=None,
        stages=None,
    )
    says("cutlass_75_tensorop_i8816gemm_s8_128x256_tn_align16", dtype_a="int8", dtype_out="int32")
    says(
        "cutlass_80_tensorop_bf16_s16816gemm_planar_complex_bf16_128x64_32x2_nn_align2",
        dtype_a=None,
        dtype_acc=None,
    )


def test_convolution(says: Says) -> None:
    says(
        "void cutlass::Kernel<cutlass_tensorop_h16816dgrad_optimized_64x128_64x3_nhwc_unity_stride_"
        "align8>(int)",
        op="conv",
        pass_="dgrad",
        layout="nhwc",
        dtype_a="fp16",
        align=8,
    )


def test_unknown_grammar() -> None:
    assert decode("cutlass_80_tensorop_gemm") is None


def test_any_namespace(says: Says) -> None:
    says(
        "void mine::cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_nn"
        "_align8>(int)",
        family="cutlass2",
        op="gemm",
        tile_m=64,
        stages=6,
    )
