"""Which nodes of a graph wait for which."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.analysis.servers import Event, call, gpu, opened
from tests.cases import Cases
from tests.corpus.fixtures import any_of

from fusetui.trace import Trace, open_trace
from fusetui.trace.program import backward as module
from fusetui.trace.program.backward import MIN_NODE_FLOW_ID, dependencies

any_trace = any_of("annotated-graph")
Pairs = set[tuple[str, str]]


def flow(number: int, left: float, came: float, *tids: int) -> list[Event]:
    """From a node that ends at one time to a node that starts at another."""
    common = {"cat": "ac2g", "name": "ac2g", "id": MIN_NODE_FLOW_ID + number, "pid": 0}
    tid, other = tids or (7, 7)
    return [
        {**common, "ph": "s", "tid": tid, "ts": left},
        {**common, "ph": "f", "tid": other, "ts": came, "bp": "e"},
    ]


def graph(*more: Event) -> list[Event]:
    """The nodes a, b and c, of 10 us each, one 1 us after the other."""
    nodes = [gpu(name, 20 + 11 * n, 10, 1) for n, name in enumerate("abc")]
    return [call("cudaGraphLaunch", 0, 5, 1), *nodes, *more]


def names(trace: Trace) -> Pairs:
    found = dependencies(trace)
    return {
        (trace.name_of(one), trace.name_of(other))
        for one, other in zip(found.before.tolist(), found.after.tolist(), strict=True)
    }


def test_flows_between_nodes_are_dependencies(tmp_path: Path) -> None:
    trace = opened(
        tmp_path / "a.json", graph(*flow(0, 30, 31), *flow(1, 41, 42), *flow(2, 30, 42))
    )
    assert names(trace) == {("a", "b"), ("b", "c"), ("a", "c")}
    assert dependencies(trace).unclear == 0


def test_flows_of_launches_are_no_dependencies(tmp_path: Path) -> None:
    launch = [{**end, "id": 1} for end in flow(0, 30, 31)]
    trace = opened(tmp_path / "a.json", graph(*launch))
    assert (names(trace), dependencies(trace).unclear) == (set(), 0)


@pytest.mark.parametrize(
    "unclear",
    [
        flow(0, 30, 31.001),  # nothing starts then
        flow(0, 30, 31, 7, 8),  # on another stream
        flow(0, 30, 31, 9, 7),
        [*flow(0, 30, 31), gpu("d", 25, 5, 1)],  # two nodes end then
        [*flow(0, 30, 60), gpu("of another replay", 60, 5, 2)],
        [*flow(0, 20, 20), {**gpu("EventRecord", 20, 0, 1, "graph_event_node")}],
    ],
)
def test_unclear_flows_are_counted(tmp_path: Path, unclear: list[Event]) -> None:
    trace = opened(tmp_path / "a.json", graph(*unclear))
    assert (names(trace), dependencies(trace).unclear) == (set(), 1)


def test_flows_with_hostile_values_are_ignored(tmp_path: Path) -> None:
    fields = ("pid", "tid", "id", "ts", "cat", "ph")
    values: tuple[object, ...] = ([], {}, None, "", 1 << 70, -5, "\ud800", 1e300)
    with Cases() as cases:
        for field, value in product(fields, values):
            ends = flow(0, 30, 31)
            ends[1][field] = value
            with cases.case(field, value):
                assert names(opened(tmp_path / "a.json", graph(*ends))) == set()


def test_half_a_flow_is_nothing(tmp_path: Path) -> None:
    trace = opened(tmp_path / "a.json", graph(flow(0, 30, 31)[0], flow(1, 41, 42)[1]))
    assert (names(trace), dependencies(trace).unclear) == (set(), 0)


def test_nodes_that_run_nothing(tmp_path: Path) -> None:
    event = gpu("EventRecord", 30.5, 0, 1, "graph_event_node")
    trace = opened(
        tmp_path / "a.json", graph(event, *flow(0, 30, 30.5), *flow(1, 30.5, 31))
    )
    assert names(trace) == {("a", "EventRecord"), ("EventRecord", "b")}


def test_graph_without_events_has_no_dependencies(tmp_path: Path) -> None:
    trace = opened(tmp_path / "a.json", [call("cudaGraphLaunch", 0, 5, 1)])
    assert (names(trace), dependencies(trace).unclear) == (set(), 0)


def test_the_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = opened(tmp_path / "a.json", graph(*flow(0, 30, 31)))
    found = names(trace)
    monkeypatch.setattr(module, "read_flows", None)
    assert names(replace(trace)) == found


def by_hand(path: Path) -> tuple[Pairs, int]:
    """From the raw events: the ids of nodes, and how many flows cannot be told."""
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)[
        "traceEvents"
    ]
    starts, ends = defaultdict(list), defaultdict(list)
    flows: dict[int, dict[str, Any]] = defaultdict(dict)
    for event in events:
        if "graph node id" in event.get("args", {}):
            where, args = (event["pid"], event["tid"]), event["args"]
            node = f"{args['correlation']}: {args['graph node id']}"
            starts[*where, event["ts"]].append(node)
            ends[*where, event["ts"] + event["dur"]].append(node)
        elif event.get("ph") in ("s", "f") and event["id"] >= 1 << 40:
            flows[event["id"]][event["ph"]] = event["pid"], event["tid"], event["ts"]
    both = [(ends[one["s"]], starts[one["f"]]) for one in flows.values()]
    known = {(left[0], came[0]) for left, came in both if len(left) == len(came) == 1}
    return known, sum(not len(left) == len(came) == 1 for left, came in both)


def by_node(trace: Trace) -> Pairs:
    def node(row: int) -> str:
        return f"{trace.correlation[row]}: {trace.args_of(row)['graph node id']}"

    found = dependencies(trace)
    pairs = zip(found.before.tolist(), found.after.tolist(), strict=True)
    return {(node(one), node(other)) for one, other in pairs}


def test_dependencies_are_those_of_the_flows(any_trace: Path) -> None:
    trace = open_trace(str(any_trace))
    pairs = by_node(trace)
    assert pairs
    assert (pairs, dependencies(trace).unclear) == by_hand(any_trace)
