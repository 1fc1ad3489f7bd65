"""The account of the CPU threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.why.test_account import call

from fusetui.analysis.why.account import Accounts, account_for_cpu_threads
from fusetui.analysis.why.model import ThreadAccount
from fusetui.trace import Trace, open_trace

Make = Callable[..., Any]


def only(trace: Trace, window: tuple[int, int] | None = None) -> ThreadAccount:
    (found,) = account_for_cpu_threads(Accounts(trace), window)
    return found


def parts(account: ThreadAccount) -> tuple[int, int, int, int]:
    return account.op_ns, account.python_ns, account.wait_ns, account.nothing_ns


@pytest.fixture
def busy(trace_of: Make, event: Make) -> Trace:
    """A frame 0-60 with an op 10-30, a sync in it, and a lock 40-55; an annotation
    until 100."""
    trace: Trace = trace_of(
        [
            event("note", 50, 50, cat="user_annotation"),
            event("train.py(3): main", 0, 60, cat="python_function"),
            event("aten::item", 10, 20),
            call("cudaStreamSynchronize", 15, 10),
            event(
                "<built-in method acquire of _thread.lock>",
                40,
                15,
                cat="python_function",
            ),
            event("hook.py(1): f", 45, 2, cat="python_function"),
        ]
    )
    return trace


def test_cpu_account_divides_the_span_of_a_thread(busy: Trace) -> None:
    account = only(busy)
    assert parts(account) == (10_000, 20_000 + 5_000 + 2_000, 10_000 + 13_000, 40_000)
    assert (account.span_ns, account.annotation_ns) == (100_000, 40_000)


def test_a_collective_on_the_cpu_is_waiting(trace_of: Make, event: Make) -> None:
    """Less the op that reduces meanwhile."""
    gloo = event("gloo:all_reduce", 10, 50, cat="user_annotation")
    account = only(
        trace_of([gloo, event("aten::add_", 20, 5), event("aten::mul", 90, 10)])
    )
    assert parts(account) == (15_000, 0, 45_000, 30_000)
    assert (account.collective_ns, account.annotation_ns) == (45_000, 0)


def test_cpu_account_of_a_window_counts_only_what_lies_in_it(busy: Trace) -> None:
    account = only(busy, (20_000, 42_000))
    assert parts(account) == (5_000, 10_000, 5_000 + 2_000, 0)
    assert only(busy, (200_000, 300_000)).span_ns == 0


def test_cpu_accounts_are_in_order_of_the_first_start(
    trace_of: Make, event: Make
) -> None:
    trace = trace_of(
        [event(ts=10, dur=5), event(ts=0, dur=2, tid=2), event(ts=8, dur=2, tid=2)]
    )
    assert [
        (one.thread, one.op_ns, one.nothing_ns)
        for one in account_for_cpu_threads(Accounts(trace))
    ] == [
        (2, 4_000, 6_000),
        (1, 5_000, 0),
    ]


def test_threads_of_a_trace_add_up(any_trace: Path) -> None:
    for one in account_for_cpu_threads(Accounts(open_trace(str(any_trace)))):
        assert sum(parts(one)) == one.span_ns
        assert min(parts(one)) >= 0
