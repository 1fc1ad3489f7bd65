"""Scrubs real traces: how fast, with how much memory, and whether every figure is
preserved.

    python -P benchmarks/scrubbing.py trace.json.gz more.json --megabytes 1000

For each trace the figures (`summary`, `kernels` and `ops --json`) of the scrubbed one
are compared with those of the original, and so is every number of its events, digit for
digit. With --megabytes the first trace is also enlarged to that size (see generate.py).
Exit code 1 if anything differs.

    python -P benchmarks/scrubbing.py --warning trace.json.gz more.json --against SRC

measures instead what the warning about secrets costs when a trace is opened: the first
time in a process, and again; with --against, also by the code of another tree, the two
in turns.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fusetui.trace.read.source import open_source

FUSETUI = [sys.executable, "-P", "-m", "fusetui"]
NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?\d[\d.eE+-]*)')
CHANGED_KEYS = ("file", "bytes")
"""Of the summary: scrubbing changes them."""
WARNING_PROGRAM = """
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
"""How often each tree measures the warning; the least time counts."""


def main() -> int:
    """Scrub all traces and compare their figures, or measure the warning about secrets.
    Returns 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("traces", metavar="TRACE", type=Path, nargs="+")
    parser.add_argument("--megabytes", metavar="MB", type=int)
    parser.add_argument("--warning", action="store_true")
    parser.add_argument("--against", metavar="SRC", type=Path)

    args = parser.parse_args()
    if args.warning:
        measure_warnings(args.traces, args.against)
        return 0

    all_same = True
    with tempfile.TemporaryDirectory() as folder:
        traces = list(args.traces)
        if args.megabytes:
            enlarged = Path(folder) / "large.json"
            enlarge_trace(traces[0], enlarged, args.megabytes)
            traces.append(enlarged)
        for number, trace in enumerate(traces):
            is_same = measure(trace, Path(folder) / f"{number}.json.gz")
            all_same = all_same and is_same

    return 0 if all_same else 1


def enlarge_trace(trace: Path, out: Path, megabytes: int) -> None:
    """Write a trace of so many megabytes that repeats another one."""
    script = str(Path(__file__).with_name("generate.py"))
    arguments = [script, str(trace), str(out), "--megabytes", str(megabytes)]
    subprocess.run(
        [sys.executable, "-P", *arguments], check=True, stdout=subprocess.DEVNULL
    )


def measure_warnings(traces: Sequence[Path], other_src: Path | None) -> None:
    """Print the processor time of the warning about secrets in ms for each trace, the
    first time and again, by each tree. The trees take turns, and the least time counts.
    """
    own_src = Path(os.environ["PYTHONPATH"]) if "PYTHONPATH" in os.environ else None

    trees = [own_src]
    if other_src is not None:
        trees.append(other_src)

    print(f"{'trace':40}" + f"{'first ms':>10}{'again ms':>10}" * len(trees))

    for trace in traces:
        turns: list[list[int]] = []
        for _ in range(TURNS):
            times: list[int] = []
            for tree in trees:
                times += warning(trace, tree)
            turns.append(times)
        least_ms = [min(times_ns) / 1e6 for times_ns in zip(*turns, strict=True)]
        figures = "".join(f"{ms:10.2f}" for ms in least_ms)
        print(f"{trace.name:40}{figures}", flush=True)


def warning(trace: Path, src: Path | None) -> list[int]:
    """Return the processor time in ns of looking for secrets, by the code in `src`: the
    first time, and the least of five later times."""
    environment = dict(os.environ)
    if src is not None:
        environment["PYTHONPATH"] = str(src)

    process = subprocess.run(
        [sys.executable, "-P", "-c", WARNING_PROGRAM, str(trace)],
        capture_output=True,
        check=True,
        env=environment,
    )
    return msgspec.json.decode(process.stdout, type=list[int])


def measure(trace: Path, out: Path) -> bool:
    """Scrub a trace, print a line about it, and return whether its figures are
    preserved."""
    begin = time.perf_counter()
    process = subprocess.run(
        [*FUSETUI, "scrub", str(trace), str(out)], capture_output=True, text=True
    )
    seconds = time.perf_counter() - begin

    if process.returncode:
        print(f"{trace.name}: {process.stderr.strip()}")
        return False

    # the peak of all processes so far
    peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    megabytes = len(open_source(str(trace)).document) / 1e6
    differing = list(differences(trace, out))
    removed = process.stdout.strip().partition(": ")[2]
    verdict = f"DIFFERENT: {', '.join(differing)}" if differing else "the same figures"
    print(
        f"{trace.name}: {megabytes:.1f} MB in {seconds:.2f} s ({megabytes / seconds:.0f} MB/s, "
        f"at most {peak_bytes / 1e6:.0f} MB so far), {removed} {verdict}",
        flush=True,
    )
    return not differing


def differences(trace: Path, scrubbed: Path) -> Iterator[str]:
    """Yield the commands whose figures differ between both traces, and `numbers` if the
    numbers of events differ."""
    for command in ("summary", "kernels", "ops"):
        if figures(command, trace) != figures(command, scrubbed):
            yield command
    if hash_numbers(trace) != hash_numbers(scrubbed):
        yield "numbers"


def figures(command: str, path: Path) -> dict[str, Any]:
    """Return what a command prints as JSON, without the keys that scrubbing changes."""
    process = subprocess.run(
        [*FUSETUI, command, "--no-cache", "--json", str(path)],
        capture_output=True,
        check=True,
    )
    document = msgspec.json.decode(process.stdout, type=dict[str, Any])
    return {key: value for key, value in document.items() if key not in CHANGED_KEYS}


def hash_numbers(path: Path) -> int:
    """Return a hash of all numbers outside of strings, from the events on, digit for
    digit."""
    document = bytes(open_source(str(path)).document[:])
    begin = max(document.find(b'"traceEvents"'), 0)
    matches = NUMBER.finditer(document, begin)
    return hash(b" ".join(match[1] for match in matches if match[1]))


if __name__ == "__main__":
    sys.exit(main())
