"""From GPU events to their launch calls and CPU ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.trace import Trace
from fusetui.trace.model.categories import Role

Make = Callable[..., Any]


def row(trace: Trace, name: str, nth: int = 0) -> int:
    return [n for n in range(len(trace)) if trace.name_of(n) == name][nth]


def launch_name(trace: Trace, name: str, nth: int = 0) -> str | None:
    launch = int(trace.launch[row(trace, name, nth)])
    return trace.name_of(launch) if launch >= 0 else None


def op_name(trace: Trace, name: str) -> str | None:
    op = int(trace.op[row(trace, name)])
    return trace.name_of(op) if op >= 0 else None


def kernel(event: Make, name: str, ts: int, **args: int) -> dict[str, Any]:
    made: dict[str, Any] = event(name, ts, 5, cat="kernel", pid=0, tid=7, args=args)
    return made


def test_kernel_is_linked_to_its_launch_and_innermost_op(
    trace_of: Make, event: Make, launched: Make
) -> None:
    ops = [event("aten::linear", 0, 50), event("aten::mm", 5, 30)]
    trace = trace_of([*launched(1, 10, 20), *ops])
    assert launch_name(trace, "k") == "cudaLaunchKernel"
    assert op_name(trace, "k") == "aten::mm"
    assert op_name(trace, "aten::mm") == "aten::mm"


def test_graph_launch_is_linked_to_all_its_kernels(trace_of: Make, event: Make) -> None:
    call = event("cudaGraphLaunch", 1, 2, cat="cuda_runtime", args={"correlation": 9})
    kernels = [kernel(event, f"k{n}", 10 * n, correlation=9) for n in range(1, 4)]
    trace = trace_of([*kernels, call, event("replay", 0, 5)])
    launches = {int(trace.launch[r]) for r in trace.rows_of(Role.KERNEL)}
    assert launches == {row(trace, "cudaGraphLaunch")}
    assert [op_name(trace, f"k{n}") for n in range(1, 4)] == ["replay"] * 3


def test_driver_call_is_linked_as_a_launch(trace_of: Make, event: Make) -> None:
    call = event("cuLaunchKernelEx", 1, 2, cat="cuda_driver", args={"correlation": 3})
    assert launch_name(trace_of([call, kernel(event, "k", 5, correlation=3)]), "k")


def test_launched_before_the_window(trace_of: Make, event: Make) -> None:
    trace = trace_of([kernel(event, "k", 5, correlation=3)])
    assert launch_name(trace, "k") is None
    assert op_name(trace, "k") is None


def test_correlation_zero_links_nothing(trace_of: Make, event: Make) -> None:
    call = event("cudaLaunchKernel", 1, 2, cat="cuda_runtime", args={"correlation": 0})
    assert (
        launch_name(trace_of([call, kernel(event, "k", 5, correlation=0)]), "k") is None
    )


def test_shared_correlation_takes_the_last_call_before(
    trace_of: Make, launched: Make
) -> None:
    trace = trace_of([*launched(1, 0, 10), *launched(1, 100, 110)])
    calls = [int(trace.start[trace.launch[row(trace, "k", n)]]) for n in (0, 1)]
    assert calls == [0, 100_000]


def test_external_id_fills_in(trace_of: Make, event: Make) -> None:
    op = event("aten::mm", 0, 9, args={"External id": 77})
    trace = trace_of(
        [op, kernel(event, "k", 20, **{"correlation": 5, "External id": 77})]
    )
    assert op_name(trace, "k") == "aten::mm"


def test_external_id_that_is_the_correlation_says_nothing(
    trace_of: Make, event: Make
) -> None:
    op = event("aten::detach", 0, 9, args={"External id": 5})
    trace = trace_of(
        [op, kernel(event, "k", 20, **{"correlation": 5, "External id": 5})]
    )
    assert op_name(trace, "k") is None


def test_lower_case_external_id_of_2021_links_the_op(
    trace_of: Make, event: Make
) -> None:
    op = event("aten::mm", 0, 9, cat="Operator", args={"external id": 77})
    trace = trace_of(
        [op, kernel(event, "k", 20, **{"correlation": 5, "external id": 77})]
    )
    assert op_name(trace, "k") == "aten::mm"


def test_copies_and_sets_are_linked(trace_of: Make, event: Make) -> None:
    call = event("cudaMemcpyAsync", 1, 2, cat="cuda_runtime", args={"correlation": 3})
    copy = event(
        "Memcpy HtoD", 5, 2, cat="gpu_memcpy", pid=0, tid=7, args={"correlation": 3}
    )
    assert launch_name(trace_of([call, copy]), "Memcpy HtoD") == "cudaMemcpyAsync"


def test_negative_delays_are_counted(trace_of: Make, launched: Make) -> None:
    trace = trace_of([*launched(1, 10, 8), *launched(2, 50, 60)])
    assert trace.report.negative_delays == 1
    assert trace.start[row(trace, "k")] == 8000


def test_call_on_a_subrow_has_the_op_around_it(trace_of: Make, event: Make) -> None:
    calls = [
        event(f"call{n}", 2 + n, 4, cat="cuda_runtime", args={"correlation": n})
        for n in (1, 2)
    ]
    trace = trace_of(
        [event("aten::mm", 0, 20), *calls, kernel(event, "k", 30, correlation=2)]
    )
    assert trace.track_of(row(trace, "call2")).subrow == 1
    assert op_name(trace, "k") == "aten::mm"


def test_a_correlation_that_wrapped_still_links(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    trace = trace_of(launched(-2147483000, 0, 10))
    assert (trace.launch[trace.gpu_rows] >= 0).all()
