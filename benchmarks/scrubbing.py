"""Scrubs real traces: how fast, with how much memory, and whether every figure is
preserved.

    python -P benchmarks/scrubbing.py trace.json.gz more.json --megabytes 1000

For each trace the figures (`summary`, `kernels` and `ops --json`) of the scrubbed one
are compared with those of the original, and so is every number of its events, digit for
digit. With --megabytes the first trace is also enlarged to that size (see generate.py).
Exit code 1 if anything differs.

    python -P benchmarks/scrubbing.py --warning trace.json.gz more.json --against
    OTHER/src

tells instead what the warning costs when a trace is opened: the first time in a
process, and again; with --against, also by the code of another tree, the two by turns.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fusetui.trace.read.source import open_source

FUSETUI = [sys.executable, "-P", "-m", "fusetui"]
NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?\d[\d.eE+-]*)')
CHANGING = ("file", "bytes")
KB = 1024
WARNING = """
import json, sys, time
from fusetui.trace import open_trace
from fusetui.trace.scrub.detect import secrets_of
trace = open_trace(sys.argv[1])
def took():
    begin = time.process_time_ns()
    secrets_of(trace)
    return time.process_time_ns() - begin
print(json.dumps([took(), min(took() for _ in range(5))]))
"""
TURNS = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("traces", metavar="TRACE", type=Path, nargs="+")
    parser.add_argument("--megabytes", metavar="MB", type=int)
    parser.add_argument("--warning", action="store_true")
    parser.add_argument("--against", metavar="SRC", type=Path)
    given = parser.parse_args()
    if given.warning:
        tell_warnings(given.traces, given.against)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        traces = list(given.traces)
        if given.megabytes:
            large = Path(folder) / "large.json"
            script = str(Path(__file__).with_name("generate.py"))
            made = [
                script,
                str(traces[0]),
                str(large),
                "--megabytes",
                str(given.megabytes),
            ]
            subprocess.run(
                [sys.executable, "-P", *made], check=True, stdout=subprocess.DEVNULL
            )
            traces.append(large)
        same = [
            measure(trace, Path(folder) / f"{n}.json.gz")
            for n, trace in enumerate(traces)
        ]
    return 0 if all(same) else 1


def tell_warnings(traces: list[Path], other: Path | None) -> None:
    """Prints ms of the processor for each trace, the least of some turns."""
    trees = [Path(os.environ["PYTHONPATH"]) if "PYTHONPATH" in os.environ else None]
    trees += [other] if other else []
    print(f"{'trace':40}" + f"{'first ms':>10}{'again ms':>10}" * len(trees))
    for trace in traces:
        turns = [
            [ns for tree in trees for ns in warning(trace, tree)] for _ in range(TURNS)
        ]
        least = [min(times) / 1e6 for times in zip(*turns, strict=True)]
        print(f"{trace.name:40}" + "".join(f"{ms:10.2f}" for ms in least), flush=True)


def warning(trace: Path, src: Path | None) -> list[int]:
    """ns of the first and of a later look for secrets, by the code in `src`."""
    environment = {**os.environ, "PYTHONPATH": str(src)} if src else dict(os.environ)
    done = subprocess.run(
        [sys.executable, "-P", "-c", WARNING, str(trace)],
        capture_output=True, check=True, env=environment,
    )  # fmt: skip
    found: list[int] = json.loads(done.stdout)
    return found


def measure(trace: Path, out: Path) -> bool:
    """Scrubs one trace, prints a line about it, and returns whether its figures are
    preserved."""
    before = time.perf_counter()
    done = subprocess.run(
        [*FUSETUI, "scrub", str(trace), str(out)], capture_output=True, text=True
    )
    seconds = time.perf_counter() - before
    if done.returncode:
        print(f"{trace.name}: {done.stderr.strip()}")
        return False
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * KB
    size = len(open_source(str(trace)).document)
    differs = list(differences(trace, out))
    print(
        f"{trace.name}: {size / 1e6:.1f} MB in {seconds:.2f} s ({size / 1e6 / seconds:.0f} MB/s, "
        f"at most {most / 1e6:.0f} MB so far), {done.stdout.strip().partition(': ')[2]} "
        f"{'the same figures' if not differs else 'DIFFERENT: ' + ', '.join(differs)}",
        flush=True,
    )
    return not differs


def differences(trace: Path, out: Path) -> Iterator[str]:
    for command in ("summary", "kernels", "ops"):
        if figures(command, trace) != figures(command, out):
            yield command
    if numbers(trace) != numbers(out):
        yield "numbers"


def figures(command: str, path: Path) -> dict[str, Any]:
    told = subprocess.run(
        [*FUSETUI, command, "--no-cache", "--json", str(path)],
        capture_output=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(told.stdout)
    return {key: value for key, value in found.items() if key not in CHANGING}


def numbers(path: Path) -> int:
    """A hash of all numbers, starting at the events."""
    data = bytes(open_source(str(path)).document[:])
    begin = max(data.find(b'"traceEvents"'), 0)
    found = (match[1] for match in NUMBER.finditer(data, begin) if match[1])
    return hash(b" ".join(found))


if __name__ == "__main__":
    sys.exit(main())
