"""Writes the table "CPU programs" of docs/whatif.md: what was predicted, and what was
recorded.

    python -P benchmarks/whatif_cpu.py [--rounds 5] [--only metrics ...] [--print]

Each program of `whatif_cpu_programs.py` is recorded by torch.profiler as it is and
without its slow part, in turns, on one thread of torch. From each first recording
`fusetui whatif` predicts the second. All figures are medians of the rounds, each a
median of its steps; the noise is how far the second recordings lie apart, half of the
range of their middle half. Only the rounds count in which other programs kept the
thread from the processor for the least time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put
from tests.analysis.replay.judge import Prediction, by_command

from fusetui.text.figures import duration

PAGE = Path(__file__).resolve().parents[1] / "docs" / "whatif.md"
WARM_UP, STEPS, ROUNDS = 4, 12, 5
TRIES, QUIET = 6, 0.02
VARIANTS = FIRST, SECOND = "first", "second"


class Outcome(NamedTuple):
    """In ns; `before` and `after` as recorded, from each round. `stood`: the share of
    the time for which other programs kept the thread from the processor, at most."""

    name: str
    change: str
    before: list[float]
    after: list[float]
    predictions: list[Prediction]
    stood: float

    @property
    def predicted(self) -> float | None:
        """None where there was none in any round."""
        told = [float(one.after) for one in self.predictions if not one.refused]
        return median(told) if told else None

    @property
    def error(self) -> float | None:
        predicted = self.predicted
        return None if predicted is None else predicted / median(self.after) - 1

    @property
    def noise(self) -> float:
        low, _, high = quantiles(self.after, n=4, method="inclusive")
        return (high - low) / 2 / median(self.after)


def main() -> None:
    """Record all programs, predict their changes, and print the table; unless --print,
    it is put into the page."""
    options = _options()
    if options.record:
        record(options.record[0], options.rounds, Path(options.record[1]))
        return

    found = []
    with TemporaryDirectory() as folder:
        for name, change in names():
            if not options.only or name in options.only:
                found.append(tried(name, change, options.rounds, Path(folder)))
                sys.stderr.write(row(found[-1]) + "\n")

    text = table(found)
    sys.stdout.write(text)

    if not options.print:
        put(PAGE, "CPU programs", text, __file__)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="*")
    parser.add_argument(
        "--print", action="store_true", help="do not put the table into the page"
    )
    parser.add_argument("--record", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def names() -> list[tuple[str, str]]:
    from benchmarks.whatif_cpu_programs import CASES  # needs torch

    return [(case.make.__name__, case.change) for case in CASES]


def record(name: str, rounds: int, folder: Path) -> None:
    """Record one program in this process, as it is and without its slow part, in turns.
    It stops once `rounds` rounds were quiet, which means that no other program kept the
    thread from the processor for long."""
    import torch
    from benchmarks.whatif_cpu_programs import CASES
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    torch.manual_seed(0)
    (case,) = (one for one in CASES if one.make.__name__ == name)
    programs = {variant: case.make(variant == FIRST) for variant in VARIANTS}

    plan = schedule(wait=0, warmup=WARM_UP, active=STEPS, repeat=1)
    quiet = 0
    for number in range(TRIES * rounds):
        stood = 0.0
        for variant, step in programs.items():
            path = str(folder / f"{variant}{number}.json")
            began, before = perf_counter_ns(), _stood()

            with profile(
                activities=[ProfilerActivity.CPU],
                schedule=plan,
                on_trace_ready=lambda profiler, path=path: profiler.export_chrome_trace(
                    path
                ),
                with_stack=case.stacks,
            ) as profiler:
                for _ in range(WARM_UP + STEPS):
                    step()
                    profiler.step()

            stood = max(stood, (_stood() - before) / (perf_counter_ns() - began))

        (folder / f"{number}.stood").write_text(str(stood), encoding="utf-8")

        quiet += stood < QUIET
        if quiet == rounds:
            return


def _stood() -> int:
    """Return the time in ns for which this thread was ready to run, but other programs
    had the processors."""
    return int(
        Path("/proc/thread-self/schedstat").read_text(encoding="utf-8").split()[1]
    )


def median_step(path: Path) -> float:
    """Return the median duration of a step in ns, computed from the file itself."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    ends = sorted(
        float(event["ts"]) + float(event["dur"])
        for event in events
        if event.get("cat") == "user_annotation"
        and event["name"].startswith("ProfilerStep#")
    )
    return median(after - before for before, after in pairwise(ends)) * 1000


def tried(name: str, change: str, rounds: int, into: Path) -> Outcome:
    """Record a program, predict its change from each recording, and return the outcome.
    Of all rounds, those that other programs disturbed least count."""
    folder = into / name
    folder.mkdir()
    command = [sys.executable, "-P", __file__, "--record", name, str(folder)]
    subprocess.run([*command, "--rounds", str(rounds)], check=True, capture_output=True)
    stood = {path.stem: float(path.read_text()) for path in folder.glob("*.stood")}

    chosen = sorted(stood, key=lambda number: stood[number])[:rounds]
    outcome = Outcome(name, change, [], [], [], stood[chosen[-1]])
    for number in chosen:
        first, second = (folder / f"{variant}{number}.json" for variant in VARIANTS)
        outcome.before.append(median_step(first))
        outcome.after.append(median_step(second))
        outcome.predictions.append(by_command(first, [change]))

    return outcome


def _share(value: float) -> str:
    return f"{100 * value:+.1f} %"


def row(outcome: Outcome) -> str:
    """Return a line of the table for one program."""
    told, error = outcome.predicted, outcome.error
    cells = [
        outcome.name.replace("_", " "),
        f"`{outcome.change}`",
        duration(int(median(outcome.before))),
        duration(int(told)) if told is not None else "no answer",
        duration(int(median(outcome.after))),
        _share(error) if error is not None else "",
        _share(outcome.noise).replace("+", "±"),
        f"{100 * outcome.stood:.1f} %",
    ]
    return f"| {' | '.join(cells)} |"


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the Markdown table of all programs, with the mean error below it."""
    import torch

    head = "| program | change | before | predicted | recorded | error | noise | disturbed |\n"
    head += "| --- " * 8 + "|\n"
    errors = [abs(one.error) for one in outcomes if one.error is not None]
    silent = sum(one.error is None for one in outcomes)

    said = "There is no prediction"
    if errors:
        said = f"The mean absolute error is {100 * mean(errors):.1f} %"

    about = (
        f"{said}; fusetui gives no answer for {silent} of {len(outcomes)} programs. "
        f"Measured with PyTorch {torch.__version__}."
    )
    return head + "\n".join(map(row, outcomes)) + f"\n\n{about}\n"


if __name__ == "__main__":
    main()
