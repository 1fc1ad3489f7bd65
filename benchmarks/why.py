"""How long `gaps` (account and gaps) and `why` (all) take beside `summary` of the same file.

    python -P benchmarks/why.py trace.json.gz ... --events 4000000

Makes a file of so many events out of each real trace (see generate.py) in a temporary folder.
Measured are whole commands, which read the file anew or, in the second line of each, take its
columns from the cache; all in turn, so that a change of the machine meets all, and the best of
--repeat runs each. The ratios are those of CPU seconds, of all processes of a command: beside other
work the time on the clock tells little. Prints the table and puts it into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fusetui.trace.text.figures import size

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- why: begin -->", "<!-- why: end -->"
PYTHON = [sys.executable, "-P"]
FUSETUI = [*PYTHON, "-m", "fusetui"]
COMMANDS = ("summary", "gaps", "why")
HEAD = ["trace", "events", "size", "columns", *(f"`{name} --json`" for name in COMMANDS)]
HEAD += ["gaps / summary", "why / summary"]


class Seconds(NamedTuple):
    """Of a whole command, on the clock and of the CPUs."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} s ({self.cpu:.1f} s)"


def seconds(name: str, file: Path, cache: Path | None) -> Seconds:
    command = [*FUSETUI, name, "--json", *([] if cache else ["--no-cache"]), str(file)]
    surroundings = os.environ | ({"FUSETUI_CACHE": str(cache)} if cache else {})
    start, before = time.perf_counter(), os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=surroundings)
    wall, after = time.perf_counter() - start, os.times()
    user = after.children_user - before.children_user
    return Seconds(wall, user + after.children_system - before.children_system)


def rows(source: Path, folder: Path, events: int, repeat: int) -> list[list[str]]:
    """The lines of one trace: read anew, and from the cache."""
    file = made(source, folder, events)
    count, length = events_of(file), file.stat().st_size
    cache = folder / "cache"
    seconds("summary", file, cache)
    found = []
    for title, where in (("read", None), ("from the cache", cache)):
        turns = [[seconds(name, file, where) for name in COMMANDS] for _ in range(repeat)]
        best = [Seconds(*map(min, zip(*of, strict=True))) for of in zip(*turns, strict=True)]
        shares = [f"{one.cpu / best[0].cpu:.2f}" for one in best[1:]]
        name = source.name.partition(".")[0]
        found.append([name, f"{count:,}", size(length), title, *map(str, best), *shares])
    file.unlink()
    return found


def events_of(file: Path) -> int:
    command = [*FUSETUI, "summary", "--json", "--no-cache", str(file)]
    told = subprocess.run(command, capture_output=True, check=True).stdout
    return int(json.loads(told)["events"])


def made(source: Path, folder: Path, events: int) -> Path:
    """A file of about so many events, by the bytes that an event of a small file takes."""
    small = generated(source, folder, 1)
    per_event = small.stat().st_size / events_of(small)
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
    lines = []
    with tempfile.TemporaryDirectory() as name:
        for source in args.source:
            lines += rows(source, Path(name), args.events, args.repeat)
            print("\n".join(" | ".join(line) for line in lines[-2:]), file=sys.stderr, flush=True)
    head = f"Time on the clock (of the CPUs). {os.cpu_count()} cores, load before {loads}."
    text = f"{head}\n\n{table(lines)}"
    print(text)
    put(text)


if __name__ == "__main__":
    main()
