"""Collectives of gloo, with and without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.answer import answer_question
from fusetui.analysis.why.selection import resolve_selection
from fusetui.trace import Trace

from .conftest import Ask

Make = Callable[..., Any]


def gloo(event: Make, ts: int, dur: int) -> dict[str, Any]:
    found: dict[str, Any] = event(
        "gloo:all_reduce", ts, dur, cat="user_annotation", tid=9
    )
    return found


def test_the_gpu_waits(found: Ask, event: Make, launched: Make) -> None:
    """Idle from 20 to 500 us, not launched until 400: of that the collective runs 100
    to 350."""
    work = [*launched(1, 0, 10), gloo(event, 100, 250), *launched(2, 400, 500)]
    (finding,) = found("cpu-collectives", work)
    assert finding.at_stake_ns == 250_000
    assert "while a collective runs on the CPU: 1 x gloo:all_reduce." in finding.text


def test_beside_a_busy_gpu_it_is_silent(
    found: Ask, event: Make, launched: Make
) -> None:
    work = [*launched(1, 0, 10, 400), gloo(event, 100, 250), *launched(2, 300, 420)]
    assert found("cpu-collectives", work) == []


def test_without_a_gpu_it_is_a_note(found: Ask, event: Make) -> None:
    """Two that overlap run from 0 to 60 of 100 us."""
    events = [
        gloo(event, 0, 40),
        gloo(event, 20, 40) | {"tid": 8},
        event("aten::mul", 90, 10),
    ]
    (finding,) = found("cpu-collectives", events)
    assert finding.at_stake_ns is None
    assert "60 us (60 % of the recorded 100 us): 2 x gloo:all_reduce." in finding.text


def test_short_ones_are_silent(found: Ask, event: Make) -> None:
    assert (
        found("cpu-collectives", [gloo(event, 0, 5), event("aten::mul", 90, 10)]) == []
    )


@pytest.mark.parametrize("category", ["user_annotation", "cpu_op"])
def test_transfers_are_not_of_all_ranks(found: Ask, event: Make, category: str) -> None:
    """Some files record them as ops; they wait all the same, from 0 to 60 of 100 us."""
    events = [
        event("gloo:send", 0, 60, cat=category),
        event("gloo:recv", 10, 40, cat=category),
        event("aten::mul", 90, 10),
    ]
    (finding,) = found("cpu-collectives", events)
    assert finding.text == (
        "Transfers between ranks on the CPU take 60 us (60 % of the recorded 100 "
        "us): 1 x gloo:send, 1 x gloo:recv. Each transfer lasts "
        "until the other rank joins and the data has moved."
    )
    assert found("cpu-hot", events[:2]) == []


def test_a_collective_that_is_recorded_as_an_op_waits(
    event: Make, trace_of: Callable[..., Trace]
) -> None:
    events = [event("gloo:recv", 0, 60), event("aten::mul", 60, 40)]
    why, _ = answer_question(resolve_selection(Accounts(trace_of(events))))
    (thread,) = why.cpu
    assert (thread.op_ns, thread.wait_ns, thread.collective_ns) == (
        40_000,
        60_000,
        60_000,
    )
    assert why.cpu_work is not None
    assert [(one.name, one.ns) for one in why.cpu_work.waits] == [("gloo:recv", 60_000)]
