"""How fast a memory snapshot is read, and in how much memory, compared with pickle
alone.

    python -P benchmarks/snapshots.py *.pickle --megabytes 100

The files are read as they are; then files that generate_snapshot.py makes. Pickle's own
reader, in C and without any class, stops at dicts, of which no question is answered
yet. Each run is a new process; the table has medians, and the memory is what the
process grew by at its largest.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.generate_snapshot import generate
from benchmarks.pages import put

from fusetui.trace.snapshot.reading import read_snapshot

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
RUNS = 5
HEAD = "| file | size | events | fusetui | pickle | share | memory, sizes of the file | pickle |"
MEASURED = """
import sys, time
def most():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
before = most()
start = time.perf_counter()
found = read(sys.argv[1])
wall = time.perf_counter() - start
print(wall, (most() - before) * 1024)
"""
BARE = """
import pickle
class Restricted(pickle.Unpickler):
    def find_class(self, module, name):
        raise ValueError(name)
def read(path):
    with open(path, "rb") as file:
        return Restricted(file).load()
"""
OURS = "from fusetui.trace.snapshot.reading import read_snapshot as read"
MADE = ((4, 40, False), (4, 40, True), (2, 40, False), (4, 0, False))
"""Protocol, frames of a stack, and whether each event has a list of its own."""


def measured(code: str, path: Path) -> tuple[float, float]:
    """Return the seconds that reading a snapshot with this code takes, and the bytes by
    which the process grew."""
    command = [sys.executable, "-P", "-c", code + MEASURED, str(path)]
    wall, peak = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.split()
    return float(wall), float(peak)


def row(name: str, path: Path, runs: int) -> str:
    """Return a line of the table: fusetui and pickle, each with its median time and
    memory of several runs."""
    size = path.stat().st_size
    ours, bare = ([measured(code, path) for _ in range(runs)] for code in (OURS, BARE))
    events = sum(map(len, read_snapshot(str(path)).events))
    times = [median(wall for wall, _ in found) for found in (ours, bare)]
    peaks = [median(peak for _, peak in found) / size for found in (ours, bare)]
    cells = [
        *(name, f"{size / 1e6:.1f} MB", f"{events:,}"),
        *(f"{1000 * one:,.0f} ms" for one in times),
        *(f"{times[0] / times[1]:.2f}", *(f"{one:.1f}" for one in peaks)),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure the given snapshots and made ones, and print the table; with --put it is
    put into docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--put", action="store_true")
    args = parser.parse_args()
    lines = [
        "| file | size | events | fusetui | pickle | share | memory, sizes of the file | pickle |"
    ]
    lines.append("| --- " * 8 + "|")

    lines += [row(path.stem, path, args.runs) for path in args.files]
    with tempfile.TemporaryDirectory() as folder:
        for protocol, depth, copied in MADE:
            path = Path(folder) / "made.pickle"
            generate(path, args.megabytes, protocol, depth, copied)
            lists = "own lists" if copied else "shared lists"
            name = f"protocol {protocol}, {depth} frames, {lists}"
            lines.append(
                row(
                    name if depth else f"protocol {protocol}, no stacks",
                    path,
                    args.runs,
                )
            )

    print(text := "\n".join(lines))

    if args.put:
        put(PAGE, "snapshots", text, __file__)


if __name__ == "__main__":
    main()
