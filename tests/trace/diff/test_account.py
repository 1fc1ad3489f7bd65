"""Nothing is lost and nothing is counted twice, whatever the two traces hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusetui.trace import Trace
from fusetui.trace.diff import diff

Build = Callable[..., Trace]

RELU_GEMM = "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_tn_align8"
OPS = {
    "aten::mm": "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn",
    "aten::gelu": "gelu_kernel",
    "aten::linear / aten::addmm": RELU_GEMM,
    "attention / aten::mul": "mul_kernel",
    "aten::zero_": "Memset (Device)",
    "triton_poi_fused_gelu_mul_0": "triton_poi_fused_gelu_mul_0",
    "": "my_kernel",
}
STEP = st.lists(
    st.tuples(
        st.sampled_from(sorted(OPS)), st.sampled_from([1.5, 4.0, 9.25]), st.sampled_from([7, 13])
    ),
    min_size=1,
    max_size=9,
)


def pieces(step: list[tuple[str, float, int]]) -> list[Any]:
    return [(op, OPS[op], us, stream) for op, us, stream in step]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEP, STEP)
def test_every_piece_is_in_exactly_one_row(build: Build, one: Any, other: Any) -> None:
    a, b = build(pieces(one), factors=(1.0, 1.1)), build(pieces(other), factors=(1.0, 0.9))
    rows = [row for row in diff(a, b).rows if not row.on_cpu]
    for step, sides in ((one, [r.a_rows for r in rows]), (other, [r.b_rows for r in rows])):
        found = Counter(row for side in sides for row in side)
        assert len(found) == len(step)
        assert set(found.values()) == {1}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEP, STEP)
def test_the_sum_closes_exactly(build: Build, one: Any, other: Any) -> None:
    found = diff(build(pieces(one), factors=(1.0, 1.1)), build(pieces(other)))
    sums = found.accounting
    rows = sum(row.b_ns - row.a_ns for row in found.rows if row.counts)
    assert sums.rows_ns == rows
    assert sums.step_ns == rows + sums.idle_ns + sums.not_explained_ns


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEP, STEP)
def test_turned_round_every_change_changes_its_sign(build: Build, one: Any, other: Any) -> None:
    a, b = build(pieces(one)), build(pieces(other))
    there, back = diff(a, b).accounting, diff(b, a).accounting
    assert (there.step_ns, there.rows_ns) == (-back.step_ns, -back.rows_ns)


def test_one_stream_without_overlap_is_explained_in_full(build: Build) -> None:
    a = [("aten::mm", "gemm", 40.0), ("aten::gelu", "gelu_kernel", 30.0)]
    b = [("aten::mm", "gemm", 20.0), ("aten::gelu", "gelu_kernel", 35.0)]
    sums = diff(build(a), build(b)).accounting
    assert (sums.step_ns, sums.rows_ns, sums.idle_ns) == (-15_000, -15_000, 0)
    assert sums.not_explained_ns == 0


def test_pieces_that_overlap_are_left_to_what_is_not_explained(build: Build) -> None:
    alone = [("aten::mm", "gemm", 40.0, 7)]
    beside = [*alone, ("aten::copy_", "copy_kernel", 20.0, 13)]
    sums = diff(build(alone), build(beside)).accounting
    assert sums.rows_ns == 20_000
    assert sums.not_explained_ns < 0
