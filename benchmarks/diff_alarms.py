"""How often a diff calls equal captures different, and how often it finds a change of 10 %.

    python -P benchmarks/diff_alarms.py [--pairs 200] [--steps 7] [--into docs/diff.md]

Every pair comes from one process whose steps alternate: A, B, A, B, ... One profile holds all of
them; the steps of each side are taken out of it as a trace of their own. For a change, the steps of
B do a tenth more of the same work.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from fusetui.trace import open_trace
from fusetui.trace.diff import Answer, diff

LAYERS = 10
"""Ten layers are a step; eleven take a tenth more."""

WIDTH = 512
ROWS = 8
BEGIN, END = "<!-- table: alarms -->", "<!-- end -->"


def main() -> int:
    options = _options()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {
        "equal": _answers(options.pairs, options.steps, LAYERS),
        "B does a tenth more": _answers(options.pairs, options.steps, LAYERS + LAYERS // 10),
    }
    text = _table(found, options)
    sys.stdout.write(text)
    if options.into:
        page = Path(options.into)
        pattern = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)
        page.write_text(pattern.sub(lambda _: f"{BEGIN}\n{text}{END}", page.read_text(), count=1))
    return 0


def _answers(pairs: int, steps: int, layers_of_b: int) -> Counter[Answer]:
    weight, rows = torch.randn(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)

    def step(layers: int) -> None:
        out = rows
        for _ in range(layers):
            out = torch.nn.functional.gelu(out @ weight)

    found: Counter[Answer] = Counter()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for _ in range(3):
            step(layers_of_b)
        for _ in range(pairs):
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                for number in range(2 * steps + 2):
                    with record_function(f"ProfilerStep#{number}"):
                        step(layers_of_b if number % 2 else LAYERS)
            path = Path(folder, "both.json")
            profiler.export_chrome_trace(str(path))
            sides = _sides(json.loads(path.read_text()), Path(folder))
            found[diff(*(open_trace(str(side)) for side in sides)).verdict.answer] += 1
    return found


def _sides(document: dict[str, Any], folder: Path) -> list[Path]:
    """The even and the odd steps, each as a trace; the first of each is left out as a warm-up."""
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    steps = {
        int(e["name"].partition("#")[2]): (float(e["ts"]), float(e["ts"]) + float(e["dur"]))
        for e in events
        if e["name"].startswith("ProfilerStep#")
    }
    paths = []
    for side in (0, 1):
        spans = [span for number, span in sorted(steps.items()) if number % 2 == side][1:]
        kept = [e for e in events if any(a <= float(e["ts"]) < b for a, b in spans)]
        paths.append(folder / f"side{side}.json")
        paths[-1].write_text(json.dumps({**document, "traceEvents": kept}))
    return paths


def _table(found: dict[str, Counter[Answer]], options: argparse.Namespace) -> str:
    head = f"{options.pairs} pairs, {options.steps} steps a side"
    lines = [f"| {head} | {' | '.join(Answer)} |", "|---|" + "---:|" * len(Answer)]
    for name, answers in found.items():
        lines.append(f"| {name} | {' | '.join(str(answers[answer]) for answer in Answer)} |")
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--into", metavar="FILE", help="a page with a place for the table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
