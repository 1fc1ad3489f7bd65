"""How much joining graph replays with their capture adds to opening both traces.

    python -P benchmarks/joining.py REPLAY CAPTURE
    python -P benchmarks/joining.py --replays 1000 --layers 48

The second form writes a server of its own to a temporary folder: so many replays of a decode step,
and captures of eight sizes. The best of several rounds, without the cache.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.trace.serving.servers import Server

from fusetui.trace import Trace, open_trace
from fusetui.trace.serving.captures import captures
from fusetui.trace.serving.join import join

ROUNDS = 5
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def made(folder: Path, replays: int, layers: int) -> tuple[str, str]:
    """A trace of replays, and one of captures."""
    server = Server(layers=layers)
    replay, capture = folder / "replay.json", folder / "capture.json"
    steps = [e for n in range(replays) for e in server.step(SIZES[n % 8], 1e5 * n, n + 1)]
    graphs = [e for n, size in enumerate(SIZES) for e in server.capture(size, 1e6 * (n + 1))]
    for path, events in ((replay, steps), (capture, graphs)):
        path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return str(replay), str(capture)


def measured(replay: str, capture: str) -> None:
    """Prints the best times."""
    opening, joining = [], []
    for _ in range(ROUNDS):
        captures.cache_clear()
        begin = perf_counter()
        trace, there = (open_trace(path, cached=False) for path in (replay, capture))
        opened = perf_counter()
        joined, record = join(trace, there)
        opening.append(opened - begin)
        joining.append(perf_counter() - opened)
    _report(joined, record.kernels, min(opening), min(joining))


def _report(trace: Trace, kernels: int, opening: float, joining: float) -> None:
    print(
        f"{kernels} of {len(trace.gpu_rows)} events joined: opening {1000 * opening:.0f} ms,"
        f" joining {1000 * joining:.1f} ms ({joining / opening:.1%})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*")
    parser.add_argument("--replays", type=int, default=1000)
    parser.add_argument("--layers", type=int, default=48)
    args = parser.parse_args()
    if args.traces:
        measured(*args.traces)
        return
    with TemporaryDirectory() as folder:
        measured(*made(Path(folder), args.replays, args.layers))


if __name__ == "__main__":
    main()
