"""The lessons say what the source measured, and that nobody recorded them."""

from __future__ import annotations

import gzip
from collections import Counter
from functools import cache

import msgspec
import numpy as np
import pytest
from docs.lessons.__main__ import HERE, packed, readme

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Answer
from fusetui.commands.loading import notices
from fusetui.report.diff import document
from fusetui.sample_traces import lessons
from fusetui.trace import Trace, open_trace
from fusetui.trace.layout.steps import launched_in_steps, steps_of
from fusetui.trace.model.categories import Role

GATE_UP = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
DOWN = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
LINEAR = "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8"
FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"
LIGER = "_geglu_tanh_forward_kernel"
LESSONS = lessons.names()


@cache
def lesson(name: str) -> Trace:
    return open_trace(str(lessons.path(name)), cached=False)


def of_steps(name: str) -> list[list[tuple[str, int]]]:
    """The kernels of each step in their order: name and ns."""
    trace = lesson(name)
    return [
        [
            (trace.name_of(row), int(trace.dur[row]))
            for row in np.sort(launched).tolist()
        ]
        for launched in launched_in_steps(trace)
    ]


def test_five_lessons_ship() -> None:
    assert set(LESSONS) == {
        *("linear-eager", "linear-compiled"),
        *("mlp-eager", "mlp-compiled", "mlp-liger"),
    }


@pytest.mark.parametrize("name", LESSONS)
def test_the_script_writes_the_same_file(name: str) -> None:
    shipped = lessons.path(name).read_bytes()
    assert gzip.decompress(packed(name)) == gzip.decompress(shipped)


def test_the_script_writes_the_same_page() -> None:
    assert (HERE / "README.md").read_text(encoding="utf-8") == readme()


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_is_small(name: str) -> None:
    assert lessons.path(name).stat().st_size < 20_000


def test_the_eager_mlp_has_five_kernels_a_step_as_published() -> None:
    for kernels in of_steps("mlp-eager"):
        names, times = zip(*kernels, strict=True)
        assert [names[0], names[1], names[4]] == [GATE_UP, GATE_UP, DOWN]
        assert [times[0], times[1], times[4]] == [190_000, 190_000, 170_000]
        assert "GeluCUDAKernelImpl" in names[2]
        assert "MulFunctor" in names[3]


def test_times_that_were_not_published_follow_from_the_bytes() -> None:
    """151 MB in 89.4 us; gelu moves two thirds of that, mul as much."""
    (_, gelu), (_, mul) = (of_steps("mlp-eager")[0][n] for n in (2, 3))
    assert (gelu, mul) == (59_600, 89_400)


@pytest.mark.parametrize(
    ("name", "third"),
    [("mlp-compiled", (FUSED, 89_400)), ("mlp-liger", (LIGER, 92_800))],
)
def test_a_fused_mlp_has_four_kernels_a_step(name: str, third: tuple[str, int]) -> None:
    expected = [(GATE_UP, 190_000), (GATE_UP, 190_000), third, (DOWN, 170_000)]
    assert of_steps(name) == [expected] * 3


@pytest.mark.parametrize("name", ["linear-eager", "linear-compiled"])
def test_a_linear_layer_with_a_bias_is_one_kernel(name: str) -> None:
    assert [[kernel for kernel, _ in kernels] for kernels in of_steps(name)] == [
        [LINEAR]
    ] * 3


@pytest.mark.parametrize("name", LESSONS)
def test_every_step_takes_the_same_time(name: str) -> None:
    steps = steps_of(lesson(name))
    assert steps.names == ("ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4")
    assert len(set((steps.end - steps.start).tolist())) == 1


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_opens_without_a_notice(name: str) -> None:
    trace = lesson(name)
    assert not list(notices(trace.report))
    assert not trace.report.negative_delays
    assert (trace.launch[trace.gpu_rows] >= 0).all()
    assert not any(track.subrow for track in trace.tracks)


@pytest.mark.parametrize("name", LESSONS)
def test_kernels_of_the_stream_follow_each_other(name: str) -> None:
    trace = lesson(name)
    rows = trace.rows_of(Role.KERNEL)
    assert (trace.start[rows][1:] >= trace.end[rows][:-1]).all()


def test_the_cpu_asks_for_occupancy_before_each_gemm_only() -> None:
    trace = lesson("mlp-eager")
    asked = [
        n for n in trace.rows_of(Role.CALL).tolist() if "Occupancy" in trace.name_of(n)
    ]
    assert Counter(trace.name_of(int(trace.op[row])) for row in asked) == {
        "aten::mm": 9
    }


def test_views_launch_nothing() -> None:
    trace = lesson("mlp-eager")
    launching = {trace.name_of(int(trace.op[row])) for row in trace.gpu_rows}
    assert launching == {"aten::mm", "aten::gelu", "aten::mul"}


def test_the_memory_of_a_step_is_freed() -> None:
    trace = lesson("mlp-eager")
    events = map(trace.elements.element, range(trace.report.events))
    memory = [event["args"] for event in events if event["name"] == "[memory]"]
    assert sum(args["Bytes"] for args in memory) == 0
    assert all(args["Total Allocated"] <= args["Total Reserved"] for args in memory)


def test_the_diff_says_that_gelu_and_mul_became_one() -> None:
    found = msgspec.to_builtins(
        document(diff(lesson("mlp-eager"), lesson("mlp-compiled")))
    )
    (fused,) = (row for row in found["rows"] if row["kind"] == "fused")
    assert fused["op"] == "aten::gelu + aten::mul"
    assert fused["b"] == (FUSED,)
    assert (fused["a_ns"], fused["b_ns"]) == (149_000, 89_400)


def test_the_diff_says_that_the_gemms_are_the_same() -> None:
    found = msgspec.to_builtins(
        document(diff(lesson("mlp-eager"), lesson("mlp-compiled")))
    )
    same = [
        row
        for row in found["rows"]
        if row["kind"] == "same" and row["op"] == "aten::mm"
    ]
    assert (
        [row["a"] for row in same]
        == [row["b"] for row in same]
        == [(GATE_UP,), (GATE_UP,), (DOWN,)]
    )
    assert [row["a_ns"] for row in same] == [row["b_ns"] for row in same]


@pytest.mark.parametrize("a", LESSONS)
def test_a_diff_says_that_its_sides_are_no_recordings(a: str) -> None:
    said, *_ = diff(lesson(a), lesson("mlp-compiled")).notes
    assert "Reconstructed, not recorded" in said


def test_a_diff_of_lessons_has_no_verdict() -> None:
    found = diff(lesson("mlp-eager"), lesson("mlp-compiled"))
    assert found.verdict.answer is Answer.CANNOT_TELL
    assert "at least 5 steps" in str(found.verdict.reason)
