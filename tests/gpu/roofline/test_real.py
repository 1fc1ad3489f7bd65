"""Real traces, where they are at hand: nothing raises and nothing beats the device.

FUSETUI_TRACES names the folder.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.places import TRACES

from fusetui.gpu.roofline.inputs import KernelWork
from fusetui.gpu.roofline.peaks import Peak, peak_of
from fusetui.gpu.roofline.row import describe, properties_of, remarks, work_of
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
ROUGH = 20_000  # ns: in files with whole microseconds, shorter durations say little


@pytest.fixture(scope="module", params=NAMES)
def trace(request: pytest.FixtureRequest) -> Trace:
    path = TRACES / f"{request.param}.json.gz"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    return open_trace(str(path))


@pytest.fixture(scope="module")
def works(trace: Trace) -> list[tuple[KernelWork, Peak | None]]:
    found = ((row, work_of(trace, row)) for row in trace.gpu_rows.tolist())
    return [(work, peak_of(properties_of(trace, row))) for row, work in found if work is not None]


def test_every_kernel_has_an_answer(trace: Trace) -> None:
    of_names = np.unique(trace.name[trace.gpu_rows], return_index=True)[1]
    for row in trace.gpu_rows[of_names].tolist():
        assert "\n" not in describe(trace, row)
        assert all(remarks(trace, row))


def test_no_kernel_beats_its_device(works: list[tuple[KernelWork, Peak | None]]) -> None:
    for work, peak in works:
        assert (work.share_of_compute or 0) <= 1.05, work
        assert (work.share_of_bandwidth or 0) <= 1.05, work
        # Also what is not said, of sizes that no cache explains.
        if peak and work.bytes_per_s and work.ns >= ROUGH and work.bytes is not None:
            fits = work.bytes < 4 * peak.cache_bytes
            assert fits or work.bytes_per_s <= 1.05 * (peak.bytes_per_s or 0), work


def test_rates_are_plausible(works: list[tuple[KernelWork, Peak | None]]) -> None:
    for work, _ in works:
        assert work.flop is None or 0 <= work.flop < 10**16
        assert (work.flop_per_s or 0) < 5e15
        assert work.waves is None or work.tiles is not None
        assert work.flop is None or work.kind != "elementwise"
