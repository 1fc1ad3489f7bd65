"""What graph replays and their captures add to opening a trace: the join, and looking
for captures.

    python -P benchmarks/joining.py REPLAY CAPTURE
    python -P benchmarks/joining.py REPLAY CAPTURE --print

Four cases, each the best of several rounds in which what is compared takes turns, in
time of the CPUs, which other work on the machine disturbs less:

* the pair that is named, and a generated one of 1000 replays of 48 layers with captures
  of eight sizes: opening both files without the cache, and joining them;
* the replay, and then its capture from the cache with the join;
* the replay alone in a folder of 40 other traces without a capture: opening it, and
  looking for one for the first time and again.

Prints the table and puts it into docs/serving.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pages import put
from tests.analysis.servers import Server

from fusetui.analysis.graphs.join import join
from fusetui.analysis.graphs.opening import with_captures
from fusetui.trace import open_trace

PAGE = Path(__file__).resolve().parents[1] / "docs" / "serving.md"
ROUNDS = 25
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
OTHERS = 40
HEAD = ("| what | opening | added | share |", "| --- | --- | --- | --- |")


def cpu_time() -> float:
    """Return the CPU seconds of this process and of its child processes that have
    ended."""
    both = (
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return sum(used.ru_utime + used.ru_stime for used in both)


class Measured(NamedTuple):
    """A row: the best times in seconds."""

    what: str
    opening: float
    added: float

    def __str__(self) -> str:
        return (
            f"| {self.what} | {1000 * self.opening:.1f} ms | {1000 * self.added:.1f} ms |"
            f" {self.added / self.opening:.1%} |"
        )


def generated(folder: Path, replays: int = 1000, layers: int = 48) -> tuple[str, str]:
    """Write a trace of graph replays and one of their captures, and return both paths."""
    server = Server(layers=layers)
    replay, capture = folder / "replay.json", folder / "capture.json"

    steps = [
        e for n in range(replays) for e in server.step(SIZES[n % 8], 1e5 * n, n + 1)
    ]
    graphs = [
        e for n, size in enumerate(SIZES) for e in server.capture(size, 1e6 * (n + 1))
    ]
    for path, events in ((replay, steps), (capture, graphs)):
        path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")

    return str(replay), str(capture)


def joining(what: str, replay: str, capture: str) -> Measured:
    """Return the best times of opening both traces without the cache, and of joining
    them."""
    opening, added, events = [], [], 0
    for _ in range(ROUNDS):
        begin = cpu_time()
        trace, there = (open_trace(path, cached=False) for path in (replay, capture))
        opened = cpu_time()
        _, record = join(trace, there)
        added.append(cpu_time() - opened)
        opening.append(opened - begin)
        events = record.kernels

    return Measured(f"joining {events:,} events {what}", min(opening), min(added))


def from_cache(replay: str, capture: str) -> Measured:
    """Return the best times of opening the replay, and of all that its capture adds
    once the cache has it. The first round, which fills the cache, is left out."""
    opening, added = [], []
    for number in range(ROUNDS + 1):
        begin = cpu_time()
        trace = open_trace(replay, cached=False)
        opened = cpu_time()
        with_captures(trace, [capture], open_trace)
        if number:
            added.append(cpu_time() - opened)
            opening.append(opened - begin)

    what = "the replay of the pair alone, and its capture from the cache with the join"
    return Measured(what, min(opening), min(added))


def looking(replay: str, folder: Path) -> list[Measured]:
    """Return the best times of opening the replay in a folder of other traces, and of
    looking for a capture there. Both are for the first time and again."""
    path = folder / Path(replay).name
    shutil.copy(replay, path)

    for number in range(OTHERS):
        server = Server(layers=20)
        events = [{**event, "pid": 1000 + number} for event in server.capture(4)]
        (folder / f"{number}.json").write_text(json.dumps({"traceEvents": events}))

    first = _looked(path, lambda: _forget(Path(os.environ["FUSETUI_CACHE"])))

    return [
        Measured(f"looking beside it at {OTHERS} traces, the first time", *first),
        Measured(
            f"looking beside it at {OTHERS} traces, again", *_looked(path, lambda: None)
        ),
    ]


def _forget(cache: Path) -> None:
    """Remove from the cache what is known about graphs of traces."""
    for file in cache.glob("*.graphs"):
        file.unlink()


def _looked(path: Path, before: Callable[[], None]) -> tuple[float, float]:
    """Return the best times of opening a trace and of looking for a capture. `before`
    is called before each round, and the first round, which warms up, is left out.
    Raises RuntimeError if a capture is found."""
    opening, added = [], []
    for number in range(ROUNDS + 1):
        before()
        begin = cpu_time()
        trace = open_trace(str(path), cached=False)
        opened = cpu_time()
        _, joins = with_captures(trace, (), open_trace)
        if joins:
            raise RuntimeError("a capture was found where there is none")
        if number:
            added.append(cpu_time() - opened)
            opening.append(opened - begin)

    return min(opening), min(added)


def main() -> None:
    """Measure all four cases, print the table, and put it into docs/serving.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "traces", nargs=2, metavar="TRACE", help="the replay and its capture"
    )
    parser.add_argument("--print", action="store_true", dest="only_print")
    args = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())

    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "beside").mkdir()
        os.environ["FUSETUI_CACHE"] = str(folder / "cache")
        rows = [
            joining("of the pair above", *args.traces),
            joining("of a generated pair", *generated(folder)),
            from_cache(*args.traces),
            *looking(args.traces[0], folder / "beside"),
        ]

    said = (
        f"The table shows CPU times, the best of {ROUNDS} rounds. The machine had "
        f"{os.cpu_count()} cores; the load average before the run was {load}."
    )
    table = "\n".join([said, "", *HEAD, *map(str, rows)])
    print(table)

    if not args.only_print:
        put(PAGE, "joining", table, __file__)


if __name__ == "__main__":
    main()
