"""How much of the time of real and recorded traces `fusetui reproduce` makes again.

    python -P benchmarks/reproducing.py [--only PROGRAM ...] [--keep FOLDER] [--put]
    python -P benchmarks/reproducing.py --meta TRACE ... [--put]

Without traces, five programs are recorded on the CPU, and every distinct op of each gets
a script, which runs here: it counts if its profile shows the op with the recorded
shapes, types and strides. With --meta, every distinct aten call of a trace that took GPU
time gets a script, which runs on the meta device: it counts if also the recorded ops
inside it, those with tensors among their inputs, run with their recorded shapes. Shares
are shares of time: of the CPU without ops inside, or of the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.pages import put

from fusetui.analysis.reproduce.call_table import CallTable, call_table
from fusetui.analysis.reproduce.calls import describe_equal_calls
from fusetui.analysis.reproduce.model import Call, CallKind
from fusetui.analysis.reproduce.select import own_times
from fusetui.report.reproduce.script import script_of
from fusetui.report.reproduce.wording import why_not
from fusetui.text.printable import markdown_table
from fusetui.trace import open_trace
from fusetui.trace.model.columns import Trace

PAGE = Path(__file__).parents[1] / "docs" / "reproduce.md"
STEPS = 3
MAX_REASON_CHARS = 160
ON_CPU = ("--device", "cpu")
ON_META = ("--device", "meta")
ATEN = "aten::"
INNERMOST = "innermost"
OUTERMOST = "outermost"


class Outcome(msgspec.Struct, frozen=True):
    """What became of one script. `reason` says why it does not count."""

    name: str
    ns: int
    counts: bool
    reason: str = ""


class Row(NamedTuple):
    """The outcomes of the calls of one level of a trace."""

    trace: str
    level: str
    calls: int
    ns: int
    counted_calls: int
    counted_ns: int

    @property
    def share(self) -> float:
        """The share of the time that is made again."""
        return self.counted_ns / self.ns if self.ns else 0.0


def record(name: str, folder: Path) -> Path:
    """Record STEPS steps of a program on the CPU, and return the path of the trace. One
    step before that warms up."""
    import torch
    from benchmarks.reproducing_programs import PROGRAMS
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    step = PROGRAMS[name]()
    step()

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
        for _ in range(STEPS):
            step()

    path = folder / f"{name}.json"
    recording.export_chrome_trace(str(path))
    return path


def distinct_calls(trace: Trace, level: str) -> Iterator[tuple[Call, int]]:
    """Yield the distinct calls of aten ops in a trace, each with its time in ns, the
    longest first.

    At the level INNERMOST, the time is that of the op without ops inside. At OUTERMOST,
    only calls that the program itself made count, with all that is inside.
    """
    table = call_table(trace)
    ns = own_times(table)
    if level == OUTERMOST:
        ns = np.where(outermost(trace, table), table.gpu_ns, 0)

    total_ns = np.bincount(table.group, weights=ns).astype(np.int64)
    for group in np.argsort(-total_ns, kind="stable").tolist():
        if not total_ns[group]:
            return
        places = (table.group == group) & (ns > 0)
        call = describe_equal_calls(trace, table.rows[places])
        if trace.name_of(call.row).startswith(ATEN):
            yield call, int(total_ns[group])


def outermost(trace: Trace, table: CallTable) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which ops are aten ops that no other aten op surrounds; shape [ops]."""
    is_aten = trace.named(lambda name: name.startswith(ATEN))
    is_aten_row = np.zeros(len(trace) + 1, dtype=np.bool_)
    is_aten_row[table.rows] = is_aten[trace.name[table.rows]]
    surrounded = is_aten_row[trace.parent[table.rows]]
    parent = trace.parent[table.rows]
    while (parent >= 0).any():
        surrounded |= is_aten_row[parent]
        parent = np.where(parent >= 0, trace.parent[parent], -1)
    return is_aten_row[table.rows] & ~surrounded


def outcomes(trace: Trace, level: str, arguments: Sequence[str]) -> list[Outcome]:
    """Return what becomes of the scripts of all distinct calls of a level, when they
    run with these arguments."""
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        asked = []
        for number, (call, ns) in enumerate(distinct_calls(trace, level)):
            path = Path(folder, f"{number}.py")
            if call.kind is CallKind.OP:
                path.write_text(script_of(call, "trace"), encoding="utf-8")
            asked.append((call, ns, path))

        made = [str(path) for call, _, path in asked if call.kind is CallKind.OP]
        results = run_all(made, arguments)
        for call, ns, path in asked:
            reason = why_not(call)
            if not reason:
                reason = problem(results[str(path)], arguments)
            answers.append(Outcome(call.op, ns, not reason, reason))

    return answers


def problem(result: dict[str, Any], arguments: Sequence[str]) -> str:
    """Return why the result of a script does not count, or "" if it does."""
    if "error" in result:
        return str(result["error"])
    if not result["same_op"]:
        return "other shapes, types or strides"
    if arguments == ON_META and result["missing_inner"]:
        return f"missing inside: {result['missing_inner'][:3]}"
    return ""


def run_all(paths: Sequence[str], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the results of scripts by path. A worker runs them one after the other. A
    script that ends the worker is an error, and another worker continues after it."""
    results: dict[str, Any] = {}
    while len(results) < len(paths):
        rest = [path for path in paths if path not in results]
        command = [sys.executable, "-P", __file__, "--worker", *arguments]

        worker = subprocess.run(
            command, input="\n".join(rest), capture_output=True, text=True, check=False
        )
        for line in worker.stdout.splitlines():
            if line.startswith("{"):
                answer = json.loads(line)
                results[answer["path"]] = answer

        if worker.returncode:
            left = [path for path in rest if path not in results]
            if left:
                results[left[0]] = {"error": f"ended by {worker.returncode}"}

    return results


def work(arguments: Sequence[str]) -> None:
    """Run the scripts that standard input names, and print a result in JSON for each.
    Whatever a script prints or raises is part of its result."""
    for line in sys.stdin:
        path = line.strip()
        said, complained = StringIO(), StringIO()
        sys.argv = [path, "--json", "--check-only", *arguments]

        try:
            with redirect_stdout(said), redirect_stderr(complained):
                runpy.run_path(path, run_name="__main__")
        except SystemExit:
            pass
        except Exception as error:
            print(repr(error), file=complained)

        texts = said.getvalue().splitlines()
        result = json.loads(texts[0]) if texts else {"error": complained.getvalue()}
        print(json.dumps({**result, "path": path}), flush=True)


def row_of(name: str, level: str, answers: Sequence[Outcome]) -> Row:
    """Return the row of the table for the outcomes of one level of a trace."""
    counted = [answer for answer in answers if answer.counts]
    return Row(
        trace=name,
        level=level,
        calls=len(answers),
        ns=sum(answer.ns for answer in answers),
        counted_calls=len(counted),
        counted_ns=sum(answer.ns for answer in counted),
    )


def table_of(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the Markdown table with these rows."""
    texts = [
        (
            row.trace,
            row.level,
            f"{row.calls:,}",
            f"{row.counted_calls:,}",
            f"{row.share:.1%}",
        )
        for row in rows
    ]
    titles = ("trace", "calls", "distinct", "made again", "share of the time")
    return markdown_table(titles, texts, left=(0, 1))


def print_row(row: Row, answers: Sequence[Outcome]) -> None:
    """Print a row of the table, and why calls of it do not count."""
    print(table_of([row])[-1], flush=True)
    for answer in answers:
        if not answer.counts:
            reason = answer.reason.strip().partition("\n")[0][:MAX_REASON_CHARS]
            print(f"    {answer.ns / row.ns:.2%} {answer.name}: {reason}")


def main() -> None:
    """Record the programs, or read the traces of --meta, and run the scripts of their
    calls. Prints the table; with --put it is put into docs/reproduce.md. With --worker,
    this process runs scripts for another one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--meta", nargs="+", default=[])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--put", action="store_true")
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--device")

    args = parser.parse_args()
    if args.worker:
        work(("--device", args.device))
        return

    with tempfile.TemporaryDirectory() as temporary:
        paths = [Path(path) for path in args.meta]
        arguments = ON_META
        if not paths:
            from benchmarks.reproducing_programs import PROGRAMS

            folder = args.keep or Path(temporary)
            os.makedirs(folder, exist_ok=True)
            paths = [record(name, folder) for name in args.only or PROGRAMS]
            arguments = ON_CPU

        levels = (OUTERMOST, INNERMOST) if args.meta else (INNERMOST,)
        rows = []
        for path in paths:
            trace = open_trace(str(path))
            for level in levels:
                answers = outcomes(trace, level, arguments)
                name = path.name.partition(".json")[0]
                rows.append(row_of(name, level, answers))
                print_row(rows[-1], answers)

    if args.put:
        name = "reproducing-meta" if args.meta else "reproducing"
        put(PAGE, name, "\n".join(table_of(rows)), __file__)


if __name__ == "__main__":
    main()
