"""Replayed kernels have the modules that annotations of their nodes name."""

from __future__ import annotations

import gzip
import json
import pickle
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.servers import Event, Server, call, cpu, gpu, opened, python, save
from tests.corpus.fixtures import any_of

from fusetui.analysis.graphs import annotations as module
from fusetui.analysis.graphs import captures
from fusetui.analysis.graphs.annotations import extract_module_path
from fusetui.analysis.graphs.opening import join_sentences, with_captures
from fusetui.command_line.arguments import BY_ANNOTATIONS
from fusetui.trace import Trace, TraceError, open_trace
from fusetui.trace.model.categories import Role
from fusetui.trace.program.modules import Modules, ModuleTime, module_times
from fusetui.trace.program.origin import frame_of, origins, phases

GRAPH = 11
ATTENTION, MLP = "L.layers.0.attn", "L.layers.1.mlp"


def replay(number: int, at: float, *args: dict[str, Any]) -> list[Event]:
    """A replay of a graph whose nodes last 1, 2, .. us and have these args."""
    nodes = [gpu("k", at + 20 + 10 * n, n, number) for n in range(1, len(args) + 1)]
    for n, (node, own) in enumerate(zip(nodes, args, strict=True), 1):
        node["args"] |= {"graph id": GRAPH, "graph node id": n, **own}
    return [
        cpu(f"step[DECODE bs={number}]", at, 60, "user_annotation"),
        python("server.py(3): run", at + 1, 58),
        call("cudaGraphLaunch", at + 10, 5, number),
        *nodes,
    ]


def named(name: str) -> dict[str, Any]:
    """Args as torch writes a list of annotations."""
    return {"annotation": json.dumps([{"name": name}])}


def annotated(trace: Trace, *files: object) -> Trace:
    return with_captures(
        trace, [f"{BY_ANNOTATIONS}{file}" for file in files], open_trace
    )[0]


def modules(trace: Trace) -> Modules:
    return module_times(origins(trace))


def figures(trace: Trace) -> dict[str, int]:
    """The time of each path, and of what lies in none."""
    found = modules(trace)
    times: dict[str, int] = {
        one.path: one.gpu_ns for one in found.modules if one.gpu_ns
    }
    return times | {str(one.why): one.gpu_ns for one in found.none}


@pytest.mark.parametrize(
    ("annotation", "path"),
    [
        ({"name": "a.b", "stream": 60}, "a.b"),
        ({"module_name": ATTENTION, "name": "mine"}, ATTENTION),
        ({"str": "phase A"}, "phase A"),
        ([{"name": "first"}, {"name": "last"}, "text"], "last"),
        (["a", "b"], "b"),
        ("text", "text"),
        ({"name": 5}, ""),
        ([], ""),
        (7, ""),
        (None, ""),
        ("  ", ""),
        ("\ud800", "?"),
    ],
)
def test_annotation_gives_the_path_of_its_name(annotation: object, path: str) -> None:
    assert extract_module_path(annotation) == path


def test_annotation_names_nest_at_their_dots(tmp_path: Path) -> None:
    trace = opened(
        tmp_path / "a.json",
        replay(1, 0, named(ATTENTION), named(MLP), named("my phase 1.5")),
    )
    assert figures(annotated(trace)) == {
        "L": 3000,
        "L > L.layers": 3000,
        "L > L.layers > L.layers.*": 3000,
        "L > L.layers > L.layers.* > L.layers.*.attn": 1000,
        "L > L.layers > L.layers.* > L.layers.*.mlp": 2000,
        "my phase *.*": 3000,
    }


@pytest.mark.parametrize("args", [{"name": ATTENTION}, {"module_name": ATTENTION}])
def test_annotation_is_found_in_any_arg_of_a_node(
    tmp_path: Path, args: dict[str, Any]
) -> None:
    trace = annotated(opened(tmp_path / "a.json", replay(1, 0, args)))
    assert figures(trace)["L"] == 1000


def test_a_node_without_annotation_has_no_module(tmp_path: Path) -> None:
    trace = annotated(
        opened(tmp_path / "a.json", replay(1, 0, {}, named("a"), {"annotation": 5}))
    )
    assert figures(trace) == {"a": 2000, "outside": 4000}
    assert trace.notes == (
        "In 1 of 1 graph replays, 1 event takes its module from annotations in "
        f"{tmp_path / 'a.json'}; 2 events have no annotation and thus no module.",
    )


def test_replay_without_all_annotations_gets_no_modules(tmp_path: Path) -> None:
    """The second replay stays where it was launched."""
    trace = opened(
        tmp_path / "a.json", replay(1, 0, named("a"), {}), replay(2, 500, {}, {})
    )
    found = annotated(trace)
    assert figures(found) == {"a": 1000, "outside": 2000, "step[DECODE bs=2]": 3000}
    assert "In 1 of 2 graph replays, 1 event takes" in found.notes[0]


def test_only_the_module_changes(tmp_path: Path) -> None:
    """Calls, ops, frames and phases are those of the launch."""
    trace = opened(tmp_path / "a.json", replay(1, 0, named("a"), {}))
    found = annotated(trace)
    rows = trace.gpu_rows
    assert (found.asked[rows] == trace.launch[rows]).all()
    assert (found.op[rows] == trace.op[rows]).all()
    assert (frame_of(origins(found), rows) == frame_of(origins(trace), rows)).all()
    assert phases(origins(found)) == phases(origins(trace))
    assert (found.begin_ns, found.end_ns) == (trace.begin_ns, trace.end_ns)


def test_calls_and_times_of_annotations_are_not_recorded(tmp_path: Path) -> None:
    def figures_of(one: ModuleTime) -> tuple[int, int, int]:
        return one.count, one.cpu_ns, one.kernels

    found = modules(
        annotated(opened(tmp_path / "a.json", replay(1, 0, named("a"), named("a"))))
    )
    assert {one.path: figures_of(one) for one in found.modules} == {
        "a": (0, 0, 2),
        "step[DECODE bs=1]": (1, 60_000, 0),
    }


def test_a_capture_goes_first(tmp_path: Path) -> None:
    server = Server()
    step = server.step(4, 0, 1)
    for n, event in enumerate(step[2:], 1):
        event["args"] |= {"graph node id": n, "graph id": GRAPH, "name": "annotated"}
    save(tmp_path / "capture.json", server.capture(4))
    trace, joins = with_captures(opened(tmp_path / "a.json", step), (), open_trace)
    assert [one.joined_by for one in joins] == ["capture"]
    assert "annotated" not in figures(trace)


def test_replay_without_a_fitting_capture_is_annotated(tmp_path: Path) -> None:
    """The capture that a user named says why it does not fit."""
    other = save(tmp_path / "other.json", Server(layers=5).capture(4))
    trace = opened(tmp_path / "a.json", replay(1, 0, named("a")))
    trace, joins = with_captures(trace, [str(other)], open_trace)
    assert [one.replays for one in joins] == [0, 1]
    assert figures(trace) == {"a": 1000}
    assert len(join_sentences(joins)) == 1


def test_annotations_are_not_read_without_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise AssertionError

    trace = opened(
        tmp_path / "a.json", [call("cudaLaunchKernel", 0, 5, 1), gpu("k", 9, 1, 1)]
    )
    for owner, name in ((captures, "arguments"), (module, "read"), (Trace, "args_of")):
        monkeypatch.setattr(owner, name, read)
    assert annotated(trace) is trace


def test_annotations_are_not_read_for_nodes_without_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = opened(tmp_path / "a.json", Server().step(4, 0, 1))
    monkeypatch.setattr(module, "node_args", None)
    assert annotated(trace) is trace


def test_args_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    trace = opened(tmp_path / "a.json", replay(1, 0, named("a"), {}))
    annotated(trace)
    own, args = type(trace.elements), type(trace.elements).args

    def counted(*given: Any) -> Any:
        asked.append("args")
        return args(*given)

    monkeypatch.setattr(own, "args", counted)
    annotated(trace)
    captures.replays(trace)
    assert not asked


def packed(*names: Any) -> dict[int, Any]:
    """Annotations of the nodes 1, 2, .. of the graph."""
    return {GRAPH << 32 | n: name for n, name in enumerate(names, 1)}


def saved(path: Path, mapping: dict[int, Any]) -> Path:
    path.write_bytes(pickle.dumps(mapping))
    return path


@pytest.mark.parametrize(
    "node", [{}, {"graph id": None, "graph node id": GRAPH << 32 | 1}]
)
def test_file_of_annotations_names_nodes_with_64_or_32_bit_ids(
    tmp_path: Path, node: dict[str, Any]
) -> None:
    """Node ids have 64 bits, or 32 with the id of the graph beside them."""
    file = saved(tmp_path / "b.pkl", packed([{"name": MLP}]))
    trace = annotated(
        opened(tmp_path / "a.json", replay(1, 0, node, {"graph node id": 9})), file
    )
    assert figures(trace)["L"] == 1000
    assert str(file) in trace.notes[0]


def test_a_file_goes_before_args(tmp_path: Path) -> None:
    file = saved(tmp_path / "b.pkl", packed({"name": "of file"}))
    trace = annotated(
        opened(tmp_path / "a.json", replay(1, 0, named("a"), named("b"))), file
    )
    assert figures(trace) == {"of file": 1000, "b": 2000}
    assert f"{file} and {tmp_path / 'a.json'}" in trace.notes[0]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.json.zst", "a"])
def test_annotation_file_beside_the_trace_is_found_by_name(
    tmp_path: Path, name: str
) -> None:
    saved(tmp_path / "a.annotations.pkl", packed("beside"))
    assert figures(annotated(opened(tmp_path / name, replay(1, 0, {})))) == {
        "beside": 1000
    }


def test_annotation_file_of_another_graph_changes_nothing(tmp_path: Path) -> None:
    file = saved(tmp_path / "b.pkl", {12 << 32 | 1: "other", 1: "no graph"})
    trace = opened(tmp_path / "a.json", replay(1, 0, {}))
    after, joins = with_captures(trace, [f"{BY_ANNOTATIONS}{file}"], open_trace)
    assert after is trace
    assert join_sentences(joins) == [
        f"{file} annotates no node of the graphs that {tmp_path / 'a.json'} replays."
    ]


def test_empty_annotation_file_leaves_args_in_force(tmp_path: Path) -> None:
    file = saved(tmp_path / "b.pkl", {})
    trace = opened(tmp_path / "a.json", replay(1, 0, named("a")))
    trace, joins = with_captures(trace, [f"{BY_ANNOTATIONS}{file}"], open_trace)
    assert figures(trace) == {"a": 1000}
    (sentence,) = join_sentences(joins)
    assert "annotates no node" in sentence


def test_graphs_of_several_processes_have_the_same_numbers(tmp_path: Path) -> None:
    file = saved(tmp_path / "b.pkl", packed("of file"))
    other = replay(2, 500, {})
    for event in other[:3]:
        event["pid"] = 2
    trace = opened(tmp_path / "a.json", replay(1, 0, {}), other)
    after, joins = with_captures(trace, [f"{BY_ANNOTATIONS}{file}"], open_trace)
    assert after is trace
    (sentence,) = join_sentences(joins)
    assert "several processes replay graphs" in sentence


def test_a_damaged_file_beside_the_trace_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.annotations.pkl").write_bytes(b"\x80\x04")
    trace = opened(tmp_path / "a.json", replay(1, 0, named("a")))
    trace, joins = with_captures(trace, (), open_trace)
    assert figures(trace) == {"a": 1000}
    (sentence,) = join_sentences(joins)
    assert sentence.endswith("contains no graph annotations, or is damaged.")


def test_a_damaged_file_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "b.pkl").write_bytes(b"")
    trace = opened(tmp_path / "a.json", replay(1, 0, named("a")))
    with pytest.raises(TraceError):
        annotated(trace, tmp_path / "b.pkl")


def test_hostile_annotation_names_stay_bounded_and_printable(tmp_path: Path) -> None:
    names: Sequence[str] = (
        "." * 5000,
        "a." * 5000,
        "a..b",
        ".",
        "x\0\x1b[31m",
        "nccl:all_reduce",
    )
    trace = annotated(opened(tmp_path / "a.json", replay(1, 0, *map(named, names))))
    found = modules(trace)
    total = sum(one.gpu_self_ns for one in found.modules) + sum(
        one.gpu_ns for one in found.none
    )
    assert total == found.gpu_ns == 21_000
    assert (trace.role == Role.CAPTURED).sum() < 50


any_trace = any_of("annotated-graph")


def by_hand(path: Path) -> dict[str, int]:
    """From the raw events: the time of each path that a node of a replayed graph is
    named by."""
    times: dict[str, int] = defaultdict(int)
    for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        args = event.get("args", {})
        if event.get("cat") in ("kernel", "gpu_memcpy") and "graph node id" in args:
            listed = json.loads(args["annotation"]) if "annotation" in args else [args]
            if name := listed[-1].get("name"):
                times[name] += round(event["dur"] * 1000)
    return times


def times_by_layer(path: Path) -> dict[str, int]:
    """The GPU time of each module that has some."""
    found = module_times(origins(annotated(open_trace(str(path)))), expanded=True)
    return {
        one.module: one.gpu_self_ns
        for one in found.modules
        if one.module.startswith("layer") and one.gpu_self_ns
    }


def test_graphs_have_the_modules_of_their_annotations(any_trace: Path) -> None:
    raw = by_hand(any_trace)
    assert raw
    assert times_by_layer(any_trace) == raw
