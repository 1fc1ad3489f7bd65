"""What each option of torch.profiler costs: writes the table of docs/recording.md.

python -P benchmarks/recording.py

CPU time, not wall time, of the thread that runs the steps: other programs disturb it
little. All options are measured in turn, ROUNDS times, so that a change of the clock
meets all of them; the figure is the smallest of the medians.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import thread_time_ns
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui import kernels
from fusetui.text.figures import duration, size

PAGE = Path(__file__).resolve().parents[1] / "docs" / "recording.md"
WARM_UP, STEPS, ROUNDS = 10, 60, 15
OPTIONS: tuple[tuple[str, ...], ...] = (
    (),
    ("record_shapes",),
    ("profile_memory",),
    ("with_flops",),
    ("with_modules",),
    ("with_stack",),
    ("record_shapes", "profile_memory", "with_stack"),
)


def main() -> None:
    """Measure all options in turn, ROUNDS times, and write the table into
    docs/recording.md."""
    torch.set_num_threads(1)
    workload = kernels.get("mlp")
    # so small that only overhead is left
    shapes = {"batch": 1, "seq": 8, "dim": 16, "hidden": 32}
    model, inputs = workload.model(shapes), workload.inputs(shapes)
    plain: list[int] = []

    cost: dict[tuple[str, ...], list[int]] = {options: [] for options in OPTIONS}
    nbytes: dict[tuple[str, ...], int] = {}
    for _ in range(ROUNDS):
        plain.append(_median([_timed(model, inputs) for _ in range(WARM_UP + STEPS)]))
        for options in OPTIONS:
            ns, nbytes[options] = _profiled(model, inputs, dict.fromkeys(options, True))
            cost[options].append(ns)

    rows = [f"| not profiled | {duration(min(plain))} | |"]
    for options in OPTIONS:
        name = ", ".join(f"`{option}`" for option in options) or "profiled, no option"
        rows.append(
            f"| {name} | {duration(min(cost[options]))} | {size(nbytes[options])} |"
        )

    head = "| recorded with | CPU time of a step | trace of a step |\n|---|---|---|\n"
    table = (
        head + "\n".join(rows) + f"\n\nPyTorch {torch.__version__}, one CPU thread.\n"
    )
    put(PAGE, "costs", table, __file__)


def _profiled(model: Any, inputs: Any, options: dict[str, bool]) -> tuple[int, int]:
    """Return the CPU time of a step in ns with these options of the profiler, and how
    many bytes of JSON it adds to the trace."""
    times, sizes = [], []
    plan = schedule(wait=0, warmup=WARM_UP, active=STEPS, repeat=1)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"

        def save(profiler: Any) -> None:
            profiler.export_chrome_trace(str(path))
            sizes.append(path.stat().st_size)

        cpu = [ProfilerActivity.CPU]
        with profile(
            activities=cpu, schedule=plan, on_trace_ready=save, **options
        ) as profiler:
            for _ in range(WARM_UP + STEPS):
                times.append(_timed(model, inputs))
                profiler.step()

    return _median(times), sizes[0] // STEPS


def _timed(model: Any, inputs: Any) -> int:
    """Return the CPU time of one forward pass in this thread, in ns."""
    start = thread_time_ns()
    with torch.no_grad():
        model(*inputs)
    return thread_time_ns() - start


def _median(times: list[int]) -> int:
    """Return the median of the times after the warm-up."""
    return int(median(times[WARM_UP:]))


if __name__ == "__main__":
    main()
