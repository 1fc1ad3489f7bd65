"""Five questions asked in Python, of fusetui and of HTA, as the table of
docs/python.md.

    python -P benchmarks/python_peers.py A.json.gz B.json.gz --hta PYTHON --into
    docs/python.md

Each call of the table is made, and what is said of its answer is computed from that.
TraceLens is not on PyPI: its column is what its documentation has, and was not run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put


class Call(NamedTuple):
    """What is called, and an expression for what its `answer` says."""

    code: str
    said: str


class Question(NamedTuple):
    """The same question in three programs."""

    text: str
    fusetui: Call
    hta: Call
    tracelens: str  # what its documentation says


MS = "ms = lambda us: f'{us / 1000:,.1f} ms'\n"
FUSETUI = "import sys\nimport fusetui as ft\nt, other = map(ft.open, sys.argv[1:])\n"
HTA = """import logging, sys, warnings
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
from hta.common.trace import Trace
from hta.trace_analysis import TraceAnalysis
from hta.trace_diff import LabeledTrace, TraceDiff
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
a, b = (LabeledTrace(name, Trace(trace_files={0: path})) for name, path in zip("AB", sys.argv[1:]))
"""
QUESTIONS = (
    Question(
        "Where did the time of the GPU go?",
        Call(
            "t.why().devices",
            "'compute {}, exposed communication {}, exposed copies {}, idle {}'.format("
            "*(ms(ns / 1e3) for one in answer for ns in"
            " (one.compute_ns, one.exposed_comm_ns, one.exposed_copy_ns, one.idle_ns)))",
        ),
        Call(
            "analysis.get_temporal_breakdown(visualize=False)",
            "'compute {}, other work {}, idle {}'.format(*(ms(answer[name][0]) for name in"
            " ('compute_time(us)', 'non_compute_time(us)', 'idle_time(us)')))",
        ),
        "`analyzer.get_df_gpu_timeline()`: computation, exposed communication and copies, idle",
    ),
    Question(
        "Which kernels take the most?",
        Call(
            "t.kernels",
            "'{} names, {} without copies; the first: {}'.format(len(answer),"
            " ms(answer['total_ns'].sum() / 1e3), ms(answer['total_ns'][0] / 1e3))",
        ),
        Call(
            "analysis.get_gpu_kernel_breakdown("
            "visualize=False, duration_ratio=1, num_kernels=1000)[1]",
            "'{} names, {} with copies; the longest: {}'.format(len(answer),"
            " ms(answer['sum (us)'].sum()), ms(answer['sum (us)'].max()))",
        ),
        "`analyzer.get_df_kernel_launchers(include_kernel_details=True)`: the kernels of each op"
        " that launches some; by kernel in a sheet of its report (`--enable_kernel_summary`)",
    ),
    Question(
        "Which ops launched them?",
        Call(
            't.ops.sort("gpu_ns")',
            "'{} names with the GPU time under each; the first: {}'.format(len(answer),"
            " ms(answer['gpu_ns'][0] / 1e3))",
        ),
        Call(
            "analysis.get_aten_op_kernels_and_delay()[0]",
            "'{} pairs of an op and its kernels, with {}; no GPU time'.format(len(answer),"
            " ', '.join(f'`{name}`' for name in answer.columns[2:]))",
        ),
        "`analyzer.get_df_kernel_launchers_summary(launchers)`: GPU time by op",
    ),
    Question(
        "Why was the GPU idle?",
        Call(
            "t.gaps",
            "'{:,} gaps of {}; how much of each is due to which of {} reasons'.format("
            "len(answer), ms(answer['dur_ns'].sum() / 1e3),"
            " sum(name.startswith('idle_') for name in answer.names))",
        ),
        Call(
            "analysis.get_idle_time_breakdown(visualize=False)[0]",
            "'{} for each of {} streams, {} in all'.format("
            "', '.join(f'`{kind}`' for kind in sorted(set(answer['idle_category']))),"
            " answer['stream'].nunique(), ms(answer['idle_time'].sum()))",
        ),
        "`IdleTimeAnalyser(analyzer.tree).get_dataframes()`: each gap, why the queue ran dry, and"
        " what the CPU did",
    ),
    Question(
        "What is different in another trace?",
        Call(
            "t.diff(other)",
            "'{:,} rows; `accounting` adds up to the change of a step, {}'.format("
            "len(answer.rows), ms(answer.accounting.step_ns / 1e3))",
        ),
        Call(
            "TraceDiff.compare_traces(a, b)",
            "f'{len(answer)} names of the first step, with counts and sums of both sides'",
        ),
        "`TraceDiff(tree1, tree2)`: ops aligned as trees, in `diff_stats_df`",
    ),
)


def asked(
    python: str, setup: str, calls: Sequence[Call], traces: Sequence[str]
) -> list[str]:
    """Return what the answers to these calls say, made by one process. Exits with its
    errors if it fails."""
    lines = [f"answer = {code}\nsaid.append({said})" for code, said in calls]
    program = "\n".join(
        [setup, MS, "said = []", *lines, "import json", "print(json.dumps(said))"]
    )
    run = [python, "-P", "-c", program, *traces]

    found = subprocess.run(run, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(found.stderr)

    answers: list[str] = json.loads(found.stdout.splitlines()[-1])
    return answers


def table(traces: Sequence[str], hta: str) -> str:
    """Return the Markdown table of all questions, with the calls and answers of each
    program."""
    ours = asked(sys.executable, FUSETUI, [one.fusetui for one in QUESTIONS], traces)

    theirs = asked(hta, HTA, [one.hta for one in QUESTIONS], traces)
    lines = [
        "| | fusetui | HTA 0.5.0 | TraceLens (read, not run) |",
        "|---|---|---|---|",
    ]
    for one, our, their in zip(QUESTIONS, ours, theirs, strict=True):
        cells = (
            f"`{one.fusetui.code}`: {our}",
            f"`{one.hta.code}`: {their}",
            one.tracelens,
        )
        lines.append(f"| {one.text} | {' | '.join(cells)} |")

    return "\n".join(lines)


def main() -> None:
    """Ask both programs all questions, and print the table; with --into it is put into
    a page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("traces", nargs=2)
    parser.add_argument("--hta", required=True, metavar="PYTHON")
    parser.add_argument("--into", type=Path, metavar="PAGE")
    args = parser.parse_args()
    found = table(args.traces, args.hta)
    print(found)
    if args.into:
        put(args.into, "peers", found, __file__)


if __name__ == "__main__":
    main()
