"""Graphs, compilations and graph breaks of built logs."""

from __future__ import annotations

from pathlib import Path

from tests.compile_logs import Kernel, Line, Log

from fusetui.trace.compile_log.log import (
    CompileId,
    CompileLog,
    FailedGuard,
    guards_in,
    lines_of_dynamo_nodes,
    read_compile_log,
    stacks_of,
    wrapper_in,
)

GELU = Line(10, "h = gelu(x)")
MUL = Line(11, "return h * y")
FUSED = Kernel("cpp_fused_gelu_mul_0", (GELU, MUL), ("gelu", "mul"))


def opened(log: Log, folder: Path) -> CompileLog:
    return read_compile_log(str(log.write(folder)))


def test_a_graph_has_its_code_provenance_and_key(tmp_path: Path) -> None:
    log = opened(Log().graph("key", [FUSED]).metrics(), tmp_path)
    (graph,) = log.graphs
    assert (graph.key, graph.cache, str(graph.compile_id)) == ("key", "miss", "0/0")
    (stack_of_gelu, stack_of_mul) = stacks_of(log, graph)["cpp_fused_gelu_mul_0:1"]
    assert [frame.line for frame in (*stack_of_gelu, *stack_of_mul)] == [10, 11]
    wrapper = wrapper_in(log, graph)
    assert wrapper is not None
    assert [call.handle for call in wrapper.calls] == ["cpp_fused_gelu_mul_0:1"]


def test_forward_and_backward_of_a_region_are_two_graphs(tmp_path: Path) -> None:
    built = Log().graph("one", [FUSED], aot_id="0_forward")
    built.graph("two", [FUSED], aot_id="0_backward").metrics().metrics(backward=True)
    log = opened(built, tmp_path)
    assert [graph.key for graph in log.graphs] == ["one", "two"]
    assert [one.is_backward for one in log.compilations] == [False, True]


def test_graphs_of_two_frames_may_be_written_in_turn(tmp_path: Path) -> None:
    built = Log()
    first = Log().graph("one", [FUSED], region="0/0").texts
    second = Log().graph("two", [FUSED], region="1/0").texts
    built.texts = [*first[:-2], *second[:-2], *first[-2:], *second[-2:]]
    log = opened(built, tmp_path)
    assert {graph.key: graph.compile_id for graph in log.graphs} == {
        "one": CompileId(0, 0),
        "two": CompileId(1, 0),
    }


def test_a_graph_without_a_cache_record_has_no_key(tmp_path: Path) -> None:
    built = Log().graph("one", [FUSED])
    built.texts = built.texts[:-2]
    (graph,) = opened(built, tmp_path).graphs
    assert graph.key == ""


def test_a_break_that_two_attempts_report_counts_once(tmp_path: Path) -> None:
    built = Log().broke(MUL, "Failed to trace builtin operator")
    built.broke(MUL, "Failed to trace builtin operator", attempt=1)
    (one,) = opened(built, tmp_path).breaks
    assert (one.file, one.line, one.reason) == (
        "/home/me/model.py",
        11,
        "Failed to trace builtin operator",
    )
    assert one.hints == ("Do without.",)
    assert [frame.line for frame in one.stack] == [11]


def test_guards_stand_with_the_newest_entry_first(tmp_path: Path) -> None:
    built = Log().recompiled("0/0: a", "0/2: c", "0/1: b", region="0/3")
    log = opened(built.metrics(region="0/3"), tmp_path)
    (one,) = log.compilations
    assert [guard.entry for guard in one.guards] == ["0/2", "0/1", "0/0"]


def test_guards_of_one_text_and_of_damaged_ones() -> None:
    assert guards_in("0/0: tensor 'x'") == (FailedGuard("0/0", "tensor 'x'"),)
    assert guards_in("") == ()
    assert guards_in("[broken") == (FailedGuard("", "[broken"),)
    assert guards_in("[1, 2]") == (FailedGuard("", "[1, 2]"),)


def test_times_of_a_compilation(tmp_path: Path) -> None:
    log = opened(Log().metrics(start_s=1.5, seconds=0.25), tmp_path)
    (one,) = log.compilations
    assert one.duration_ns == 250_000_000
    assert one.start_ns % 1_000_000_000 == 500_000_000


def test_metrics_of_other_types_are_no_error(tmp_path: Path) -> None:
    built = Log().record(
        {
            "compilation_metrics": {
                "co_name": 3,
                "start_time_us": "x",
                "duration_us": -4,
                "entire_frame_compile_time_s": True,
            }
        }
    )
    (one,) = opened(built, tmp_path).compilations
    assert (one.function, one.start_ns, one.duration_ns) == ("", 0, 0)


def test_lines_of_the_nodes_of_dynamos_graph(tmp_path: Path) -> None:
    built = Log().dynamo_graph({"gelu": GELU, "mul": MUL}).graph("k", [FUSED])
    log = opened(built, tmp_path)
    lines = lines_of_dynamo_nodes(log, log.graphs[0])
    assert {node: line.line for node, line in lines.items()} == {"gelu": 10, "mul": 11}
