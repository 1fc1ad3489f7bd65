"""Steps that took turns, and what interrupted them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fusetui.analysis.diff.compare import compute_time_limits, diff
from fusetui.analysis.diff.model import Answer, Diff
from fusetui.analysis.diff.statistics import (
    count_rejected_rounds,
    estimate_paired_interval,
)
from fusetui.report.diff import format_diff
from fusetui.trace import Trace, open_trace

Times = NDArray[np.int64]
PIECES, ROUNDS = 21, 30


def test_of_six_rounds_the_interval_is_the_range_and_of_five_there_is_none() -> None:
    a = np.full(6, 10**9)
    b = np.rint(a * np.exp([0.01, 0.05, 0.02, 0.04, 0.03, 0.06])).astype(np.int64)
    found = estimate_paired_interval(a, b)
    ends = np.array([found.low, found.ratio, found.high], dtype=np.float64)
    assert np.log(ends) == pytest.approx((0.01, 0.035, 0.06))
    assert estimate_paired_interval(a[:5], b[:5]).low is None


def test_the_distribution_is_that_of_the_tables() -> None:
    """Critical values of the signed-rank test at 5 %, two-sided, for 10, 20 and 30
    pairs."""
    assert [count_rejected_rounds(size) - 1 for size in (10, 20, 30)] == [8, 52, 137]


def noisy(chance: np.random.Generator, usual: float) -> Times:
    """[rounds, sides, pieces]: a drift, a neighbor that comes and goes, and
    interruptions whose lengths have no variance, by which most steps are hit."""
    shape = ROUNDS, 2, PIECES
    drift = np.linspace(1.0, chance.uniform(0.8, 1.4), ROUNDS * 2).reshape(ROUNDS, 2, 1)
    drift[1::2] = drift[1::2, ::-1]  # B is first in every other round
    neighbor = np.repeat(chance.choice([1.0, 1.3], ROUNDS), 2).reshape(ROUNDS, 2, 1)
    work = usual * drift * neighbor * np.exp(0.03 * chance.standard_normal(shape))
    hit = chance.random(shape) < 0.08
    found: Times = (work + hit * 1e6 * chance.pareto(1.5, shape)).astype(np.int64)
    return found


def answers(more: int) -> list[int]:
    """Of 200 pairs, B with so many pieces more: 1 for slower, -1 for faster, else 0."""
    chance, found = np.random.default_rng(0), []
    for _ in range(200):
        both = noisy(chance, 1e5)
        added = noisy(chance, 1e5)[:, 1, :more]
        limits = np.maximum(
            compute_time_limits(both[:, 0]), compute_time_limits(both[:, 1])
        )
        a, b = (np.minimum(both[:, side], limits).sum(axis=1) for side in (0, 1))
        b += np.minimum(added, compute_time_limits(added)).sum(axis=1)
        interval = estimate_paired_interval(a, b)
        assert interval.low is not None
        assert interval.high is not None
        found.append((interval.low > 1) - (interval.high < 1))
    return found


def test_of_200_equal_pairs_on_a_busy_machine_at_most_16_are_called_different() -> None:
    assert sum(map(abs, answers(0))) <= 16


def test_a_tenth_more_work_is_found_on_a_busy_machine() -> None:
    assert answers(2).count(1) >= 180


def in_turns(
    folder: Path, a: list[list[float]], b: list[list[float]]
) -> tuple[Trace, Trace]:
    """Traces of steps that took turns, from what each op of each step takes (us)."""
    events: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    now = 1000.0
    for number, both in enumerate(zip(a, b, strict=True)):
        for side, times in enumerate(both):
            place = {"ph": "X", "pid": 1, "tid": 1}
            begin = now
            name = f"ProfilerStep#{number}"
            step = {**place, "cat": "user_annotation", "name": name, "ts": begin}
            for op, us in enumerate(times):
                more = {"cat": "cpu_op", "name": f"aten::mm{op}", "ts": now, "dur": us}
                events[side].append({**place, **more})
                now += us
            events[side].append({**step, "dur": now - begin})
            now += 10
    found = []
    for name, listed in zip("ab", events, strict=True):
        path = folder / f"{name}.json"
        path.write_text(json.dumps({"traceEvents": listed}))
        found.append(open_trace(str(path)))
    return found[0], found[1]


DRIFT = [1.0, 1.4, 1.8, 2.2, 2.6, 3.0, 3.4, 3.8]


def drifting(folder: Path, factor: float) -> Diff:
    a = [[100 * slow, 50 * slow] for slow in DRIFT]
    b = [[100 * slow * factor, 50 * slow * factor] for slow in DRIFT]
    return diff(*in_turns(folder, a, b))


def test_steps_that_take_turns_are_compared_with_their_neighbors(
    tmp_path: Path,
) -> None:
    found = drifting(tmp_path, 1.05)
    assert found.step.turns
    assert found.verdict.answer is Answer.SLOWER
    assert found.step.ratio == pytest.approx(1.05, abs=0.001)
    assert (
        "steps of A and B alternate, so each is compared with its neighbor;"
        in found.notes[0]
    )
    assert "became" in found.notes[0]


def test_equal_steps_that_take_turns_are_no_different_whatever_the_drift(
    tmp_path: Path,
) -> None:
    assert drifting(tmp_path, 1.0).verdict.answer is Answer.NO_DIFFERENCE


def test_six_rounds_are_needed(tmp_path: Path) -> None:
    found = diff(*in_turns(tmp_path, [[100.0]] * 5, [[200.0]] * 5)).verdict
    assert found.answer is Answer.CANNOT_TELL
    assert "needs at least 6 alternating steps per trace (A 5, B 5)" in str(
        found.reason
    )


def test_two_runs_of_a_program_take_no_turns(build: Callable[..., Trace]) -> None:
    pieces = [("aten::add", "add_kernel", 100.0)]
    one = build(pieces)
    assert not diff(one, one).step.turns
    assert not diff(one, build(pieces, shift=1_000_000)).step.turns


def test_an_interruption_is_no_part_of_a_step(tmp_path: Path) -> None:
    """It lies in another op each time, in most steps of B."""
    a = [[100.0, 100.0, 100.0, 100.0] for _ in range(12)]
    b = [[100.0] * 4 for _ in range(12)]
    for n in range(7):
        b[n][n % 4] = 900.0
    found = diff(*in_turns(tmp_path, a, b))
    assert found.verdict.answer is Answer.NO_DIFFERENCE
    assert found.step.interrupted_a == 0
    assert found.step.interrupted_b > 0.3
    assert "b: steps were interrupted for 53" in " ".join(found.notes)
    assert "within these two runs" in format_diff(found, 300)


def test_work_that_always_takes_longer_is_no_interruption(tmp_path: Path) -> None:
    a, b = [[100.0, 100.0]] * 8, [[100.0, 300.0]] * 8
    found = diff(*in_turns(tmp_path, a, b))
    assert (found.verdict.answer, found.step.interrupted_b) == (Answer.SLOWER, 0)
    assert found.step.ratio == pytest.approx(2, abs=0.01)
