"""How long `fusetui cut` takes on a large trace, beside reading it and writing the part.

    python -P benchmarks/cutting.py big.json --into docs/benchmarks.md

Each is a process of its own, without the cache: `cut`; opening the trace alone; and copying the
file that `cut` has written. They alternate, and the median of each is taken.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.text.figures import size
from fusetui.trace import open_trace

ROUNDS = 3
OPEN = "import sys; from fusetui.trace import open_trace; open_trace(sys.argv[1], cached=False)"
COPY = "import sys, shutil; shutil.copyfile(*sys.argv[1:])"
SHORT = 3_000_000  # ns
PARTS = (("3 ms in the middle", 0.5, 0.0), ("half of it", 0.25, 0.5), ("all of it", 0.0, 1.0))
"""Where a part begins, and how long it is, as shares of the trace; 0 stands for SHORT."""


def took(*words: str) -> float:
    """Seconds that a process takes."""
    begin = time.perf_counter()
    command = [sys.executable, "-P", *words]
    subprocess.run(
        command, env={**os.environ, "FUSETUI_CACHE": "off"}, check=True, stdout=-3, stderr=-3
    )
    return time.perf_counter() - begin


def measured(trace: str, begin: int, length: int, folder: Path) -> tuple[int, list[float]]:
    """The size of the part; and seconds of opening, of copying it, and of cutting it."""
    times: list[list[float]] = []
    for number in range(ROUNDS):
        out, copy = (str(folder / f"{name}{number}.json") for name in ("part", "copy"))
        window = ("--from", f"{begin}ns", "--to", f"{begin + length}ns")
        cut = took("-m", "fusetui", "cut", trace, out, *window)
        times.append([took("-c", OPEN, trace), took("-c", COPY, out, copy), cut])
        nbytes = os.path.getsize(out)
        os.remove(out)
        os.remove(copy)
    return nbytes, [median(column) for column in zip(*times, strict=True)]


def table(trace: str) -> str:
    opened = open_trace(trace)
    span = opened.end_ns - opened.begin_ns
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    lines = [
        f"{size(os.path.getsize(trace))}, {opened.recorded():,} slices; Python "
        f"{platform.python_version()}, load before the run {load}.\n",
        "| part | its size | opening the trace | copying the part | cut | share of both |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, since, share in PARTS:
            ns = round(share * span) or SHORT
            nbytes, (opening, copying, cut) = measured(trace, round(since * span), ns, Path(folder))
            lines.append(
                f"| {name} | {size(nbytes)} | {opening:.2f} s | {copying:.2f} s | {cut:.2f} s "
                f"| {cut / (opening + copying):.2f} |"
            )
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("trace")
    parser.add_argument("--into", type=Path, metavar="PAGE")
    args = parser.parse_args(words)
    found = table(args.trace)
    print(found)
    if args.into:
        put(args.into, "cutting", found, __file__)


if __name__ == "__main__":
    main()
