"""Collectives on the stream that computes, as torch launches synchronous ones since
2.8."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusetui.analysis.ranks.model import RankSummary
from fusetui.analysis.ranks.summary import read_summary

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
WAIT_US = 1500


def launched(
    number: int, name: str, begin: float, duration: float
) -> list[dict[str, Any]]:
    """A kernel of stream 7 and its launch call (us), 20 us before the kernel or
    earlier."""
    call = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 1,
        "tid": 1,
    }
    call |= {"ts": 10.0 * number, "dur": 5.0, "args": {"correlation": number}}
    kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7}
    args = {"correlation": number, "stream": 7, "device": 0}
    kernel |= {"ts": begin, "dur": duration, "args": args}
    return [call, kernel]


@pytest.mark.parametrize("overlap_us", [0.0, 0.01, 0.4, 2.0])
def test_a_wait_counts_though_the_next_kernel_seems_to_start_before_its_end(
    tmp_path: Path, overlap_us: float
) -> None:
    """Times are rounded, and programmatic launches begin before the kernel ahead has
    ended."""
    end = 200 + WAIT_US
    events = [
        *launched(1, GEMM, 100, 100),
        *launched(2, NCCL, 200, WAIT_US),
        *launched(3, GEMM, end - overlap_us, 100),
    ]
    process_group = {
        "Process Group Name": "0",
        "Collective name": "allreduce",
        "In msg nelems": 9,
    }
    process_group |= {
        "Group size": 2,
        "dtype": "BFloat16",
        "Process Group Ranks": "[0, 1]",
    }
    events[3]["args"] |= process_group
    path = tmp_path / "rank0.json"
    job = {"backend": "nccl", "rank": 0, "world_size": 2}
    path.write_text(json.dumps({"distributedInfo": job, "traceEvents": events}))
    summary = read_summary(str(path), cached=False)
    assert isinstance(summary, RankSummary)
    np.testing.assert_array_equal(summary.collectives.stalled, [WAIT_US * 1000])
