"""The work of many kernels is that of each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.corpus.fixtures import any_of

from fusetui.gpu.roofline.many import find_peaks_of_devices, has_known_share, jobs
from fusetui.gpu.roofline.row import work_of
from fusetui.trace import Trace, open_trace

Make = Callable[..., Any]
GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
REDUCE = "void splitKreduce_kernel<32, 16, int, __nv_bfloat16, float>(p)"
any_trace = any_of("training", "lesson-mlp-eager", "job/rank0", "sample-mlp-eager")


def agrees(trace: Trace, most: int = 300) -> int:
    """Compares some kernels with each computed alone; returns how many have work."""
    found = jobs(trace)
    places = np.unique(
        np.linspace(0, max(len(found.rows) - 1, 0), most).astype(int)
    ).tolist()
    known = 0
    for place in places if len(found.rows) else ():
        row, number = int(found.rows[place]), int(found.number[place])
        work = found.distinct[number] if number >= 0 else None
        assert work == work_of(trace, row)
        share = work.limits.share(int(trace.dur[row])) if work else None
        assert has_known_share(trace, found)[place] == (share is not None)
        known += work is not None
    return known


def test_work_of_many_kernels_is_that_of_each_alone(any_trace: Path) -> None:
    agrees(open_trace(str(any_trace)))


def test_equal_kernels_have_one_job(trace_of: Make, event: Make) -> None:
    """Ten products: nine with the same shapes, one of which has a helper kernel."""
    events = []
    for n in range(10):
        shapes = [[8192, 4096], [4096, 4096 if n else 64]]
        args = {"Input Dims": shapes, "Input type": ["c10::BFloat16"] * 2, "Ev Idx": n}
        events.append(event("aten::mm", 100 * n, 90, args=args))
        for k, kernel in enumerate([GEMM, REDUCE][: 2 if n == 5 else 1]):
            link = {"args": {"correlation": 10 * n + k + 1}}
            events.append(
                event(
                    "cudaLaunchKernel", 100 * n + 9 * k, 5, cat="cuda_runtime", **link
                )
            )
            place = {"cat": "kernel", "pid": 0, "tid": 7, **link}
            events.append(event(kernel, 10_000 + 1000 * n + 600 * k, 500, **place))
    trace = trace_of(events)
    found = jobs(trace)
    assert len(found.distinct) == 3
    assert np.bincount(found.number[found.number >= 0]).tolist() in (
        [1, 8, 1],
        [8, 1, 1],
        [1, 1, 8],
    )
    assert agrees(trace) == 10


def test_devices_and_what_is_known_of_them(trace_of: Make, event: Make) -> None:
    kernels = [event("k", 0, 5, cat="kernel", pid=pid, tid=7) for pid in (0, 1, 2)]
    listed = [
        {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108},
        {"id": 1, "name": "Foo"},
        {"id": 2},
    ]
    found = find_peaks_of_devices(trace_of(kernels, deviceProperties=listed))
    assert [(d.device, d.name, d.peak is not None) for d in found] == [
        (0, "NVIDIA A100-SXM4-80GB", True),
        (1, "Foo", False),
        (2, None, False),
    ]
    given = find_peaks_of_devices(
        trace_of(kernels, deviceProperties=listed), {"bf16": 1e15}
    )
    assert all(d.peak and d.peak.flop_per_s("bf16") == 1e15 for d in given)
