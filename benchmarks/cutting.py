"""How long `fusetui cut` takes on a large trace, beside reading it and writing the
part.

    python -P benchmarks/cutting.py trace.json.gz --megabytes 1000 --into
    docs/benchmarks.md

The trace is made of a real one (see generate.py). Each is a process of its own, without
the cache: `cut`; opening the trace alone; and copying the file that `cut` has written.
They take turns, and the least time of each counts, of the clock and of all processors.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.generate import generate
from benchmarks.pages import put

from fusetui.text.figures import size
from fusetui.trace import open_trace

ROUNDS = 4
OPEN = "import sys; from fusetui.trace import open_trace; open_trace(sys.argv[1], cached=False)"
COPY = "import sys, shutil; shutil.copyfile(*sys.argv[1:])"
SHORT = 3_000_000  # ns
PARTS = (
    ("3 ms in the middle", 0.5, 0.0),
    ("half of it", 0.25, 0.5),
    ("all of it", 0.0, 1.0),
)
"""Where a part begins, and how long it is, as shares of the trace; 0 stands for
SHORT."""

Took = tuple[float, float]  # seconds of the clock, and of all processors


def took(*words: str) -> Took:
    """Return the seconds that a Python process and its children take, by the clock and
    of all processors. Exits if it fails."""
    environment = {**os.environ, "FUSETUI_CACHE": "off"}
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-P", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)

    if process.returncode:
        sys.exit(f"exit code {process.returncode}: {' '.join(words)}")

    return time.perf_counter() - begin, used.ru_utime + used.ru_stime


def measured(
    trace: str, begin: int, length: int, folder: Path
) -> tuple[int, list[Took]]:
    """Return the size of a part in bytes, and the least times of opening the trace, of
    copying the part, and of cutting it. `begin` and `length` are in ns."""
    turns: list[tuple[Took, Took, Took]] = []
    for _ in range(ROUNDS):
        out, copy = (str(folder / f"{name}.json") for name in ("part", "copy"))
        window = ("--from", f"{begin}ns", "--to", f"{begin + length}ns")
        cut = took("-m", "fusetui", "cut", trace, out, *window)
        turns.append((took("-c", OPEN, trace), took("-c", COPY, out, copy), cut))
        nbytes = os.path.getsize(out)
        os.remove(out)
        os.remove(copy)

    least = [
        tuple(map(min, zip(*column, strict=True)))
        for column in zip(*turns, strict=True)
    ]
    return nbytes, [(clock, processors) for clock, processors in least]


def table(trace: str, folder: Path) -> str:
    """Return the Markdown table of all parts of a trace, with the figures of the trace
    above it."""
    opened = open_trace(trace, cached=False)
    span, slices = opened.end_ns - opened.begin_ns, opened.recorded()
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())

    lines = [
        f"The trace has {size(os.path.getsize(trace))} and {slices:,} slices. Measured with "
        f"Python {platform.python_version()}; the load average before the run was {load}. "
        "The times in brackets are CPU times of all processors.\n",
        "| part | its size | opening the trace | copying the part | cut | share of both |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, since, share in PARTS:
        ns = round(share * span) or SHORT
        nbytes, times = measured(trace, round(since * span), ns, folder)
        cells = [f"{clock:.2f} s ({processors:.2f} s)" for clock, processors in times]
        opening, copying, cut = times
        shares = [cut[n] / (opening[n] + copying[n]) for n in (0, 1)]
        cells.append(f"{shares[0]:.2f} ({shares[1]:.2f})")
        lines.append(f"| {name} | {size(nbytes)} | {' | '.join(cells)} |")

    return "\n".join(lines)


def main() -> None:
    """Make a large trace, measure all parts of it, and print the table; with --into it
    is put into a page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--into", type=Path, metavar="PAGE")

    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        big = Path(folder) / "big.json"
        generate(args.trace, big, args.megabytes * 1_000_000)
        found = table(str(big), Path(folder))

    print(found)

    if args.into:
        put(args.into, "cutting", found, __file__)


if __name__ == "__main__":
    main()
