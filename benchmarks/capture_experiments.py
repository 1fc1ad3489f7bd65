"""Runs the sources' experiments on this machine and writes their tables into
docs/experiments.md.

    python -P benchmarks/capture_experiments.py [--device cpu|cuda] [--runs FOLDER] [--page FILE]
        [NAME ...]
    python -P benchmarks/capture_experiments.py --device cuda --blank [NAME ...]

Without names it runs all of them, on a CPU in under ten minutes. Each table goes
between the two markers of its experiment and device; tables of the other device are
kept. With `--runs` the run folders are kept; their traces are scrubbed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks import sources
from benchmarks.pages import put

from fusetui.capture.command import capture
from fusetui.capture.errors import CaptureError
from fusetui.capture.options import Options
from fusetui.capture.provenance import find_device, versions

PAGE = Path(__file__).resolve().parents[1] / "docs" / "experiments.md"
THREADS = 1
"""For a CPU: two threads wait for each other whenever something else runs on one of two
cores."""
FORMS = ("loop", "big", "masked", "bmm", "fused")


@dataclass(frozen=True)
class Experiment:
    """One command. `sweep` and `variants` as for `fusetui capture`."""

    name: str
    workload: str
    backward: bool = False
    variants: Sequence[str] = ()
    expect: Sequence[str] = ()
    sweep: str = ""
    mode: str | None = None

    def command(self, kind: str) -> str:
        """Return the command line that makes the same experiment, on a device of this
        kind."""
        words = ["fusetui", "capture", self.workload]
        words += [word for name in self.variants for word in ("--variant", name)]
        words += ["--backward"] if self.backward else []
        words += ["--mode", self.mode] if self.mode else []
        words += [word for guess in self.expect for word in ("--expect", guess)]
        words += ["--sweep", self.sweep] if self.sweep else []
        prefix = f"OMP_NUM_THREADS={THREADS} " if kind == "cpu" else ""
        return prefix + shlex.join([*words, "--device", kind])


MLP_GUESSES = (
    "eager: kernels=5 gemm=3 pointwise=2",
    "compiled: kernels=4 gemm=3 pointwise=1",
    "fused: kernels=4 gemm=3 pointwise=1",
    "fused-gemm: kernels=2 gemm=2",
)

EXPERIMENTS = (
    Experiment("matmul-add", "matmul-add"),
    Experiment("linear", "linear", expect=("kernels=1 gemm=1",)),
    Experiment("mlp", "mlp", expect=MLP_GUESSES),
    Experiment("mlp-training", "mlp", backward=True),
    Experiment("partitioned-linear", "partitioned-linear"),
    Experiment("partitioned-linear-training", "partitioned-linear", backward=True),
    Experiment(
        "paper-batch", "partitioned-linear", variants=FORMS, sweep="paper-batch"
    ),
    Experiment("paper-n", "partitioned-linear", variants=FORMS, sweep="paper-n"),
    Experiment("paper-in", "partitioned-linear", variants=FORMS, sweep="paper-in"),
    Experiment("paper-out", "partitioned-linear", variants=FORMS, sweep="paper-out"),
    Experiment("split-stack", "split-stack"),
    Experiment("split-stack-training", "split-stack", backward=True),
)


def main() -> None:
    """Run the requested experiments one after another, and exit with 1 if any failed.
    If one fails, the others still run. With --blank, nothing is run."""
    options = _options()
    if options.blank:
        for experiment in EXPERIMENTS:
            if not options.names or experiment.name in options.names:
                _write(options.page, experiment, options.device, _blank(experiment))
        return

    try:
        kind = find_device(options.device).kind
    except CaptureError as error:
        sys.exit(str(error))

    if kind == "cpu":
        torch.set_num_threads(THREADS)

    begin = perf_counter()

    with contextlib.ExitStack() as stack:
        runs = options.runs or Path(stack.enter_context(TemporaryDirectory()))
        wanted = [
            e for e in EXPERIMENTS if not options.names or e.name in options.names
        ]
        done = [_run(experiment, kind, runs, options.page) for experiment in wanted]

    print(f"all in {perf_counter() - begin:.0f} s", file=sys.stderr)
    sys.exit(0 if all(done) else 1)


def _options() -> argparse.Namespace:
    """Return the options of the command line. Exits with a message if an experiment is
    unknown."""
    parser = argparse.ArgumentParser(description="Runs the sources' experiments.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="all of them without a name"
    )
    parser.add_argument("--device", default="auto", help="auto, cuda or cpu")
    parser.add_argument(
        "--blank", action="store_true", help="only what the sources measured"
    )
    parser.add_argument("--runs", type=Path, help="a folder that keeps the runs")
    parser.add_argument(
        "--page", type=Path, default=PAGE, help="docs/experiments.md by default"
    )

    options = parser.parse_args()
    known = [experiment.name for experiment in EXPERIMENTS]
    if unknown := set(options.names) - set(known):
        parser.error(
            f"unknown {', '.join(sorted(unknown))}: there are {', '.join(known)}"
        )

    return options


def _run(experiment: Experiment, kind: str, runs: Path, page: Path) -> bool:
    """Run one experiment and write its output into the page. Returns whether it
    succeeded; an error is printed."""
    begin = perf_counter()

    try:
        printed = _printed(experiment, kind, runs / experiment.name)
        beside = sources.compared(experiment.name, runs / experiment.name)
    except CaptureError as error:
        print(f"{experiment.name}: {error}", file=sys.stderr)
        return False

    seconds = perf_counter() - begin
    printed = f"{printed}\n\n{beside}".strip()
    _write(page, experiment, kind, _paragraph(experiment.command(kind), printed, kind))
    print(f"{experiment.name}: {seconds:.0f} s", file=sys.stderr)
    return True


def _write(page: Path, experiment: Experiment, kind: str, paragraph: str) -> None:
    put(page, f"{experiment.name} {kind}", paragraph, __file__)


def _blank(experiment: Experiment) -> str:
    """Return the paragraph of an experiment that was not measured yet: what its source
    measured."""
    beside = sources.compared(experiment.name, Path(os.devnull))
    return f"Not measured yet.\n\n```\n{beside}\n```" if beside else "Not measured yet."


def _printed(experiment: Experiment, kind: str, folder: Path) -> str:
    """Run an experiment, and return the output of `fusetui capture` without the chart
    and without the lines that name the folder. Raises CaptureError."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        options = Options(
            variants=experiment.variants,
            device=kind,
            backward=experiment.backward,
            mode=experiment.mode,
            expect=experiment.expect,
            sweep=[experiment.sweep] if experiment.sweep else (),
            scrub=True,
        )
        capture(experiment.workload, options, folder)

    text = output.getvalue().partition("\n\nTime per step; the longest bar")[0]
    return re.sub(r"\n+Open it with: .*\n", "", text).strip()


def _paragraph(command: str, printed: str, kind: str) -> str:
    """Return the paragraph of an experiment: its command, what that printed, the
    device, and the versions of the software."""
    used = ", ".join(
        f"{name} {version}" for name, version in versions().items() if version
    )
    device = find_device(kind).name
    return f"```\n$ {command}\n\n{printed}\n```\n\n{device}; {used}."


if __name__ == "__main__":
    main()
