"""How often a diff calls equal captures different, and how often it finds a change of
10 %.

    python -P benchmarks/diff_alarms.py [--pairs 200] [--steps 30] [--into docs/diff.md]

Every pair is recorded in turns, as `fusetui capture --compare` does it. For a change,
the steps of B do a tenth more of the same work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Answer
from fusetui.capture import recorder as turns
from fusetui.capture.options import ROUNDS, Options
from fusetui.capture.step import Step, forward_step
from fusetui.trace import open_trace

LAYERS = 10
"""Ten layers are a step; eleven take a tenth more."""

WIDTH = 512
ROWS = 8


def main() -> int:
    """Record pairs without and with a change, and print how often the diff tells a
    difference; with --into it is put into a page. Returns 0."""
    options = _options()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {
        "equal": _answers(options.pairs, options.steps, LAYERS),
        "B does a tenth more": _answers(
            options.pairs, options.steps, LAYERS + LAYERS // 10
        ),
    }
    text = _table(found, options)
    sys.stdout.write(text)

    if options.into:
        put(Path(options.into), "alarms", text, __file__)

    return 0


def _answers(pairs: int, steps: int, layers_of_b: int) -> Counter[Answer]:
    """Record pairs of captures in turns, and count the answers of their diffs. A step
    of A has LAYERS layers, and a step of B has `layers_of_b`."""
    weight, rows = torch.randn(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)

    def step(layers: int) -> Step:
        def call() -> torch.Tensor:
            out = rows
            for _ in range(layers):
                out = torch.nn.functional.gelu(out @ weight)
            return out

        return forward_step(call, "layers", ((),))

    sides = {"a": step(LAYERS), "b": step(layers_of_b)}
    found: Counter[Answer] = Counter()
    with torch.no_grad():
        for _ in range(pairs):
            with tempfile.TemporaryDirectory() as folder:
                turns.record(sides, Options(steps=steps), "cpu", Path(folder))
                paths = [str(Path(folder, f"{side}.json.gz")) for side in sides]
                found[
                    diff(*(open_trace(p, cached=False) for p in paths)).verdict.answer
                ] += 1

    return found


def _table(found: dict[str, Counter[Answer]], options: argparse.Namespace) -> str:
    """Return a Markdown table of how often each answer was given."""
    head = f"{options.pairs} pairs, {options.steps} steps a side"
    lines = [f"| {head} | {' | '.join(Answer)} |", "|---|" + "---:|" * len(Answer)]
    for name, answers in found.items():
        lines.append(
            f"| {name} | {' | '.join(str(answers[answer]) for answer in Answer)} |"
        )
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=ROUNDS)
    parser.add_argument(
        "--into", metavar="FILE", help="a page with a place for the table"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
