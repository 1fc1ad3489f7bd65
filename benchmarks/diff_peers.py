"""The diff of two traces by fusetui and by HTA, side by side, as a Markdown table.

    python -P benchmarks/diff_peers.py a.json.gz b.json.gz --hta PYTHON [--into
    docs/diff.md]

Each tool runs three times in its own process; time and memory are those of the whole
process, from its start to its answer. `--hta` names a Python that has
HolisticTraceAnalysis. The contents of the files are counted here with the standard
library alone. TraceLens is not run: its column reports what its documentation and
source say.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.text.figures import microseconds

RUNS = 3
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")

HTA = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
from hta.trace_diff import DeviceType, LabeledTrace, TraceDiff
a, b = (LabeledTrace(label=label, t=Trace(trace_files={0: path}))
        for label, path in zip("AB", sys.argv[1:]))
gpu = TraceDiff.compare_traces(a, b, device_type=DeviceType.GPU)
ops = TraceDiff.ops_diff(a, b, device_type=DeviceType.CPU)
totals = {side: [int(gpu[side + "_counts"].sum()), float(gpu[side + "_total_duration"].sum())]
          for side in "AB"}
one_sided = int(((gpu["A_counts"] == 0) | (gpu["B_counts"] == 0)).sum())
json.dump({"totals": totals, "names": len(gpu), "one_sided": one_sided,
           "change": float(gpu["diff_duration"].sum()),
           "ops": {kind: len(names) for kind, names in ops.items()},
           "columns": [str(column) for column in gpu.columns]}, sys.stdout)
"""

EVENTS = "GPU events in a step, A -> B"
TIME = "their time, us"
STEPS = "steps used"
RENAMED = "kernels under other names matched"
FUSED = "fusions named"
DISPATCH = "dispatch on the CPU"
CLOSES = "the sum closes"
NOISE = "noise"
COST = "time and peak memory"
PREPARE = "to prepare"

Figures = dict[str, str]  # by point of the table


@dataclass(frozen=True)
class Run:
    """The output of a process, its duration (s), and its peak memory (MB)."""

    said: dict[str, Any]
    seconds: float
    megabytes: float

    @property
    def cost(self) -> str:
        return f"{self.seconds:.2f} s, {self.megabytes:,.0f} MB"


def measured(command: Sequence[str]) -> Run:
    """Return the median time and memory of several runs of a command, and the answer of
    the last run."""
    runs = [once(command) for _ in range(RUNS)]
    said = runs[-1].said
    times, sizes = [run.seconds for run in runs], [run.megabytes for run in runs]
    return Run(said, statistics.median(times), statistics.median(sizes))


def once(command: Sequence[str]) -> Run:
    """Run a command and return its answer, its seconds and its peak memory in MB."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        said = answer_of(out.read(), errors.read())

    return Run(
        said, seconds, usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    )


def answer_of(out: bytes, errors: bytes) -> dict[str, Any]:
    """Return the JSON that a process printed, or else the last line of its errors under
    the key "error"."""
    try:
        said: dict[str, Any] = json.loads(out)
        return said
    except ValueError:
        return {"error": errors.decode(errors="replace").strip().rpartition("\n")[2]}


@dataclass(frozen=True)
class InFile:
    """GPU events launched by the calls in each step, or of the whole file if there are
    no steps."""

    counts: list[int]
    ns: list[int]


def in_file(path: Path) -> InFile:
    """Return the numbers and times of GPU events that the calls of each step launched.
    Without steps, they are those of the whole file."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    document = json.loads(text, parse_float=Decimal)
    events = document["traceEvents"] if isinstance(document, dict) else document

    slices = [event for event in events if event.get("ph") == "X"]
    steps = [e for e in slices if e.get("cat") == "user_annotation" and is_step(e)]
    if not steps:
        found = [event for event in slices if event.get("cat") in GPU]
        return InFile([len(found)], [sum(map(duration, found))])

    per_step = [launched_in(slices, step) for step in steps]

    return InFile(
        [len(found) for found in per_step], [sum(map(duration, f)) for f in per_step]
    )


def is_step(event: dict[str, Any]) -> bool:
    return str(event.get("name")).startswith("ProfilerStep")


def launched_in(
    slices: list[dict[str, Any]], step: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the GPU events that calls within a step launched, found by their
    correlation ids."""
    begin, end = step["ts"], step["ts"] + step["dur"]
    calls = (e for e in slices if e.get("cat") in CALLS and begin <= e["ts"] < end)
    numbers = {call["args"].get("correlation") for call in calls} - {None, 0}
    gpu = (event for event in slices if event.get("cat") in GPU)
    return [event for event in gpu if event["args"].get("correlation") in numbers]


def duration(event: dict[str, Any]) -> int:
    """Return the duration of an event in ns, exactly, as times are decimal numbers of
    us."""
    return int(Decimal(event["dur"]) * 1000)


TRACELENS = {
    EVENTS: "leaves out kernels whose launch is not in the file",
    TIME: "adds up floats of us",
    STEPS: "the whole trace",
    RENAMED: "listed together under the op that both share",
    FUSED: "no: unequal lists under one op",
    DISPATCH: "ops matched as a tree",
    CLOSES: "times of kernels only",
    NOISE: "no",
    COST: "not measured",
    PREPARE: "a script in Python, or two spreadsheets to compare",
}
"""According to its documentation and source."""


def table(a: InFile, b: InFile, ours: Run, hta: Run | None) -> list[str]:
    """Return the lines of a Markdown table with a column for the contents of the files,
    and one for each tool."""
    held = {
        EVENTS: f"{spread(a.counts)} -> {spread(b.counts)}",
        TIME: f"{spread(a.ns, 1000)} -> {spread(b.ns, 1000)}",
        STEPS: f"{len(a.counts)} -> {len(b.counts)}",
    }

    columns = [held, figures(ours, of_fusetui), figures(hta, of_hta), TRACELENS]
    lines = [
        "| | in the files | fusetui | HTA | TraceLens (read, not run) |",
        "|---|---|---|---|---|",
    ]
    for point in TRACELENS:
        lines.append(f"| {point} | {' | '.join(c.get(point, '') for c in columns)} |")

    return lines


def figures(run: Run | None, of: Callable[[dict[str, Any]], Figures]) -> Figures:
    """Return the figures of a tool by point of the table. A tool that was not run or
    failed has one that says so."""
    if run is None:
        return {EVENTS: "not run"}
    if "error" in run.said:
        return {EVENTS: f"stopped: {run.said['error']}"}
    return {**of(run.said), COST: f"{run.seconds:.2f} s, {run.megabytes:,.0f} MB"}


def of_fusetui(said: dict[str, Any]) -> Figures:
    """Return what the diff of fusetui says about each point of the table."""
    a, b = said["sides"]["a"], said["sides"]["b"]
    kinds = Counter(
        (row["op"].startswith("CPU: "), row["kind"]) for row in said["rows"]
    )
    sums = {
        name: microseconds(ns, signed=True) for name, ns in said["accounting"].items()
    }

    return {
        EVENTS: f"{a['items']:,} -> {b['items']:,}{'' if a['gpu'] or b['gpu'] else ' CPU ops'}",
        TIME: f"{microseconds(a['work_ns'])} -> {microseconds(b['work_ns'])}",
        STEPS: f"the median of {a['steps']} -> {b['steps']}; rows: means of "
        f"{len(a['usual'])} -> {len(b['usual'])} around it",
        RENAMED: f"{kinds[False, 'replaced']:,}, with what differs in the names",
        FUSED: f"{kinds[False, 'fused']:,} fused, {kinds[False, 'split']:,} split",
        DISPATCH: f"less of {kinds[True, 'removed']} kinds, more of {kinds[True, 'added']}",
        CLOSES: f"yes: step {sums['step_ns']} us = rows {sums['rows_ns']}, idle {sums['idle_ns']},"
        f" overlap {sums['overlap_ns']}, borders {_borders(said['accounting'])},"
        f" not explained {sums['not_explained_ns']}",
        NOISE: noise(said),
        PREPARE: "nothing: one command",
    }


def _borders(sums: dict[str, int]) -> str:
    """Return the time of work that crosses the borders of a step, in either direction,
    in us."""
    return microseconds(sums["earlier_ns"] + sums["later_ns"], signed=True)


def noise(said: dict[str, Any]) -> str:
    """Return the verdict of a diff with its interval, or the reason why it has none."""
    if said["reason"]:
        return f"{said['verdict']}: {said['reason']}"
    step = said["step_ns"]
    interval = f"{step['ratio']:.2f}, {step['low']:.2f} to {step['high']:.2f} at 95 %"
    return f"{said['verdict']}: B / A is {interval}"


def of_hta(said: dict[str, Any]) -> Figures:
    """Return what the diff of HTA says about each point of the table."""
    a, b, ops = said["totals"]["A"], said["totals"]["B"], said["ops"]
    less, more = ops["deleted"] + ops["decreased"], ops["added"] + ops["increased"]
    return {
        EVENTS: f"{a[0]:,} -> {b[0]:,}",
        TIME: f"{a[1]:,} -> {b[1]:,}",
        STEPS: "the first of each",
        RENAMED: f"none: {said['one_sided']} of {said['names']} names are on one side only",
        FUSED: any_column(said, "fus"),
        DISPATCH: f"less of {less} names, more of {more}",
        CLOSES: f"no step; its GPU rows add up to {said['change']:+,.1f} us",
        NOISE: any_column(said, "interval"),
        PREPARE: "a script in Python",
    }


def any_column(said: dict[str, Any], word: str) -> str:
    """Return the columns of HTA's answer that have a word in their names, or "no" if
    none has."""
    return ", ".join(column for column in said["columns"] if word in column) or "no"


def spread(values: Sequence[int], unit: int = 1) -> str:
    """Return the least and the largest value, such as `5 to 7`, or one of them if they
    are equal."""
    shown = [
        f"{v:,}" if unit == 1 else microseconds(v) for v in (min(values), max(values))
    ]
    return " to ".join(dict.fromkeys(shown))


def main() -> None:
    """Run the diff of both tools on two traces, and print the table; with --into it is
    put into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument(
        "--into", type=Path, help="a Markdown file to put the table into"
    )
    args = parser.parse_args()
    paths = [str(args.a), str(args.b)]
    ours = measured([sys.executable, "-P", "-m", "fusetui", "diff", *paths, "--json"])
    hta = (
        measured([args.hta, "-P", "-c", HTA, *map(os.path.abspath, paths)])
        if args.hta
        else None
    )
    found = "\n".join(table(in_file(args.a), in_file(args.b), ours, hta))
    print(found)

    if args.into:
        name = " ".join(path.name.partition(".json")[0] for path in (args.a, args.b))
        put(args.into, name, found, __file__)


if __name__ == "__main__":
    main()
