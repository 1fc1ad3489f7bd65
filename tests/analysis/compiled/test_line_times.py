"""The time of compiled kernels by line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Result
from tests.cli.conftest import fusetui as fusetui
from tests.compile_logs import Kernel, Line, Log, Recording

from fusetui.analysis.compiled.line_times import sum_times_by_line
from fusetui.trace import open_trace
from fusetui.trace.compile_log.log import read_compile_log

GELU = Line(10, "h = gelu(x)")
MUL = Line(11, "return h * y")
FUSED = Kernel("cpp_fused_gelu_mul_0", (GELU, MUL), ("gelu", "mul"))
MM = Kernel("extern_kernels.mm", (MUL,), ("mm",))
OPS = ["aten::mm", "graph_0_cpp_fused_gelu_mul_0", "aten::bmm"]
Run = Callable[..., Result]


def written(folder: Path) -> Path:
    """A trace whose product, fused kernel and unknown op take 10 us each."""
    Log().graph("key", [MM, FUSED]).metrics().write(folder)
    return Recording().call("key", OPS).write(folder)


def test_a_kernel_of_two_lines_is_split_evenly(tmp_path: Path) -> None:
    trace = open_trace(str(written(tmp_path)), cached=False)
    log = read_compile_log(str(tmp_path / "torch_trace.log"))
    times = sum_times_by_line(trace, log)
    assert [(one.line, one.total_ns, one.split_ns) for one in times.lines] == [
        (11, 15_000, 5_000),
        (10, 5_000, 5_000),
    ]
    assert (times.kernel_ns, times.unknown_ns) == (30_000, 10_000)
    assert times.lines[0].kernels == ("extern_kernels.mm", "cpp_fused_gelu_mul_0")


def test_lines_of_other_files_count_as_unknown(tmp_path: Path) -> None:
    trace = open_trace(str(written(tmp_path)), cached=False)
    log = read_compile_log(str(tmp_path / "torch_trace.log"))
    times = sum_times_by_line(trace, log, "other.py")
    assert (times.lines, times.unknown_ns) == ((), 30_000)


def test_lines_shows_them_first(fusetui: Run, tmp_path: Path) -> None:
    answer = fusetui("lines", written(tmp_path))
    assert answer.code == 0
    first, second = answer.out.splitlines()[1:3]
    assert "me/model.py:11" in first
    assert "return h * y" in first
    assert "me/model.py:10" in second
    assert "is split equally among them" in answer.out


def test_lines_as_json(fusetui: Run, tmp_path: Path) -> None:
    document = fusetui("lines", written(tmp_path), "--json").json
    assert [line["total_ns"] for line in document["compiled"]["lines"]] == [
        15_000,
        5_000,
    ]
    assert document["functions"] == []


def test_without_a_log_lines_is_as_before(fusetui: Run, tmp_path: Path) -> None:
    path = Recording().call("key", OPS).write(tmp_path)
    assert "compiled" not in fusetui("lines", path, "--json").json
