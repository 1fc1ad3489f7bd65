"""How fast a .pftrace of torch is read, compared with the JSON of the same events in the same run.

    python -P benchmarks/formats.py ../shared/pftrace/a100_nccl_ddp_full --megabytes 50

Each name stands for NAME.json.gz and NAME.pftrace.gz. Both are repeated as often as makes so many
MB of JSON (see generate.py and generate_pftrace.py), then opened in turn, without the cache, each
time by a new process. The table has medians; it goes into docs/benchmarks.md.
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

from benchmarks import generate, generate_pftrace
from benchmarks.pages import put

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PAIRS = 7
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
    """Seconds, seconds of processors (with the start of Python), and slices."""
    command = [sys.executable, "-P", "-c", OPEN, str(path)]
    wall, used, slices = subprocess.run(command, capture_output=True, text=True).stdout.split()
    return float(wall), float(used), int(slices)


def row(name: str, megabytes: int, folder: Path) -> str:
    json, pftrace = folder / "big.json", folder / "big.pftrace"
    copies = generate.generate(Path(f"{name}.json.gz"), json, megabytes * 1_000_000)
    generate_pftrace.generate(Path(f"{name}.pftrace.gz"), pftrace, copies)
    found: dict[Path, list[tuple[float, float, int]]] = {json: [], pftrace: []}
    for number in range(PAIRS):
        for path in (json, pftrace) if number % 2 else (pftrace, json):
            found[path].append(opened(path))
    pairs = list(zip(found[pftrace], found[json], strict=True))
    wall, used = (median(one[n] / other[n] for one, other in pairs) for n in (0, 1))
    sizes = [path.stat().st_size / 1e6 for path in (json, pftrace)]
    times = [f"{median(t for t, _, _ in found[path]):.2f} s" for path in (json, pftrace)]
    work = [f"{median(t for _, t, _ in found[path]):.2f} s" for path in (json, pftrace)]
    cells = [
        *(Path(name).name, f"{pairs[0][0][2]:,}", *(f"{size:.0f} MB" for size in sizes)),
        *(*times, f"{wall:.2f}", *work, f"{used:.2f}"),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--megabytes", type=int, default=50)
    args = parser.parse_args()
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    head = (
        "| repeated | slices | JSON | .pftrace | JSON opens in | .pftrace in | share "
        "| processors, JSON | .pftrace | share |"
    )
    lines = [f"Python {platform.python_version()}, load before the run {load}.", "", head]
    lines.append("| --- " * 10 + "|")
    with tempfile.TemporaryDirectory() as folder:
        lines += [row(name, args.megabytes, Path(folder)) for name in args.names]
    text = "\n".join(lines)
    print(text)
    put(PAGE, "formats", text, __file__)


if __name__ == "__main__":
    main()
