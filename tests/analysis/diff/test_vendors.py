"""One program on GPUs of two vendors: which kernel of an op does the work of which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.analysis.diff.planting import Subject
from tests.analysis.diff.vendors import as_amd, judge_vendors

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.trace import Trace

Build = Callable[..., Trace]
Work = Callable[[Diff], list[Row]]

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
PRODUCT = "ampere_gcgemm_64x64_nt"
FFT = "void fft2d_r2c_32x32<float, false, 5u, true>(float2*, cudnn::reduced_divisor)"
BACK = FFT.replace("r2c", "c2r")
ZERO, TRANSPOSE = "SubTensorOpWithScalar1d", "batched_transpose_32x32_half"
IGEMM = "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8_ws1x1_wr1x2_ta1x16x1x1_1x2x4x32"
TENSILE = "Cijk_Alik_Bljk_BBS_BH_MT64x128x64_MI16x16x1_SN_LDSB1"
DOT = "void dot_kernel<float, 128, 0, cublasDotParams<float> >(cublasDotParams<float>)"
SUM = "void reduce_1Block_kernel<float, 128, 7, float>(float const*, float)"


def under(op: str, *kernels: str) -> tuple[str, list[tuple[str, str, float]]]:
    """One op that launches all of these."""
    return op, [("", name, 10.0) for name in kernels]


def test_the_helpers_of_a_convolution_stay_with_their_own_call(
    build: Build, work: Work
) -> None:
    a = build([under("aten::cudnn_convolution", FFT, PRODUCT, BACK)] * 2)
    b = build([under("aten::miopen_convolution", ZERO, TRANSPOSE, IGEMM)] * 2)
    rows = work(diff(a, b))
    assert [(row.a_count, row.b_count) for row in rows] == [(2, 2), (1, 1)] * 2
    for row in rows:
        ops = {a.op[each] for each in row.a_rows}, {b.op[each] for each in row.b_rows}
        assert list(map(len, ops)) == [1, 1]


def test_a_product_of_two_vectors_is_the_main_work_of_its_op(
    build: Build, work: Work
) -> None:
    a = build([under("aten::mm", DOT, SUM)])
    b = build([under("aten::mm", TENSILE)])
    (row,) = work(diff(a, b))
    assert (row.kind, row.a, row.b) == (RowKind.FUSED, (DOT, SUM), (TENSILE,))


PROGRAM = [
    ("aten::linear / aten::addmm", GEMM, 192.0),
    ("aten::gelu", "void at::native::elementwise_kernel<128, 4, gelu>(int)", 64.0),
    under("aten::cudnn_convolution", FFT, PRODUCT, BACK),
    ("aten::linear / aten::addmm", GEMM, 160.0),
]


@pytest.fixture
def subject(build: Build) -> Subject:
    found = Subject.read(Path(build(PROGRAM).report.path))
    assert found is not None
    return found


def test_a_converted_program_has_the_partner_of_every_kernel(
    subject: Subject, tmp_path: Path
) -> None:
    events = as_amd(subject)
    assert events is not None
    answer = judge_vendors(subject, events, tmp_path / "amd.json")
    assert answer.right, answer.said


def test_kernels_of_other_ops_are_no_partners(subject: Subject, tmp_path: Path) -> None:
    """What the benchmark calls wrong: here each says that it was the next one."""
    events = as_amd(subject)
    assert events is not None
    marked = [event for event in events if "was" in (event.get("args") or {})]
    places = [event["args"]["was"] for event in marked]
    for event, place in zip(marked, places[1:] + places[:1], strict=True):
        event["args"]["was"] = place
    assert not judge_vendors(subject, events, tmp_path / "amd.json").right
