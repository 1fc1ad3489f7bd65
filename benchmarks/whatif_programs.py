"""Writes the table "Invented programs" of docs/whatif.md: predictions beside what
really happens.

    python -P benchmarks/whatif_programs.py [--seeds 3] [--kinds mixed ...] [--changes
    loader ...]

A simulator runs each program before and after a change; `tests/analysis/replay` has it,
and shares no code with fusetui. Predictions come from `fusetui whatif`. Each program is
recorded twice: with no residuals, where a prediction of the definition is exact to the
nanosecond, and with random ones. The changed program then runs with the same residuals,
and with other ones of the same sizes.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean, median, quantiles
from tempfile import TemporaryDirectory
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put
from tests.analysis.replay.cases import CHANGES, LOADING, cases
from tests.analysis.replay.changes import changed
from tests.analysis.replay.invented import KINDS, invented
from tests.analysis.replay.judge import Verdict, by_command, figures, judged
from tests.analysis.replay.simulator import Residuals, simulate

PAGE = Path(__file__).resolve().parents[1] / "docs" / "whatif.md"
SIZES = {"launch": 1500, "switch": 500, "event": 800}
"""Mean residuals in ns."""


class Result(NamedTuple):
    """`other` is the error with other residuals after the change."""

    kind: str
    seed: int
    change: str
    quiet: Verdict
    noisy: Verdict
    other: float | None


def main() -> int:
    """Predict all changes of all programs, and print the table. Returns 1 if a
    prediction is not as the documentation promises."""
    options = _options()
    results = []
    with TemporaryDirectory() as folder:
        for kind, seed, change in cases(options.seeds):
            if kind in options.kinds and change in options.changes:
                results.append(tried(kind, seed, change, Path(folder)))
                tell(results[-1])

    text = table(results)
    sys.stdout.write(text)

    if not options.print:
        put(PAGE, "invented programs", text, __file__)

    return 0 if all(map(is_as_promised, results)) else 1


def is_as_promised(result: Result) -> bool:
    """Return whether a prediction is exact where the definition settles it. With
    workers that load batches, its median step must be right, or not below the time that
    is given as the best."""
    if result.kind in LOADING:
        return result.quiet.abstained or result.quiet.is_right
    return not (KINDS[result.kind].settled and result.quiet.wrong)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--changes", nargs="*", default=[*CHANGES], choices=[*CHANGES])
    parser.add_argument(
        "--print", action="store_true", help="do not put the table into the page"
    )
    return parser.parse_args()


def tried(kind: str, seed: int, change: str, folder: Path) -> Result:
    """Predict a change of a program without residuals and with random ones, and return
    how well each prediction fits the simulation."""
    program, words = invented(kind, seed), CHANGES[change]
    quiet = judged(program, words, by_command, folder)
    chance = Residuals(seed, **SIZES)
    noisy = judged(program, words, by_command, folder, chance)
    recorded, others = simulate(program, chance), Residuals(seed, draw=1, **SIZES)
    after, _ = figures(simulate(changed(program, *words), others), recorded)
    is_number = not (noisy.abstained or noisy.is_bound)
    other = noisy.prediction.after / after - 1 if is_number else None
    return Result(kind, seed, change, quiet, noisy, other)


def tell(result: Result) -> None:
    """Say on stderr what is not exact about a prediction; nothing if it is exact."""
    said = "" if result.quiet.is_bound else "; ".join(result.quiet.wrong[:3])
    if result.quiet.abstained:
        said = f"exit code {result.quiet.prediction.refused}: {result.quiet.prediction.said[:300]}"
    if said:
        sys.stderr.write(f"{result.kind}, {result.seed}, {result.change}: {said}\n")


def _share(value: float) -> str:
    return f"{100 * value:.2f} %"


def _errors(values: Iterable[float]) -> list[str]:
    """Return the mean, the 90th percentile and the largest of absolute errors as texts;
    empty ones without errors."""
    found = sorted(map(abs, values))
    if not found:
        return ["", "", ""]
    ninth = (
        quantiles(found, n=10, method="inclusive")[-1] if len(found) > 1 else found[0]
    )
    return [_share(mean(found)), _share(ninth), _share(found[-1])]


def _figures_of(results: Sequence[Result]) -> list[str]:
    """Return the cells of a row of the table that sums up these results."""
    told = [one for one in results if not one.quiet.abstained]
    numbers = [one.quiet for one in told if not one.quiet.is_bound]
    exact = sum(not one.wrong for one in numbers)
    bounds = [one.quiet for one in told if one.quiet.is_bound]
    held = sum(one.is_right for one in bounds)
    worst = max((abs(one.error) for one in numbers), default=0.0)
    same = [
        one.noisy for one in results if not (one.noisy.abstained or one.noisy.is_bound)
    ]
    moved = [one.after / one.before - 1 for one in same]
    other = [one.other for one in results if one.other is not None]
    silent = sum(one.noisy.abstained for one in results)

    return [
        str(len(results)),
        f"{exact} of {len(numbers)}",
        f"{held} of {len(bounds)}" if bounds else "",
        _share(worst) if numbers else "",
        _share(median(map(abs, moved))) if moved else "",
        *_errors(one.error for one in same),
        _errors(other)[0],
        str(silent),
    ]


HEADS = (
    *("cases", "exact", "at best", "worst", "usual change"),
    *("mean error", "90 %", "largest", "mean, other residuals", "abstains"),
)


def _table(
    name: str, results: Sequence[Result], key: Callable[[Result], str]
) -> Iterator[str]:
    """Yield the lines of a Markdown table with a row for each group of results, which
    `key` names."""
    groups: defaultdict[str, list[Result]] = defaultdict(list)
    for one in results:
        groups[key(one)].append(one)
    yield f"| {name} | {' | '.join(HEADS)} |"
    yield "| --- " * (len(HEADS) + 1) + "|"
    for group, members in groups.items():
        yield f"| {group} | {' | '.join(_figures_of(members))} |"


def table(results: Sequence[Result]) -> str:
    """Return the tables of all results, by kind of program and by change."""
    settled = [one for one in results if KINDS[one.kind].settled]
    lines = [
        *_table("kind of program", results, lambda one: one.kind),
        *list(_table("", settled, lambda one: "**all that are settled**"))[2:],
        "",
        *_table("change", settled, lambda one: one.change),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
