"""The account of devices: against the slow computation, and on real traces."""

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
from tests.analysis.why.test_account import only
from tests.places import TRACES
from tests.trace.test_corpus import ROWS

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
        int(device.line.begin_ns[device.number]), int(device.line.end_ns[device.number])
    )
    begin, end = np.array(windows).T
    for (first, last), found in zip(windows, device.over(begin, end), strict=True):
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_account_of_real_traces_equals_the_slow_computation(
    row: dict[str, str],
) -> None:
    """Every trace of the folder: the span of each device, some steps, and windows
    anywhere. The slow computation takes a tenth of a second for a window."""
    trace = open_trace(str(TRACES / row["file"]))
    steps = steps_of(trace)
    dice = random.Random(row["file"])
    windows = list(zip(steps.start.tolist(), steps.end.tolist(), strict=True))
    if len(windows) > MAX_STEPS:
        windows = [windows[0], *dice.sample(windows[1:-1], MAX_STEPS - 2), windows[-1]]
    for _ in range(3):
        one, two = (dice.randint(trace.begin_ns, trace.end_ns) for _ in range(2))
        windows.append((min(one, two), max(one, two)))
    slow = Slow(trace)
    for device in Accounts(trace).devices:
        agree(device, SlowDevice(slow, device.pid), windows)


MEASURED = {
    "v100_resnet50_2021": {
        "idle": 392.919,
        "host_annotation": 192.442,
        "host_op": 168.396,
        "launch_call": 14.946,
        "queued": 11.451,
        "launch_latency": 3.469,
        "host_nothing": 1.668,
        "host_call": 0.493,
        "host_sync": 0.054,
    },
    "h100_Qwen1.5-0.5B": {
        "idle": 4.006,
        "queued": 1.760,
        "unlinked": 0.728,
        "host_python": 0.717,
        "host_op": 0.572,
        "launch_call": 0.179,
        "launch_latency": 0.027,
        "host_call": 0.012,
        "host_sync": 0.012,
    },
    "b300_deepseek_r1_decode": {
        "idle": 1.860,
        "launch_call": 0.758,
        "host_python": 0.705,
        "host_op": 0.351,
        "queued": 0.023,
        "host_call": 0.022,
    },
    "nccl_collectives": {
        "idle": 503.051,
        "host_op": 394.452,
        "host_annotation": 44.756,
        "host_nothing": 28.072,
        "launch_call": 25.467,
        "host_call": 4.582,
        "queued": 2.948,
        "launch_latency": 2.724,
        "host_sync": 0.051,
    },
    "h100_owlv2": {"idle": 511.529, "host_python": 493.762},
}
"""Milliseconds, as measured before there was this code; of v100_resnet50_2021 and
nccl_collectives with what each of the two threads does that wait for one another,
autograd's engine and the one that asks it for backward, by a script of its own."""


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"there are no traces in {TRACES}")
@pytest.mark.parametrize("name", MEASURED)
def test_idle_reasons_of_real_traces_equal_earlier_measurements(name: str) -> None:
    account = only(open_trace(str(TRACES / f"{name}.json.gz")))
    found = {reason: round(ns / 1e6, 3) for reason, ns in account.idle.items()}
    found["idle"] = round(account.idle_ns / 1e6, 3)
    assert {key: found[key] for key in MEASURED[name]} == MEASURED[name]
    if len(MEASURED[name]) > 2:
        assert found.keys() == MEASURED[name].keys()


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"there are no traces in {TRACES}")
def test_measured_before_in_a_step() -> None:
    """The GPU is idle for longer in the step than in its span, which begins later."""
    trace = open_trace(str(TRACES / "h100_owlv2.json.gz"))
    (device,), steps = Accounts(trace).devices, steps_of(trace)
    (account,) = device.over(steps.start, steps.end)
    assert [round(ns / 1e6) for ns in (account.span_ns, account.idle_ns)] == [
        1_211,
        644,
    ]


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"there are no traces in {TRACES}")
def test_step_of_owlv2_has_its_measured_span_and_idle_time() -> None:
    trace = open_trace(str(TRACES / "h100_owlv2.json.gz"))
    (device,) = Accounts(trace).devices
    assert round(device.span.span_ns / 1e6, 1) == 1078.3
    steps = steps_of(trace)
    (step,) = device.over(steps.start, steps.end)
    assert (round(step.span_ns / 1e6), round(step.idle_ns / 1e6)) == (1211, 644)
