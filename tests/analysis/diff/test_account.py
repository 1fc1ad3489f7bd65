"""Nothing is lost and nothing is counted twice, whatever the two traces hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Accounting
from fusetui.trace import Trace

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
        st.sampled_from(sorted(OPS)),
        st.sampled_from([1.5, 4.0, 9.25]),
        st.sampled_from([7, 13]),
    ),
    min_size=1,
    max_size=9,
)


def pieces(step: list[tuple[str, float, int]]) -> list[Any]:
    return [(op, OPS[op], us, stream) for op, us, stream in step]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEP, STEP)
def test_every_piece_is_in_exactly_one_row(build: Build, one: Any, other: Any) -> None:
    a, b = (
        build(pieces(one), factors=(1.0, 1.1)),
        build(pieces(other), factors=(1.0, 0.9)),
    )
    rows = [row for row in diff(a, b).rows if not row.on_cpu]
    for step, sides in (
        (one, [r.a_rows for r in rows]),
        (other, [r.b_rows for r in rows]),
    ):
        found = Counter(row for side in sides for row in side)
        assert len(found) == len(step)
        assert set(found.values()) == {1}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEP, STEP)
def test_the_sum_closes_exactly(build: Build, one: Any, other: Any) -> None:
    found = diff(build(pieces(one), factors=(1.0, 1.1)), build(pieces(other)))
    sums = found.accounting
    rows = sum(row.b_ns - row.a_ns for row in found.rows if row.counts)
    assert sums.rows_ns == rows
    assert sums.step_ns == whole(sums)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEP, STEP)
def test_turned_round_every_change_changes_its_sign(
    build: Build, one: Any, other: Any
) -> None:
    a, b = build(pieces(one)), build(pieces(other))
    there, back = diff(a, b).accounting, diff(b, a).accounting
    assert (there.step_ns, there.rows_ns) == (-back.step_ns, -back.rows_ns)


def test_one_stream_without_overlap_is_explained_in_full(build: Build) -> None:
    a = [("aten::mm", "gemm", 40.0), ("aten::gelu", "gelu_kernel", 30.0)]
    b = [("aten::mm", "gemm", 20.0), ("aten::gelu", "gelu_kernel", 35.0)]
    sums = diff(build(a), build(b)).accounting
    assert (sums.step_ns, sums.rows_ns, sums.idle_ns) == (-15_000, -15_000, 0)
    assert sums.not_explained_ns == 0


def test_work_that_runs_beside_other_work_makes_the_step_no_longer(
    build: Build,
) -> None:
    alone = [("aten::mm", "gemm", 40.0, 7)]
    beside = [*alone, ("aten::copy_", "copy_kernel", 20.0, 13)]
    found = diff(build(alone), build(beside))
    assert found.accounting.rows_ns == 20_000
    assert found.accounting.overlap_ns == -found.side_b.overlap_ns < 0
    assert found.accounting.not_explained_ns == 0


def test_work_that_leaves_its_step_is_told_from_idle_time(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    def late(by: int) -> Trace:
        events = []
        for step in range(5):
            begin = 1000 * step
            plain = {"ph": "X", "pid": 1, "tid": 1, "cat": "user_annotation"}
            events.append(
                {**plain, "name": f"ProfilerStep#{step}", "ts": begin, "dur": 1000}
            )
            events += launched(step + 1, begin + 100, begin + by, 200)
        return trace_of(events)

    a, b = late(200), late(900)
    found = diff(a, b)
    sums = found.accounting
    assert (found.side_a.later_ns, found.side_b.later_ns) == (0, 100_000)
    assert (sums.step_ns, sums.rows_ns, sums.later_ns) == (0, 0, -100_000)
    assert sums.earlier_ns + sums.idle_ns == 100_000


def test_the_mean_of_the_usual_steps_is_the_median_step(build: Build) -> None:
    pieces = [("aten::mm", "gemm", 100.0), ("aten::gelu", "gelu_kernel", 60.0)]
    a = build(pieces, factors=(1.0, 1.3, 1.1, 1.4, 2.5, 1.2))
    b = build(pieces, factors=(2.1, 1.9, 1.5, 3.0, 2.0, 1.8))
    found = diff(a, b)
    assert abs(found.accounting.not_explained_ns) <= found.accounting.step_ns // 100


def whole(sums: Accounting) -> int:
    beside = sums.overlap_ns + sums.later_ns + sums.earlier_ns + sums.odd_ns
    return sums.rows_ns + sums.idle_ns + beside + sums.not_explained_ns
