"""Idle time of real traces, as it was measured by other programs."""

from __future__ import annotations

import pytest
from tests.analysis.why.test_account import only
from tests.real.traces import real

from fusetui.analysis.why.account import Accounts
from fusetui.trace import open_trace
from fusetui.trace.layout.steps import steps_of

MEASURED = {
    "v100_resnet50_2021": {
        "idle": 392.919,
        "host_annotation": 192.442,
        "host_op": 168.396,
        "launch_call": 14.946,
        "queued": 11.451,
        "launch_latency": 3.469,
        "host_nothing": 1.668,
        "host_call": 0.493,
        "host_sync": 0.054,
    },
    "h100_Qwen1.5-0.5B": {
        "idle": 4.006,
        "queued": 1.760,
        "unlinked": 0.728,
        "host_python": 0.717,
        "host_op": 0.572,
        "launch_call": 0.179,
        "launch_latency": 0.027,
        "host_call": 0.012,
        "host_sync": 0.012,
    },
    "b300_deepseek_r1_decode": {
        "idle": 1.860,
        "launch_call": 0.758,
        "host_python": 0.705,
        "host_op": 0.351,
        "queued": 0.023,
        "host_call": 0.022,
    },
    "nccl_collectives": {
        "idle": 503.051,
        "host_op": 394.452,
        "host_annotation": 44.756,
        "host_nothing": 28.072,
        "launch_call": 25.467,
        "host_call": 4.582,
        "queued": 2.948,
        "launch_latency": 2.724,
        "host_sync": 0.051,
    },
    "h100_owlv2": {"idle": 511.529, "host_python": 493.762},
}
"""Milliseconds, as measured before there was this code; of v100_resnet50_2021 and
nccl_collectives with what each of the two threads does that wait for one another,
autograd's engine and the one that asks it for backward, by a script of its own."""


@pytest.mark.parametrize("name", MEASURED)
def test_idle_reasons_of_real_traces_equal_earlier_measurements(name: str) -> None:
    account = only(open_trace(str(real(name))))
    found = {reason: round(ns / 1e6, 3) for reason, ns in account.idle.items()}
    found["idle"] = round(account.idle_ns / 1e6, 3)
    assert {key: found[key] for key in MEASURED[name]} == MEASURED[name]
    if len(MEASURED[name]) > 2:
        assert found.keys() == MEASURED[name].keys()


def test_measured_before_in_a_step() -> None:
    """The GPU is idle for longer in the step than in its span, which begins later."""
    trace = open_trace(str(real("h100_owlv2")))
    (device,), steps = Accounts(trace).devices, steps_of(trace)
    (account,) = device.account_for_windows(steps.start, steps.end)
    assert [round(ns / 1e6) for ns in (account.span_ns, account.idle_ns)] == [
        1_211,
        644,
    ]


def test_step_of_owlv2_has_its_measured_span_and_idle_time() -> None:
    trace = open_trace(str(real("h100_owlv2")))
    (device,) = Accounts(trace).devices
    assert round(device.span.span_ns / 1e6, 1) == 1078.3
    steps = steps_of(trace)
    (step,) = device.account_for_windows(steps.start, steps.end)
    assert (round(step.span_ns / 1e6), round(step.idle_ns / 1e6)) == (1211, 644)
