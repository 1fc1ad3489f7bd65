"""How fast other formats are read, compared with the JSON of the same events in the
same run.

    python -P benchmarks/formats.py a100_nccl_ddp_full h100_2gpu_1s.sqlite --megabytes
    50

A name stands for NAME.json.gz and NAME.pftrace.gz, which are repeated as often as makes
so many MB of JSON (see generate.py and generate_pftrace.py), or for an export of Nsight
Systems, which is repeated (see generate_nsys.py) and converted. They are opened in
turn, without the cache, each time by a new process. The table has medians; it goes into
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import generate, generate_nsys, generate_pftrace
from benchmarks.pages import put

from fusetui.trace.convert import convert_file

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PAIRS = 7
ROWS_A_MB = 4_000  # of an export, in a MB of JSON
OPEN = """
import resource, sys, time
from fusetui.trace import open_trace
start = time.perf_counter()
trace = open_trace(sys.argv[1], cached=False)
wall = time.perf_counter() - start
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(wall, sum(one.ru_utime + one.ru_stime for one in used), len(trace))
"""


def opened(path: Path) -> tuple[float, float, int]:
    """Open a trace in a new process. Returns the seconds by the clock, the seconds of
    the processors with the start of Python, and the number of slices."""
    command = [sys.executable, "-P", "-c", OPEN, str(path)]
    wall, used, slices = subprocess.run(
        command, capture_output=True, text=True
    ).stdout.split()
    return float(wall), float(used), int(slices)


def made(name: str, megabytes: int, folder: Path) -> tuple[Path, Path]:
    """Make a trace of so many MB of JSON, and return its path and that of the same
    events in the other format."""
    json, other = folder / f"{Path(name).name}.json", folder / f"{Path(name).name}.big"
    if name.endswith(".sqlite"):
        generate_nsys.generate(Path(name), other, megabytes * ROWS_A_MB)
        convert_file(str(other), str(json))
    else:
        copies = generate.generate(Path(f"{name}.json.gz"), json, megabytes * 1_000_000)
        generate_pftrace.generate(Path(f"{name}.pftrace.gz"), other, copies)
    return json, other


def row(name: str, megabytes: int, folder: Path) -> str:
    """Return a line of the table, with median times of both formats, opened in turn,
    and their ratios."""
    json, other = made(name, megabytes, folder)
    found: dict[Path, list[tuple[float, float, int]]] = {json: [], other: []}
    for number in range(PAIRS):
        for path in (json, other) if number % 2 else (other, json):
            found[path].append(opened(path))

    pairs = list(zip(found[other], found[json], strict=True))
    wall, used = (median(one[n] / beside[n] for one, beside in pairs) for n in (0, 1))
    sizes = [path.stat().st_size / 1e6 for path in (json, other)]
    times = [f"{median(t for t, _, _ in found[path]):.2f} s" for path in (json, other)]
    work = [f"{median(t for _, t, _ in found[path]):.2f} s" for path in (json, other)]
    cells = [
        *(
            Path(name).name,
            f"{pairs[0][0][2]:,}",
            *(f"{size:.0f} MB" for size in sizes),
        ),
        *(*times, f"{wall:.2f}", *work, f"{used:.2f}"),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure all pairs of formats, print the table, and put it into
    docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--megabytes", type=int, default=50)
    args = parser.parse_args()
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    head = (
        "| repeated | slices | JSON | other | JSON opens in | other in | share "
        "| processors, JSON | other | share |"
    )
    lines = [
        f"Measured with Python {platform.python_version()}; the load average before the "
        f"run was {load}.",
        "",
        head,
    ]
    lines.append("| --- " * 10 + "|")

    with tempfile.TemporaryDirectory() as folder:
        lines += [row(name, args.megabytes, Path(folder)) for name in args.names]

    text = "\n".join(lines)
    print(text)
    put(PAGE, "formats", text, __file__)


if __name__ == "__main__":
    main()
