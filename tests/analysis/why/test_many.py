"""Many devices, streams and threads take the passes of a few: what is asked of each is
computed for all together."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.analysis.why.test_account import call, kernel

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.answer import why
from fusetui.analysis.why.idle_time import prepare_idle_times
from fusetui.analysis.why.selection import account_for_selection
from fusetui.trace import Trace

Make = Callable[..., Any]
Ask = Callable[[Trace], object]


def idle(trace: Trace) -> object:
    return [prepare_idle_times(line) for line in Accounts(trace).devices_by_axis]


def calls_of(ask: Ask, trace: Trace) -> int:
    """How many functions are called, those of numpy too."""
    found = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        ask(trace)
    finally:
        sys.setprofile(None)
    return found


def alike(_: int) -> dict[str, Any]:
    return {}


def work(count: int, **each: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """Two events on each of as many devices (streams, threads)."""
    call_of, kernel_of = each.get("call", alike), each.get("kernel", alike)
    return [
        event
        for n in range(2 * count)
        for event in (
            call("aten::add", 100 * n, 30, cat="cpu_op", **call_of(n % count)),
            call("cudaLaunchKernel", 100 * n + 10, 15, n + 1, **call_of(n % count)),
            kernel(100 * n + 60, 30, n + 1, **kernel_of(n % count)),
        )
    ]


MOST = 160  # calls for one more device (stream, thread): mostly of what is told of each
KINDS = {
    "devices": {"kernel": lambda n: {"pid": n}},
    "streams": {"kernel": lambda n: {"tid": n}},
    "threads": {"call": lambda n: {"tid": n}},
    "processes": {"call": lambda n: {"pid": n + 1000}},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ask", [account_for_selection, why, idle])
def test_each_more_slice_takes_few_python_calls(
    trace_of: Make, kind: str, ask: Ask
) -> None:
    ask(trace_of(work(2, **KINDS[kind])))  # what is imported or compiled once
    few, many = (trace_of(work(count, **KINDS[kind])) for count in (200, 300))
    assert calls_of(ask, many) - calls_of(ask, few) < 100 * MOST
