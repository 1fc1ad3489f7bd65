"""Stretches of idle time hold, in any window, exactly what the account says of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.analysis.why.test_account import call, kernel
from tests.corpus.fixtures import any_of

from fusetui.analysis.why.account import Accounts, Device
from fusetui.analysis.why.idle_time import prepare_idle_times
from fusetui.trace import Trace, open_trace

Make = Callable[..., Any]
any_trace = any_of("training", "graphs", "waits", "job/rank2")


def agrees(device: Device, edges: np.ndarray[Any, np.dtype[np.int64]]) -> None:
    found = prepare_idle_times(device.axis)[device.index_on_axis]
    names = [reason.name for reason in found.reasons]
    wanted = device.account_for_windows(edges[:-1], edges[1:])
    for column, account in zip(
        found.measure_between_edges(edges).T.tolist(), wanted, strict=True
    ):
        assert {
            name: ns for name, ns in zip(names, column, strict=True) if ns
        } == account.idle


def busy_and_idle() -> Iterator[dict[str, Any]]:
    """Gaps in which the launching thread waits, runs ops, Python, and nothing."""
    for n in range(4):
        at = 1000 * n
        yield call("train.py(1): step", at, 300 + 100 * n, cat="python_function")
        yield call("aten::mm", at + 50, 100, cat="cpu_op")
        yield call("cudaDeviceSynchronize", at + 200, 80)
        yield call("cudaLaunchKernel", at + 340, 20, n + 1)
        yield kernel(at + 400, 90, n + 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.sets(st.integers(0, 3_600_000), min_size=2, max_size=20))
def test_idle_intervals_of_any_window_equal_its_account(
    trace_of: Make, times: set[int]
) -> None:
    trace = trace_of(busy_and_idle())
    (device,) = Accounts(trace).devices
    agrees(device, np.array(sorted(times)) + trace.begin_ns)


def test_idle_intervals_of_traces_equal_their_account(any_trace: Path) -> None:
    trace: Trace = open_trace(str(any_trace))
    for device in itertools.islice(Accounts(trace).devices, 2):
        agrees(device, np.linspace(trace.begin_ns, trace.end_ns, 40).astype(np.int64))


def test_the_longest_gap_is_told_first(trace_of: Make) -> None:
    trace = trace_of([kernel(0, 10), kernel(20, 10), kernel(100, 10)])
    (device,) = Accounts(trace).devices
    found = prepare_idle_times(device.axis)[device.index_on_axis]
    assert found.longest.tolist() == [1, 0]
    assert [gap.dur_ns for gap in found.longest_gaps] == [70_000, 10_000]
    assert found.find_gap_at(trace.begin_ns + 50_000) == 1
    assert found.find_gap_at(trace.begin_ns + 5_000) == -1
    assert found.measure_window(trace.begin_ns, trace.end_ns) == {"unlinked": 80_000}
