"""The figures of a whole trace, each on a trace small enough to add up by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import orjson

from fusetui.analysis.questions.summary import StepFigures, summary

Make = Callable[..., Any]


def gpu(event: Make, name: str, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = event(
        name, ts, dur, **{"cat": "kernel", "pid": 0, "tid": 7, **more}
    )
    return made


def test_summary_times_of_overlapping_gpu_work_add_up_by_hand(
    trace_of: Make, event: Make
) -> None:
    figures = summary(
        trace_of(
            [
                gpu(event, "a", 100, 10),
                gpu(event, "b", 105, 10, tid=8),  # overlaps on another stream
                gpu(event, "ncclDevKernel_AllReduce", 110, 10),
                gpu(event, "Memcpy HtoD", 140, 5, cat="gpu_memcpy"),
                gpu(event, "Memset", 150, 1, cat="gpu_memset"),
                gpu(event, "Memcpy PtoP (Device -> Device)", 145, 2, cat="gpu_memcpy"),
                gpu(event, "c", 300, 10, pid=1),
                gpu(event, "note", 0, 900, cat="gpu_user_annotation"),
            ]
        )
    )
    assert figures.kernels == 4
    assert figures.gpu_events == 7
    assert figures.gpu_span_ns == 210_000
    assert figures.gpu_busy_ns == (20 + 5 + 2 + 1 + 10) * 1000
    assert figures.gpu_idle_ns == (51 - 28) * 1000
    assert figures.gpu_sum_ns == 48_000
    assert figures.gpu_compute_ns == (15 + 10) * 1000
    assert figures.gpu_comm_ns == (10 + 2) * 1000
    assert figures.gpu_copy_ns == (5 + 1) * 1000
    assert figures.span_ns == 900_000


def test_summary_counts_events_links_and_skips(
    trace_of: Make, event: Make, launched: Make
) -> None:
    figures = summary(
        trace_of(
            [
                event("aten::mm", 0, 9),
                *launched(1, 1, 20),
                *launched(2, 15, 40),
                {"ph": "i"},
            ]
        )
    )
    assert (figures.events, figures.slices, figures.events_skipped) == (6, 5, 0)
    assert (figures.gpu_events_linked, figures.gpu_events_with_op) == (2, 1)
    assert figures.complete is True
    kinds = [(track.kind, track.slices, track.busy_ns) for track in figures.tracks]
    assert kinds == [("ops", 3, 11_000), ("stream", 2, 20_000)]


def test_summary_lists_steps_with_their_kernels(
    trace_of: Make, event: Make, launched: Make
) -> None:
    step = event("ProfilerStep#5", 0, 50, cat="user_annotation")
    earlier = event("aten::a", -7, 1)
    figures = summary(
        trace_of([earlier, step, *launched(1, 1, 20), *launched(2, 5, 25)])
    )
    assert figures.base_ns == "-7000"
    (found,) = figures.steps
    assert found == StepFigures(
        name="ProfilerStep#5",
        start_ns=7_000,
        dur_ns=50_000,
        kernels=2,
        gpu_busy_ns=15_000,
    )


def test_summary_of_an_empty_trace_is_zero(trace_of: Make) -> None:
    figures = summary(trace_of([]))
    assert figures.slices == figures.span_ns == figures.gpu_span_ns == 0
    assert (figures.tracks, figures.steps, figures.devices) == ([], [], [])


def test_fits_into_json(trace_of: Make) -> None:
    event = (
        '{"ph":"X","name":"a\\ud800","cat":"kernel","pid":"\\udfff","tid":'
        + str(2**70)
        + ',"ts":1}'
    )
    name = '{"ph":"M","name":"thread_name","pid":"\\udfff","args":{"name":"\\ud800"}}'
    assert orjson.dumps(msgspec.to_builtins(summary(trace_of(f"[{event},{name}]"))))
