"""How long the graph of a trace takes to make and to replay, and whether that is the
recording; and how long the answers take, and how much of each recording is not
understood.

    python -P benchmarks/replaying.py --items 1000000 trace.json.gz ...

The graph of each trace is repeated, one after the other, until it has so many GPU
events.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1]))

from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.path import path as critical_path
from fusetui.analysis.replay.replay import replay
from fusetui.analysis.replay.route import slack_of
from fusetui.analysis.replay.times import slices_of
from fusetui.analysis.replay.whatif import whatif
from fusetui.trace import Trace, open_trace


def repeated(graph: Graph, times: int) -> Graph:
    """The graph so many times, each after the one before."""
    length, span = len(graph) - 1, int(graph.ended.max()) + 1
    number = np.repeat(np.arange(times), length)
    columns = {
        name: np.tile(getattr(graph, name)[1:], times)
        for name in ("kind", "dur", "row")
    }
    source, lag, residual = (
        np.tile(c[:, 1:].astype(np.int64), (1, times))
        for c in (graph.source, graph.lag, graph.residual)
    )
    from_origin = source == 0
    residual += np.where(from_origin & (lag >= 0), number * span, 0)
    source = np.where(from_origin, 0, source + number * length)
    began = np.append(0, np.tile(graph.began[1:], times) + number * span)
    columns = {
        name: np.append(getattr(graph, name)[:1], c) for name, c in columns.items()
    }
    edges = {"source": source, "lag": lag, "residual": residual}
    columns |= {name: np.insert(column, 0, 0, axis=1) for name, column in edges.items()}
    return replace(graph, began=began, lasted=columns["dur"], **columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--items", type=int, default=0, help="GPU events of each")
    asked = parser.parse_args()
    print(
        "trace, GPU events, nodes, s to make the graph of the file, s to replay, exact"
    )
    print(
        "   of the file: s of its path, of a change, of all slices, share not understood"
    )
    for path in asked.traces:
        trace = open_trace(path)
        start = time.perf_counter()
        graph = graph_of(trace)
        made = time.perf_counter() - start
        items = max(1, len(trace.gpu_rows))
        graph = repeated(graph, max(1, asked.items // items))
        start = time.perf_counter()
        found = replay(graph)
        seconds = time.perf_counter() - start
        exact = bool(
            (found.begin == graph.began).all() and (found.end == graph.ended).all()
        )
        number = len(graph.nodes(Node.ITEM))
        print(
            f"{Path(path).name}, {number}, {len(graph)}, {made:.2f}, {seconds:.2f}, {exact}"
        )
        answers(trace)


def answers(trace: Trace) -> None:
    graph = graph_of(trace)
    start = time.perf_counter()
    critical_path(trace)
    between = time.perf_counter()
    found = whatif(trace, ["python x0.5"])
    then = time.perf_counter()
    times = graph.recorded
    slices_of(trace, graph, times)
    slack_of(graph, times)
    seconds = (between - start, then - between, time.perf_counter() - then)
    told = "none" if found.abstains else "doubtful" if found.is_doubtful else "plain"
    share = f"{found.residual_share:.3f} ({told})"
    print("  ", *(f"{one:.2f}" for one in seconds), share, sep=", ")


if __name__ == "__main__":
    main()
