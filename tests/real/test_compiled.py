"""The joins on real recordings, worked out once more by a script that shares no code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.analysis.compiled.test_worked_out import found_in
from tests.real.traces import TRACES, existing, real
from tests.worked_out_lines import expected_of

from fusetui.analysis.compiled.answer import report_compilation
from fusetui.analysis.compiled.finding import find_compile_log
from fusetui.analysis.compiled.graphs import Why
from fusetui.analysis.compiled.model import CompileAnswer
from fusetui.trace import open_trace
from fusetui.trace.compile_log.log import read_compile_log

RECORDED = TRACES.parent / "compile"
NAMES = ("geglu", "recompiles", "breaks")
OTHERS = [
    Path(path) for path in os.environ.get("FUSETUI_COMPILED", "").split(":") if path
]
"""Folders with trace.json.gz and log/, of recordings that somebody made."""


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_leads_to_the_lines_that_were_worked_out(name: str) -> None:
    folder = existing(RECORDED / name)
    trace = open_trace(str(folder / "trace.json.gz"), cached=False)
    log = find_compile_log(trace)
    assert log is not None, "the log lies beside the trace"
    answer = report_compilation(trace, log)
    assert answer.joined == answer.kernels > 0
    log_path = folder / "torch_trace.log.gz"
    assert found_in(answer) == expected_of(folder / "trace.json.gz", [log_path])


@pytest.mark.parametrize("folder", OTHERS, ids=lambda folder: folder.name)
def test_recordings_of_other_programs(folder: Path) -> None:
    trace = open_trace(str(folder / "trace.json.gz"), cached=False)
    answer = report_compilation(trace, read_compile_log(str(folder / "log")))
    logs = sorted((folder / "log").glob("*.log"))
    expected = expected_of(folder / "trace.json.gz", logs)
    assert found_in(answer) == expected
    assert answer.kernels == sum(count for count, _ in expected.values())


def answer_of(name: str) -> CompileAnswer:
    folder = existing(RECORDED / name)
    trace = open_trace(str(folder / "trace.json.gz"), cached=False)
    return report_compilation(trace, find_compile_log(trace))


def test_the_compilations_of_changing_batches_have_their_guards() -> None:
    answer = answer_of("recompiles")
    assert [len(one.guards) for one in answer.compilations] == [0, 1, 2, 3]
    assert all(one.in_recording for one in answer.compilations)
    newest = [one.guards[0].text for one in answer.compilations[1:]]
    assert [text.rpartition(" ")[2] for text in newest] == ["5", "6", "7"]
    assert [remedy.kind for remedy in answer.remedies] == ["mark_dynamic"]


def test_both_breaks_are_reported_with_the_reason_of_the_log() -> None:
    answer = answer_of("breaks")
    assert [(one.line, one.reason, one.passed) for one in answer.breaks] == [
        (23, "Failed to trace builtin operator", 4),
        (
            25,
            "Unsupported Tensor.item() call with capture_scalar_outputs=False",
            4,
        ),
    ]


@pytest.mark.parametrize("name", ["geglu", "recompiles"])
def test_programs_without_breaks_are_silent(name: str) -> None:
    assert answer_of(name).breaks == ()


@pytest.mark.parametrize(
    "name", ["b200_vllm_eager", "mi300_torch_compile_triton", "triton_2024"]
)
def test_real_gpu_traces_name_their_generated_kernels(name: str) -> None:
    trace = open_trace(str(real(name)), cached=False)
    answer = report_compilation(trace, None)
    kernels = [kernel for region in answer.regions for kernel in region.kernels]
    assert any(kernel.name.startswith("triton_") for kernel in kernels)
    assert all(kernel.on_gpu for kernel in kernels)
    assert [one.why for one in answer.not_joined] == [Why.NO_LOG]
