"""What each rule of the noise of a diff is for: what goes wrong without it.

    python -P benchmarks/diff_rules.py TRACE... [--ways 100] [--into docs/diff.md]

Steps of one recording are dealt out to two sides at random, as in diff_noise.py, so that
nothing changed. Then one piece in twenty is made longer on the second side. Each rule is
taken away alone. A diff is false if any of its rows is told where nothing changed: this
may be so in one of twenty (the level of the specification, analysis/diff/noise.py).
Told is the share of the planted changes in pieces of at least 20 us.

Rules for steps that vary together, or that follow each other, need such steps: the
times of all pieces of a step are multiplied by a factor of that step. It is the same on
both sides for "vary together", and like the one before for "slow after slow".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.analysis.diff import noise as rules
from fusetui.analysis.diff.items import Vocabulary, make_items
from fusetui.analysis.diff.statistics import MiddleHalf, detect_tick_ns
from fusetui.analysis.diff.work import collect_work
from fusetui.trace import open_trace

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NEVER = 10**9  # steps that no side has
PLANTED_SHARE = 0.05
MIN_PLANTED_NS = 20_000
LARGE_CHANGE, SMALL_CHANGE = 1.3, 1.1
CORRELATION = 0.8  # of the factors of successive steps
SPREAD = 0.10  # of the logarithms of the factors of steps
LITTLE = 0.1  # shares below have two digits, whatever their size


class Sides(NamedTuple):
    """Samples of two sides, [steps, pieces] in ns."""

    a: Int64s
    b: Int64s
    same_steps: bool  # the n-th of A belongs to the n-th of B


Deal = Callable[[Int64s, int, np.random.Generator], Sides]


class Trial(NamedTuple):
    """A rule, and the steps that show what it is for."""

    rule: str
    without: Callable[[], AbstractContextManager[Any]]
    dealt: str
    deal: Deal
    steps: int
    factor: float = LARGE_CHANGE


def at_random(samples: Int64s, steps: int, random: np.random.Generator) -> Sides:
    """Return two sides of `steps` steps each, drawn from the samples at random. They
    are drawn with replacement if fewer were recorded."""
    is_enough = 2 * steps <= len(samples)
    order = random.choice(len(samples), 2 * steps, replace=not is_enough)
    return Sides(a=samples[order[:steps]], b=samples[order[steps:]], same_steps=False)


def together(samples: Int64s, steps: int, random: np.random.Generator) -> Sides:
    """Return two sides of which each step of B is one of A again; both are slow or fast
    by the factor of that step."""
    sides = at_random(samples, steps, random)
    factors = np.exp(random.normal(0, SPREAD, (steps, 1)))
    jitter = np.exp(random.normal(0, SPREAD / 50, sides.a.shape))
    return Sides(
        a=_whole(sides.a * factors),
        b=_whole(sides.a * factors * jitter),
        same_steps=True,
    )


def slow_after_slow(samples: Int64s, steps: int, random: np.random.Generator) -> Sides:
    """Return two sides at random, in which a slow step tends to follow a slow step."""
    sides = at_random(samples, steps, random)
    return Sides(
        a=_whole(sides.a * _following(steps, random)),
        b=_whole(sides.b * _following(steps, random)),
        same_steps=False,
    )


def _following(steps: int, random: np.random.Generator) -> Floats:
    """Return a factor for each step, shape [steps, 1]. Their logarithms are an
    autoregressive series, so that successive factors are similar."""
    logs = np.zeros(steps)
    logs[0] = random.normal(0, SPREAD)
    for step in range(1, steps):
        own = random.normal(0, SPREAD * (1 - CORRELATION**2) ** 0.5)
        logs[step] = CORRELATION * logs[step - 1] + own
    return np.exp(logs)[:, None]


def _whole(values: NDArray[Any]) -> Int64s:
    """Return the values as whole ns, at least 1."""
    return np.asarray(np.maximum(values, 1), np.int64)


def without(**constants: Any) -> Callable[[], AbstractContextManager[Any]]:
    """Return a function that makes a context in which the rules of noise have other
    values of their constants."""
    return lambda: patch.multiple(rules, **constants)


def without_middle_halves() -> AbstractContextManager[Any]:
    """Return a context in which the middle halves of two sides never overlap."""
    never_overlaps = lambda self, other: np.zeros(len(self.low), bool)  # noqa: E731
    return patch.object(MiddleHalf, "overlaps", never_overlaps)


def _level_of_one_row() -> AbstractContextManager[Any]:
    """Return a context in which each row is judged at the level of all rows together."""
    known = rules.estimate_noise

    def noise_of_one(*sides: Any, **how: Any) -> rules.Noise:
        noise = known(*sides, **how)
        return rules.Noise(
            rows=1,
            class_bounds=noise.class_bounds,
            usual_variance=noise.usual_variance,
            paired=noise.paired,
            min_log_change=noise.min_log_change,
        )

    return patch.object(rules, "estimate_noise", noise_of_one)


def _no_interval() -> AbstractContextManager[Any]:
    """Return a context in which the interval of every row excludes equal times."""
    everything = lambda a, *_: np.ones(a.shape[1], bool)  # noqa: E731
    return patch.object(rules, "_does_interval_exclude_one", everything)


def _no_pairs() -> AbstractContextManager[Any]:
    """Return a context in which the n-th steps of both sides are not compared in pairs."""
    known = rules.estimate_noise

    def noise_of_separate(*sides: Any, **_: Any) -> rules.Noise:
        return known(*sides, same_steps=False)

    return patch.object(rules, "estimate_noise", noise_of_separate)


def _no_widening() -> AbstractContextManager[Any]:
    """Return a context in which intervals are not widened for steps that follow each
    other."""
    return patch.object(rules, "MIN_STEPS_FOR_CORRELATION", NEVER)


def _no_rounding() -> AbstractContextManager[Any]:
    """Return a context in which the rounding of times to the tick of the clock counts
    for nothing."""
    nothing = lambda a, b, tick_ns: np.zeros(a.shape[1])  # noqa: E731
    return patch.object(rules, "_compute_rounding_variance", nothing)


def _any_single_step() -> AbstractContextManager[Any]:
    """Return a context in which, with one step on each side, any change beyond the
    floor is told."""
    nothing = lambda log_a, log_b: 0.0  # noqa: E731
    return patch.object(rules, "_compute_min_change_of_one_step", nothing)


def _rows_of_any_spread() -> AbstractContextManager[Any]:
    """Return a context in which, with one step on each side, rows are told even where
    all rows vary."""
    return patch.object(rules, "FLOOR_PERCENT", 100 * NEVER)


def _of_dealt_steps(
    rule: str, without: Callable[[], AbstractContextManager[Any]], *steps: int
) -> list[Trial]:
    """Return a trial with steps dealt at random for each number of steps."""
    return [Trial(rule, without, "at random", at_random, count) for count in steps]


TRIALS = (
    *_of_dealt_steps("the interval", _no_interval, 3, 10),
    *_of_dealt_steps("middle halves apart", without_middle_halves, 5, 20),
    *_of_dealt_steps("level of all rows", _level_of_one_row, 5, 20),
    *_of_dealt_steps("variance of others", without(PRIOR_STEPS=0), 2, 3, 5),
    *_of_dealt_steps("classes by length", without(MAX_CLASSES=1), 2, 3, 5),
    *_of_dealt_steps("three quarters, not half", without(SHARE_OF_PIECES=0.5), 2, 3),
    *_of_dealt_steps("rounding to the tick", _no_rounding, 2, 3),
    Trial("differences", _no_pairs, "vary together", together, 5, SMALL_CHANGE),
    Trial("correlation", _no_widening, "slow after slow", slow_after_slow, 10),
    Trial("correlation", _no_widening, "slow after slow", slow_after_slow, 20),
    Trial("correlation", _no_widening, "slow after slow", slow_after_slow, 40),
    Trial("stands out of one step", _any_single_step, "at random", at_random, 1, 2.0),
    Trial(
        "usual row in the floor", _rows_of_any_spread, "at random", at_random, 1, 2.0
    ),
)


class Told(NamedTuple):
    """Shares of simulated diffs, and of planted changes."""

    false: float
    planted: float


def told(samples: Int64s, trial: Trial, ways: int) -> Told:
    """Return the share of simulated diffs that tell a row although nothing changed, and
    the share of planted changes that are told."""
    random = np.random.default_rng(0)
    tick_ns = detect_tick_ns(samples)

    false: list[bool] = []
    planted: list[Flags] = []
    for _ in range(ways):
        sides = trial.deal(samples, trial.steps, random)
        noise = rules.estimate_noise(sides.a, sides.b, same_steps=sides.same_steps)
        false.append(
            bool(rules.is_beyond_noise(sides.a, sides.b, tick_ns, noise).any())
        )
        is_planted = random.random(sides.b.shape[1]) < PLANTED_SHARE
        longer = np.where(is_planted, _whole(sides.b * trial.factor), sides.b)
        noise = rules.estimate_noise(sides.a, longer, same_steps=sides.same_steps)
        is_told = rules.is_beyond_noise(sides.a, longer, tick_ns, noise)
        planted.append(is_told[is_planted & (sides.b.min(axis=0) >= MIN_PLANTED_NS)])

    return Told(
        false=float(np.mean(false)), planted=float(np.concatenate(planted).mean())
    )


def table(recordings: Sequence[Int64s], ways: int) -> list[str]:
    """Return the lines of a Markdown table of all trials, each with its rule and
    without it; figures are means over the recordings."""
    lines = [
        "| without | steps a side | false diffs: with it | without it "
        "| changes reported: with it | without it |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for trial in TRIALS:
        with_rule = _mean_of(recordings, trial, ways, nullcontext)
        without_rule = _mean_of(recordings, trial, ways, trial.without)
        cells = [
            trial.rule,
            f"{trial.steps}, {trial.dealt}",
            _percent(with_rule.false),
            _percent(without_rule.false),
            f"x {trial.factor:g}: {_percent(with_rule.planted)}",
            _percent(without_rule.planted),
        ]
        lines.append(f"| {' | '.join(cells)} |")
        sys.stderr.write(f"{lines[-1]}\n")

    return lines


def _mean_of(
    recordings: Sequence[Int64s],
    trial: Trial,
    ways: int,
    context: Callable[[], AbstractContextManager[Any]],
) -> Told:
    """Return the mean shares over all recordings while a context is active."""
    with context():
        of_each = [told(samples, trial, ways) for samples in recordings]
    return Told(
        false=float(np.mean([shares.false for shares in of_each])),
        planted=float(np.mean([shares.planted for shares in of_each])),
    )


def _percent(share: float) -> str:
    if share == 0:
        return "0"
    return f"{100 * share:.0f} %" if share > LITTLE else f"{100 * share:.2g} %"


def main() -> int:
    """Make all trials with the steps of each trace, and print the table; with --into it
    is put into a page. Returns 0."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--ways", type=int, default=100)
    parser.add_argument(
        "--into", metavar="FILE", help="a page with a place for the table"
    )

    options = parser.parse_args()
    recordings = []
    for path in map(Path, options.traces):
        work = collect_work(open_trace(str(path)), path.name)
        recordings.append(make_items(work, Vocabulary()).samples)

    text = "\n".join(table(recordings, options.ways)) + "\n"
    sys.stdout.write(text)

    if options.into:
        put(Path(options.into), "noise rules", text, __file__)

    return 0


if __name__ == "__main__":
    sys.exit(main())
