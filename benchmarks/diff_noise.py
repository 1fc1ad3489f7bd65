"""How many rows a diff calls faster or slower where nothing changed, and how many where
it did.

    python -P benchmarks/diff_noise.py TRACE... [--ways 20] [--into docs/diff.md]

Of each trace, steps that do the same work are dealt out to two sides at random, so that
whatever differs is noise: half of them to each side, or, for more steps than were
recorded, drawn with replacement. Then one piece in twenty on the second side is made
longer, by the factors named; told are those of at least 20 us, since a clock of whole
microseconds tells less of shorter ones. "Middle halves" is the rule without an
interval: the medians differ by more than the floor, and the middle halves of the
samples do not overlap; what it tells of the planted changes is in parentheses. Changes
below the floor are never told.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.analysis.diff.items import Vocabulary, make_items
from fusetui.analysis.diff.noise import estimate_noise, is_beyond_noise
from fusetui.analysis.diff.statistics import are_far_apart, detect_tick_ns
from fusetui.analysis.diff.work import collect_work
from fusetui.trace import open_trace

Int64s = NDArray[np.int64]
Told = Callable[[Int64s, Int64s], NDArray[np.bool_]]

DRAWN = (5, 10, 20)
"""Steps on each side, where more are drawn than were recorded."""

FACTORS = (1.1, 1.3, 2.0)
PLANTED, FROM_NS = 0.05, 20_000
LITTLE = 0.1  # shares below have two digits, whatever their size


def main() -> int:
    """Deal out the steps of each trace, and print a table of what the rules tell; with
    --into it is written to a page. Returns 0."""
    options = _options()
    lines = _head()
    for path in map(Path, options.traces):
        found = make_items(collect_work(open_trace(str(path)), path.name), Vocabulary())
        steps = len(found.samples)
        if steps < 4:
            sys.stderr.write(
                f"{path.name}: {steps} steps do the same work, which is too few\n"
            )
            continue
        name = path.name.partition(".")[0]
        for count in sorted({2, steps // 2, *DRAWN}):
            lines.append(_row(name, found.samples, count, options.ways))

    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)

    if options.into:
        put(Path(options.into), "noise", text, __file__)

    return 0


def _head() -> list[str]:
    found = " | ".join(f"x {factor:g} reported" for factor in FACTORS)
    head = f"| trace | steps a side | rows | false: middle halves | false: interval | {found} |"
    return [head, "|---|---|---:|---:|---:|" + "---:|" * len(FACTORS)]


def _row(name: str, samples: Int64s, count: int, ways: int) -> str:
    """Return a line of the table: which share of rows each rule tells without a change,
    and which share of planted changes. `count` is the steps of each side, and `ways`
    how often they are dealt out."""
    tick = detect_tick_ns(samples)

    def by_interval(a: Int64s, b: Int64s) -> NDArray[np.bool_]:
        return is_beyond_noise(a, b, tick, estimate_noise(a, b))

    def by_middle_halves(a: Int64s, b: Int64s) -> NDArray[np.bool_]:
        return are_far_apart(a, b, tick)

    dealt = list(_dealt(samples, count, ways))
    how = f"{count}" if 2 * count <= len(samples) else f"{count}, drawn"
    cells = [name, how, f"{samples.shape[1]:,}"]

    rules = by_middle_halves, by_interval
    cells += [
        _percent(np.mean([told(a, b).mean() for a, b in dealt])) for told in rules
    ]
    for factor in FACTORS:
        before, now = (_percent(_power(told, dealt, factor)) for told in rules)
        cells.append(f"{now} ({before})")

    return f"| {' | '.join(cells)} |"


def _percent(share: float | np.floating[Any]) -> str:
    if share == 0:
        return "0"
    return f"{100 * share:.0f} %" if share > LITTLE else f"{100 * share:.2g} %"


def _dealt(samples: Int64s, count: int, ways: int) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield the samples of two sides, `count` steps each, drawn at random in `ways`
    ways. Steps are drawn with replacement if there are too few."""
    random = np.random.default_rng(0)
    for _ in range(ways):
        enough = 2 * count <= len(samples)
        order = random.choice(len(samples), 2 * count, replace=not enough)
        yield samples[order[:count]], samples[order[count:]]


def _power(told: Told, dealt: list[tuple[Int64s, Int64s]], factor: float) -> float:
    """Return the share of the planted changes that a rule tells. Only pieces of at
    least FROM_NS count, as a clock of whole us says less of shorter ones."""
    random = np.random.default_rng(1)
    found = []
    for a, b in dealt:
        planted = random.random(b.shape[1]) < PLANTED
        longer = np.where(planted, (b * factor).astype(np.int64), b)
        found.append(told(a, longer)[planted & (b.min(axis=0) >= FROM_NS)])
    return float(np.concatenate(found).mean())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--ways", type=int, default=20)
    parser.add_argument(
        "--into", metavar="FILE", help="a page with a place for the table"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
