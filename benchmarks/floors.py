"""What an answer costs beside what a process must do at least: start, import, touch
each byte.

    python -P benchmarks/floors.py trace.json.gz --megabytes 50 1000

Makes files of these sizes from a real trace (see generate.py), runs all programs in
turn --repeat times, and puts the medians into docs/benchmarks.md. `scanner` is the
compiled part alone, on one core (src/fusetui/trace/read/scan.c); without the cache,
unless a line says that there is one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import generate
from benchmarks.characters import used
from benchmarks.pages import put
from benchmarks.reading import LOADS, PAGE, PYTHON, SUMMARY, machine, markdown

IMPORTS = "import numpy, orjson, msgspec, sys"
READ = """
import os
file = os.open(sys.argv[1], os.O_RDONLY)
while part := os.read(file, 1 << 20):
    {}
"""
SCANNED = """
from fusetui.trace.read.chunks import BOUNDARY
from fusetui.trace.read.scanned import scanned
text = open(sys.argv[1], 'rb').read()
cuts = [BOUNDARY.search(text, n).end() for n in range(0, len(text) - (1 << 22), 1 << 22)]
for begin, end in zip(cuts, cuts[1:]):
    assert scanned(text[begin:end].rstrip(b' \\n\\t\\r,'))
"""
WHY = [SUMMARY[0], "why", "--json"]


def programs(file: str, cache: str) -> dict[str, list[str]]:
    """Return the commands of all programs by what they do, in the order of the table.
    `cache` is the folder of the cache."""
    fresh, kept = [file, "--no-cache"], ["env", f"FUSETUI_CACHE={cache}"]
    return {
        "start Python": [*PYTHON, "pass"],
        "and import numpy, orjson and msgspec": [*PYTHON, IMPORTS],
        "and read the file": [*PYTHON, IMPORTS + READ.format("pass"), file],
        "and look at each byte once": [
            *PYTHON,
            IMPORTS + READ.format("part.count(34)"),
            file,
        ],
        "and scan it": [*PYTHON, IMPORTS + SCANNED, file],
        "orjson.loads": [*PYTHON, LOADS, file],
        "fusetui summary": [*SUMMARY, *fresh],
        "fusetui why --no-worth": [*WHY, "--no-worth", *fresh],
        "fusetui why": [*WHY, *fresh],
        "fusetui summary, from the cache": [*kept, *SUMMARY, file],
        "fusetui why --no-worth, from the cache": [*kept, *WHY, "--no-worth", file],
        "fusetui why, from the cache": [*kept, *WHY, file],
    }


def column(file: Path, cache: Path, repeat: int) -> list[str]:
    """Return the cells of a column: of each program the median seconds by the clock, as
    a share of orjson.loads, and of the processors."""
    commands = programs(str(file), str(cache))
    for name in list(commands)[-3:]:
        used(commands[name])  # so that there is a cache

    rounds = [
        {name: used(line)[:2] for name, line in commands.items()} for _ in range(repeat)
    ]
    middle = {
        n: [*map(statistics.median, zip(*(r[n] for r in rounds)))]  # noqa: B905
        for n in commands
    }
    loads = middle["orjson.loads"][0]

    return [
        f"{clock:.2f} s ({clock / loads:.2f}), {cpu:.2f} s"
        for clock, cpu in middle.values()
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the traces, run all programs in turn, and write the table into
    docs/benchmarks.md."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0] if __doc__ else None
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[50, 1000])
    parser.add_argument("--repeat", type=int, default=7)

    args = parser.parse_args(arguments)
    place, heads, columns = machine(), [], []
    with tempfile.TemporaryDirectory() as name:
        for megabytes in args.megabytes:
            file, cache = (
                Path(name, f"{megabytes}.json"),
                Path(name, f"cache{megabytes}"),
            )
            generate.generate(args.trace, file, megabytes * 1_000_000)
            heads.append(f"{file.stat().st_size / 1e6:.0f} MB")
            columns.append(column(file, cache, args.repeat))
            kept = sum(
                each.stat().st_size for each in cache.rglob("*") if each.is_file()
            )
            columns[-1].append(f"{kept / file.stat().st_size:.1%} of the file")
            os.remove(file)

    names = [*programs("", ""), "size of the cache"]
    rows = [list(row) for row in zip(names, *columns, strict=True)]
    put(PAGE, "floors", f"{place}\n\n{markdown(['', *heads], rows)}", __file__)


if __name__ == "__main__":
    main()
