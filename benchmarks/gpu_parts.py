"""Parts of gpu_session.py that are no script of their own: samples, snapshots, attach.

python -P benchmarks/gpu_parts.py samples|snapshots|attach FOLDER [--device cuda|cpu]

`samples` captures the MLP with CUDA graphs, and with stacks and memory. `snapshots` has
a loop run out of GPU memory and reads the snapshots of it. `attach` records a training
loop while it runs, by the clock and by optimizer steps; every trace must hold kernels.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

TRY_SECONDS = 12
"""How long a program that is to be recorded runs its loop."""
START_SECONDS = 15
"""How long importing torch and writing the trace may take beside it."""
FUSETUI = (sys.executable, "-P", "-m", "fusetui")
LOOP = """
import sys, time, torch
device, seconds = sys.argv[1], float(sys.argv[2])
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(64, 1024, device=device)
end = time.time() + seconds
while time.time() < end:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
TRIES = {"seconds": ("--with", "shapes,stack,memory"), "steps": ("--steps", "5")}


def samples(out: Path, device: str) -> int:
    """Make two captures of the MLP that may become samples, and return the exit code 0."""
    from fusetui.capture.command import capture
    from fusetui.capture.options import Options

    graphs = Options(["eager", "compiled"], device, mode="reduce-overhead", scrub=True)
    capture("mlp", graphs, out / "graphs")
    stacks = Options(["eager"], device, stack=True, memory=True, steps=1, scrub=True)
    capture("mlp", stacks, out / "stacks")
    return 0


def snapshots(out: Path, device: str) -> int:
    """Record the memory of a training step, and on a GPU of a loop that runs out of
    memory. Returns the largest exit code of `fusetui memory` about them."""
    import torch

    from fusetui.capture import profile
    from fusetui.capture.command import capture
    from fusetui.capture.options import Options
    from fusetui.cli import run

    options = Options(["eager"], device, memory=True, backward=True)
    capture("mlp", options, out / "memory")

    if device == "cuda":
        free_bytes = torch.cuda.mem_get_info()[0]
        kept = []
        try:
            with profile(out / "loop", device=device, memory=True) as session:
                for _ in range(12):
                    kept.append(
                        torch.empty(free_bytes // 10, dtype=torch.uint8, device=device)
                    )
                    session.step()
        except torch.OutOfMemoryError:
            print("ran out, as it should")

    files = [out / "loop-oom.pickle", out / "memory"] if device == "cuda" else []
    return max([run(["memory", str(file)]) for file in files], default=0)


def attach(out: Path, device: str) -> int:
    """Record the training loop once for each way to ask for it. Returns 1 if a trace is
    missing or empty."""
    return max([_recorded(name, out / name, device) for name in TRIES])


def _recorded(name: str, folder: Path, device: str) -> int:
    """Run the loop for one way to record it. Returns 0 if there is a trace and every
    trace has kernels, else 1."""
    program = [sys.executable, "-c", LOOP, device, str(TRY_SECONDS)]

    line = [
        *FUSETUI,
        "run",
        *TRIES[name],
        "--no-open",
        "--out",
        str(folder),
        "--",
        *program,
    ]
    try:
        code = subprocess.run(line, timeout=TRY_SECONDS + START_SECONDS).returncode
    except subprocess.TimeoutExpired:
        print(f"{name}: not ended {START_SECONDS} s after its loop had to")
        code = 1

    traces = sorted(folder.glob("*.json"))  # not what was begun: *.json.tmp
    if not traces:
        print(f"{name}: there is no trace in {folder}")
        return 1

    counts = [count_kernels(trace) for trace in traces]
    for trace, count in zip(traces, counts, strict=True):
        print(f"{name}: {trace.name} has {count} kernels")

    return int(code != 0 or min(counts) == 0)


def count_kernels(trace: Path) -> int:
    """Return how many times a kernel ran on a GPU in a trace. It is 0 for a trace that
    cannot be read, and the reason is printed, so that the next way to record has its
    turn."""
    from fusetui import Error
    from fusetui.analysis.questions.totals import sum_kernels_by_name
    from fusetui.trace import open_trace

    try:
        opened = open_trace(str(trace), cached=False)
    except Error as error:
        print(error)
        return 0

    return sum(one.count for one in sum_kernels_by_name(opened))


PARTS = {"samples": samples, "snapshots": snapshots, "attach": attach}


def main() -> None:
    """Run the part that the command line names, and exit with its code."""
    parser = argparse.ArgumentParser(description="Parts of the session on a GPU.")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sys.exit(PARTS[options.part](options.folder, options.device))


if __name__ == "__main__":
    main()
