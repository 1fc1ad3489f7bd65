"""Matrix products of unaligned tensors."""

from __future__ import annotations

import pytest

from .conftest import Ask
from .work import A100, search, tried, work

ALIGN1 = (
    "void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x3_tn_align1>"
    "(cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x3_tn_align1::Params)"
)
ALIGN8 = ALIGN1.replace("align1", "align8")
SHAPES = {
    "Input Dims": [[4096, 4095], [4095, 4096]],
    "Input type": ["c10::BFloat16", "c10::BFloat16"],
}


def test_alignment_reports_products_of_unaligned_tensors(found: Ask) -> None:
    """2 x 4096 x 4095 x 4096 FLOP at the measured 271.2 TFLOP/s take 506.657 us."""
    (finding,) = found(
        "alignment", work(("aten::mm", ALIGN1, 1_000), args=SHAPES), **A100
    )
    assert finding.at_stake_ns == 1_000_000 - 506_657
    assert (
        ": 4,096 x 4,095 by 4,095 x 4,096. At the attainable rate, these "
        "products would take an estimated 493.3"
    ) in finding.text
    assert finding.certainty == "likely"


def test_unaligned_product_without_a_bound_adds_no_upper_bound(found: Ask) -> None:
    """The same product, and one whose shapes were not recorded."""
    events = work(*[("aten::mm", ALIGN1, 1_000)] * 2, args=SHAPES)
    events[3].pop("args")
    (finding,) = found("alignment", events, **A100)
    assert finding.at_stake_ns == 1_000_000 - 506_657
    assert finding.text.startswith("2 matrix products take 2 ms")
    assert (
        "At the attainable rate, these products would take an estimated 493.3 us less, judging "
        "by the 1 ms" in finding.text
    )


def test_without_shapes_it_is_a_note(found: Ask) -> None:
    (finding,) = found("alignment", work(("aten::mm", ALIGN1, 1_000)), **A100)
    assert finding.at_stake_ns is None
    assert finding.text == (
        "1 matrix product takes 1 ms (100 % of the span) in kernels for tensors that "
        "are not 16-byte aligned."
    )


def test_aligned_tensors_are_silent(found: Ask) -> None:
    assert (
        found("alignment", work(("aten::mm", ALIGN8, 1_000), args=SHAPES), **A100) == []
    )


@pytest.mark.parametrize(
    "kind", ["simt_sgemm_128x32_8x5_nn", "tensorop_d884gemm_64x64_16x3_nn"]
)
def test_product_that_cannot_be_aligned_is_not_reported(found: Ask, kind: str) -> None:
    name = f"void cutlass::Kernel2<cutlass_80_{kind}_align1>(int)"
    assert found("alignment", work(("aten::mm", name, 1_000)), **A100) == []


def test_alignment_ignores_kernels_of_an_algorithm_search(
    found: Ask,
) -> None:
    names = tuple(ALIGN1.replace("128x128", f"128x{n}") for n in (32, 64, 128))
    tries = tried(names, 80)
    assert found("alignment", search(0, tries, []), **A100) == []
    (finding,) = found("alignment", search(0, tries, tries[:1]), **A100)
    assert finding.text.startswith("1 matrix product takes 80 us")
