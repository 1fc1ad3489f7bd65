"""Real traces, where they are at hand: nothing raises and nothing beats the device.

FUSETUI_TRACES names the folder.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.places import TRACES

from fusetui.gpu.roofline.inputs import NS
from fusetui.gpu.roofline.peaks import Peak, peak_of
from fusetui.gpu.roofline.row import (
    KernelJob,
    describe,
    properties_of,
    remarks,
    work_of,
)
from fusetui.trace import Trace, open_trace

NAMES = (
    "a100_switch_transformer",
    "a100_train_diff_control",
    "b200_vllm_eager",
    "h100_Qwen1.5-0.5B",
    "h100_bert-small",
    "h100_transformer_step",
    "mi300_Qwen1.5-0.5B",
    "mi300_ddp_resnet18",
    "mi300_torch_compile_triton",
    "mi300_vllm_decode_graph",
    "v100_absolute_ns",
    "v100_resnet50_2021",
    "v100_train_diff_test",
    "xpu_fixture",
)
# what a kernel computed, its ns, and its device
Work = tuple[KernelJob, int, Peak | None]
ROUGH = 20_000  # ns: in files with whole microseconds, shorter durations say little


@pytest.fixture(scope="module", params=NAMES)
def trace(request: pytest.FixtureRequest) -> Trace:
    path = TRACES / f"{request.param}.json.gz"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    return open_trace(str(path))


@pytest.fixture(scope="module")
def works(trace: Trace) -> list[Work]:
    found = ((row, work_of(trace, row)) for row in trace.gpu_rows.tolist())
    return [
        (work, int(trace.dur[row]), peak_of(properties_of(trace, row)))
        for row, work in found
        if work is not None
    ]


def test_every_kernel_has_an_answer(trace: Trace) -> None:
    of_names = np.unique(trace.name[trace.gpu_rows], return_index=True)[1]
    for row in trace.gpu_rows[of_names].tolist():
        assert "\n" not in describe(trace, row)
        assert all(remarks(trace, row))


def test_no_kernel_of_real_traces_is_faster_than_its_peak(works: list[Work]) -> None:
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
