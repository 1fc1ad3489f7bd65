"""Clocks and power while kernels run."""

from __future__ import annotations

import pytest

from .conftest import Ask
from .work import A100, ADD, ROWS, Event, work

FAST, SLOW = 2000, 1000  # MHz


def counted(
    name: str, values: list[int], pid: object = "GPU 0 Counters"
) -> list[Event]:
    """A value for each kernel of `ran`, from its start on."""
    return [
        {
            "ph": "C",
            "name": name,
            "pid": pid,
            "ts": 1_000 + 100 * n,
            "args": {"": value},
        }
        for n, value in enumerate(values)
    ]


def ran(*durations: int) -> list[Event]:
    """Kernels that start every 100 us."""
    events = work(*((("aten::add", ADD, dur)) for dur in durations), args=ROWS)
    kernels = [event for event in events if event["cat"] == "kernel"]
    for n, kernel in enumerate(kernels):
        kernel["ts"] = 1_000 + 100 * n
    return events


def clocks(values: list[int], pid: object = "GPU 0 Counters") -> list[Event]:
    return counted("SM Clock (MHz)", values, pid)


HALF = [FAST] * 20 + [SLOW] * 20


def test_slower_runs_at_a_lower_clock(found: Ask) -> None:
    """20 runs took 8 us longer than 10 us; the clock explains half of 18 us each."""
    (finding,) = found(
        "clock-drop", [*ran(*[10] * 20, *[18] * 20), *clocks(HALF)], **A100
    )
    assert finding.at_stake_ns == 20 * 8_000
    assert "20 runs of 1 kernel" in finding.text
    assert "1,000 instead of 2,000 MHz" in finding.text


def test_no_more_than_the_clock_explains(found: Ask) -> None:
    (finding,) = found(
        "clock-drop", [*ran(*[10] * 20, *[50] * 20), *clocks(HALF)], **A100
    )
    assert finding.at_stake_ns == 20 * 25_000


@pytest.mark.parametrize(
    ("durations", "values", "pid"),
    [
        ([10] * 20 + [18] * 20, [], "GPU 0 Counters"),  # not recorded
        ([10] * 20 + [18] * 20, HALF, "GPU 1 Counters"),  # of another device
        ([10] * 20 + [18] * 20, HALF, "Counters"),  # of an unknown device
        ([10] * 20 + [18] * 20, [FAST] * 40, "GPU 0 Counters"),  # locked
        ([10] * 40, HALF, "GPU 0 Counters"),  # it does not matter to this kernel
        ([10, 18] * 20, HALF, "GPU 0 Counters"),  # they vary, but not with the clock
        ([18] * 20 + [10] * 20, HALF, "GPU 0 Counters"),  # faster at the lower clock
        ([10] * 9 + [18] * 9, [FAST] * 9 + [SLOW] * 9, "GPU 0 Counters"),  # too few
    ],
)
def test_clock_drop_is_silent(
    found: Ask, durations: list[int], values: list[int], pid: str
) -> None:
    assert found("clock-drop", [*ran(*durations), *clocks(values, pid)], **A100) == []


def power(values: list[int]) -> list[Event]:
    return counted("Power (W)", values)


def test_power_capped_reports_slower_runs_at_the_power_limit(found: Ask) -> None:
    events = [
        *ran(*[10] * 20, *[18] * 20),
        *clocks(HALF),
        *power([300] * 20 + [400] * 20),
    ]
    (finding,) = found("power-capped", events, **A100)
    assert finding.at_stake_ns == 20 * 9_000
    assert finding.certainty == "likely"
    assert "its highest power, 400 W," in finding.text
    assert "for 64 % of its compute time." in finding.text


@pytest.mark.parametrize(
    ("values", "watts"),
    [
        (HALF, []),  # not recorded
        ([], [300] * 20 + [400] * 20),
        ([FAST] * 40, [300] * 20 + [400] * 20),  # at full clock
        (HALF, [400] * 20 + [300] * 20),  # less power at the lower clock: heat
        (HALF, [400] * 40),  # power does not change
        ([FAST] * 35 + [SLOW] * 5, [300] * 35 + [400] * 5),  # seldom
    ],
)
def test_power_capped_is_silent(
    found: Ask, values: list[int], watts: list[int]
) -> None:
    events = [*ran(*[10] * 40), *clocks(values), *power(watts)]
    assert found("power-capped", events, **A100) == []


def test_kernels_beside_each_other_count_once(found: Ask) -> None:
    """The same work on a second stream: share and stake stay."""
    kernels = ran(*[10] * 20, *[18] * 20)
    beside = [
        {**event, "tid": 9, "args": {"correlation": event["args"]["correlation"] + 100}}
        for event in kernels
        if event["cat"] == "kernel"
    ]
    events = [*kernels, *beside, *clocks(HALF), *power([300] * 20 + [400] * 20)]
    (finding,) = found("power-capped", events, **A100)
    assert finding.at_stake_ns == 20 * 9_000
    assert "for 64 % of its compute time." in finding.text
