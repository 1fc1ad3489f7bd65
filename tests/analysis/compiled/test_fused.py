"""Which lines became one kernel, in the diff of eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Result
from tests.cli.conftest import fusetui as fusetui
from tests.compile_logs import Kernel, Line, Log, Recording

from fusetui.analysis.compiled.fused import list_fused_kernels
from fusetui.trace import open_trace
from fusetui.trace.compile_log.log import read_compile_log

GELU = Line(10, "h = gelu(x)")
MUL = Line(11, "return h * y")
FUSED = Kernel("triton_poi_fused_gelu_mul_0", (GELU, MUL), ("gelu", "mul"), "/tmp/k.py")
MM = Kernel("extern_kernels.mm", (MUL,), ("mm",))
Run = Callable[..., Result]


def compiled(folder: Path) -> Path:
    log = Log().dynamo_graph({"gelu": GELU, "mul": MUL, "mm": MUL})
    log.graph("key", [MM, FUSED]).metrics().write(folder)
    return Recording().call("key", ["aten::mm", FUSED.name], on_gpu=True).write(folder)


def eager(folder: Path) -> Path:
    recording = Recording()
    recording.call("", ["aten::mm", "aten::gelu"], on_gpu=True, is_annotated=False)
    recording.events = [one for one in recording.events if "Torch-" not in one["name"]]
    return recording.write(folder)


def test_the_lines_of_a_fused_kernel(tmp_path: Path) -> None:
    trace = open_trace(str(compiled(tmp_path)), cached=False)
    log = read_compile_log(str(tmp_path / "torch_trace.log"))
    (kernel,) = list_fused_kernels(trace, log)
    assert (kernel.name, kernel.runs, kernel.total_ns) == (FUSED.name, 1, 5_000)
    assert [line.line for line in kernel.lines] == [10, 11]
    assert list_fused_kernels(trace, None) == ()


def test_the_diff_names_the_lines_and_shows_their_code(
    fusetui: Run, tmp_path: Path
) -> None:
    answer = fusetui("diff", eager(tmp_path / "a"), compiled(tmp_path / "b"))
    assert answer.code == 0
    words = " ".join(answer.out.split())
    assert (
        "me/model.py:10, and me/model.py:11, compiled to one kernel "
        "(triton_poi_fused_gelu_mul_0): 1 run, 5 us." in words.replace("f, ", "")
    )
    assert "10: h = gelu(x)" in answer.out


def test_the_diff_as_json(fusetui: Run, tmp_path: Path) -> None:
    a, b = eager(tmp_path / "a"), compiled(tmp_path / "b")
    (kernel,) = fusetui("diff", a, b, "--json").json["fused"]
    assert kernel["name"] == FUSED.name
    assert "fused" not in fusetui("diff", b, a, "--json").json
