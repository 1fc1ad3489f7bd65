"""Medians, intervals and noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Answer, Verdict
from fusetui.analysis.diff.noise import is_beyond_noise
from fusetui.analysis.diff.statistics import (
    choose_steps_to_average,
    detect_tick_ns,
    estimate_drift,
    estimate_ratio_interval,
)
from fusetui.trace import Trace

Build = Callable[..., Trace]
ADD = [("aten::add", "add_kernel", 100.0)]


def test_of_five_steps_or_more_figures_are_means_over_at_least_three() -> None:
    """The mean is within 0.5 % of the median over the median step alone; the steps of A
    vary by tens of percent."""
    a = np.array([100, 150, 210, 220, 300, 330, 360, 400, 90]) * 1_000_000
    b = np.array([200, 201, 199, 202, 198, 200, 200, 200, 200]) * 1_000_000
    every = np.arange(9)
    usual = choose_steps_to_average(a, b, every, every)
    assert len(usual.a) >= 3
    assert len(usual.b) >= 3


def test_of_fewer_than_five_steps_the_median_one_is_enough() -> None:
    uneven = np.array([100, 120, 300])
    usual = choose_steps_to_average(uneven, uneven, np.arange(3), np.arange(3))
    assert (usual.a.tolist(), usual.b.tolist()) == ([1], [1])


class Known(NamedTuple):
    low: float
    high: float


def interval(a: Sequence[int], b: Sequence[int]) -> Known:
    found = estimate_ratio_interval(np.array(a), np.array(b))
    assert found.low is not None
    assert found.high is not None
    return Known(found.low, found.high)


def test_the_interval_of_five_steps_a_side_leaves_out_two_of_25_ratios_at_each_end() -> (
    None
):
    a, b = [100, 100, 100, 100, 100], [101, 110, 104, 107, 103]
    found = interval(a, b)
    assert (round(found.low, 4), round(found.high, 4)) == (1.01, 1.1)
    a, b = [100, 101, 100, 102, 100], [110, 111, 113, 110, 112]
    ratios = sorted(y / x for x in a for y in b)
    assert (interval(a, b).low, interval(a, b).high) == (ratios[2], ratios[-3])


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_of_three_steps_there_is_no_interval(steps: int) -> None:
    assert (
        estimate_ratio_interval(np.arange(5, 5 + steps), np.arange(9, 9 + steps)).low
        is None
    )


def test_every_other_step_of_one_run_is_not_called_different() -> None:
    """Of 400 runs of equal steps at most 5 % are, which is what the interval
    promises."""
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(400):
        steps = (1e6 * np.exp(0.2 * rng.standard_normal(14))).astype(np.int64)
        found = interval(steps[::2].tolist(), steps[1::2].tolist())
        alarms += not found.low <= 1 <= found.high
    assert alarms <= 20


def test_a_tenth_more_is_found_in_nine_of_ten_pairs() -> None:
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(200):
        a, b = (1e6 * np.exp(0.03 * rng.standard_normal((2, 7)))).astype(np.int64)
        found += interval(a.tolist(), (b * 11 // 10).tolist()).low > 1
    assert found >= 180


def test_a_run_that_drifts_widens_the_interval() -> None:
    steady, rising = (
        [100, 102, 99, 101, 100, 98, 101],
        [100, 103, 106, 110, 112, 115, 118],
    )
    assert estimate_drift(np.array(steady)) == 0
    assert 0.15 < estimate_drift(np.array(rising)) < 0.2
    plain = interval(steady, [108, 111, 109, 110, 112, 109, 110])
    wide = interval(rising, [118, 121, 119, 120, 122, 119, 120])
    assert plain.low > 1
    assert wide.low < 1


def test_a_change_below_five_percent_is_noise() -> None:
    a = np.full((5, 1), 10_000)
    assert is_beyond_noise(a, a * 104 // 100, 0).tolist() == [False]
    assert is_beyond_noise(a, a * 106 // 100, 0).tolist() == [True]


def test_one_tick_of_a_coarse_clock_is_noise() -> None:
    a = np.full((5, 1), 5_000)
    assert is_beyond_noise(a, a + 1_000, detect_tick_ns(a)).tolist() == [False]


def test_samples_that_overlap_are_noise() -> None:
    a = np.array([[100], [150], [200]]) * 100
    assert is_beyond_noise(a, a + 4_000, 0).tolist() == [False]


def test_the_ratio_is_b_by_a_so_that_a_faster_b_is_below_one(build: Build) -> None:
    step = diff(build(ADD), build(ADD, factors=(0.5,) * 5)).step
    assert step.ratio is not None
    assert step.ratio < 0.6
    assert step.shown


def test_an_interval_around_one_shows_no_difference(build: Build) -> None:
    a = build(ADD, factors=(1.0, 1.3, 1.1, 1.4, 1.2))
    b = build(ADD, factors=(1.2, 1.1, 1.4, 1.0, 1.5))
    found = diff(a, b)
    assert not found.step.shown
    assert found.verdict == Verdict(Answer.NO_DIFFERENCE)


def test_few_steps_are_warned_of(build: Build) -> None:
    found = diff(build(ADD, factors=(1.0,) * 3), build(ADD))
    assert any(note.startswith("few steps (A 3, B 5)") for note in found.notes)


def test_steps_that_follow_each_other_tell_less() -> None:
    """Of 200 pairs whose slow steps come in rows, one in four is called different
    without that."""
    rng = np.random.default_rng(0)

    def run() -> list[int]:
        noise = rng.standard_normal(30)
        for n in range(1, 30):
            noise[n] = 0.6 * noise[n - 1] + 0.8 * noise[n]
        return [int(1e6 * np.exp(0.1 * x)) for x in noise]

    found = [interval(run(), run()) for _ in range(200)]
    assert sum(not one.low <= 1 <= one.high for one in found) <= 20
