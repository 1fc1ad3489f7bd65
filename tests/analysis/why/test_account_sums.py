"""The account of devices, against the slow computation."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analysis.why.slow import Slow, SlowDevice

from fusetui.analysis.why.account import Accounts, Device
from fusetui.analysis.why.model import DeviceAccount
from fusetui.trace import open_trace
from fusetui.trace.layout.steps import steps_of


def plain(account: DeviceAccount) -> dict[str, Any]:
    figures = msgspec.structs.asdict(account)
    del figures["name"]
    return figures


def adds_up(account: DeviceAccount) -> bool:
    parts = account.compute_ns + account.exposed_comm_ns + account.exposed_copy_ns
    return (
        parts + account.idle_ns == account.span_ns
        and sum(account.idle.values()) == account.idle_ns
        and min(account.idle.values(), default=1) > 0
    )


def agree(device: Device, slow: SlowDevice, windows: list[tuple[int, int]]) -> None:
    span = device.span
    assert adds_up(span)
    assert plain(span) == slow.account(
        int(device.axis.begin_ns[device.index_on_axis]),
        int(device.axis.end_ns[device.index_on_axis]),
    )
    begin, end = np.array(windows).T
    for (first, last), found in zip(
        windows, device.account_for_windows(begin, end), strict=True
    ):
        assert adds_up(found)
        assert plain(found) == slow.account(first, last)


NAMES = {
    "cuda_runtime": (
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        "cudaFree",
        "cudaEventSynchronize",
    ),
    "cpu_op": ("aten::a", "Optimizer.step#A"),
    "python_function": ("f.py(1): f",),
    "user_annotation": ("note",),
    "kernel": ("k", "ncclKernel"),
    "gpu_memcpy": (
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy PtoP (Device -> Device)",
    ),
    "overhead": ("noise",),
}
slices = st.builds(
    lambda cat, name, ts, dur, tid, number: {
        "ph": "X",
        "cat": cat,
        "name": NAMES[cat][name % len(NAMES[cat])],
        "ts": ts,
        "dur": dur,
        "pid": tid % 2 if cat in ("kernel", "gpu_memcpy") else 5,
        "tid": tid,
        "args": {"correlation": number},
    },
    st.sampled_from(list(NAMES)),
    st.integers(0, 3),
    st.integers(0, 60),
    st.sampled_from([0, 1, 2, 3, 7, 20]),
    st.integers(0, 3),
    st.integers(0, 8),
)


MAX_STEPS = 4
"""Of a real trace: the first, the last, and others at random."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@settings(max_examples=150)
@given(
    events=st.lists(slices, min_size=1, max_size=40),
    edges=st.lists(st.integers(-5, 90)),
)
def test_account_of_any_small_trace_equals_the_slow_computation(
    folder: Path, events: list[dict[str, Any]], edges: list[int]
) -> None:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    trace = open_trace(str(path), cached=False)
    times = sorted(1000 * edge for edge in (*edges, 0, 60))
    windows = [(a, b) for a in times[:4] for b in times if b >= a]
    slow = Slow(trace)
    for device in Accounts(trace).devices:
        agree(device, SlowDevice(slow, device.pid), windows)


def test_account_of_traces_equals_the_slow_computation(any_trace: Path) -> None:
    """The span of each device, some steps, and windows anywhere. The slow computation
    takes a tenth of a second for a window."""
    trace = open_trace(str(any_trace))
    steps = steps_of(trace)
    dice = random.Random(any_trace.name)
    windows = list(zip(steps.start.tolist(), steps.end.tolist(), strict=True))
    if len(windows) > MAX_STEPS:
        windows = [windows[0], *dice.sample(windows[1:-1], MAX_STEPS - 2), windows[-1]]
    for _ in range(3):
        one, two = (dice.randint(trace.begin_ns, trace.end_ns) for _ in range(2))
        windows.append((min(one, two), max(one, two)))
    slow = Slow(trace)
    for device in Accounts(trace).devices:
        agree(device, SlowDevice(slow, device.pid), windows)
