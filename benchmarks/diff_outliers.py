"""What each rule for single steps of a diff is for: what goes wrong without it.

    python -P benchmarks/diff_outliers.py TRACE... [--ways 100] [--into docs/diff.md]

`src/fusetui/analysis/diff/outlier_steps.py` reports a kernel that took a different time
in one step only. Here traces of two sides are made with times that are drawn. A diff is
false if it reports a single step although none was changed. Told is the share of diffs
that report the right step and kernel after the time of one kernel in one step was
multiplied, and report no other.

Copies are two recordings whose n-th steps do the same in about the same time, such as
two edited versions of one file: both sides are slow or fast by one factor of the step.
Separate runs take their times from the recordings TRACE: each step of either side is
one of their steps, drawn at random, with some of its kernels.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import orjson
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.analysis.diff import outlier_steps
from fusetui.analysis.diff.compare import compare_work
from fusetui.analysis.diff.items import Vocabulary, make_items
from fusetui.analysis.diff.model import ONLY, Row
from fusetui.analysis.diff.work import collect_work
from fusetui.trace import open_trace

Floats = NDArray[np.float64]

KERNELS = 30  # in a step
SHORTEST_US, LONGEST_US = 5.0, 500.0
STEP_SPREAD = 0.10  # of the logarithms of what a step multiplies all its times by
JITTER = 0.001  # of copies: of the logarithms of the ratios between the two sides
WIDE_JITTER = 0.01  # of copies of one run that are not edited versions of one file
TAIL = 2  # degrees of freedom of Student's t: now and then a copy is far off
SLOWER = 1.15  # what all kernels of the second side take in some cases
OP_US = 2.0
GAP_BETWEEN_STEPS_US = 50.0


class Sides(NamedTuple):
    """Times of the kernels of two sides, [steps, kernels] in us."""

    a: Floats
    b: Floats


Draw = Callable[[Sequence[Floats], int, np.random.Generator], Sides]
"""Draws the two sides from recordings, [steps, kernels] in us, for a number of steps."""


class Trial(NamedTuple):
    """A rule, and two sides that show what it is for."""

    rule: str
    without: Callable[[], AbstractContextManager[Any]]
    drawn: str
    draw: Draw
    steps: int
    factor: float  # of the changed time


class Reported(NamedTuple):
    """Shares of diffs."""

    false: float
    told: float


def copies(
    recordings: Sequence[Floats], steps: int, random: np.random.Generator
) -> Sides:
    """Return two sides that differ by a small jitter. The recordings are not used."""
    logs = random.uniform(np.log(SHORTEST_US), np.log(LONGEST_US), KERNELS)
    factors_of_steps = np.exp(random.normal(0, STEP_SPREAD, (steps, 1)))
    a = np.exp(logs) * factors_of_steps
    jitter = np.exp(random.normal(0, JITTER, a.shape))
    return Sides(a=a, b=a * jitter)


def copies_that_are_slower(
    recordings: Sequence[Floats], steps: int, random: np.random.Generator
) -> Sides:
    """Return two sides that differ by a small jitter, of which B is slower by one
    factor."""
    sides = copies(recordings, steps, random)
    return Sides(a=sides.a, b=sides.b * SLOWER)


def copies_with_tails(
    recordings: Sequence[Floats], steps: int, random: np.random.Generator
) -> Sides:
    """Return two sides that differ by a jitter with long tails, so that some times are
    far off."""
    sides = copies(recordings, steps, random)
    jitter = np.exp(WIDE_JITTER * random.standard_t(TAIL, sides.a.shape))
    return Sides(a=sides.a, b=sides.a * jitter)


def separate(
    recordings: Sequence[Floats], steps: int, random: np.random.Generator
) -> Sides:
    """Return two sides whose steps are drawn from one recording, with some of its
    kernels."""
    recording = recordings[int(random.integers(len(recordings)))]
    kernels = random.choice(recording.shape[1], KERNELS, replace=False)
    dealt = random.choice(len(recording), 2 * steps, replace=len(recording) < 2 * steps)
    times_us = recording[dealt][:, kernels]
    return Sides(a=times_us[:steps], b=times_us[steps:])


def without(**constants: Any) -> Callable[[], AbstractContextManager[Any]]:
    """Return a function that makes a context in which the rules have other values of
    their constants."""
    return lambda: patch.multiple(outlier_steps, **constants)


def _any_two_sides() -> AbstractContextManager[Any]:
    """Return a context in which any two sides count as varying alike."""
    always = lambda *_: True  # noqa: E731
    return patch.object(outlier_steps, "_do_sides_vary_alike", always)


def _differences_only() -> AbstractContextManager[Any]:
    """Return a context in which the usual change is a difference, and never a ratio."""

    def from_usual_difference(before: Any, after: Any) -> Any:
        differences = after - before
        usual = np.median(differences, axis=0).astype(np.int64)
        return np.abs(differences - usual)

    return patch.object(
        outlier_steps, "_measure_distance_from_usual_change", from_usual_difference
    )


def _trials(
    rule: str,
    without: Callable[[], AbstractContextManager[Any]],
    drawn: str,
    draw: Draw,
    factor: float,
    *steps: int,
) -> list[Trial]:
    """Return one trial for each number of steps."""
    return [Trial(rule, without, drawn, draw, count, factor) for count in steps]


TRIALS = (
    *_trials("sides vary alike", _any_two_sides, "separate", separate, 3.0, 3, 5, 10),
    *_trials(
        "far from its other steps",
        without(MIN_DISTANCE_RATIO=1),
        "copies, long tails",
        copies_with_tails,
        2.0,
        4,
        10,
    ),
    *_trials(
        "far from all kernels",
        without(COMMON_PERCENTILE=0),
        "copies, long tails",
        copies_with_tails,
        2.0,
        4,
        10,
    ),
    *_trials(
        "share of its time, and ns",
        without(FLOOR_PERCENT=0, FLOOR_NS=0),
        "copies",
        copies,
        1.2,
        4,
        10,
    ),
    *_trials(
        "usual change as a ratio",
        _differences_only,
        "copies, all slower",
        copies_that_are_slower,
        1.2,
        4,
        10,
    ),
)


def _document(times_us: Floats) -> dict[str, Any]:
    """Return a trace of one stream with kernels of these times, [steps, kernels] in us.
    Every step launches its kernels first, then they run one after the other."""
    events: list[dict[str, Any]] = []
    begin_us = 1_000.0

    correlation = 0
    kernels = times_us.shape[1]
    for step, kernels_us in enumerate(times_us.tolist()):
        kernel_begin_us = begin_us + OP_US * (kernels + 1)
        for kernel, kernel_us in enumerate(kernels_us):
            correlation += 1
            op_begin_us = begin_us + OP_US * kernel
            events += [
                _event(f"aten::op_{kernel}", "cpu_op", op_begin_us, OP_US * 0.9),
                _event(
                    "cudaLaunchKernel",
                    "cuda_runtime",
                    op_begin_us + OP_US * 0.2,
                    OP_US * 0.5,
                    correlation=correlation,
                ),
                _event(
                    f"kernel_{kernel}",
                    "kernel",
                    kernel_begin_us,
                    kernel_us,
                    correlation=correlation,
                ),
            ]
            kernel_begin_us += kernel_us

        wall_us = kernel_begin_us - begin_us
        events.append(
            _event(f"ProfilerStep#{step}", "user_annotation", begin_us, wall_us)
        )
        begin_us += wall_us + GAP_BETWEEN_STEPS_US

    return {"traceEvents": events}


def _event(
    name: str,
    category: str,
    begin_us: float,
    duration_us: float,
    correlation: int | None = None,
) -> dict[str, Any]:
    """Return one slice of thread 1, or of stream 7 if it is a kernel."""
    on_gpu = category == "kernel"

    args: dict[str, int] = {}
    if correlation is not None:
        args["correlation"] = correlation

    if on_gpu:
        args |= {"device": 0, "stream": 7}

    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0 if on_gpu else 100,
        "tid": 7 if on_gpu else 1,
        "ts": round(begin_us, 3),
        "dur": round(duration_us, 3),
        "args": args,
    }


def _rows_of_single_steps(sides: Sides, folder: Path) -> list[Row]:
    """Return the rows that a diff of these times reports for one step only."""
    works = []
    for side, times_us in zip("ab", sides, strict=True):
        path = folder / f"{side}.json"
        path.write_bytes(orjson.dumps(_document(times_us)))
        works.append(collect_work(open_trace(str(path)), side))
    diff = compare_work(works[0], works[1])
    return [row for row in diff.rows if ONLY in row.why]


def _changed(
    sides: Sides, factor: float, random: np.random.Generator
) -> tuple[Sides, str]:
    """Return the sides with one time of B multiplied by `factor`, and the op whose
    kernel it is."""
    steps = len(sides.b)
    step, kernel = int(random.integers(steps)), int(random.integers(KERNELS))
    changed = sides.b.copy()
    changed[step, kernel] *= factor
    return Sides(a=sides.a, b=changed), f"aten::op_{kernel}"


def reported(
    trial: Trial, recordings: Sequence[Floats], ways: int, folder: Path
) -> Reported:
    """Return how often a diff reports a single step although nothing was changed, and
    how often it reports exactly the changed one. Both are shares of `ways` trials."""
    random = np.random.default_rng(0)
    false = told = 0
    for _ in range(ways):
        sides = trial.draw(recordings, trial.steps, random)
        false += bool(_rows_of_single_steps(sides, folder))
        changed, op = _changed(sides, trial.factor, random)
        ops = [row.op for row in _rows_of_single_steps(changed, folder)]
        told += ops == [op]
    return Reported(false=false / ways, told=told / ways)


def table(recordings: Sequence[Floats], ways: int, folder: Path) -> list[str]:
    """Return the lines of a Markdown table of all trials, each with its rule and
    without it."""
    lines = [
        "| without | steps a side | false diffs: with it | without it "
        "| one change reported: with it | without it |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for trial in TRIALS:
        with_rule = _reported_with(nullcontext, trial, recordings, ways, folder)
        without_rule = _reported_with(trial.without, trial, recordings, ways, folder)
        cells = [
            trial.rule,
            f"{trial.steps}, {trial.drawn}",
            _percent(with_rule.false),
            _percent(without_rule.false),
            f"x {trial.factor:g}: {_percent(with_rule.told)}",
            _percent(without_rule.told),
        ]
        lines.append(f"| {' | '.join(cells)} |")
        sys.stderr.write(f"{lines[-1]}\n")

    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share else "0"


def _reported_with(
    context: Callable[[], AbstractContextManager[Any]],
    trial: Trial,
    recordings: Sequence[Floats],
    ways: int,
    folder: Path,
) -> Reported:
    """Return what a trial reports while a context is active."""
    with context():
        return reported(trial, recordings, ways, folder)


def recorded(path: Path) -> Floats:
    """Return the times of a recording, [steps, kernels] in us, of the steps that do the
    usual work."""
    work = collect_work(open_trace(str(path)), path.name)
    return make_items(work, Vocabulary()).samples / 1_000


def main() -> int:
    """Read the recordings, make all trials, and print the table; with --into it is put
    into a page. Returns 0."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--ways", type=int, default=100)
    parser.add_argument(
        "--into", metavar="FILE", help="a page with a place for the table"
    )

    options = parser.parse_args()
    recordings = [recorded(path) for path in options.traces]
    with tempfile.TemporaryDirectory() as folder:
        lines = table(recordings, options.ways, Path(folder))

    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)

    if options.into:
        put(Path(options.into), "single steps", text, __file__)

    return 0


if __name__ == "__main__":
    sys.exit(main())
