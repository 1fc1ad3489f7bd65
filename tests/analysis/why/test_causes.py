"""Which slices idle time is put down to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.corpus.fixtures import any_of

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.causes import find_idle_causes
from fusetui.trace import Trace, open_trace
from fusetui.trace.program.functions import function_times
from fusetui.trace.program.origin import origins

Make = Callable[..., Any]


def by_name(trace: Trace) -> dict[str, int]:
    found = find_idle_causes(trace)
    assert found is not None
    ns: dict[str, int] = {}
    for row, time in zip(*(column.tolist() for column in found), strict=True):
        ns[trace.name_of(row)] = ns.get(trace.name_of(row), 0) + time
    return {name: time for name, time in ns.items() if time}


def test_the_innermost_slice_counts(
    trace_of: Callable[..., Trace], event: Make, launched: Make
) -> None:
    """The gap is 15-95 us, the launch at 90 us: of 75 us 10 lie in nothing."""
    events = [
        *launched(1, 0, 5),
        event("/my/model.py(3): forward", 20, 65, cat="python_function"),
        event("aten::item", 30, 40),
        event("cudaStreamSynchronize", 40, 20, cat="cuda_runtime"),
        *launched(2, 90, 95),
    ]
    assert by_name(trace_of(events)) == {
        "cudaStreamSynchronize": 20_000,
        "aten::item": 20_000,
        "/my/model.py(3): forward": 25_000,
    }


def test_functions_have_what_they_caused(
    trace_of: Callable[..., Trace], event: Make, launched: Make
) -> None:
    events = [
        *launched(1, 0, 5),
        event("/my/model.py(3): forward", 20, 65, cat="python_function"),
        event("aten::item", 30, 40),
        *launched(2, 90, 95),
    ]
    trace = trace_of(events)
    (function,) = function_times(origins(trace), idle=find_idle_causes(trace)).functions
    assert (function.idle_ns, function.idle_self_ns) == (65_000, 65_000)


def test_without_launches_it_is_not_known(
    trace_of: Callable[..., Trace], event: Make
) -> None:
    kernels = [event("k", ts, 10, cat="kernel", pid=0, tid=7) for ts in (0, 50)]
    assert find_idle_causes(trace_of(kernels)) is None


any_trace = any_of("training", "waits", "lesson-mlp-eager")


def test_causes_of_idle_time_add_up_to_the_account(any_trace: Path) -> None:
    trace = open_trace(str(any_trace))
    found = find_idle_causes(trace)
    assert found is not None
    idle = Accounts(trace).devices[0].span.idle
    kinds = ("sync", "alloc", "call", "op", "python")
    assert int(np.sum(found[1])) == sum(idle.get(f"host_{kind}", 0) for kind in kinds)
