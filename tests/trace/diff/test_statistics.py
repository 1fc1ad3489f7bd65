"""Medians, intervals and noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusetui.trace import Trace
from fusetui.trace.diff import Answer, Verdict, diff
from fusetui.trace.diff.statistics import beyond_noise, median, ratio_interval, resolution

Build = Callable[..., Trace]
ADD = [("aten::add", "add_kernel", 100.0)]


def test_the_median_of_an_even_count_is_a_whole_number() -> None:
    assert median(np.array([3, 1, 2, 8])) == 2


def test_the_interval_is_the_same_every_time() -> None:
    a, b = np.array([100, 103, 98, 101, 99]), np.array([90, 91, 89, 92, 88])
    assert ratio_interval(a, b) == ratio_interval(a, b)


def test_one_step_gives_no_interval() -> None:
    assert ratio_interval(np.array([5]), np.array([5, 6])) is None


def test_steps_without_a_duration_give_no_interval() -> None:
    steps = np.array([0, 0, 0, 590, 500, 155])
    assert ratio_interval(steps, steps) is None


def test_a_change_below_five_percent_is_noise() -> None:
    a = np.full((5, 1), 10_000)
    assert beyond_noise(a, a * 104 // 100, 0).tolist() == [False]
    assert beyond_noise(a, a * 106 // 100, 0).tolist() == [True]


def test_one_tick_of_a_coarse_clock_is_noise() -> None:
    a = np.full((5, 1), 5_000)
    assert beyond_noise(a, a + 1_000, resolution(a)).tolist() == [False]


def test_samples_that_overlap_are_noise() -> None:
    a = np.array([[100], [150], [200]]) * 100
    assert beyond_noise(a, a + 4_000, 0).tolist() == [False]


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
    assert any(note.startswith("few steps (3 steps of A, 5 of B)") for note in found.notes)
