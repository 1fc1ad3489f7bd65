"""What a second core gives `fusetui summary`, and what 16 would by that: a projection.

    python -P benchmarks/cores.py trace.json.gz --megabytes 50 1000 2000

Makes files of these sizes from a real trace (see generate.py), and answers each on one
core and on two in turn, --repeat times, without the cache. The serial share s solves t2
= t1 (s + (1 - s) / 2) (Amdahl, "Validity of the single processor approach", 1967);
start and imports are in it. The share is a difference of times, so the least of each is
taken: what disturbs only adds. Puts the table into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.characters import used
from benchmarks.first_picture import made
from benchmarks.pages import put
from benchmarks.reading import PAGE, SUMMARY, machine, markdown

MANY = 16
HEAD = (
    "JSON",
    "one core",
    "two cores",
    "serial share",
    f"projected, {MANY} cores",
    "of one core",
)


def seconds(file: Path, cores: Collection[int]) -> float:
    """Return the seconds that `fusetui summary` takes by the clock when it may use
    these cores only."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return used([*SUMMARY, str(file), "--no-cache"])[0]
    finally:
        os.sched_setaffinity(0, every)


def row(file: Path, repeat: int) -> list[str]:
    """Return the cells of a line of the table: the times on one core and two, the
    serial share, and the projection to MANY cores."""
    both = sorted(os.sched_getaffinity(0))[:2]
    pairs = [(seconds(file, both[:1]), seconds(file, both)) for _ in range(repeat)]
    one, two = map(min, zip(*pairs, strict=True))
    serial = 2 * two / one - 1
    many = one * (serial + (1 - serial) / MANY)
    size = f"{file.stat().st_size / 1e6:.0f} MB"
    times = f"{one / many:.1f} times as fast"

    return [
        size,
        f"{one:.2f} s",
        f"{two:.2f} s",
        f"{serial:.2f}",
        f"{many:.2f} s",
        times,
    ]


def main() -> None:
    """Measure files of all sizes on one core and on two, and put the table into
    docs/benchmarks.md."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0] if __doc__ else None
    )
    parser.add_argument("source", type=Path, help="any real trace")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[50, 1000, 2000])
    parser.add_argument("--repeat", type=int, default=9)

    args = parser.parse_args()
    place, rows = machine(), []
    with tempfile.TemporaryDirectory() as name:
        for size in args.megabytes:
            file = made(args.source, Path(name), size)
            rows.append(row(file, args.repeat))
            file.unlink()

    text = f"{place}\n\n{markdown(list(HEAD), rows)}"
    print(text)
    put(PAGE, "cores", text, __file__)


if __name__ == "__main__":
    main()
