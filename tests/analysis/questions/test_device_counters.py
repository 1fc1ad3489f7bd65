"""The mean of a counter while a kernel runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.analysis.questions.device_counters import (
    DeviceCounter,
    choose_device_counters,
    parse_device,
)
from fusetui.trace.layout.counters import Counter


def counter(times: list[int], values: list[float], label: str = "Power (W)") -> Counter:
    of = (np.array(times, dtype=np.int64), np.array(values, dtype=np.float64))
    return Counter("counters", label, "", "GPU 0 Counters", *of)


def mean(one: Counter, begin: int, end: int) -> float:
    device = DeviceCounter(0, "power", "W", one)
    return float(device.mean(np.array([begin]), np.array([end]))[0])


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (0, 10, 5.0),
        (5, 15, 6.0),  # 5 ns of 5, 5 ns of 7
        (12, 12, 7.0),  # empty
        (20, 21, 9.0),
        (-1, 5, np.nan),  # before the first value
        (20, 121, np.nan),  # the last value does not hold so long
    ],
)
def test_the_mean_is_weighted_by_time(begin: int, end: int, expected: float) -> None:
    assert mean(counter([0, 10, 20], [5.0, 7.0, 9.0]), begin, end) == pytest.approx(
        expected, nan_ok=True
    )


def test_a_pause_of_the_samples_is_not_bridged() -> None:
    one = counter([0, 10, 20, 30, 1000, 1010], [1.0] * 6)
    assert np.isnan(mean(one, 25, 1005))
    assert np.isnan(mean(one, 500, 510))
    assert mean(one, 1001, 1009) == 1.0


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 99)), min_size=2, max_size=9),
    st.integers(0, 80),
    st.integers(1, 20),
)
def test_counter_mean_equals_the_mean_of_every_nanosecond(
    steps: list[tuple[int, int]], begin: int, length: int
) -> None:
    times = np.cumsum([gap for gap, _ in steps]).tolist()
    values = [float(value) for _, value in steps]
    found = mean(counter(times, values), begin, begin + length)
    if np.isnan(found):
        return
    at = [
        max(n for n, time in enumerate(times) if time <= t)
        for t in range(begin, begin + length)
    ]
    assert found == pytest.approx(float(np.mean([values[n] for n in at])))


@pytest.mark.parametrize(
    ("pid", "device"),
    [("GPU 3 Counters", 3), ("GPU 3", 3), (7, 7), ("Counters", None), ("GPU x", None)],
)
def test_whose_a_counter_is(pid: object, device: object) -> None:
    assert parse_device(pid) == device  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("SM Clock (MHz)", "SM clock"),
        ("GPC Clock Frequency [MHz]", "SM clock"),
        ("SMs Active [Throughput %]", "SM activity"),
        ("DRAM Read Bandwidth [Throughput %]", "DRAM read"),
        ("HBM BW (%)", "DRAM activity"),
        ("HBM BW/Write (%)", "DRAM write"),
    ],
)
def test_counter_labels_decide_the_kind(label: str, kind: str) -> None:
    assert [
        one.kind for one in choose_device_counters([counter([0], [1.0], label)])
    ] == [kind]


def test_counters_that_are_not_of_devices_are_left_out() -> None:
    assert not choose_device_counters([counter([0], [1.0], "Fan Speed (%)")])
