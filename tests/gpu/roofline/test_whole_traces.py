"""Whole traces: nothing raises and nothing beats the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.corpus.files import WITH_GPU
from tests.corpus.fixtures import any_of

from fusetui.gpu.roofline.inputs import NS
from fusetui.gpu.roofline.peaks import Peak, peak_of
from fusetui.gpu.roofline.row import (
    KernelJob,
    describe_work,
    find_device_properties,
    remarks,
    work_of,
)
from fusetui.trace import Trace, open_trace

any_trace = any_of(*WITH_GPU)
# what a kernel computed, its ns, and its device
Work = tuple[KernelJob, int, Peak | None]
ROUGH = 20_000  # ns: in files with whole microseconds, shorter durations say little


@pytest.fixture(scope="module")
def trace(any_trace: Path) -> Trace:
    return open_trace(str(any_trace))


@pytest.fixture(scope="module")
def works(trace: Trace) -> list[Work]:
    found = ((row, work_of(trace, row)) for row in trace.gpu_rows.tolist())
    return [
        (work, int(trace.dur[row]), peak_of(find_device_properties(trace, row)))
        for row, work in found
        if work is not None
    ]


def test_every_kernel_has_an_answer(trace: Trace) -> None:
    of_names = np.unique(trace.name[trace.gpu_rows], return_index=True)[1]
    for row in trace.gpu_rows[of_names].tolist():
        assert "\n" not in describe_work(trace, row)
        assert all(remarks(trace, row))


def test_no_kernel_of_a_trace_is_faster_than_its_peak(works: list[Work]) -> None:
    for work, ns, peak in works:
        amount, limits = work.amount, work.limits
        assert ns == 0 or (limits.compute_ns or 0) / ns <= 1.05, work
        assert (limits.share(ns) or 0) <= 1.05, work
        # Also what is not said, of sizes that no cache explains.
        if peak and ns >= ROUGH and amount.bytes:
            fits = amount.bytes < 4 * peak.cache_bytes
            assert fits or amount.bytes * NS / ns <= 1.05 * (peak.bytes_per_s or 0), (
                work
            )


def test_rates_are_plausible(works: list[Work]) -> None:
    for work, ns, _ in works:
        amount = work.amount
        assert amount.flop is None or 0 <= amount.flop < 10**16
        assert ns == 0 or (amount.flop or 0) * NS / ns < 5e15
        assert amount.flop is None or amount.kind != "elementwise"
