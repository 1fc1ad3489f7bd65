"""How long `gaps` (account and gaps) and `why` (all) take beside `summary` of the same
file.

    python -P benchmarks/why.py trace.json.gz ... --events 4000000
    python -P benchmarks/why.py trace.json.gz --beside ~/other/checkout --repeat 6

Makes a file of so many events out of each real trace (see generate.py) in a temporary
folder. Measured are whole commands, which read the file anew or, in the other lines of
each, take its columns from the cache: once with what `why` reads beside them already
kept, once without. All in turn, so that a change of the machine meets all, and the best
of --repeat runs each. The ratios are those of CPU seconds, of all processes of a
command: beside other work the time on the clock tells little. Prints the table and puts
it into docs/benchmarks.md.

With --beside, `summary` alone is measured, of this checkout and of another one in turn,
and only printed.
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

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.text.figures import size

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
PYTHON = [sys.executable, "-P"]
FUSETUI = [*PYTHON, "-m", "fusetui"]
COMMANDS = ("summary", "gaps", "why")
FIRST = "from the cache, first `why`"
HEAD = [
    "trace",
    "events",
    "size",
    "columns",
    *(f"`{name} --json`" for name in COMMANDS),
]
HEAD += ["gaps / summary", "why / summary"]


class Seconds(NamedTuple):
    """Of a whole command, on the clock and of the CPUs."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} s ({self.cpu:.1f} s)"


def seconds(
    name: str, file: Path, cache: Path | None, checkout: Path = ROOT
) -> Seconds:
    """Return the time of a whole command about a file. `cache` is the folder of the
    cache; None reads the file anew."""
    command = [*FUSETUI, name, "--json", *([] if cache else ["--no-cache"]), str(file)]
    surroundings = os.environ | ({"FUSETUI_CACHE": str(cache)} if cache else {})
    surroundings["PYTHONPATH"] = str(checkout / "src")
    start, before = time.perf_counter(), os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=surroundings)
    wall, after = time.perf_counter() - start, os.times()
    user = after.children_user - before.children_user
    return Seconds(wall, user + after.children_system - before.children_system)


def rows(source: Path, folder: Path, events: int, repeat: int) -> list[list[str]]:
    """Return the lines of the table about one trace: read anew, from the cache, and
    from the cache without what `why` keeps."""
    file = made(source, folder, events)
    count, length = events_of(file), file.stat().st_size

    cache = folder / "cache"
    for name in COMMANDS:
        seconds(name, file, cache)

    found = []
    for title, where in (("read", None), ("from the cache", cache), (FIRST, cache)):
        turns = []
        for _ in range(repeat):
            if title == FIRST:
                forget(cache)
            turns.append([seconds(name, file, where) for name in COMMANDS])

        best = [
            Seconds(*map(min, zip(*of, strict=True))) for of in zip(*turns, strict=True)
        ]
        shares = [f"{one.cpu / best[0].cpu:.2f}" for one in best[1:]]
        name = source.name.partition(".")[0]
        found.append(
            [name, f"{count:,}", size(length), title, *map(str, best), *shares]
        )

    file.unlink()
    return found


def forget(cache: Path) -> None:
    """Remove from the cache what is kept beside the columns of traces, such as what
    `why` reads."""
    for kept in cache.glob("*.v*.*"):
        kept.unlink()


def both(
    source: Path, other: Path, folder: Path, events: int, repeat: int
) -> list[str]:
    """Return how long `summary` takes in this checkout and in another one, as a
    sentence for each way to read."""
    file, checkouts = made(source, folder, events), (ROOT, other)
    found = []
    for title in ("read", "from the cache"):
        places = [
            folder / f"cache{n}" if title != "read" else None
            for n in range(len(checkouts))
        ]

        sides = list(zip(places, checkouts, strict=True))
        # the second one takes from the cache what the first one left
        for _ in range(2):
            for cache, checkout in sides:
                seconds("summary", file, cache, checkout)

        turns = [
            [seconds("summary", file, *side) for side in sides] for _ in range(repeat)
        ]
        this, that = (min(one.cpu for one in of) for of in zip(*turns, strict=True))
        found.append(
            f"{source.name} {title}: {this:.2f} s here, {that:.2f} s there, of the CPUs"
        )

    return found


def events_of(file: Path) -> int:
    """Return the number of events in a trace, as `fusetui summary` counts them."""
    command = [*FUSETUI, "summary", "--json", "--no-cache", str(file)]
    told = subprocess.run(command, capture_output=True, check=True).stdout
    return int(json.loads(told)["events"])


def made(source: Path, folder: Path, events: int) -> Path:
    """Make a file of about so many events and return its path. Its size follows from
    the bytes that an event of a small file takes."""
    small = generated(source, folder, 1)
    per_event = small.stat().st_size / events_of(small)
    small.unlink()
    return generated(source, folder, int(events * per_event / 1e6))


def generated(source: Path, folder: Path, megabytes: int) -> Path:
    """Make a file of so many megabytes by repeating a trace, and return its path."""
    target = folder / f"{megabytes}.json"
    script = str(ROOT / "benchmarks" / "generate.py")
    command = [*PYTHON, script, str(source), str(target), "--megabytes", str(megabytes)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return target


def table(rows: Sequence[Sequence[str]]) -> str:
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Measure the commands on files of all traces, print the table, and put it into
    docs/benchmarks.md. With --beside, `summary` of two checkouts is compared, and only
    printed."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0] if __doc__ else None
    )
    parser.add_argument("source", type=Path, nargs="+", help="real traces")
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="the root of another checkout")

    args = parser.parse_args()
    if args.beside:
        with tempfile.TemporaryDirectory() as name:
            for source in args.source:
                told = both(source, args.beside, Path(name), args.events, args.repeat)
                print("\n".join(told), flush=True)
        return

    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())

    lines = []
    with tempfile.TemporaryDirectory() as name:
        for source in args.source:
            lines += rows(source, Path(name), args.events, args.repeat)
            print(
                "\n".join(" | ".join(line) for line in lines[-2:]),
                file=sys.stderr,
                flush=True,
            )

    head = (
        "The table shows wall-clock times, with CPU times in parentheses. The machine had "
        f"{os.cpu_count()} cores; the load average before the run was {loads}."
    )
    text = f"{head}\n\n{table(lines)}"
    print(text)
    put(PAGE, "why", text, __file__)


if __name__ == "__main__":
    main()
