"""Measures how long the graph of a trace takes to make and to replay, and whether the
replay is the recording; and how long the answers take, and what share of each recording
is not explained.

    python -P benchmarks/replaying.py --items 1000000 trace.json.gz ...

The graph of each trace is repeated, one after the other, until it has so many GPU
events.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.path import path as critical_path
from fusetui.analysis.replay.replay import replay
from fusetui.analysis.replay.route import measure_slack
from fusetui.analysis.replay.times import compute_slice_times
from fusetui.analysis.replay.whatif import whatif
from fusetui.trace import Trace, open_trace

Column = NDArray[Any]


def repeated(graph: Graph, times: int) -> Graph:
    """Return the graph repeated so many times, each after the one before. Node 0 is the
    origin, which all copies share."""
    nodes = len(graph) - 1
    span_ns = int(graph.ended.max()) + 1
    copy = np.repeat(np.arange(times), nodes)  # of each node

    def column(values: Column) -> Column:
        return np.append(values[:1], np.tile(values[1:], times))

    def edges(values: Column) -> Column:
        return np.tile(values[:, 1:].astype(np.int64), (1, times))

    def with_origin(values: Column) -> Column:
        return np.insert(values, 0, 0, axis=1)

    source = edges(graph.source)
    lag = edges(graph.lag)
    from_origin = source == 0
    # What begins at the origin begins later in each copy.
    residual = edges(graph.residual)
    residual += np.where(from_origin & (lag >= 0), copy * span_ns, 0)
    source = np.where(from_origin, 0, source + copy * nodes)
    dur = column(graph.dur)

    return replace(
        graph,
        kind=column(graph.kind),
        dur=dur,
        row=column(graph.row),
        began=np.append(0, np.tile(graph.began[1:], times) + copy * span_ns),
        lasted=dur,
        source=with_origin(source),
        lag=with_origin(lag),
        residual=with_origin(residual),
    )


def main() -> None:
    """Measure the replay and the answers of each trace, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--items", type=int, default=0, help="GPU events of each")
    args = parser.parse_args()
    print(
        "trace, GPU events, nodes, s to make the graph of the file, s to replay, exact"
    )
    print(
        "   of the file: s of its path, of a change, of all slices, share not understood"
    )

    for path in args.traces:
        trace = open_trace(path)
        measure_replay(Path(path).name, trace, args.items)
        measure_answers(trace)


def measure_replay(name: str, trace: Trace, items: int) -> None:
    """Print how long a graph takes to make and to replay, and whether the replay equals
    the recording. It has about `items` GPU events, at least those of the trace."""
    begin = time.perf_counter()
    graph = build_graph(trace)
    making_seconds = time.perf_counter() - begin
    graph = repeated(graph, max(1, items // max(1, len(trace.gpu_rows))))
    begin = time.perf_counter()
    times = replay(graph)
    replay_seconds = time.perf_counter() - begin
    is_exact = bool(
        (times.begin == graph.began).all() and (times.end == graph.ended).all()
    )
    gpu_events = len(graph.nodes(Node.GPU_TASK))
    print(
        f"{name}, {gpu_events}, {len(graph)}, {making_seconds:.2f}, {replay_seconds:.2f}, "
        f"{is_exact}"
    )


def measure_answers(trace: Trace) -> None:
    """Print how long the critical path, a change, and the slack of all slices take, and
    what share of the recording is not explained."""
    graph = build_graph(trace)
    begin = time.perf_counter()
    critical_path(trace)
    path_end = time.perf_counter()
    change = whatif(trace, ["python x0.5"])
    change_end = time.perf_counter()
    compute_slice_times(trace, graph, graph.recorded)
    measure_slack(graph, graph.recorded)
    slices_end = time.perf_counter()

    if change.abstains:
        kind = "none"
    elif change.is_doubtful:
        kind = "doubtful"
    else:
        kind = "plain"

    print(
        "  ",
        f"{path_end - begin:.2f}",
        f"{change_end - path_end:.2f}",
        f"{slices_end - change_end:.2f}",
        f"{change.residual_share:.3f} ({kind})",
        sep=", ",
    )


if __name__ == "__main__":
    main()
