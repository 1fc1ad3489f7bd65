"""Rules about kernels leave a first step out that takes more than twice as long as the
others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Ask, Lack
from .work import A100, SGEMM

Event = dict[str, Any]


def steps(event: Callable[..., Event], *lengths: int) -> list[Event]:
    """Steps of so many us; half of each is a product, which is launched as the step
    begins."""
    found: list[Event] = []
    ts = 0
    for n, us in enumerate(lengths):
        link = {"args": {"correlation": n + 1}}
        found += [
            event(f"ProfilerStep#{n}", ts, us, cat="user_annotation"),
            event("cudaLaunchKernel", ts, 2, cat="cuda_runtime", **link),
            event(SGEMM, ts + us // 4, us // 2, cat="kernel", pid=0, tid=7, **link),
        ]
        ts += us
    return found


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (
            1_000,
            (
                "2 float32 matrix products take 100 us (57.1 % of the time after the "
                "first step)"
            ),
        ),
        (150, "3 float32 matrix products take 175 us (60.8 % of the span)"),
    ],
)
def test_a_cold_first_step_is_not_counted(
    found: Ask, event: Callable[..., Event], first: int, said: str
) -> None:
    """After steps of 1,000 and 100 us the last product ends at 1,175, 175 us after the
    first step; from 37 us on, when the first product of a step of 150 us starts, 288 us
    pass until 325."""
    (finding,) = found("no-tensor-cores", steps(event, first, 100, 100), **A100)
    assert said in finding.text


def test_kernels_of_a_cold_first_step_alone_are_not_reported(
    found: Ask, lacking: Lack, event: Callable[..., Event]
) -> None:
    events = steps(event, 1_000, 100, 100)
    warm = [one | {"name": "k"} if one["dur"] == 50 else one for one in events]
    assert not found("no-tensor-cores", warm, **A100)
    assert not lacking("no-tensor-cores", warm, **A100)
