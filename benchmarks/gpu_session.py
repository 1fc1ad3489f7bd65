"""Everything that only a GPU can show, in one command of at most ten minutes.

    python -P benchmarks/gpu_session.py OUT

Runs the GPU part of the tests, the experiments of docs/experiments.md at their full shapes, the
pointwise kernel against a copy, two more captures (with CUDA graphs, with stacks and memory), a
loop that runs out of memory, with the snapshots of it, and what the kernels were predicted to take
beside what they took.
The run folders, whose traces are scrubbed and may become samples, logs and session.json go into
OUT, the tables into docs/experiments.md. If a part fails or takes too long, the others still run;
the most important come first. fusetui need not be installed, but its dependencies must be. Exit
code 1 if any part failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 585
PYTHON = (sys.executable, "-P")

SAMPLES = """
import sys
from pathlib import Path
from fusetui.capture.command import capture
from fusetui.capture.options import Options
out = Path(sys.argv[1])
graphs = Options(["eager", "compiled"], "cuda", mode="reduce-overhead", scrub=True)
stacks = Options(["eager"], "cuda", stack=True, memory=True, steps=1, scrub=True)
capture("mlp", graphs, out / "graphs")
capture("mlp", stacks, out / "stacks")
"""

SNAPSHOTS = """
import sys
import torch
from pathlib import Path
from fusetui.capture import profile
from fusetui.capture.command import capture
from fusetui.capture.options import Options
from fusetui.cli import run
out = Path(sys.argv[1])
capture("mlp", Options(["eager"], "cuda", memory=True, backward=True), out / "memory")
free, kept = torch.cuda.mem_get_info()[0], []
try:
    with profile(out / "loop", device="cuda", memory=True) as session:
        for _ in range(12):
            kept.append(torch.empty(free // 10, dtype=torch.uint8, device="cuda"))
            session.step()
except torch.OutOfMemoryError:
    print("ran out, as it should")
sys.exit(run(["memory", str(out / "loop-oom.pickle")]) or run(["memory", str(out / "memory")]))
"""

ATTACH = """
import subprocess, sys
from pathlib import Path
out = Path(sys.argv[1])
loop = '''
import time, torch
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).cuda()
optimizer, x = torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(64, 1024, device="cuda")
end = time.time() + 45
while time.time() < end:
    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
'''
fusetui = [sys.executable, "-P", "-m", "fusetui"]
code = 0
for name, wish in {"seconds": ["--with", "shapes,stack,memory"], "steps": ["--steps", "5"]}.items():
    line = [*fusetui, "run", *wish, "--out", str(out / name), "--", sys.executable, "-c", loop]
    code |= subprocess.run(line).returncode
    for trace in out.joinpath(name).glob("*.json"):
        code |= subprocess.run([*fusetui, "summary", str(trace)]).returncode
        expected = [*fusetui, "sql", str(trace), "select count(*) as kernels from kernels"]
        code |= subprocess.run(expected).returncode
sys.exit(code or len(list(out.glob("*/*.json"))) != 2)
"""


@dataclass(frozen=True)
class Piece:
    """One process and the longest it may take, in seconds."""

    name: str
    command: Sequence[str]
    limit: int


def parts(out: Path) -> list[Piece]:
    """The parts to run, most important first."""
    experiments = [*PYTHON, "benchmarks/capture_experiments.py", "--device", "cuda"]
    experiments += ["--runs", str(out / "runs")]
    tests = [*PYTHON, "-m", "pytest", "-q", "tests/kernels", "tests/capture"]
    pointwise = [*PYTHON, "benchmarks/capture_pointwise.py", "--out", str(out / "pointwise.json")]
    predictions = [*PYTHON, "benchmarks/predictions.py", "--runs", str(out / "runs")]
    one_by_one = ["matmul-add", "linear", "mlp", "mlp-training", "split-stack"]
    forms = ["partitioned-linear", "paper-batch", "paper-n", "paper-in", "paper-out"]
    rest = ["partitioned-linear-training", "split-stack-training"]
    return [
        Piece("gpu-state", ["nvidia-smi", "-q"], 20),
        Piece("pointwise", pointwise, 90),
        Piece("workloads", [*experiments, *one_by_one], 150),
        Piece("samples", [*PYTHON, "-c", SAMPLES, str(out / "runs")], 90),
        Piece("snapshots", [*PYTHON, "-c", SNAPSHOTS, str(out / "runs")], 60),
        Piece("attach", [*PYTHON, "-c", ATTACH, str(out / "attach")], 130),
        Piece("partitioned-linear", [*experiments, *forms], 260),
        Piece("predictions", predictions, 60),
        Piece("tests", tests, 150),
        Piece("more-workloads", [*experiments, *rest], 120),
    ]


def run(part: Piece, out: Path, seconds_left: float) -> dict[str, object]:
    """Runs one part with its output in a log file; returns how it went."""
    limit, begin = min(part.limit, seconds_left), perf_counter()
    print(f"{part.name} ...", end=" ", flush=True)
    if limit < 5:
        print("no time left")
        return {"name": part.name, "code": None, "seconds": 0.0}
    with (out / "logs" / f"{part.name}.txt").open("w") as log:
        code = _exit_code(part.command, limit, log.fileno())
    seconds = perf_counter() - begin
    print(f"{'done' if code == 0 else f'failed ({code})'} in {seconds:.0f} s")
    return {"name": part.name, "code": code, "seconds": round(seconds, 1)}


def _exit_code(command: Sequence[str], limit: float, log: int) -> int | str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    try:
        done = subprocess.run(
            command, cwd=ROOT, timeout=limit, stdout=log, stderr=log, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return "out of time"
    except OSError as error:
        return str(error)
    return done.returncode


def main() -> None:
    """Runs the parts and writes session.json."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -P benchmarks/gpu_session.py OUT")
    out, begin = Path(sys.argv[1]).resolve(), perf_counter()
    (out / "logs").mkdir(parents=True, exist_ok=True)
    results = []
    for part in parts(out):
        results.append(run(part, out, LIMIT_SECONDS - (perf_counter() - begin)))
        (out / "session.json").write_text(json.dumps(results, indent=2) + "\n")
    page = ROOT / "docs" / "experiments.md"
    (out / "experiments.md").write_bytes(page.read_bytes())
    sys.exit(0 if all(result["code"] == 0 for result in results) else 1)


if __name__ == "__main__":
    main()
