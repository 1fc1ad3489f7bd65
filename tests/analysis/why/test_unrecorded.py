"""What was not recorded: the headline says so, and advises what fits the device."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from fusetui.analysis.why.answer import why
from fusetui.report.why_answer import answer, describe_not_recorded, format_brief_answer

Make = Callable[..., Any]
GPU = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100"}]}
ARTEMIS = {"deviceProperties": [{"id": 17, "name": "ARTEMIS"}]}


def test_the_headline_is_qualified_where_work_is_missing(
    trace_of: Make, event: Make, launched: Make
) -> None:
    """10 and 40 us of 500; the call at 100 us has no event."""
    lost = event(
        "cudaLaunchKernel", 100, 130, cat="cuda_runtime", args={"correlation": 9}
    )
    work = [*launched(1, 0, 10), *launched(2, 400, 470, 40)]
    found = why(trace_of([*work, lost]))
    assert (
        "The GPU is busy for at least 10 % of the span, because some work was not "
        "recorded." in answer(found)
    )
    assert "the GPU is at least 10 % busy" in format_brief_answer(found)
    assert "The GPU is busy for 10 % of the span." in answer(why(trace_of(work)))


def test_a_run_on_the_cpu_gets_no_advice_about_gpus(
    trace_of: Make, event: Make
) -> None:
    found = why(trace_of([event("aten::mul")], deviceProperties=[]))
    assert "ProfilerActivity" not in describe_not_recorded(found)
    assert {
        one.record_with for one in found.cannot_tell if one.missing == "GPU events"
    } == {""}


def test_a_run_without_gpu_events_beside_a_gpu_does(
    trace_of: Make, event: Make
) -> None:
    assert "GPU events (add ProfilerActivity.CUDA)" in describe_not_recorded(
        why(trace_of([event("aten::mul")], **GPU))
    )


def test_where_launches_were_recorded_no_activity_is_missing(
    trace_of: Make, event: Make
) -> None:
    launch = event("cudaLaunchKernel", cat="cuda_runtime", args={"correlation": 1})
    found = why(trace_of([event("aten::mul"), launch], **GPU))
    assert "ProfilerActivity" not in describe_not_recorded(found)
    assert {
        one.record_with for one in found.cannot_tell if one.missing == "GPU events"
    } == {""}


def test_a_run_on_xpu_is_told_its_own_activity(trace_of: Make, event: Make) -> None:
    call = event("urQueueFinish", cat="xpu_runtime")
    assert "GPU events (add ProfilerActivity.XPU)" in describe_not_recorded(
        why(trace_of([call]))
    )


def test_another_accelerator_is_named(trace_of: Make, event: Make) -> None:
    work = event("fc", 0, 5, cat="mtia_ccp_events", pid=17, tid=1)
    found = why(trace_of([event("aten::mul"), work], **ARTEMIS))
    assert "(the 1 ARTEMIS event is" in answer(found)
    assert "CUDA" not in describe_not_recorded(found)


def test_ranges_of_counters_are_no_gpu_events_but_of_a_gpu(
    trace_of: Make, event: Make
) -> None:
    work = event("gemm", 0, 5, cat="cuda_profiler_range", pid=0, tid=0)
    found = why(trace_of([event("aten::mul"), work], **GPU))
    assert answer(found).startswith(
        "No GPU events were recorded, only 1 CUPTI counter range"
    )
    assert "GPU events (add ProfilerActivity.CUDA)" in describe_not_recorded(found)


def test_a_device_that_the_table_of_peaks_lacks(
    trace_of: Make, event: Make, launched: Make
) -> None:
    """Nothing records more of it; without properties these are asked for."""
    names = "NVIDIA A100-SXM4-80GB", "NVIDIA Foo"
    devices = ([{"id": 0, "name": name, "numSms": 108}] for name in names)
    known, unknown = (
        describe_not_recorded(why(trace_of(launched(1, 0, 10), deviceProperties=one)))
        for one in devices
    )
    assert "table of peaks" not in known
    assert "The peak rates of this device" in unknown
    assert "deviceProperties" not in known + unknown
    assert "deviceProperties" in describe_not_recorded(
        why(trace_of(launched(1, 0, 10)))
    )


NSYS = {"converted_from": {"format": "nsys"}}
"""What Nsight Systems recorded."""
OF_TORCH = re.compile(
    r"ProfilerActivity|torch\.profiler\.schedule|record_function|Nsight, DCGM"
)
"""Advice that means nothing to somebody who records with nsys."""


def test_where_there_are_gpu_events_no_activity_is_asked_for(
    trace_of: Make, event: Make
) -> None:
    """Launch calls and configurations come with GPU events: the activity was on."""
    kernel = event("k", 10, 5, cat="kernel", pid=0, tid=7)
    for more in (GPU, NSYS):
        found = why(trace_of([event("aten::mul"), kernel], **more))
        missing = {one.missing: one.record_with for one in found.cannot_tell}
        assert missing["launch calls"] == ""
        assert found._lacks["launch configurations"] == ""
        assert "ProfilerActivity" not in describe_not_recorded(found)
        assert "nsys profile -t cuda" not in describe_not_recorded(found)
    without = why(trace_of([event("aten::mul")], **GPU))
    assert "GPU events (add ProfilerActivity.CUDA)" in describe_not_recorded(without)


def of_nsys(event: Make, launched: Make) -> dict[str, list[Any]]:
    """Programs with findings whose advice is about the recording."""
    call = {"cat": "cuda_runtime"}
    slow = launched(2, 400, 40_500)
    slow[0]["dur"] = 40_000
    slow[1]["name"] = "other"
    lost = event("cudaLaunchKernel", 100, 130, args={"correlation": 9}, **call)
    return {
        "warm-up": [*launched(1, 0, 5), *slow],
        "holes": [*launched(1, 0, 10), lost, *launched(2, 400, 470, 40)],
        "cpu-waits-for-gpu": [
            event("aten::mul"),
            event("cudaDeviceSynchronize", 5, 90, **call),
        ],
        "cpu-unrecorded": [event("aten::mul", 0, 5), event("aten::mul", 95, 5)],
        "recording": [event("cudaLaunchKernel", 0, 9, args={"correlation": 1}, **call)],
    }


@pytest.mark.parametrize(
    "rule", ["warm-up", "holes", "cpu-waits-for-gpu", "cpu-unrecorded", "recording"]
)
def test_advice_fits_the_recorder(
    trace_of: Make, event: Make, launched: Make, rule: str
) -> None:
    events = of_nsys(event, launched)[rule]
    of_torch, of_nsight = (
        [one.try_ for one in why(trace_of(events, **more)).findings if one.rule == rule]
        for more in (GPU, NSYS | GPU)
    )
    assert of_torch
    assert any(OF_TORCH.search(str(text)) or "Nsight" in str(text) for text in of_torch)
    assert of_nsight
    assert not any(OF_TORCH.search(str(text)) for text in of_nsight)
