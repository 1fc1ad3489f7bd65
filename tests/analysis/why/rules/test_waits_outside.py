"""Launched work waits although the device is idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask

Make = Callable[..., Any]


def other(event: Make, number: int, ts: int, kernel_ts: int) -> list[dict[str, Any]]:
    """A launch on stream 9."""
    args = {"correlation": number}
    return [
        event("cudaLaunchKernel", ts, 2, cat="cuda_runtime", args=args),
        event("k", kernel_ts, 10, cat="kernel", pid=0, tid=9, args=args),
    ]


def test_waits_outside_reports_queued_work_on_an_idle_device(
    found: Ask, event: Make, launched: Make
) -> None:
    """Launched at 10 us, running at 95 us: of the gap 15-95 us all is queued."""
    (finding,) = found("waits-outside", [*launched(1, 0, 5), *launched(2, 10, 95)])
    assert finding.at_stake_ns == 80_000
    assert "The GPU waits for something unrecorded," in finding.text


def test_work_from_before_the_recording_is_likely(
    found: Ask, event: Make, launched: Make
) -> None:
    """The first event of stream 9 waits while the program waits for the device."""
    sync = event("cudaStreamSynchronize", 14, 80, cat="cuda_runtime")
    events = [*launched(1, 0, 5), *other(event, 2, 10, 95), sync]
    (finding,) = found("waits-outside", events)
    assert finding.certainty == "likely"
    assert "before the recording" in finding.text


def test_short_waits_are_silent(found: Ask, launched: Make) -> None:
    assert found("waits-outside", [*launched(1, 0, 5), *launched(2, 10, 30)]) == []


def test_waits_outside_is_silent_behind_a_slow_launch_call(
    found: Ask, launched: Make
) -> None:
    """The call of 150 us loads a module, which goes on for 50 us behind it."""
    events = [*launched(1, 0, 5), *launched(2, 20, 220)]
    events[-2]["dur"] = 150
    assert found("waits-outside", events) == []
