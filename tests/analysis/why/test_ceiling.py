"""The ceiling: what every kernel's work would take at attainable rates, worked out by
hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui.analysis.questions.busy import measure_effective_ns
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.model import Ceiling
from fusetui.gpu.roofline.many import jobs
from fusetui.gpu.roofline.peaks import (
    ASSUMED_SHARE,
    BANDWIDTH,
    KINDS,
    MEASURED,
    PEAKS,
    attainable,
    is_assumed,
    peak_of,
)
from fusetui.gpu.roofline.row import work_of
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.categories import Role

Make = Callable[..., Any]
BF16 = "c10::BFloat16"
GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul>)"
)


def bounded(trace: Trace, given: dict[str, float] | None = None) -> Kernels:
    """The kernels of a trace, on devices with these figures."""
    found = Kernels(trace, trace.rows_of(Role.KERNEL), trace.begin_ns, trace.end_ns)
    found.jobs = jobs(trace, overrides=given or {})
    return found


@pytest.fixture
def kernel(trace_of: Make, event: Make) -> Callable[..., Trace]:
    """One kernel under one op on an A100."""

    def make(
        op: str, dims: list[list[int]], name: str, us: float, sms: int = 108
    ) -> Trace:
        link = {"correlation": 1}
        args = {
            "Input Dims": dims,
            "Input type": [BF16] * len(dims),
            "Input Strides": [[shape[1], 1] for shape in dims],
        }
        device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": sms}
        trace: Trace = trace_of(
            [
                event(op, 0, 50, args=args),
                event("cudaLaunchKernel", 5, 5, cat="cuda_runtime", args=link),
                event(name, 100, us, cat="kernel", pid=0, tid=7, args=link),
            ],
            deviceProperties=[device],
        )
        return trace

    return make


def test_a_product_at_the_measured_rate(kernel: Callable[..., Trace]) -> None:
    """2 * 8192^3 FLOP at 271.2 TFLOP/s (A100 SXM, bf16) are 4,054,246 ns."""
    trace = kernel("aten::mm", [[8192, 8192]] * 2, GEMM, us=5000)
    bound = round(2 * 8192**3 / 271.2e12 * 1e9)
    assert bound == 4_054_246
    at_most = 5_000_000 - int(2 * 8192**3 / 312e12 * 1e9)  # by the data sheet
    assert bounded(trace).ceiling == Ceiling(
        5_000_000, 0, 5_000_000 - bound, 0, at_most
    )


def test_memory_bound_kernel_has_the_bound_of_0_8_times_bandwidth(
    kernel: Callable[..., Trace],
) -> None:
    """Three tensors of 128 MiB at 0.8 * 2,039 GB/s."""
    trace = kernel("aten::add", [[8192, 8192]] * 2, ADD, us=400)
    bound = round(3 * 8192 * 8192 * 2 / (0.8 * 2039e9) * 1e9)
    at_most = 400_000 - int(3 * 8192 * 8192 * 2 / 2039e9 * 1e9)
    found = bounded(trace).ceiling
    assert found == Ceiling(
        400_000, 0, 400_000 - bound, assumed_ns=400_000, at_most_ns=at_most
    )


def test_faster_than_attainable_has_nothing_at_stake(
    kernel: Callable[..., Trace],
) -> None:
    """By the estimate; the data sheet leaves room."""
    found = bounded(kernel("aten::mm", [[8192, 8192]] * 2, GEMM, us=4000)).ceiling
    assert (found.known_ns, found.at_stake_ns) == (4_000_000, 0)
    assert found.at_most_ns == 4_000_000 - int(2 * 8192**3 / 312e12 * 1e9)


def test_no_kernel_is_expected_below_two_microseconds(
    kernel: Callable[..., Trace],
) -> None:
    trace = kernel("aten::mm", [[640, 640]] * 2, GEMM, us=3)
    found = bounded(trace).bounds
    assert (found.bound_ns.tolist(), found.excess_ns.tolist()) == ([2000], [1000])


def test_an_unknown_device_settles_nothing(kernel: Callable[..., Trace]) -> None:
    trace = kernel("aten::mm", [[8192, 8192]] * 2, GEMM, us=5000, sms=56)
    assert bounded(trace).ceiling == Ceiling(0, 5_000_000, 0, 0)
    given = bounded(trace, {"bf16": 300e12, BANDWIDTH: 1e12}).ceiling
    bound = round(2 * 8192**3 / (0.8 * 300e12) * 1e9)
    assert (given.at_stake_ns, given.assumed_ns) == (5_000_000 - bound, 5_000_000)
    assert given.at_most_ns == 5_000_000 - int(2 * 8192**3 / 300e12 * 1e9)


def test_attainable_figures_are_below_the_data_sheets() -> None:
    names = {
        "A100-SXM4-80GB": 108,
        "A100 80GB PCIe": 108,
        "H100 80GB HBM3": 132,
        "H200": 132,
    }
    names |= {"B200": 148, "B300": 148, "MI300X": 304, "MI325X": 304, "MI355X": 256}
    for name, sms in names.items():
        peak = peak_of({"name": name, "numSms": sms})
        assert peak is not None
        reached = attainable(peak)
        assert not is_assumed(peak, "bf16")
        assert all(
            reached.teraflops[kind] < rate for kind, rate in peak.teraflops.items()
        )
    assert len(names) == len(MEASURED)
    assert all(rates.keys() <= set(KINDS) for _, rates, _ in MEASURED)


def test_the_attainable_rate_of_a_given_peak_is_an_assumed_share_of_it() -> None:
    peak = peak_of({"name": "NVIDIA H200", "numSms": 132}, {"bf16": 500e12})
    assert peak is not None
    assert (is_assumed(peak, "bf16"), is_assumed(peak, "fp8")) == (True, False)
    assert attainable(peak).flop_per_s("bf16") == pytest.approx(0.8 * 500e12)


def test_attainable_rate_of_an_unmeasured_device_is_assumed() -> None:
    peak = peak_of({"name": "NVIDIA L4", "numSms": 58})
    assert peak is not None
    assert is_assumed(peak, "bf16")
    assert attainable(peak).flop_per_s("bf16") == pytest.approx(ASSUMED_SHARE * 121e12)
    assert len(PEAKS) > len(MEASURED)


def test_known_and_unknown_time_below_the_ceiling_add_up(any_trace: Path) -> None:
    """And a few kernels are bounded as the formula has it, from what is found for each
    alone."""
    trace = open_trace(str(any_trace))
    found = bounded(trace)
    total, bound_ns = found.ceiling, found.bounds.bound_ns
    own = dict(
        zip(trace.gpu_rows.tolist(), measure_effective_ns(trace).tolist(), strict=True)
    )
    assert total.known_ns + total.unknown_ns == sum(own[r] for r in found.rows.tolist())
    assert 0 <= total.at_stake_ns <= total.known_ns
    for n in range(0, len(found.rows), max(1, len(found.rows) // 50)):
        at = int(found.rows[n])
        work, ns = work_of(trace, at), int(trace.dur[at])
        assert (bound_ns[n] >= 0) == (
            work is not None and work.limits.share(ns) is not None
        )
        if bound_ns[n] >= 0:
            stake = max(0, own[int(found.rows[n])] - int(bound_ns[n]))
            assert found.bounds.excess_ns[n] == stake
