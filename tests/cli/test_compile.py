"""`fusetui compile`, and `--compile-log` on other commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Result
from tests.compile_logs import Kernel, Line, Log, Recording

from fusetui import sample_traces

Run = Callable[..., Result]
GELU = Line(10, "h = gelu(x)")
MUL = Line(11, "return h * y")
FUSED = Kernel("cpp_fused_gelu_mul_0", (GELU, MUL), ("gelu", "mul"))
OP = "graph_0_cpp_fused_gelu_mul_0"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace with its log in a folder of its own, which is not found by itself."""
    Log().graph("key", [FUSED]).metrics().write(tmp_path / "elsewhere")
    return Recording().call("key", [OP]).write(tmp_path)


def test_a_kernel_and_its_lines(fusetui: Run, trace: Path, tmp_path: Path) -> None:
    answer = fusetui("compile", trace, "--compile-log", tmp_path / "elsewhere")
    assert answer.code == 0
    assert "1 kernel in compiled regions takes 10 us; it is linked" in answer.out
    assert "me/model.py:10, 11" in answer.out
    assert "cpp_fused_gelu_mul_0:1" in answer.out


@pytest.mark.parametrize("place", ["trace.compile_log", "compile_log", "."])
def test_a_log_beside_the_trace_is_found(
    fusetui: Run, trace: Path, tmp_path: Path, place: str
) -> None:
    Log().graph("key", [FUSED]).metrics().write(tmp_path / place, "some.log")
    assert fusetui("compile", trace, "--json").json["joined"] == 1


def test_without_a_log_it_says_what_writes_one(fusetui: Run, trace: Path) -> None:
    answer = fusetui("compile", trace)
    assert answer.code == 0
    assert "TORCH_TRACE=DIR" in answer.out


def test_a_trace_that_was_not_compiled(fusetui: Run) -> None:
    answer = fusetui("compile", sample_traces.path("mlp-eager"))
    assert answer.code == 0
    assert answer.out.startswith(
        "This trace contains no work that torch.compile compiled"
    )


def test_a_log_alone(fusetui: Run, tmp_path: Path) -> None:
    log = Log().graph("key", [FUSED]).broke(MUL, "print is not supported").metrics()
    path = log.write(tmp_path / "logs")
    for name in (path, path.parent):
        answer = fusetui("compile", name)
        assert answer.code == 0
        assert "model.py:10, 11" in answer.out
        assert "print is not supported" in answer.out


def test_as_a_table(fusetui: Run, trace: Path, tmp_path: Path) -> None:
    answer = fusetui(
        "compile",
        trace,
        *("--compile-log", tmp_path / "elsewhere"),
        *("--format", "csv", "--columns", "kernel,runs,lines"),
    )
    assert answer.out.splitlines()[1] == (
        "cpp_fused_gelu_mul_0,1,/home/me/model.py:10; /home/me/model.py:11"
    )


@pytest.mark.parametrize("name", ["none", "empty", "trace.json"])
def test_what_is_no_log_is_refused(
    fusetui: Run, trace: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "empty").mkdir()
    answer = fusetui("compile", trace, "--compile-log", tmp_path / name)
    assert answer.code == 2
    assert answer.sentence


@pytest.mark.parametrize(
    "command", ["kernels", "ops", "lines", "why", "diff", "report"]
)
def test_other_commands_take_a_log(
    fusetui: Run, trace: Path, tmp_path: Path, command: str
) -> None:
    arguments = [trace, trace] if command == "diff" else [trace]
    arguments += [tmp_path / "x.html"] if command == "report" else []
    log = tmp_path / "elsewhere"
    assert fusetui(command, *arguments, "--compile-log", log).code == 0
    refused = fusetui(command, *arguments, "--compile-log", tmp_path / "none")
    assert refused.code == 2


def test_text_of_a_log_is_escaped(fusetui: Run, tmp_path: Path) -> None:
    hostile = Line(3, "x = '\x1b[31m'", "f\x1b[0m", "/home/\x1b]0;/m.py")
    log = Log().graph("key", [FUSED._replace(lines=(hostile,))])
    log.broke(hostile, "\x1b[2J broken").metrics(function="\x1b[1m")
    path = log.write(tmp_path)
    for form in ((), ("--json",)):
        assert "\x1b" not in fusetui("compile", path, *form).out


def test_the_lesson_leads_from_the_kernel_to_its_two_lines(fusetui: Run) -> None:
    document = fusetui("compile", "lesson:mlp-compiled", "--json").json
    kernels = {
        kernel["name"]: [line["line"] for line in kernel["lines"]]
        for region in document["regions"]
        for kernel in region["kernels"]
    }
    assert kernels["triton_poi_fused__unsafe_view_gelu_mul_0"] == [25, 26]
    assert document["joined"] == document["kernels"] == 12
    assert fusetui("compile", "lesson:linear-compiled", "--json").json["log"] is None


def test_a_log_of_another_trace_in_the_folder_is_not_taken(
    fusetui: Run, trace: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.json").write_text(trace.read_text())
    Log().graph("key", [FUSED]).metrics().write(tmp_path, "other.log")
    assert fusetui("compile", trace, "--json").json["joined"] == 0
    assert fusetui("compile", tmp_path / "other.json", "--json").json["joined"] == 1


def test_kernels_and_ops_name_the_lines(
    fusetui: Run, trace: Path, tmp_path: Path
) -> None:
    log = ("--compile-log", tmp_path / "elsewhere")
    assert "me/model.py:10, 11" in fusetui("ops", trace, *log).out
    document = fusetui("ops", trace, *log, "--json").json
    assert [line["line"] for line in document["source_lines"][OP]] == [10, 11]
    assert "source_lines" not in fusetui("ops", trace, "--json").json
    kernels = fusetui("kernels", "lesson:mlp-compiled", "--json").json
    fused = "triton_poi_fused__unsafe_view_gelu_mul_0"
    assert [line["line"] for line in kernels["source_lines"][fused]] == [25, 26]
