"""MIOpen kernels."""

from tests.gpu.kernel_names.conftest import Says


def test_implicit_gemm(says: Says) -> None:
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


def test_other_kernels(says: Says) -> None:
    says("MIOpenBatchNormFwdTrainSpatialNorm", op="norm", pass_="fwd")
    says("batched_transpose_32x16_half", op="copy")
    says("miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f2x3_stride1", op="conv", algo="winograd")
    says("SubTensorOpWithScalar1d", op=None)
