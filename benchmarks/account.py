"""How long the account and the gaps take, beside `summary` of the same file in the same run.

    python -P benchmarks/account.py trace.json.gz ... --events 4000000

Makes a file of so many events out of each real trace (see generate.py) in a temporary folder.
Measured are the questions alone, each in a fresh process on a trace that was just read, and the
whole commands, which read the file anew, in brackets as a multiple of `summary`; the best of
--repeat runs each. `gaps` is the account and the gaps; `why` has the ceiling, the modules and the
findings as well. Prints the table and puts it into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fusetui.trace.text.figures import percent

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- account: begin -->", "<!-- account: end -->"
PYTHON = [sys.executable, "-P"]
FUSETUI = [*PYTHON, "-m", "fusetui"]
QUESTION = """
import sys, time
from fusetui.trace import open_trace, summary
from fusetui.trace.insights.why import accounted
question = {"summary": summary, "gaps": accounted}[sys.argv[1]]
start = time.perf_counter()
trace = open_trace(sys.argv[2], cached=False)
opened = time.perf_counter()
question(trace)
print(opened - start, time.perf_counter() - opened, trace.report.events)
"""
HEAD = ["trace", "events", "reading", "summary", "account and gaps", "share of reading + summary"]
HEAD += ["`summary --json`", "`gaps --json`", "`why --json`"]


def question(name: str, file: Path) -> tuple[float, float, int]:
    """Seconds of reading, seconds of the question alone, events."""
    command = [*PYTHON, "-c", QUESTION, name, str(file)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(told[0]), float(told[1]), int(told[2])


def whole(name: str, file: Path) -> float:
    """Seconds of a whole command."""
    start = time.perf_counter()
    command = [*FUSETUI, name, "--json", "--no-cache", str(file)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def row(source: Path, folder: Path, events: int, repeat: int) -> list[str]:
    """The line of one trace; all in turn, so that a change of the machine meets all."""
    file = made(source, folder, events)
    asked, whole_ones = [], []
    for _ in range(repeat):
        asked.append((question("summary", file), question("gaps", file)))
        whole_ones.append([whole(name, file) for name in ("summary", "gaps", "why")])
    file.unlink()
    reading = min(one[0] for turn in asked for one in turn)
    summary, account = (min(turn[n][1] for turn in asked) for n in (0, 1))
    commands = [min(turn[n] for turn in whole_ones) for n in (0, 1, 2)]
    return [
        source.name.partition(".")[0],
        f"{asked[0][0][2]:,}",
        f"{reading:.2f} s",
        f"{summary:.2f} s",
        f"{account:.2f} s",
        percent(account, reading + summary),
        f"{commands[0]:.2f} s",
        *(f"{seconds:.2f} s ({seconds / commands[0]:.2f})" for seconds in commands[1:]),
    ]


def made(source: Path, folder: Path, events: int) -> Path:
    """A file of about so many events, by the bytes that an event of a small file takes."""
    small = generated(source, folder, 1)
    per_event = small.stat().st_size / question("summary", small)[2]
    small.unlink()
    return generated(source, folder, int(events * per_event / 1e6))


def generated(source: Path, folder: Path, megabytes: int) -> Path:
    target = folder / f"{megabytes}.json"
    script = str(ROOT / "benchmarks" / "generate.py")
    command = [*PYTHON, script, str(source), str(target), "--megabytes", str(megabytes)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return target


def table(rows: Sequence[Sequence[str]]) -> str:
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def put(text: str) -> None:
    """Into the page, between its markers."""
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("source", type=Path, nargs="+", help="real traces")
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for source in args.source:
            rows.append(row(source, Path(name), args.events, args.repeat))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    text = f"Load before the run {loads}.\n\n{table(rows)}"
    print(text)
    put(text)


if __name__ == "__main__":
    main()
