"""What the CPU does around the work: rows for what there is more or less of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.report.diff_lines import lines as lines_of
from fusetui.trace import Trace

Build = Callable[..., Trace]

EAGER = [
    ("aten::linear / aten::t / aten::transpose",),
    ("aten::linear / aten::mm", "gemm", 20.0),
]
COMPILED = [
    ("TorchDynamo Cache Lookup",),
    ("Torch-Compiled Region: 0/0 / AOTDispatcher Runtime Wrapper Prologue",),
    ("aten::mm", "gemm", 20.0),
]


def dispatch(found: Diff) -> dict[str, Row]:
    return {row.op: row for row in found.rows if row.on_cpu}


def test_cpu_op_missing_in_b_is_a_removed_dispatch_row(build: Build) -> None:
    rows = dispatch(diff(build(EAGER), build(COMPILED)))
    row = rows["CPU: aten::t"]
    assert (row.kind, row.a, row.b, row.a_count, row.b_count) == (
        RowKind.REMOVED,
        ("aten::t",),
        (),
        1,
        0,
    )
    assert row.a_ns == 2000


def test_guards_of_torch_compile_are_added_dispatch_rows(build: Build) -> None:
    rows = dispatch(diff(build(EAGER), build(COMPILED)))
    added = {op for op, row in rows.items() if row.kind is RowKind.ADDED}
    assert added == {
        "CPU: TorchDynamo Cache Lookup",
        "CPU: Torch-Compiled Region",
        "CPU: AOTDispatcher Runtime Wrapper Prologue",
    }


def test_beside_a_gpu_dispatch_is_no_part_of_the_sum(build: Build) -> None:
    assert not any(
        row.counts for row in dispatch(diff(build(EAGER), build(COMPILED))).values()
    )


def test_fewer_launch_calls_are_one_removed_row(build: Build) -> None:
    gemm = ("aten::mm", "gemm", 20.0)
    row = dispatch(diff(build([gemm, gemm]), build([gemm])))["CPU: launch calls"]
    assert (row.kind, row.a_count, row.b_count) == (RowKind.REMOVED, 2, 1)
    assert row.why == "2 -> 1 a step"


def test_a_line_whose_time_is_of_all_calls_says_so(build: Build) -> None:
    """One of two launch calls is gone: the times are of two calls and of one. Of an op
    that is gone altogether they are of the very calls that the line counts."""
    gemm = ("aten::mm", "gemm", 20.0)
    found = diff(build([gemm, gemm]), build([gemm]))
    lines = [line.what for line in lines_of(found) if "launch calls" in line.what]
    assert lines == ["CPU: all launch calls (1 fewer)"]
    found = diff(build([gemm]), build([gemm, gemm, gemm]))
    lines = [line.what for line in lines_of(found) if "launch calls" in line.what]
    assert lines == ["CPU: all launch calls (2 more)"]


def test_without_a_gpu_the_work_is_ops_that_compute(build: Build) -> None:
    a = build([("aten::linear", [("aten::t", None, 20.0), ("aten::mm", None, 90.0)])])
    b = build([("aten::mm", None, 90.0)])
    found = diff(a, b)
    assert [(row.op, row.counts) for row in found.rows] == [
        ("aten::mm", True),
        ("CPU: aten::t", True),
        ("CPU: aten::linear", True),
    ]


def test_without_a_gpu_what_an_op_calls_for_itself_is_its_own_time(
    build: Build,
) -> None:
    addmm = ("aten::addmm", [("aten::expand", None, 0.5), ("aten::copy_", None, 1.5)])
    trace = build([addmm])
    found = diff(trace, trace)
    assert [row.op for row in found.rows] == ["aten::addmm"]
    assert found.side_a.work_ns == found.side_a.busy_ns


def test_a_graph_is_the_same_graph_under_another_hash(build: Build) -> None:
    def called(name: str) -> Trace:
        return build([("CompiledFxGraph " + name,), ("aten::mm", "gemm", 20.0)])

    assert "CPU: Torch-Compiled Region" not in dispatch(diff(called("a"), called("a")))
    one = build([("Torch-Compiled Region: 0/0",), ("aten::mm", "gemm", 20.0)])
    other = build([("Torch-Compiled Region: 4/1",), ("aten::mm", "gemm", 20.0)])
    assert dispatch(diff(one, other)) == {}


def test_an_op_of_one_step_beside_a_run_of_fewer_steps(
    trace_of: Callable[..., Trace],
) -> None:
    def run(steps: int, *more: dict[str, Any]) -> Trace:
        plain = {"ph": "X", "pid": 1, "tid": 1}
        marks = [
            {
                **plain,
                "cat": "user_annotation",
                "name": f"ProfilerStep#{n}",
                "ts": 9 * n,
                "dur": 9,
            }
            for n in range(steps)
        ]
        return trace_of(
            [*marks, *({**plain, "cat": "cpu_op", **event} for event in more)]
        )

    once = {"name": "aten::view", "ts": 20, "dur": 1}
    many, one = run(5, once), run(1)
    assert not any(
        "only in" in row.why for row in [*diff(many, one).rows, *diff(one, many).rows]
    )
