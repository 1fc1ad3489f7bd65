"""One key opens the source of a compiled kernel: lines, graph, generated code."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compile_logs import Kernel, Line, Log, Recording
from tests.tui.driving import opened, screen, settled
from textual.pilot import Pilot

from fusetui import sample_traces
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.drawing.source import highlight_code
from fusetui.tui.state.source import NOT_COMPILED

GELU = Line(10, "h = gelu(x)")
MUL = Line(11, "return h * y")
FUSED = Kernel("triton_poi_fused_gelu_mul_0", (GELU, MUL), ("gelu", "mul"), "/tmp/k.py")
MM = Kernel("extern_kernels.mm", (MUL,), ("mm",))


def written(folder: Path) -> str:
    """A trace of a GPU with its log beside it."""
    log = Log().graph("key", [MM, FUSED]).metrics()
    log.write(folder / "compile_log")
    recording = Recording()
    for _ in range(6):
        recording.call("key", ["aten::mm", FUSED.name], on_gpu=True)
    return str(recording.write(folder))


async def pressed(app: FusetuiApp, pilot: Pilot[int], *keys: str) -> str:
    for key in keys:
        await pilot.press(key)
        await settled(app, pilot)
    return screen(app)


@pytest.mark.parametrize(
    "keys", [("slash", "m", "m", "enter", "V"), ("3", "V"), ("2", "E", "j", "V")]
)
async def test_the_key_opens_the_lines_on_every_page(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    async with opened([written(tmp_path)]) as (app, pilot):
        text = await pressed(app, pilot, *keys)
    assert "source of" in text
    assert "compiled region 0/0" in text
    assert "me/model.py:11 in forward" in text
    assert "return h * y" in text


async def test_the_key_again_goes_on_to_the_generated_code(tmp_path: Path) -> None:
    async with opened([written(tmp_path)]) as (app, pilot):
        await pressed(app, pilot, "3", "j", "V")
        if "triton" not in screen(app):
            await pressed(app, pilot, "escape", "k", "V")
        assert "Lines of Python" in screen(app)
        assert "Nodes of the graph" in await pressed(app, pilot, "V", "V")
        assert "Generated code (Triton)" in await pressed(app, pilot, "V")
        text = await pressed(app, pilot, "V")
        assert "Call in the wrapper" in text
        assert "triton_poi_fused_gelu_mul_0.run(arg0_1, 4, stream=stream0)" in text
        assert "The whole wrapper" in await pressed(app, pilot, "V")
        assert "source of" not in await pressed(app, pilot, "escape")


async def test_the_diff_opens_the_source_too(tmp_path: Path) -> None:
    a = written(tmp_path / "a")
    b = written(tmp_path / "b")
    async with opened([a, b]) as (app, pilot):
        assert "source of" in await pressed(app, pilot, "4", "V")


async def test_other_slices_have_no_source(tmp_path: Path) -> None:
    path = str(sample_traces.path("mlp-eager"))
    async with opened([path]) as (app, pilot):
        assert NOT_COMPILED[:40] in await pressed(app, pilot, "3", "V")


async def test_without_a_log_it_says_why_there_are_no_lines(tmp_path: Path) -> None:
    path = Recording().call("key", ["graph_0_cpp_fused_0"]).write(tmp_path)
    async with opened([str(path)]) as (app, pilot):
        text = await pressed(app, pilot, "3", "V")
    assert "Its lines are unknown: no log." in text


async def test_a_named_log_is_used(tmp_path: Path) -> None:
    log = Log().graph("key", [Kernel("cpp_fused_0", (GELU,))]).write(tmp_path / "else")
    path = Recording().call("key", ["graph_0_cpp_fused_0"]).write(tmp_path)
    app = FusetuiApp(AppOptions((str(path),), compile_log=str(log)))
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(2):
            await settled(app, pilot)
        assert "h = gelu(x)" in await pressed(app, pilot, "3", "V")


async def test_stacks_in_args_need_no_log(tmp_path: Path) -> None:
    recording = Recording()
    recording.slice("aten::mm", "cpu_op", 0, 100, stack=[GELU.stack(), 3])
    async with opened([str(recording.write(tmp_path))]) as (app, pilot):
        assert "h = gelu(x)" in await pressed(app, pilot, "3", "V")


async def test_texts_of_a_log_are_escaped(tmp_path: Path) -> None:
    hostile = Line(3, "x = '\x1b[31m'", "f\x1b[0m", "/home/\x1b]0;/m.py")
    Log().graph("key", [Kernel("cpp_fused_0", (hostile,))]).write(tmp_path)
    path = Recording().call("key", ["graph_0_cpp_fused_0"]).write(tmp_path)
    async with opened([str(path)]) as (app, pilot):
        text = await pressed(app, pilot, "3", "V")
    assert "source of" in text
    assert "\x1b" not in text


def test_code_has_the_colors_of_its_parts() -> None:
    parts = highlight_code("    if x: return 'a'  # why", "python")
    assert "".join(text for text, _ in parts) == "    if x: return 'a'  # why"
    tokens = {text: token for text, token in parts}
    assert tokens["if"] == "code.keyword"
    assert tokens["# why"] == "faint"
    parts = highlight_code("auto tmp0 = static_cast<float>(0.5);", "cpp")
    assert "".join(text for text, _ in parts).startswith("auto tmp0")
    assert "code.number" in {token for _, token in parts}


async def test_a_break_stands_on_its_lane_with_its_reason(tmp_path: Path) -> None:
    log = Log().broke(Line(23, "print(x)", "f"), "print is not supported")
    kernels = [Kernel("cpp_fused_sin_0", (GELU,))]
    log.graph("one", kernels).metrics(function="f", line=21)
    name = "torch_dynamo_resume_in_f_at_23"
    log.graph("two", kernels, region="1/0").metrics(region="1/0", function=name)
    log.write(tmp_path)
    op = "graph_0_cpp_fused_sin_0"
    recording = Recording().call("one", [op], nested_us=100)
    path = recording.call("two", [op], region="1/0").write(tmp_path)
    async with opened([str(path)], (200, 40)) as (app, pilot):
        assert "graph break me/model.py:23" in screen(app)
        keys = ("slash", *("R", "e", "g", "i", "o", "n", "space", "1"), "enter")
        text = await pressed(app, pilot, *keys)
    assert "print is not supported" in text
    assert "between the two regions" in text


async def test_a_compilation_stands_on_its_lane_with_the_guard(tmp_path: Path) -> None:
    recording = Recording().call("one", ["aten::mm"])
    data = "entire_frame_compile_data: fn_name=_compile.compile_inner, compile_id=0/1"
    recording.slice(data, "user_annotation", 2_000, 2_010)
    recording.slice("_compile.compile_inner (dynamo_timed)", "cpu_op", 2_020, 1_002_000)
    guard = "tensor 'x' size mismatch at index 0. expected 4, actual 5"
    log = Log().metrics(region="0/1", start_s=0.002, seconds=1)
    log.recompiled(f"0/0: {guard}", region="0/1").write(tmp_path)
    path = recording.write(tmp_path)
    async with opened([str(path)], (200, 40)) as (app, _):
        assert "compiles 0/1, 0/0: tensor 'x' size mismatch at index 0" in screen(app)
