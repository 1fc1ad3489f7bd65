"""The figures of a window, compared with sums by hand and with counting single
nanoseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetui.analysis.questions.busy import StreamTime, summarize_window
from fusetui.trace import Trace

Event = dict[str, Any]
NS = 1e-3  # a nanosecond in the unit of the file


@pytest.fixture
def kernel(event: Callable[..., Event]) -> Callable[..., Event]:
    """A kernel on GPU 0, stream 7; times in ns."""

    def make(name: str, start: int, dur: int, stream: int = 7, gpu: int = 0) -> Event:
        place = {"pid": gpu, "tid": stream, "args": {"device": gpu, "stream": stream}}
        return event(name, start * NS, dur * NS, cat="kernel", **place)

    return make


@pytest.fixture
def overlapping(trace_of: Callable[..., Trace], kernel: Callable[..., Event]) -> Trace:
    """On stream 7: a 100..200, b 250..400; on stream 9: a 150..300."""
    return trace_of(
        [kernel("a", 100, 100), kernel("b", 250, 150), kernel("a", 150, 150, 9)]
    )


def test_kernels_are_clipped_to_the_window(overlapping: Trace) -> None:
    found = summarize_window(overlapping, 120, 260)
    assert [(n.name, n.events, n.ns) for n in found.names] == [
        ("a", 2, 80 + 110),
        ("b", 1, 10),
    ]


def test_busy_counts_time_on_two_streams_once(overlapping: Trace) -> None:
    found = summarize_window(overlapping, 0, 260)
    assert (found.busy_ns, found.idle_ns, found.span_ns) == (160, 100, 260)


def test_a_kernel_counts_where_it_starts(overlapping: Trace) -> None:
    counts = [
        summarize_window(overlapping, *w).kernels
        for w in ((100, 101), (101, 150), (0, 999))
    ]
    assert counts == [1, 0, 3]


def test_each_stream_has_its_own_busy_time(overlapping: Trace) -> None:
    assert summarize_window(overlapping, 120, 260).streams == (
        StreamTime("GPU 0 stream 7", 2, 90),
        StreamTime("GPU 0 stream 9", 1, 110),
    )


def test_each_device_has_its_own_idle_time(
    trace_of: Callable[..., Trace], kernel: Callable[..., Event]
) -> None:
    trace = trace_of([kernel("a", 0, 100), kernel("a", 0, 40, gpu=1)])
    found = summarize_window(trace, 0, 50)
    assert (found.devices, found.busy_ns, found.idle_ns) == (2, 90, 10)


def test_kernels_that_overlap_on_one_stream_are_one_stream(
    trace_of: Callable[..., Trace], kernel: Callable[..., Event]
) -> None:
    trace = trace_of([kernel("a", 0, 100), kernel("b", 60, 100)])
    assert summarize_window(trace, 0, 200).streams == (
        StreamTime("GPU 0 stream 7", 2, 160),
    )


def test_window_without_work_in_a_busy_trace_is_empty(overlapping: Trace) -> None:
    found = summarize_window(overlapping, 1000, 2000)
    assert (found.busy_ns, found.kernels, found.streams, found.names) == (0, 0, (), ())


def test_window_without_a_gpu_lists_ops_by_self_time(
    trace_of: Callable[..., Trace], event: Callable[..., Event]
) -> None:
    trace = trace_of([event("outer", 0, 1), event("inner", 0.2, 0.3)])
    found = summarize_window(trace, 100, 400)
    assert [(n.name, n.ns) for n in found.names] == [("inner", 200), ("outer", 100)]
    assert found.devices == 0


def test_window_figures_are_exact_far_from_time_zero(
    trace_of: Callable[..., Trace],
) -> None:
    text = '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, '
    trace = trace_of(text + '"ts": 1700000000000000.001, "dur": 5}]}')
    begin = 1_700_000_000_000_000_001
    assert summarize_window(trace, begin + 1, begin + 3).busy_ns == 2


kernels = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 40),
        st.integers(0, 15),
        st.integers(7, 9),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=8,
)
windows = st.tuples(st.integers(-5, 60), st.integers(1, 60))


def test_window_figures_equal_counting_nanoseconds(
    trace_of: Callable[..., Trace], kernel: Callable[..., Event]
) -> None:
    @settings(max_examples=60, deadline=None)
    @given(kernels, st.lists(windows, min_size=1, max_size=5))
    def check(
        events: list[tuple[str, int, int, int, int]], spans: list[tuple[int, int]]
    ) -> None:
        trace = trace_of([kernel(*one) for one in events])
        for begin, span in spans:
            inside = range(begin, begin + span)
            points = [
                (gpu, stream, name, t)
                for name, start, dur, stream, gpu in events
                for t in range(start, start + dur)
                if t in inside
            ]
            found = summarize_window(trace, begin, begin + span)
            assert found.busy_ns == len({(gpu, t) for gpu, _, _, t in points})
            assert sum(s.busy_ns for s in found.streams) == len(
                {(*p[:2], p[3]) for p in points}
            )
            assert {n.name: n.ns for n in found.names if n.ns} == {
                name: [p[2] for p in points].count(name)
                for name in {p[2] for p in points}
            }
            assert found.kernels == sum(start in inside for _, start, *_ in events)

    check()
