"""Scripts run: they make the recorded call again, and notice what differs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.recorded_ops import Input, kernel, number, op, tensor
from tests.running_scripts import run_script

from fusetui.analysis.reproduce.select import calls_of_module, calls_of_op
from fusetui.report.reproduce.script import ScriptSource, script, script_of
from fusetui.trace import Trace, open_trace

torch = pytest.importorskip("torch")
functional = torch.nn.functional
pytestmark = pytest.mark.torch

TraceOf = Callable[..., Trace]


def recorded(program: Callable[[], Any], folder: Path) -> Trace:
    """A trace of a program on the CPU."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        program()
    path = folder / "recorded.json"
    profile.export_chrome_trace(str(path))
    return open_trace(str(path))


class Ran:
    """What a script printed, and how it ended."""

    def __init__(self, text: str, folder: Path, *options: str) -> None:
        path = folder / "script.py"
        path.write_text(text)
        self.code, self.out, self.err = run_script(path, *options)

    @property
    def results(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def ran(trace: Trace, name: str, folder: Path, *options: str) -> Ran:
    text = script_of(calls_of_op(trace, name)[0], "trace.json")
    return Ran(text, folder, "--json", "--check-only", *options)


def transposed_product() -> None:
    torch.randn(64, 32) @ torch.randn(48, 32).t()


def embedding_of_a_bag() -> None:
    starts = torch.arange(0, 12, 3)
    functional.embedding_bag(torch.arange(12), torch.randn(20, 8), starts)


def rows_and_columns() -> None:
    torch.randn(9, 4, 5)[:, torch.tensor([0, 3])]


def expanded_sum() -> None:
    torch.randn(1, 5).expand(7, 5).sum(0)


def number_of_python() -> None:
    torch.arange(10) * 2.5


def quantized_transposed() -> None:
    numbers = torch.randn(4, 5)
    torch.quantize_per_tensor(numbers, 0.1, 3, torch.quint8).t().int_repr()


def long_foreach() -> None:
    tensors = [torch.ones(size, 2) for size in range(1, 41)]
    torch._foreach_addcdiv_(tensors, tensors, tensors, 0.5)


def long_stack() -> None:
    torch.stack([torch.ones(3, 4)] * 40, 1)


PROGRAMS = {
    "int_repr": quantized_transposed,
    "_foreach_addcdiv_": long_foreach,
    "stack": long_stack,
    "cat": long_stack,
    "mm": transposed_product,
    "embedding_bag": embedding_of_a_bag,
    "index": rows_and_columns,
    "sum": expanded_sum,
    "mul": number_of_python,
}


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_op_runs_with_the_same_inputs(name: str, tmp_path: Path) -> None:
    run = ran(recorded(PROGRAMS[name], tmp_path), name, tmp_path)
    (result,) = run.results
    assert (run.code, result["same_op"], result["missing_inner"]) == (0, True, [])


def test_a_backward_node_runs(tmp_path: Path) -> None:
    def program() -> None:
        weight = torch.randn(8, 4, requires_grad=True)
        functional.linear(torch.randn(3, 4), weight, torch.zeros(8)).sum().backward()

    run = ran(recorded(program, tmp_path), "AddmmBackward0", tmp_path)
    (result,) = run.results
    assert (run.code, result["op"]) == (0, "AddmmBackward0")


def test_an_op_is_timed_with_an_interval(tmp_path: Path) -> None:
    trace = recorded(transposed_product, tmp_path)
    text = script_of(calls_of_op(trace, "mm")[0], "trace.json")
    text = text.replace("MAX_SECONDS = 2.0", "MAX_SECONDS = 0.01")
    (result,) = Ran(text, tmp_path, "--json").results
    assert 0 < result["low_us"] <= result["us"] <= result["high_us"]
    shown = Ran(text, tmp_path).out
    assert "GFLOP/s" in shown
    assert "same op, shapes, types and strides as recorded" in shown


def test_other_inputs_are_noticed(tmp_path: Path) -> None:
    trace = recorded(transposed_product, tmp_path)
    text = script_of(calls_of_op(trace, "mm")[0], "trace.json")
    edited = text.replace(
        "floats([64, 32], torch.float32", "floats([63, 32], torch.float32"
    )
    run = Ran(edited, tmp_path, "--json", "--check-only")
    assert (run.code, run.results[0]["same_op"]) == (1, False)


def test_a_custom_op_that_is_registered_runs(tmp_path: Path) -> None:
    with torch.library._scoped_library("fusetui_test", "DEF") as library:
        library.define("twice(Tensor x, float factor) -> Tensor")
        library.impl("twice", lambda x, factor: x * factor, "CPU")

        def program() -> None:
            torch.ops.fusetui_test.twice(torch.randn(4), 0.5)

        run = ran(recorded(program, tmp_path), "fusetui_test::twice", tmp_path)
        assert run.code == 0


def test_an_op_that_is_not_registered_is_one_sentence(
    trace_of: TraceOf, tmp_path: Path
) -> None:
    run = ran(trace_of([op("vllm::nothing", tensor(2))]), "vllm::nothing", tmp_path)
    assert run.code == 2
    assert "vllm::nothing is not registered in torch" in run.err


def test_what_does_not_fit_into_memory_is_refused_with_the_figure(
    trace_of: TraceOf, tmp_path: Path
) -> None:
    trace = trace_of([op("aten::relu", tensor(1 << 20, 1 << 10))])
    run = ran(trace, "relu", tmp_path, "--memory-limit", "1")
    assert run.code == 2
    assert "needs 4.29 GB, and the limit is 1.00 GB" in run.err.replace(
        "need ", "needs "
    )


def test_the_meta_device_computes_nothing(trace_of: TraceOf, tmp_path: Path) -> None:
    trace = trace_of([op("aten::relu", tensor(1 << 20, 1 << 10))])
    run = ran(trace, "relu", tmp_path, "--device", "meta")
    assert (run.code, run.results[0]["device"]) == (0, "meta")


def test_what_is_read_back_runs_on_the_meta_device(
    trace_of: TraceOf, tmp_path: Path
) -> None:
    """The meta device has no values; the script copies from the CPU to it instead."""
    for name, given in (
        ("aten::_local_scalar_dense", (tensor(),)),
        ("aten::copy_", (tensor(4), tensor(4), number("False"))),
    ):
        copy = kernel("Memcpy DtoH (Device -> Pageable)", 2, 1, cat="gpu_memcpy")
        trace = trace_of([op(name, *given), *copy])
        run = ran(trace, name, tmp_path, "--device", "meta")
        assert (run.code, run.results[0]["same_op"]) == (0, True)


def test_types_of_2021_that_are_no_tensors_are_not_compared(
    trace_of: TraceOf, tmp_path: Path
) -> None:
    event = op("aten::add", tensor(4), tensor(4), Input([], "Int", []))
    for name in ("Concrete Inputs", "Input Strides"):
        del event["args"][name]
    run = ran(trace_of([event]), "aten::add", tmp_path)
    assert (run.code, run.results[0]["same_op"]) == (0, True)


def test_quantized_tensors_need_a_device_that_has_them(
    trace_of: TraceOf, tmp_path: Path
) -> None:
    trace = trace_of([op("aten::int_repr", tensor(4, type="c10::qint32"))])
    run = ran(trace, "int_repr", tmp_path, "--device", "meta")
    assert run.code == 2
    assert "makes no quantized tensors on meta" in run.err


def test_the_ops_of_a_module_run_in_order(tmp_path: Path) -> None:
    def program() -> None:
        with torch.profiler.record_function("head"):
            functional.linear(torch.randn(3, 4), torch.randn(8, 4)).relu()

    module = calls_of_module(recorded(program, tmp_path), "head")
    source = ScriptSource(title="head", calls=module.calls, order=module.order)
    run = Ran(script(source), tmp_path, "--check-only")
    assert run.code == 0
    assert f"{len(module.order)} calls: recorded" in run.out


@pytest.mark.slow  # three processes import torch
def test_a_collective_runs_on_processes_of_this_machine(
    trace_of: TraceOf, tmp_path: Path
) -> None:
    comms: dict[str, Any] = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
        "Group size": 2,
    }
    trace = trace_of([op("record_param_comms", tensor(1024), **comms)])
    call = calls_of_op(trace, "record_param_comms")[0]
    path = tmp_path / "collective.py"
    path.write_text(script_of(call, "trace.json"))
    process = subprocess.run(
        [sys.executable, str(path), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    lines = [line for line in process.stdout.splitlines() if line.startswith("{")]
    result = json.loads(lines[0])
    assert (result["op"], result["same_op"], result["bytes"]) == (
        "allreduce",
        True,
        4096,
    )
