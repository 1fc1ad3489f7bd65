"""`modules` and `lines`: their JSON, and the text that users read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
File = Callable[..., Path]
Make = Callable[..., Any]

MODULE_KEYS = """
    module path kind level count cpu_ns cpu_self_ns
    gpu_ns gpu_self_ns gpu_backward_ns gpu_recompute_ns kernels kernels_self
"""
FUNCTION_KEYS = """
    file line function count cpu_ns cpu_self_ns
    gpu_ns gpu_self_ns gpu_backward_ns gpu_recompute_ns kernels kernels_self idle_ns idle_self_ns
"""


@pytest.fixture
def program_file(tmp_path: Path, launched: Make) -> Path:
    """A call of two layers of a model by a program, with a kernel in each."""
    python = {"ph": "X", "cat": "python_function", "pid": 1, "tid": 1}
    frames = [
        {**python, "name": "train.py(9): main", "ts": 0, "dur": 100},
        {**python, "name": "nn.Module: Net_0", "ts": 1, "dur": 98},
        {**python, "name": "my_model.py(42): forward", "ts": 2, "dur": 96},
        {**python, "name": "nn.Module: Linear_0", "ts": 10, "dur": 20},
        {**python, "name": "nn.Module: Linear_1", "ts": 50, "dur": 20},
    ]
    work = [*launched(1, 15, 20, dur=30), *launched(2, 55, 60, dur=40)]
    path = tmp_path / "program.json"
    path.write_text(json.dumps({"traceEvents": [*frames, *work]}))
    return path


def test_modules_json_has_its_documented_keys(fusetui: Run, program_file: Path) -> None:
    found = fusetui("modules", program_file, "--json").json
    assert found.keys() == {"modules", "none", "gpu_ns", "phases"}
    net, linear = found["modules"]
    assert net.keys() == linear.keys() == set(MODULE_KEYS.split())
    assert (linear["path"], linear["count"], linear["gpu_ns"]) == (
        "Net_* > Linear_*",
        2,
        70_000,
    )
    assert found["phases"] == [{"phase": "forward", "gpu_ns": 70_000, "kernels": 2}]


def test_modules_text_lists_modules_and_phases(
    fusetui: Run, program_file: Path
) -> None:
    text = fusetui("modules", program_file).out
    assert "70 us  100 %  70 us        2  40 us      2    Linear_*" in text
    assert "GPU time by phase: forward 70 us (100 %)" in text
    assert "Linear_1" in fusetui("modules", program_file, "--expand").out
    assert "1 more path" in fusetui("modules", program_file, "--top", 1).out


@pytest.mark.parametrize(
    ("names", "said"),
    [(["f.py(1): f"], "record_function"), ([], "with_stack=True records them")],
)
def test_stacks_without_modules_are_not_asked_for_again(
    fusetui: Run, event: Make, tmp_path: Path, names: list[str], said: str
) -> None:
    part = event("part", 0, 10, cat="user_annotation")
    frames = [event(name, 0, 10, cat="python_function") for name in names]
    path = tmp_path / "parts.json"
    path.write_text(json.dumps({"traceEvents": [part, *frames]}))
    assert said in fusetui("modules", path).out


def test_lines_json_has_its_documented_keys(fusetui: Run, program_file: Path) -> None:
    found = fusetui("lines", program_file, "--json").json
    assert found.keys() == {"functions", "none", "gpu_ns"}
    forward, main = found["functions"]
    assert forward.keys() == main.keys() == set(FUNCTION_KEYS.split())
    assert (forward["file"], forward["line"], forward["gpu_self_ns"]) == (
        "my_model.py",
        42,
        70_000,
    )
    assert (main["gpu_self_ns"], main["gpu_ns"], main["idle_ns"]) == (0, 70_000, 5_000)


def test_lines_text_lists_functions_with_their_lines(
    fusetui: Run, program_file: Path
) -> None:
    text = fusetui("lines", program_file).out
    assert "forward  my_model.py:42" in text
    assert "backward" not in text  # nothing went backward
    assert "my_model" not in fusetui("lines", program_file, "--file", "train.py").out
    none = fusetui("lines", program_file, "--file", "elsewhere.py")
    assert none.sentence == "This trace has no Python frames in elsewhere.py."


def test_lines_have_a_column_of_idle_time_if_a_gpu_waited_for_the_functions(
    fusetui: Run, program_file: Path, tmp_path: Path
) -> None:
    def columns(path: Path) -> set[str]:
        table_head = fusetui("lines", path).out.partition("function")[0]
        return set(table_head.split())

    document = json.loads(program_file.read_text())
    cpu_events = [event for event in document["traceEvents"] if "cat" in event]
    on_cpu = [event for event in cpu_events if event["cat"] == "python_function"]
    without_gpu = tmp_path / "without_gpu.json"
    without_gpu.write_text(json.dumps({"traceEvents": on_cpu}))
    assert "idle" in columns(program_file)
    assert "idle" not in columns(without_gpu)


def test_lines_of_a_compiled_lesson_include_those_of_its_kernels(fusetui: Run) -> None:
    compiled = fusetui("lines", "lesson:mlp-compiled", "--json").json["compiled"]
    assert compiled["lines"]
    assert "compiled" not in fusetui("lines", "lesson:mlp-eager", "--json").json


@pytest.mark.parametrize("command", ["modules", "lines"])
def test_a_trace_without_stacks_says_how_to_record_them(
    fusetui: Run, trace_file: File, command: str
) -> None:
    found = fusetui(command, trace_file())
    assert (found.code, found.err) == (0, "")
    assert "with_stack=True" in found.out
    assert "12 kernels" in found.out
