"""Steps, their times and outliers, layers, and the time between passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.analysis.servers import (
    EMBEDDING,
    GEMM,
    Server,
    call,
    cpu,
    gpu,
    opened,
    python,
)

from fusetui.analysis.serving.answer import serving
from fusetui.analysis.serving.layers import Repetition, find_repetition

SERVER = Server()
Event = dict[str, Any]


def eager(
    at: float, number: int, name: str, kernels: int = 3, ns: int = 1000
) -> list[Event]:
    """A step whose kernels are launched one by one."""
    found = [cpu(name, at, 60, "user_annotation")]
    for n in range(kernels):
        work = SERVER._called(
            SERVER.launches(4)[0], at + 2 + 10 * n, "hip", number + n, ran=True
        )
        work[-1]["dur"] = ns / 1000
        found += [event for event in work if event["cat"] != "python_function"]
    return found


def test_graph_step_has_phase_batch_tokens_and_times(tmp_path: Path) -> None:
    (step,) = serving(opened(tmp_path / "a.json", SERVER.step(4, 100, 1))).steps
    assert (step.phase, step.batch, step.new_tokens, step.mode) == (
        "decode",
        4,
        4,
        "graph",
    )
    assert (step.start_ns, step.dur_ns, step.replays, step.events) == (0, 60_000, 1, 13)
    busy = sum(launch.ns for launch in SERVER.launches(4))
    assert (step.busy_ns, step.model_ns) == (busy, busy + 12 * 500)


def test_the_model_of_an_eager_step_begins_when_its_inputs_are_there(
    tmp_path: Path,
) -> None:
    """Copies of 1 us end at 120 and 150 us; a copy after the first product is the
    model's own."""
    name = "execute_context_1(8)_generation_0(0)"
    step = [cpu(name, 100, 400, "user_annotation")]
    copy = "Memcpy HtoD (Pinned -> Device)"
    ran = [
        (copy, 119),
        (copy, 149),
        (EMBEDDING, 170),
        (GEMM, 200),
        (copy, 249),
        (GEMM, 300),
    ]
    for number, (what, at) in enumerate(ran, start=1):
        cat = "gpu_memcpy" if what.startswith("Mem") else "kernel"
        step += [
            call("hipLaunchKernel", at - 10, 2, number),
            gpu(what, at, 1, number, cat),
        ]
    found = serving(opened(tmp_path / "a.json", step))
    assert (found.steps[0].gpu_ns, found.steps[0].model_ns) == (182_000, 131_000)
    assert found.between is not None
    assert (found.between.before_ns, found.between.after_ns) == (51_000, 0)
    (gap,) = [one for one in found.limits[0].limit.losses if one.of == "gap"]
    assert gap.dur_ns == 131_000 - 4 * 1000


def test_phase_times_have_p50_p90_and_p99(tmp_path: Path) -> None:
    steps = [
        eager(1000 * n, 10 * n, f"step[DECODE bs={n}]", 1, 1000 * n)
        for n in range(1, 12)
    ]
    (times,) = serving(opened(tmp_path / "a.json", *steps)).phases
    assert (times.steps, times.p50_ns, times.p90_ns, times.p99_ns) == (
        11,
        6000,
        10000,
        10900,
    )


def usual(count: int = 5) -> list[list[Event]]:
    return [SERVER.step(4, 1000 * n, 100 * n) for n in range(1, count + 1)]


def test_eager_step_among_graph_steps_is_an_outlier_with_its_reason(
    tmp_path: Path,
) -> None:
    odd = eager(9000, 900, "step[DECODE bs=4]", ns=90_000)
    steps = serving(opened(tmp_path / "a.json", *usual(), odd)).steps
    assert [step.outlier for step in steps] == [False] * 5 + [True]
    assert steps[-1].because[0] == (
        "it runs eagerly, but the other steps replay graphs"
    )


def test_a_step_that_compiles(tmp_path: Path) -> None:
    odd = SERVER.step(4, 9000, 900)
    odd[-1]["dur"] = 400
    compiles = python("triton/compiler/compiler.py(226): compile", 9001, 8)
    steps = serving(opened(tmp_path / "a.json", *usual(), odd, [compiles])).steps
    assert steps[-1].because[0] == "torch.compile or Triton compiles during the step"


def test_a_step_that_allocates(tmp_path: Path) -> None:
    odd = eager(9000, 900, "step[DECODE bs=4]", 2)
    odd[0]["dur"] = 400
    odd += [call("hipMalloc", 9015, 200)]
    late = eager(9230, 950, "x", 1)[1:]
    steps = [eager(1000 * n, 100 * n, "step[DECODE bs=4]") for n in range(1, 6)]
    found = serving(opened(tmp_path / "a.json", *steps, odd, late)).steps[-1]
    assert found.outlier
    assert found.because[0] == (
        "the GPU is idle 182 us longer while the launching thread allocated "
        "or freed memory"
    )


def test_a_step_with_a_kernel_that_takes_longer(tmp_path: Path) -> None:
    odd = SERVER.step(4, 9000, 900)
    odd[-1]["dur"] = 400
    steps = serving(opened(tmp_path / "a.json", *usual(), odd)).steps
    assert steps[-1].because == (
        (
            "kernels run 399.5 us longer, mostly direct_copy unrolled (3 "
            "launches, as in the median step)"
        ),
    )


def test_step_with_more_tokens_is_an_outlier_with_its_reason(tmp_path: Path) -> None:
    steps = [
        eager(1000 * n, 10 * n, "step[EXTEND bs=1 toks=100]", 2, 9000)
        for n in range(1, 6)
    ]
    odd = eager(9000, 900, "step[EXTEND bs=1 toks=4000]", 5, 9000)
    found = serving(opened(tmp_path / "a.json", *steps, odd)).steps[-1]
    assert found.because[0] == "4,000 new tokens (median step: 100)"
    assert "kernels run 27 us longer, mostly" in found.because[1]
    assert "(5 launches, instead of 2)" in found.because[1]


def test_a_step_that_waits_for_what_was_not_recorded(tmp_path: Path) -> None:
    """The launch of its last kernel, 500 us later, lies in nothing that the thread
    did."""
    steps = [eager(2000 * n, 10 * n, "step[DECODE bs=4]", 2) for n in range(1, 6)]
    odd = eager(18_000, 900, "step[DECODE bs=4]", 3)
    for event in odd[-3:]:
        event["ts"] += 500
    odd[0]["dur"] = 700
    found = serving(opened(tmp_path / "a.json", *steps, odd)).steps[-1]
    assert found.because == (
        (
            "the GPU is idle 490 us longer while the launching thread was inside "
            "an annotation"
        ),
    )


def test_a_prefill_that_was_still_running(tmp_path: Path) -> None:
    """The decode after it waits for its kernel of 300 us, launched 10 us before."""
    steps = [SERVER.step(4, 1000 * n, n) for n in range(1, 5)]
    late = [event for event in SERVER.step(4, 9000, 9)]
    for event in late:
        event["ts"] += 290 if event["cat"] == "kernel" and event["ts"] > 9021 else 0
    prefill = [
        cpu("step[EXTEND bs=1 toks=900]", 8980, 15, "user_annotation"),
        call("hipLaunchKernel", 8985, 2, 8),
        gpu("a_prefill", 8990, 300, 8),
    ]
    found = serving(opened(tmp_path / "a.json", *steps, prefill, late)).steps
    assert [one.because for one in found if one.outlier] == [
        (
            "the previous prefill was still running",
            "kernels of other steps run 269 us longer in between",
        )
    ]


def test_draft_and_verify_steps_are_phases_of_their_own(tmp_path: Path) -> None:
    """Phases of their own: SGLang names them, vLLM gives several new tokens to each
    request."""
    names = ["step[DRAFT_EXTEND bs=4]", "step[TARGET_VERIFY bs=4]"]
    steps = [SERVER.step(4, 1000 * n, n, names[n % 2]) for n in range(1, 7)]
    vllm = SERVER.step(4, 8000, 8, "execute_context_0(0)_generation_4(16)")
    found = serving(opened(tmp_path / "a.json", *steps, vllm))
    assert [(one.phase, one.steps) for one in found.phases] == [
        ("verify", 4),
        ("draft", 3),
    ]
    assert {one.phase for one in found.limits} == {"verify", "draft"}
    assert found.steps[-1].new_tokens == 16


def test_too_few_steps_have_no_outliers(tmp_path: Path) -> None:
    odd = SERVER.step(4, 9000, 900)
    odd[-1]["dur"] = 400
    steps = serving(opened(tmp_path / "a.json", *usual(2), odd)).steps
    assert not any(step.outlier for step in steps)


def test_slow_attention_of_a_layer_is_named(tmp_path: Path) -> None:
    server = Server(layers=8)
    replay = server.step(4, 0, 1)
    nodes = [event for event in replay if event["cat"] == "kernel"]
    nodes[1 + 4 * 4 + 2]["dur"] += 5  # the attention of the fifth layer
    layers = serving(opened(tmp_path / "a.json", replay)).limits[0].layers
    assert layers is not None
    assert (layers.count, layers.kernels, layers.others) == (8, 4, 1)
    assert (layers.median_ns, layers.others_ns) == (16_500, 1000)
    assert [(one.number, one.dur_ns) for one in layers.slow] == [(5, 21_500)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([0, 1, 2, 1, 2, 1, 2, 3], Repetition(first=1, period=2, count=3)),
        ([1, 1, 2, 1, 1, 2, 1, 1, 2], Repetition(first=0, period=3, count=3)),
        ([1, 1, 1, 1], Repetition(first=0, period=1, count=4)),
        ([1, 2, 3, 4], None),
        ([1, 2, 1, 2, 3, 4, 5, 6], None),
        ([], None),
    ],
)
def test_repetition_of_names_has_first_period_and_count(
    names: list[int], expected: Repetition | None
) -> None:
    assert find_repetition(np.array(names, dtype=np.int64)) == expected


def test_the_bubble_adds_up(tmp_path: Path) -> None:
    found = serving(opened(tmp_path / "a.json", *usual(3)))
    between = found.between
    assert between is not None
    model_ns = 1000 + 3 * 16_500 + 12 * 500
    assert (between.count, between.total_ns) == (2, 2 * (1_000_000 - model_ns))
    parts = (
        between.compute_ns
        + between.communication_ns
        + between.copy_ns
        + between.idle_ns
    )
    assert parts == between.total_ns
    assert sum(between.idle.values()) == between.idle_ns


def test_time_between_passes_names_what_the_cpu_did(tmp_path: Path) -> None:
    frames = [
        python("scheduler.py(99): get_next_batch_to_run", 1100, 800),
        python("sampler.py(7): sample", 2100, 850),
    ]
    between = serving(opened(tmp_path / "a.json", *usual(3), frames)).between
    assert between is not None
    assert [(one.what, one.kind) for one in between.doing] == [
        ("sampler.py(7): sample", "sampling"),
        ("scheduler.py(99): get_next_batch_to_run", "scheduler"),
    ]
    host = sum(ns for reason, ns in between.idle.items() if reason.startswith("host_"))
    assert sum(one.dur_ns for one in between.doing) == host


def test_a_trace_of_one_pass_has_no_time_between_passes(tmp_path: Path) -> None:
    found = serving(opened(tmp_path / "a.json", SERVER.step(4, 0, 1)))
    assert found.between is None
    assert found.missing == (
        (
            "The time between model passes is unknown, because the trace has only "
            "one pass."
        ),
    )


def test_work_around_a_single_pass_is_reported(tmp_path: Path) -> None:
    """A copy of 5 us before it that ends 5 us before, a kernel of 7 us right after
    it."""
    step = SERVER.step(4, 100, 1)
    end = max(event["ts"] + event["dur"] for event in step if event["cat"] == "kernel")
    around = [
        *(
            call("hipMemcpyAsync", 102, 2, 8),
            gpu("Memcpy HtoD", 110, 5, 8, "gpu_memcpy"),
        ),
        *(call("hipLaunchKernel", 152, 2, 9), gpu("sample", end, 7, 9)),
    ]
    found = serving(opened(tmp_path / "a.json", step, around)).between
    assert found is not None
    assert (found.count, found.median_ns) == (0, None)
    assert (found.before_ns, found.after_ns) == (10_000, 7_000)
    assert (found.compute_ns, found.copy_ns, found.idle_ns) == (7_000, 5_000, 5_000)


def test_trace_of_no_server_has_no_steps_and_says_why(tmp_path: Path) -> None:
    found = serving(opened(tmp_path / "a.json", SERVER.capture(4)))
    assert (found.steps, found.limits) == ((), ())
    assert found.missing[0].startswith(
        "The trace has no server steps. No annotation is named"
    )


def test_replays_without_annotations_are_passes(tmp_path: Path) -> None:
    events = [
        event for event in SERVER.step(4, 0, 1) if event["cat"] != "user_annotation"
    ]
    (step,) = serving(opened(tmp_path / "a.json", events)).steps
    assert (step.name, step.phase, step.batch, step.replays) == (
        "hipGraphLaunch",
        "unknown",
        None,
        1,
    )


def test_replays_of_training_are_no_passes(tmp_path: Path) -> None:
    """Forward and backward are two graphs, and neither is a step of a server."""
    events = [
        event for event in SERVER.step(4, 0, 1) if event["cat"] != "user_annotation"
    ]
    step = {
        "ph": "X",
        "cat": "user_annotation",
        "name": "Optimizer.step#Adam.step",
        "pid": 1,
    }
    found = serving(
        opened(tmp_path / "a.json", [*events, step | {"tid": 1, "ts": 90, "dur": 5}])
    )
    assert found.steps == ()
    assert found.missing[0].endswith("the replayed graphs belong to training.")
