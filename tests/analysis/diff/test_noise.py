"""Which rows are faster or slower, and that rows of equal runs are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.corpus.files import corpus_path

from fusetui.analysis.diff.compare import compare_work
from fusetui.analysis.diff.model import Row, RowKind
from fusetui.analysis.diff.noise import (
    compute_student_point,
    estimate_noise,
    is_beyond_noise,
)
from fusetui.analysis.diff.statistics import are_far_apart
from fusetui.analysis.diff.work import Work, collect_work
from fusetui.trace import open_trace

Samples = NDArray[np.int64]
TIMED = (RowKind.FASTER, RowKind.SLOWER)


def told(a: Samples, b: Samples, **more: Any) -> NDArray[np.bool_]:
    return is_beyond_noise(a, b, 0, estimate_noise(a, b, **more))


def runs(steps: int, rows: int, spread: float, seed: int = 0) -> Samples:
    """Times around 100 us whose logarithms have this standard deviation."""
    noise = np.random.default_rng(seed).standard_normal((steps, rows))
    found: Samples = (1e5 * np.exp(spread * noise)).astype(np.int64)
    return found


@pytest.mark.parametrize("steps", [2, 3, 5, 7, 20])
def test_of_equal_runs_no_row_is_told_in_nineteen_of_twenty_diffs(steps: int) -> None:
    diffs = [
        told(*np.split(runs(2 * steps, 1000, 0.2, seed), 2)).any() for seed in range(60)
    ]
    assert sum(diffs) <= 6


def test_the_middle_halves_alone_would_tell_one_row_in_a_hundred() -> None:
    a, b = np.split(runs(6, 1000, 0.2), 2)
    assert are_far_apart(a, b, 0).sum() > 10
    assert not told(a, b).any()


def test_seven_steps_tell_a_third_more_among_a_thousand_rows() -> None:
    a, b = np.split(runs(14, 1000, 0.04), 2)
    b[:, 7] = b[:, 7] * 13 // 10
    assert np.flatnonzero(told(a, b)).tolist() == [7]


def test_one_step_on_each_side_tells_nothing_among_rows_that_vary() -> None:
    a, b = np.split(runs(2, 200, 0.1), 2)
    b[:, 7] = b[:, 7] * 13 // 10
    assert not told(a, b).any()


def test_one_step_on_each_side_tells_what_stands_out() -> None:
    a = runs(1, 200, 0.5)
    b = a.copy()
    b[:, 7] = b[:, 7] * 13 // 10
    assert np.flatnonzero(told(a, b)).tolist() == [7]


def test_short_pieces_that_vary_do_not_hide_a_long_one() -> None:
    short, long = (
        np.split(runs(6, 400, 0.3), 2),
        np.split(100 * runs(6, 100, 0.01, 1), 2),
    )
    a, b = (np.concatenate(both, axis=1) for both in zip(short, long, strict=True))
    b[:, 450] = b[:, 450] * 13 // 10
    assert np.flatnonzero(told(a, b)).tolist() == [450]


def test_steps_that_vary_together_are_compared_with_each_other() -> None:
    a = runs(6, 100, 0.05)
    b = a.copy()
    b[:, 7] = b[:, 7] * 11 // 10
    assert not told(a, b)[7]
    assert told(a, b, same_steps=True)[7]


def slow_in_one_step() -> Samples:
    """Four steps that vary, and a row whose last one takes longer than all others do
    with a fifth more."""
    times = runs(4, 100, 0.01)
    times[3, 7] = times[3, 7] * 14 // 10
    return times


def test_a_row_that_is_slow_in_one_step_of_both_sides_is_told_of_all_steps() -> None:
    a = slow_in_one_step()
    b = a.copy()
    b[:, 7] = b[:, 7] * 12 // 10
    assert np.flatnonzero(told(a, b, same_steps=True)).tolist() == [7]
    assert not told(a, b)[7]  # of two runs, whose n-th steps have nothing in common


def test_a_row_that_is_slow_in_one_step_of_one_side_is_not_told() -> None:
    a = slow_in_one_step()
    b = a.copy()
    b[3, 7] = b[3, 7] * 12 // 10
    assert not told(a, b, same_steps=True).any()


def test_rows_whose_slow_steps_come_in_a_row_need_more() -> None:
    """As where the clock falls for half a run: steps are then worth fewer than their
    number."""
    levels = np.repeat([0.0, 0.3, 0.0, 0.3], [15, 5, 5, 15])[:, None]
    times = (np.exp(levels) * runs(40, 50, 0.02)).astype(np.int64)
    assert not told(times[:20], times[20:]).any()


@pytest.mark.parametrize(
    ("free", "level", "point"),
    [
        (3, 0.05, 3.182446),
        (4, 0.05, 2.776445),
        (10, 0.001, 4.586894),
        (30, 0.05, 2.042272),
    ],
)
def test_the_points_of_students_distribution_are_those_of_the_tables(
    free: int, level: float, point: float
) -> None:
    assert compute_student_point(free, level) == pytest.approx(point, rel=1e-6)


def halves(path: Path) -> tuple[Work, Work]:
    """The first and the last steps of one recording."""
    work = collect_work(open_trace(str(path)), path.name)
    steps = list(range(len(work.steps)))
    return work.keep_steps(steps[: len(steps) // 2]), work.keep_steps(
        steps[len(steps) // 2 :]
    )


def changed(one: Work, other: Work) -> list[Row]:
    """Also in one step only."""
    return [
        row
        for row in compare_work(one, other).rows
        if row.kind in TIMED or row.op == "idle"
    ]


def slower_piece_is_told(path: Path) -> None:
    """One of the longest kernels is made a third slower in one half."""
    one, other = halves(path)
    ns, first = other.ns.copy(), other.slice_of_step(0)
    place = int(np.argsort(ns[first])[-10])
    for step in range(len(other.steps)):
        ns[other.slice_of_step(step).start + place] *= 1.3
    (row,) = changed(one, msgspec.structs.replace(other, ns=ns))
    assert (row.kind, row.a_count) == (RowKind.SLOWER, 1)
    assert row.change_ns == pytest.approx(0.3 * row.a_ns, rel=0.1)


def test_the_halves_of_one_recording_have_no_faster_or_slower_row() -> None:
    assert changed(*halves(corpus_path("training"))) == []


def test_a_kernel_made_a_third_slower_in_one_half_is_told() -> None:
    slower_piece_is_told(corpus_path("training"))
