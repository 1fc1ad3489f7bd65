"""Kernels that vary from step to step."""

from __future__ import annotations

import pytest

from .conftest import Ask
from .work import A100, ADD, ALL_REDUCE, ROWS, Event, work


def steps(*durations: int, kernel: str = ADD) -> list[Event]:
    """A step for each duration (us) with one kernel; all do the same."""
    notes = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{n}",
            "pid": 1,
            "tid": 1,
        }
        | {"ts": 10 * n, "dur": 9}
        for n in range(len(durations))
    ]
    return [
        *notes,
        *work(*(("aten::add", kernel, dur) for dur in durations), args=ROWS),
    ]


def test_unsteady_reports_a_kernel_that_varies_from_step_to_step(found: Ask) -> None:
    """The p90 of these is 32 us, the p10 20 us; one took 20 us more than the median."""
    (finding,) = found("unsteady", steps(20, 20, 40, 20, 20), **A100)
    assert finding.at_stake_ns == 20_000
    assert "1 kernel of a step, alone on the device, varies" in finding.text


@pytest.mark.parametrize(
    "durations",
    [
        (20, 20, 20, 20, 20),
        (20, 20, 24, 20, 20),
        (20, 20, 40, 20),  # too few steps
        (5, 5, 9, 5, 5),  # too short to be measured well
    ],
)
def test_unsteady_is_silent_for_steady_short_or_few_runs(
    found: Ask, durations: tuple[int, ...]
) -> None:
    assert found("unsteady", steps(*durations), **A100) == []


def test_communication_is_not_compared(found: Ask) -> None:
    assert found("unsteady", steps(20, 20, 40, 20, 20, kernel=ALL_REDUCE), **A100) == []


def test_a_kernel_beside_another_is_not_compared(found: Ask) -> None:
    """The long one has another stream's beside it."""
    other = {
        "ph": "X",
        "cat": "kernel",
        "name": ADD,
        "pid": 0,
        "tid": 9,
        "ts": 1_045,
        "dur": 9,
    }
    assert found("unsteady", [*steps(20, 20, 40, 20, 20), other], **A100) == []
