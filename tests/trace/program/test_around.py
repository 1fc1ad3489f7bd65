"""From a kernel past its op to the module and the Python frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.trace import Trace
from fusetui.trace.program.origin import Origins, origins
from fusetui.trace.program.own_code import Program, path_of, program_of, source_of

Make = Callable[..., Any]


def program(make: Make) -> list[dict[str, Any]]:
    def frame(name: str, ts: int, dur: int) -> dict[str, Any]:
        found: dict[str, Any] = make(name, ts, dur, cat="python_function")
        return found

    args = {"Sequence number": 5, "Fwd thread id": 0}
    return [
        make("## forward ##", 0, 100, cat="user_annotation"),
        frame("train.py(9): main", 1, 90),
        frame("nn.Module: MLP_3", 5, 60),
        frame("my_model.py(42): forward", 10, 40),
        frame("torch/nn/functional.py(1): linear", 15, 20),
        make("aten::addmm", 18, 10, args=args),
    ]


def chain(trace: Trace, name: str) -> tuple[Origins, Program]:
    found = origins(trace)
    row = next(n for n in range(len(trace)) if trace.name_of(n) == name)
    return found, program_of(found, row)


def test_forward_kernel_has_module_and_frames_around_it(
    trace_of: Make, event: Make, launched: Make
) -> None:
    trace = trace_of([*program(event), *launched(1, 20, 200)])
    found, of_kernel = chain(trace, "k")
    assert path_of(found, of_kernel) == "## forward ## > MLP_3"
    assert [trace.name_of(row) for row in of_kernel.frames] == [
        "torch/nn/functional.py(1): linear",
        "my_model.py(42): forward",
        "train.py(9): main",
    ]
    assert source_of(found, of_kernel) == ("my_model.py", 42, "forward")
    assert of_kernel.forward_op == -1
    assert chain(trace, "aten::addmm")[1] == of_kernel


def test_backward_kernel_has_the_module_of_its_forward_op(
    trace_of: Make, event: Make, launched: Make
) -> None:
    args = {"Sequence number": 5, "Fwd thread id": 1}
    call, kernel = launched(1, 155, 200)
    back = event("AddmmBackward0", 150, 10, args=args, tid=2)
    trace = trace_of([*program(event), back, {**call, "tid": 2}, kernel])
    found, of_kernel = chain(trace, "k")
    assert trace.name_of(of_kernel.forward_op) == "aten::addmm"
    assert path_of(found, of_kernel) == "## forward ## > MLP_3"
    assert source_of(found, of_kernel) == ("my_model.py", 42, "forward")


def test_kernel_without_op_and_frames_has_nothing_around_it(
    trace_of: Make, event: Make
) -> None:
    trace = trace_of([event("k", cat="kernel", pid=0, tid=7)])
    found, of_kernel = chain(trace, "k")
    assert of_kernel == Program(-1, (), (), -1)
    assert (path_of(found, of_kernel), source_of(found, of_kernel)) == ("", None)


def test_a_library_where_nothing_is_the_users(
    trace_of: Make, event: Make, launched: Make
) -> None:
    frame = event("torch/optim/sgd.py(70): step", 0, 50, cat="python_function")
    found, of_kernel = chain(trace_of([frame, *launched(1, 20, 200)]), "k")
    assert of_kernel.own_frame == -1
    assert source_of(found, of_kernel) == ("torch/optim/sgd.py", 70, "step")
