"""The longest gaps: what covered them, and what drained the queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.analysis.why.test_account import call, kernel

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.idle_time import LongestGaps, list_longest_gaps
from fusetui.analysis.why.model import Gap
from fusetui.trace import Trace

Make = Callable[..., Any]


def gaps(trace: Trace, most: int | None = None) -> tuple[Gap, ...]:
    return list_longest_gaps(Accounts(trace).devices_by_axis, most).gaps


@pytest.fixture
def gap(trace_of: Make) -> Callable[..., Gap]:
    """The gap from 10 to 110 us, not launched until 110, while these slices run."""

    def of(*events: dict[str, Any]) -> Gap:
        launch = [call("cudaLaunchKernel", 110, 1, 1), kernel(110, 1, 1, "next")]
        (found,) = gaps(trace_of([kernel(0, 10, name="before"), *events, *launch]))
        return found

    return of


def test_gap_has_previous_next_and_the_names_of_what_covered_it(
    gap: Callable[..., Gap],
) -> None:
    found = gap()
    assert (found.previous, found.next) == ("before", "next")
    assert (found.dur_ns, found.idle) == (100_000, {"host_nothing": 100_000})
    assert (
        found.op,
        found.annotation,
        found.module,
        found.frame,
        found.drained_by,
    ) == (None,) * 5


def test_the_innermost_that_covers_more_than_half(
    gap: Callable[..., Gap], event: Make
) -> None:
    layers = [("aten::outer", 0, 120), ("aten::most", 20, 60), ("aten::little", 30, 20)]
    assert gap(*(event(*one) for one in layers)).op == "aten::most"


def test_gap_that_no_op_half_covers_names_the_op_with_most_time(
    gap: Callable[..., Gap], event: Make
) -> None:
    """No op covers half of the gap, but three of one name cover 45 us, another one
    25."""
    many = [event("aten::b", 20 * n + 10, 15) for n in range(3)]
    assert gap(event("aten::a", 75, 25), *many).op == "aten::b"


def test_of_equal_names_the_first_whatever_the_order_in_the_file(
    gap: Callable[..., Gap], event: Make
) -> None:
    one, other = event("aten::a", 20, 30), event("aten::b", 60, 30)
    assert gap(one, other).op == gap(other, one).op == "aten::a"


def test_activity_that_covers_little_of_a_gap_is_not_named(
    gap: Callable[..., Gap], event: Make
) -> None:
    assert gap(event("aten::a", 50, 9)).op is None
    assert gap(event("aten::a", 50, 10)).op == "aten::a"


def test_modules_are_frames_of_their_own(gap: Callable[..., Gap], event: Make) -> None:
    frames = ["train.py(1): main", "nn.Module: Block_3", "block.py(9): forward"]
    found = gap(
        *(
            event(name, n, 120 - 2 * n, cat="python_function")
            for n, name in enumerate(frames)
        ),
        event("## forward ##", 0, 115, cat="user_annotation"),
    )
    assert (found.module, found.frame) == ("Block_3", "block.py(9): forward")
    assert found.annotation == "## forward ##"


def test_another_thread_covers_nothing(gap: Callable[..., Gap], event: Make) -> None:
    assert gap(event("aten::a", 0, 120, tid=2)).op is None


@pytest.mark.parametrize(
    ("name", "ts", "dur", "drained"),
    [
        ("cudaStreamSynchronize", 5, 6, True),
        ("cudaStreamSynchronize", 10, 1, True),
        ("cudaStreamSynchronize", 4, 6, False),  # it has returned
        ("cudaStreamSynchronize", 11, 6, False),
        ("cudaMalloc", 5, 6, False),
    ],
)
def test_gap_names_the_synchronization_that_drained_the_queue(
    gap: Callable[..., Gap], name: str, ts: int, dur: int, drained: bool
) -> None:
    assert gap(call(name, ts, dur)).drained_by == (name if drained else None)


def test_nothing_is_drained_while_the_next_event_is_queued(trace_of: Make) -> None:
    """The thread has launched both and waits for the device."""
    waits = [call("cudaLaunchKernel", 1, 2, 1), call("cudaDeviceSynchronize", 4, 60)]
    (found,) = gaps(trace_of([kernel(0, 10), *waits, kernel(40, 1, 1)]))
    assert (found.idle, found.drained_by) == ({"queued": 30_000}, None)


def test_without_a_host_part_the_launch_call_counts(
    trace_of: Make, event: Make
) -> None:
    launch = [
        event("aten::mm", 8, 40),
        call("cudaLaunchKernel", 9, 30, 1),
        kernel(40, 1, 1),
    ]
    (found,) = gaps(trace_of([kernel(0, 10), *launch]))
    assert found.idle == {"launch_call": 29_000, "queued": 1_000}
    assert found.op == "aten::mm"


def test_queued_has_no_reason_on_the_cpu(trace_of: Make, event: Make) -> None:
    launch = [
        event("aten::mm", 1, 40),
        call("cudaLaunchKernel", 2, 3, 1),
        kernel(40, 1, 1),
    ]
    (found,) = gaps(trace_of([kernel(0, 10), *launch]))
    assert (found.idle, found.op) == ({"queued": 30_000}, None)


def test_gaps_of_all_devices_are_sorted_longest_first(trace_of: Make) -> None:
    trace = trace_of(
        [kernel(t, 1, pid=0) for t in (0, 11, 16)]
        + [kernel(t, 1, pid=1) for t in (0, 8, 30)]
    )
    assert [(gap.device, gap.dur_ns) for gap in gaps(trace)] == [
        (1, 21_000),
        (0, 10_000),
        (1, 7_000),
        (0, 4_000),
    ]
    assert [gap.dur_ns for gap in gaps(trace, 2)] == [21_000, 10_000]


def test_in_a_window_the_part_inside_counts(trace_of: Make, event: Make) -> None:
    """Gaps from 10 to 30 and from 31 to 50, the first ops of each at 12 and 40."""
    ops = [event("aten::a", 0, 12), event("aten::b", 31, 9)]
    launches = [call("launch", 12, 1, 1), call("launch", 40, 5, 2)]
    kernels = [kernel(0, 10), kernel(30, 1, 1), kernel(50, 1, 2)]
    devices = Accounts(trace_of([*ops, *launches, *kernels])).devices_by_axis
    longest = list_longest_gaps(devices, None, (11_000, 42_000))
    found = longest.gaps
    number = longest.count
    assert [(gap.start_ns, gap.dur_ns, gap.op, gap.idle) for gap in found] == [
        (
            11_000,
            19_000,
            "aten::a",
            {"host_op": 1_000, "launch_call": 1_000, "queued": 17_000},
        ),
        (31_000, 11_000, "aten::b", {"host_op": 9_000, "launch_call": 2_000}),
    ]
    assert number == 2


def test_the_time_before_the_first_event_is_a_gap_of_its_window(
    trace_of: Make, event: Make
) -> None:
    """As in the account: the window begins at 10, the first op of the launching thread
    at 20."""
    events = [event("aten::a", 20, 20), call("launch", 40, 1, 1), kernel(50, 10, 1)]
    lines = Accounts(
        trace_of([event("step", 0, 60, cat="user_annotation"), *events])
    ).devices_by_axis
    longest = list_longest_gaps(lines, None, (10_000, 55_000))
    (gap,) = longest.gaps
    assert (longest.count, gap.start_ns, gap.dur_ns, gap.previous) == (
        1,
        10_000,
        40_000,
        None,
    )
    (account,) = lines[0].account_for_windows(
        np.array([0]), np.array([10_000]), np.array([55_000])
    )
    assert gap.idle == account.idle
    assert list_longest_gaps(lines, None) == LongestGaps(gaps=(), count=0, rows=())
