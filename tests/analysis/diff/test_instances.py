"""The kernels of one op: which is paired with which, and what becomes one group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.report.diff_lines import lines
from fusetui.trace import Trace

Build = Callable[..., Trace]
Work = Callable[[Diff], list[Row]]

OFFSETS = "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)"
IMPLICIT = "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false>(int, int)"
NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float, true, false, 2>(int)"
BACK = NHWC.replace("nchwToNhwc", "nhwcToNchw")
TENSOR = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_stage4"
ZERO, TRANSPOSE = "SubTensorOpWithScalar1d", "batched_transpose_32x32_half"
IGEMM = "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8_ws1x1_wr1x2_ta1x16x1x1_1x2x4x32"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
SPLIT = "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn"
REDUCE = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(int)"
SDPA = "aten::scaled_dot_product_attention"
FLASH = (
    f"{SDPA} / aten::_scaled_dot_product_flash_attention / aten::_flash_attention_forward",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(int)",
    30.0,
)
MATH = (
    SDPA,
    [
        ("aten::matmul / aten::bmm", GEMM, 20.0),
        (
            "aten::softmax / aten::_softmax",
            "void softmax_warp_forward<float>(int)",
            15.0,
        ),
        ("aten::matmul / aten::bmm", GEMM, 20.0),
    ],
)


def pairs(rows: list[Row]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(row.a, row.b) for row in rows]


def test_the_kernels_of_one_convolution_are_one_group(
    trace_of_op: Callable[..., Trace], work: Work
) -> None:
    a = trace_of_op("aten::cudnn_convolution", [(OFFSETS, 2.0), (IMPLICIT, 755.0)])
    b = trace_of_op(
        "aten::cudnn_convolution", [(NHWC, 5.0), (TENSOR, 300.0), (BACK, 6.0)]
    )
    rows = work(diff(a, b))
    assert ((IMPLICIT,), (TENSOR,)) in pairs(rows)
    assert ((OFFSETS,), (NHWC, BACK)) in pairs(rows)
    assert len(rows) == 2


def test_helpers_of_one_vendor_are_not_the_partner_of_the_main_kernel_of_another(
    trace_of_op: Callable[..., Trace], work: Work
) -> None:
    cudnn = trace_of_op("aten::cudnn_convolution", [(TENSOR, 90.0)])
    miopen = trace_of_op(
        "aten::miopen_convolution", [(ZERO, 3.0), (TRANSPOSE, 4.0), (IGEMM, 80.0)]
    )
    for a, b in ((cudnn, miopen), (miopen, cudnn)):
        rows = work(diff(a, b))
        main = [row for row in rows if TENSOR in (*row.a, *row.b)]
        assert [IGEMM in (*row.a, *row.b) for row in main] == [True]
        helpers = [row for row in rows if row not in main]
        assert all(not (row.a and row.b) for row in helpers)


def test_helpers_alone_do_not_stand_for_a_convolution(
    trace_of_op: Callable[..., Trace], work: Work
) -> None:
    a = trace_of_op("aten::convolution_backward", [(NHWC, 5.0), (ZERO, 3.0)])
    b = trace_of_op("aten::convolution_backward", [(TENSOR, 90.0), (BACK, 4.0)])
    for row in work(diff(a, b)):
        assert TENSOR not in row.b or not row.a


def test_offsets_are_not_taken_for_the_convolution(
    trace_of_op: Callable[..., Trace], work: Work
) -> None:
    a = trace_of_op("aten::cudnn_convolution", [(OFFSETS, 2.0), (TENSOR, 90.0)])
    b = trace_of_op("aten::cudnn_convolution", [(IMPLICIT, 755.0)])
    (row,) = work(diff(a, b))
    assert (row.a, row.b) == ((OFFSETS, TENSOR), (IMPLICIT,))


def test_another_algorithm_of_cudnn_is_neither_fused_nor_split(
    trace_of_op: Callable[..., Trace], work: Work
) -> None:
    a = trace_of_op(
        "aten::cudnn_convolution", [(NHWC, 5.0), (TENSOR, 300.0), (BACK, 6.0)]
    )
    b = trace_of_op("aten::cudnn_convolution", [(IMPLICIT, 755.0)])
    for found, kernels in ((diff(a, b), "conv"), (diff(b, a), "implicit")):
        (row,) = work(found)
        assert row.kind is RowKind.REPLACED
        assert row.why.startswith(
            "different algorithm: 3 kernels -> 1"
            if row.a_count == 3
            else "different algorithm: 1 kernel -> 3"
        )
        (line,) = [line for line in lines(found) if line.kind == "replaced"]
        assert kernels in line.what


def test_product_that_becomes_split_k_with_its_reduction_is_split(
    trace_of_op: Callable[..., Trace], work: Work
) -> None:
    a = trace_of_op("aten::mm", [(GEMM, 20.0)])
    b = trace_of_op("aten::mm", [(SPLIT, 12.0), (REDUCE, 3.0)])
    (row,) = work(diff(a, b))
    assert (row.kind, row.a, row.b) == (RowKind.SPLIT, (GEMM,), (SPLIT, REDUCE))
    assert row.why == "all kernels of aten::mm"
    (back,) = work(diff(b, a))
    assert (back.kind, back.change_ns) == (RowKind.FUSED, -row.change_ns)


def test_a_reduction_beside_the_same_product_is_one_row_with_it(
    trace_of_op: Callable[..., Trace], work: Work
) -> None:
    """cuBLAS splits K without another main kernel, too."""
    a = trace_of_op("aten::mm", [(GEMM, 20.0)])
    b = trace_of_op("aten::mm", [(GEMM, 12.0), (REDUCE, 3.0)])
    (row,) = work(diff(a, b))
    assert (row.kind, row.a, row.b, row.change_ns) == (
        RowKind.SPLIT,
        (GEMM,),
        (GEMM, REDUCE),
        -5000,
    )
    (back,) = work(diff(b, a))
    assert (back.kind, back.change_ns) == (RowKind.FUSED, 5000)


@pytest.mark.parametrize("main", [TENSOR, IMPLICIT])
def test_a_convolution_and_the_reduction_of_its_parts_is_split(
    trace_of_op: Callable[..., Trace], work: Work, main: str
) -> None:
    """Whether or not the main kernel keeps its name, the second only adds up its
    parts."""
    a = trace_of_op("aten::cudnn_convolution", [(TENSOR, 90.0)])
    b = trace_of_op("aten::cudnn_convolution", [(main, 60.0), (REDUCE, 3.0)])
    (row,) = work(diff(a, b))
    assert (row.kind, row.a, row.b) == (RowKind.SPLIT, (TENSOR,), (main, REDUCE))
    (back,) = work(diff(b, a))
    assert (back.kind, back.change_ns) == (RowKind.FUSED, 27_000)


def test_one_more_kernel_beside_the_same_one_is_added(
    trace_of_op: Callable[..., Trace], work: Work
) -> None:
    a = trace_of_op("aten::mm", [(GEMM, 20.0)])
    b = trace_of_op("aten::mm", [(GEMM, 20.0), (BACK, 3.0)])
    rows = work(diff(a, b))
    assert [(row.kind, row.b) for row in rows] == [
        (RowKind.SAME, (GEMM,)),
        (RowKind.ADDED, (BACK,)),
    ]


def test_attention_in_one_and_in_three_kernels_under_one_op_is_split(
    build: Build, work: Work
) -> None:
    around = ("aten::linear / aten::mm", GEMM, 50.0)
    rows = work(diff(build([around, FLASH, around]), build([around, MATH, around])))
    assert [row.kind for row in rows] == [RowKind.SAME, RowKind.SPLIT, RowKind.SAME]
    assert (rows[1].a_count, rows[1].b_count) == (1, 3)
    back = work(diff(build([around, MATH, around]), build([around, FLASH, around])))
    assert [row.kind for row in back] == [RowKind.SAME, RowKind.FUSED, RowKind.SAME]


def test_a_kernel_that_runs_once_more_is_added_and_nothing_else(
    build: Build, work: Work
) -> None:
    add = ("aten::add", "add_kernel")
    a = build([(*add, 10.0), (*add, 40.0), (*add, 20.0)])
    b = build([(*add, 10.0), (*add, 10.0), (*add, 40.0), (*add, 20.0)])
    rows = work(diff(a, b))
    assert sorted(row.kind for row in rows) == [
        RowKind.ADDED,
        RowKind.SAME,
        RowKind.SAME,
        RowKind.SAME,
    ]
    assert sum(row.change_ns for row in rows) == 10_000


def test_reduction_after_a_product_joins_it_without_recorded_ops(
    build: Build, work: Work
) -> None:
    a = build([("", GEMM, 40.0), ("", BACK, 5.0)])
    b = build([("", SPLIT, 30.0), ("", REDUCE, 5.0), ("", BACK, 5.0)])
    row = next(row for row in work(diff(a, b)) if row.kind is not RowKind.SAME)
    assert (row.kind, row.b) == (RowKind.SPLIT, (SPLIT, REDUCE))
    assert row.why == "plus the kernel that combines its partial results"


def test_reduction_after_the_same_product_joins_it_without_recorded_ops(
    build: Build, work: Work
) -> None:
    a = build([("", GEMM, 40.0), ("", BACK, 5.0)])
    b = build([("", GEMM, 30.0), ("", REDUCE, 5.0), ("", BACK, 5.0)])
    row = next(row for row in work(diff(a, b)) if row.kind is not RowKind.SAME)
    assert (row.kind, row.a, row.b) == (RowKind.SPLIT, (GEMM,), (GEMM, REDUCE))


def test_reduction_after_attention_joins_it_without_recorded_ops(
    build: Build, work: Work
) -> None:
    parts = (
        "paged_attention_ll4mi_QKV_mfma16_kernel",
        "paged_attention_ll4mi_reduce_kernel",
    )
    a = build([("", FLASH[1], 20.0), ("", BACK, 5.0)])
    b = build([("", parts[0], 30.0), ("", parts[1], 10.0), ("", BACK, 5.0)])
    row = next(row for row in work(diff(a, b)) if row.kind is not RowKind.SAME)
    assert (row.kind, row.b) == (RowKind.SPLIT, parts)
