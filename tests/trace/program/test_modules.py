"""What modules cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.corpus.files import WITH_MODULES
from tests.corpus.fixtures import any_of
from tests.trace.program.slowly import Slowly, calls_by_path, gpu_by_path

from fusetui.trace import Trace, open_trace
from fusetui.trace.program.modules import MAX_LEVELS, Modules, module_times
from fusetui.trace.program.origin import Nowhere, module_of, origins

Make = Callable[..., Any]
any_trace = any_of(*WITH_MODULES)


def times_of(trace: Trace, **how: bool) -> Modules:
    return module_times(origins(trace), **how)


def frame(make: Make, name: str, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = make(
        f"nn.Module: {name}", ts, dur, cat="python_function", **more
    )
    return found


def two_layers(event: Make, launched: Make) -> list[dict[str, Any]]:
    return [
        frame(event, "Model_0", 0, 100),
        frame(event, "Layer_0", 10, 30),
        frame(event, "Linear_0", 12, 10),
        *launched(1, 15, 200, dur=7),
        *launched(2, 30, 210, dur=5),
        frame(event, "Layer_1", 50, 30),
        frame(event, "Linear_1", 52, 10),
        *launched(3, 55, 220, dur=11),
        *launched(4, 150, 240, dur=2),
    ]


def test_indices_are_starred(trace_of: Make, event: Make, launched: Make) -> None:
    found = times_of(trace_of(two_layers(event, launched)))
    rows = [
        (m.path, m.count, m.gpu_ns, m.gpu_self_ns, m.kernels) for m in found.modules
    ]
    assert rows == [
        ("Model_*", 1, 23_000, 0, 3),
        ("Model_* > Layer_*", 2, 23_000, 5_000, 3),
        ("Model_* > Layer_* > Linear_*", 2, 18_000, 18_000, 2),
    ]
    assert [(m.cpu_ns, m.cpu_self_ns) for m in found.modules] == [
        (100_000, 40_000),
        (60_000, 40_000),
        (20_000, 20_000),
    ]
    assert [(one.why, one.gpu_ns, one.kernels) for one in found.none] == [
        (Nowhere.OUTSIDE, 2_000, 1)
    ]
    assert found.gpu_ns == 25_000


def test_indices_kept_apart(trace_of: Make, event: Make, launched: Make) -> None:
    found = times_of(trace_of(two_layers(event, launched)), expanded=True)
    assert [(m.module, m.level, m.gpu_ns) for m in found.modules] == [
        ("Model_0", 0, 23_000),
        ("Layer_0", 1, 12_000),
        ("Linear_0", 2, 7_000),
        ("Layer_1", 1, 11_000),
        ("Linear_1", 2, 11_000),
    ]


def test_annotations_and_modules_are_one_tree(
    trace_of: Make, event: Make, launched: Make
) -> None:
    note = {"cat": "user_annotation"}
    events = [
        event("ProfilerStep#3", 0, 100, **note),
        event("## forward ##", 5, 50, **note),
        frame(event, "MLP_0", 5, 50),  # equal times: the annotation is the outer one
        event("block 2", 10, 20, **note),
        event("nccl:all_reduce", 11, 500, **note),
        *launched(1, 15, 200),
    ]
    (forward, mlp, block) = times_of(trace_of(events)).modules
    assert block.path == "## forward ## > MLP_* > block *"
    assert [m.kind for m in (forward, mlp, block)] == [
        "annotation",
        "module",
        "annotation",
    ]
    assert {m.gpu_ns for m in (forward, mlp, block)} == {10_000}


def test_annotation_that_crosses_a_frame_is_cut_at_it(
    trace_of: Make, event: Make, launched: Make
) -> None:
    events = [
        frame(event, "A_0", 0, 20),
        event("crossing", 10, 30, cat="user_annotation"),
        *launched(1, 15, 200),
        *launched(2, 30, 220),
    ]
    found = {m.path: (m.gpu_ns, m.level) for m in times_of(trace_of(events)).modules}
    assert found == {"A_*": (0, 0), "crossing": (20_000, 0)}


def test_a_recomputed_convolution_belongs_to_its_own_module(
    trace_of: Make, event: Make, launched: Make
) -> None:
    """The backward op of a ReLU runs the convolution before it once more, then its own
    kernel."""
    numbers = {"args": {"Sequence number": 3, "Fwd thread id": 0}}
    back = {"args": {"Sequence number": 3, "Fwd thread id": 1}, "tid": 2}
    again, conv = launched(1, 65, 200, dur=7)
    own, relu = launched(2, 80, 220, dur=5)
    events = [
        frame(event, "ReLU_0", 0, 20),
        event("aten::relu", 5, 10, **numbers),
        event("ReluBackward0", 50, 40, **back),
        frame(event, "Conv2d_0", 60, 10, tid=2),
        event("aten::conv2d", 62, 6, tid=2),
        *({**call, "tid": 2} for call in (again, own)),
        conv,
        relu,
    ]
    rows = [
        (m.path, m.gpu_ns, m.gpu_backward_ns, m.gpu_recompute_ns, m.kernels)
        for m in times_of(trace_of(events)).modules
    ]
    assert rows == [("Conv2d_*", 7_000, 0, 7_000, 1), ("ReLU_*", 5_000, 5_000, 0, 1)]


def test_module_that_calls_backward_itself_recomputes_nothing(
    trace_of: Make, event: Make, launched: Make
) -> None:
    """It calls loss.backward() itself."""
    events = [
        frame(event, "Trainer_0", 0, 90),
        event("ReluBackward0", 50, 30, args={"Sequence number": 3, "Fwd thread id": 1}),
        *launched(1, 60, 200, dur=7),
    ]
    (trainer,) = times_of(trace_of(events)).modules
    assert (trainer.gpu_backward_ns, trainer.gpu_recompute_ns) == (7_000, 0)


def backward(make: Make, launched: Make) -> list[dict[str, Any]]:
    def op(name: str, ts: int, number: int, thread: int) -> dict[str, Any]:
        args = {"Sequence number": number, "Fwd thread id": int(thread == 2)}
        found: dict[str, Any] = make(name, ts, 10, args=args, tid=thread)
        return found

    call, kernel = launched(1, 62, 200, dur=7)
    lost, nothing = launched(2, 82, 220, dur=5)
    return [
        frame(make, "Linear_0", 0, 20),
        op("aten::addmm", 5, 3, 1),
        op("AddmmBackward0", 60, 3, 2),
        {**call, "tid": 2},
        kernel,
        make(
            "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
            80,
            9,
            tid=2,
        ),
        {**lost, "tid": 2},
        nothing,
        make("before", 1, 3, cat="kernel", pid=0, tid=7, args={"correlation": 99}),
    ]


def test_backward_work_belongs_to_the_module_of_its_forward_op(
    trace_of: Make, event: Make, launched: Make
) -> None:
    trace = trace_of(backward(event, launched))
    found = times_of(trace)
    (linear,) = found.modules
    assert (linear.gpu_ns, linear.gpu_backward_ns, linear.kernels) == (7_000, 7_000, 1)
    assert [(one.why, one.gpu_ns) for one in found.none] == [
        (Nowhere.NOT_LAUNCHED, 3_000),
        (Nowhere.NO_FORWARD, 5_000),
    ]
    modules = module_of(origins(trace))
    of_kernels = [
        modules[row] for row in trace.gpu_rows[trace.start[trace.gpu_rows].argsort()]
    ]
    named = [trace.name_of(row) if row >= 0 else "" for row in of_kernels]
    assert named == ["", "nn.Module: Linear_0", ""]


def test_a_tree_has_a_last_level(trace_of: Make, event: Make, launched: Make) -> None:
    deep = MAX_LEVELS + 10
    events = [frame(event, f"M{n}_0", n, 1000 - 2 * n) for n in range(deep)]
    found = times_of(trace_of([*events, *launched(1, 500, 2000)]))
    assert len(found.modules) == MAX_LEVELS
    last = found.modules[-1]
    assert (last.module, last.count, last.gpu_self_ns) == (
        f"M{MAX_LEVELS - 1}_*",
        1,
        10_000,
    )


def test_trace_without_modules_has_all_gpu_time_outside(
    trace_of: Make, launched: Make
) -> None:
    found = times_of(trace_of(launched(1, 0, 10)))
    assert (found.modules, found.none[0].why, found.gpu_ns) == (
        (),
        Nowhere.OUTSIDE,
        10_000,
    )
    assert times_of(trace_of([])).gpu_ns == 0


def test_module_times_of_traces_equal_a_slow_count(any_trace: Path) -> None:
    slowly = Slowly(any_trace)
    total, kernels, back = gpu_by_path(slowly)
    count, cpu = calls_by_path(slowly)
    found = times_of(open_trace(str(any_trace)))
    rows = {m.path: m for m in found.modules}
    assert {p: m.count for p, m in rows.items()} == count
    assert {p: m.cpu_ns for p, m in rows.items()} == cpu
    assert +Counter({p: m.gpu_ns for p, m in rows.items()}) == +total
    assert +Counter({p: m.kernels for p, m in rows.items()}) == +kernels
    assert +Counter({p: m.gpu_backward_ns for p, m in rows.items()}) == +back
    whole = sum(m.gpu_self_ns for m in rows.values()) + sum(
        one.gpu_ns for one in found.none
    )
    assert whole == found.gpu_ns == sum(e["end"] - e["begin"] for e in slowly.gpu)
