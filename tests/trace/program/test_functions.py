"""What the user's own functions cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.corpus.files import WITH_MODULES
from tests.corpus.fixtures import any_of
from tests.trace.program.slowly import Slowly, cpu_by_function, gpu_by_function

from fusetui.trace import Trace, open_trace
from fusetui.trace.program.functions import Functions, function_times
from fusetui.trace.program.origin import Nowhere, frame_of, origins

Make = Callable[..., Any]
any_trace = any_of(*WITH_MODULES)


def frame(make: Make, name: str, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = make(name, ts, dur, cat="python_function", **more)
    return found


def program(event: Make, launched: Make) -> list[dict[str, Any]]:
    return [
        frame(event, "train.py(9): main", 0, 100),
        frame(event, "torch/nn/modules/module.py(1): _call_impl", 5, 60),
        frame(event, "nn.Module: Net_0", 6, 58),
        frame(event, "my_model.py(42): forward", 10, 40),
        frame(event, "<built-in function linear>", 15, 10),
        *launched(1, 16, 200, dur=7),
        frame(event, "my_model.py(42): forward", 30, 10),
        *launched(2, 32, 210, dur=5),
        *launched(3, 80, 220, dur=2),
        *launched(4, 150, 230, dur=3),
    ]


def named(found: Functions) -> dict[str, Any]:
    return {f"{f.file}:{f.line} {f.function}": f for f in found.functions}


def test_library_frames_count_for_their_caller(
    trace_of: Make, event: Make, launched: Make
) -> None:
    found = function_times(origins(trace_of(program(event, launched))))
    assert list(named(found)) == ["my_model.py:42 forward", "train.py:9 main"]
    forward, main = found.functions
    assert (forward.gpu_self_ns, forward.gpu_ns, forward.kernels) == (12_000, 12_000, 2)
    assert (main.gpu_self_ns, main.gpu_ns, main.kernels, main.kernels_self) == (
        2_000,
        14_000,
        3,
        1,
    )
    assert (main.cpu_self_ns, main.cpu_ns) == (60_000, 100_000)
    assert (forward.cpu_self_ns, forward.cpu_ns, forward.count) == (40_000, 40_000, 2)
    assert [(one.why, one.gpu_ns) for one in found.none] == [(Nowhere.OUTSIDE, 3_000)]


def test_functions_are_limited_to_a_file_or_folder(
    trace_of: Make, event: Make, launched: Make
) -> None:
    found = origins(trace_of(program(event, launched)))
    (forward,) = function_times(found, "my_model.py").functions
    assert (forward.function, forward.gpu_ns) == ("forward", 12_000)
    (call,) = function_times(found, "torch/nn").functions
    assert (call.function, call.gpu_ns) == ("_call_impl", 12_000)
    assert function_times(found, "model.py").functions == ()


def test_idle_time_counts_where_it_was_caused(
    trace_of: Make, event: Make, launched: Make
) -> None:
    trace = trace_of(program(event, launched))
    assert function_times(origins(trace)).functions[0].idle_ns is None
    called = np.flatnonzero(trace.launch >= 0)
    rows = np.append(np.sort(trace.launch[called]), -1)  # -1: nothing is known
    found = function_times(origins(trace), idle=(rows, np.array([100, 20, 3, 9, 50])))
    idle = {f.function: (f.idle_self_ns, f.idle_ns) for f in found.functions}
    assert idle == {"forward": (120, 120), "main": (3, 123)}


def test_backward_work_belongs_to_the_function_that_went_forward(
    trace_of: Make, event: Make, launched: Make
) -> None:
    def op(name: str, ts: int, thread: int) -> dict[str, Any]:
        args = {"Sequence number": 5, "Fwd thread id": int(thread == 2)}
        found: dict[str, Any] = event(name, ts, 10, args=args, tid=thread)
        return found

    call, kernel = launched(1, 62, 200, dur=7)
    events = [
        frame(event, "my_model.py(42): forward", 0, 20),
        op("aten::addmm", 5, 1),
        op("AddmmBackward0", 60, 2),
        {**call, "tid": 2},
        kernel,
    ]
    trace = trace_of(events)
    (forward,) = function_times(origins(trace)).functions
    assert (forward.gpu_ns, forward.gpu_backward_ns, forward.cpu_ns) == (
        7_000,
        7_000,
        20_000,
    )
    (row,) = frame_of(origins(trace))[trace.gpu_rows]
    assert trace.name_of(row) == "my_model.py(42): forward"


def test_a_module_launches_without_a_function_in_between(
    trace_of: Make, event: Make, launched: Make
) -> None:
    """No frame of a function lies between the module and the launch."""
    frames = [
        frame(event, "a.py(3): f", 0, 200),
        frame(event, "nn.Module: Lin_0", 10, 100),
    ]
    trace = trace_of(
        [*frames, *launched(1, 20, 300, dur=5), *launched(2, 150, 310, dur=7)]
    )
    found = frame_of(origins(trace))[trace.gpu_rows]
    assert [*map(trace.name_of, found)] == ["nn.Module: Lin_0", "a.py(3): f"]


def test_recursive_function_counts_its_time_once(
    trace_of: Make, event: Make, launched: Make
) -> None:
    events = [frame(event, "a.py(1): walk", n, 90 - 2 * n) for n in range(10)]
    events += [frame(event, "a.py(7): walk", 2, 80), *launched(1, 50, 200)]
    found = named(function_times(origins(trace_of(events))))
    walk = found["a.py:1 walk"]
    assert (walk.count, walk.cpu_ns, walk.gpu_ns, walk.gpu_self_ns) == (
        10,
        90_000,
        10_000,
        10_000,
    )
    assert (found["a.py:7 walk"].cpu_ns, found["a.py:7 walk"].gpu_ns) == (
        80_000,
        10_000,
    )


def test_trace_without_frames_has_no_functions(trace_of: Make, launched: Make) -> None:
    found = function_times(origins(trace_of(launched(1, 0, 10))))
    assert (found.functions, found.gpu_ns) == ((), 10_000)
    assert function_times(origins(trace_of([]))).none == ()


def test_function_times_of_traces_equal_a_slow_count(any_trace: Path) -> None:
    slowly, trace = Slowly(any_trace), open_trace(str(any_trace))
    found = function_times(origins(trace))
    rows = {f"{f.file}({f.line}): {f.function}": f for f in found.functions}
    (gpu_own, gpu), (cpu_own, cpu) = gpu_by_function(slowly), cpu_by_function(slowly)
    assert {n: f.cpu_ns for n, f in rows.items()} == cpu
    assert {n: f.cpu_self_ns for n, f in rows.items()} == cpu_own
    assert +Counter({n: f.gpu_ns for n, f in rows.items()}) == +gpu
    assert +Counter({n: f.gpu_self_ns for n, f in rows.items()}) == +gpu_own
    assert sum(gpu_own.values()) + sum(one.gpu_ns for one in found.none) == found.gpu_ns
    assert isinstance(trace, Trace)
