"""Which track a slice belongs to, in which order lanes come, and their labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.trace import Trace
from fusetui.trace.model.categories import Layer, Role, role

Make = Callable[..., Any]


def meta(kind: str, pid: object, tid: object, **args: object) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}


def lanes(trace: Trace) -> list[tuple[str, str]]:
    return [(str(track.layer), track.label) for track in trace.tracks]


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("Kernel", Role.KERNEL),
        ("kernel", Role.KERNEL),
        ("cuda_runtime", Role.CALL),
        ("Runtime", Role.CALL),
        ("xpu_driver", Role.CALL),
        ("privateuse1_runtime", Role.CALL),
        ("gpu_memset", Role.MEMSET),
        ("Operator", Role.OP),
        ("mtia_ccp_events", Role.DEVICE),
        ("", Role.OTHER),
        ("made_up", Role.OTHER),
    ],
)
def test_category_decides_the_role(category: str, expected: Role) -> None:
    assert role(category) is expected


def test_a_thread_has_layers(trace_of: Make, event: Make) -> None:
    step = event("ProfilerStep#1", 1, 100, cat="user_annotation")
    frame = event("enter", 0, 2, cat="python_function")
    call = event("cudaLaunchKernel", 6, 1, cat="cuda_runtime")
    trace = trace_of([step, frame, event("aten::mm", 5, 10), call])
    assert [str(track.layer) for track in trace.tracks] == [
        "annotations",
        "python",
        "ops",
    ]
    assert trace.parent.tolist() == [-1, -1, -1, 2]


def test_lanes_are_cpu_threads_by_start_then_gpu_streams(
    trace_of: Make, event: Make
) -> None:
    trace = trace_of(
        [
            event("k", 0, 1, cat="kernel", pid=1, tid=20),
            event("k", 0, 1, cat="kernel", pid=1, tid=7),
            event("k", 0, 1, cat="kernel", pid=0, tid=7),
            event("late", 50, 1, tid=1),
            event("early", 10, 1, tid=2),
            event("span", 0, 99, cat="Trace", pid="Spans", tid="PyTorch Profiler"),
        ]
    )
    assert lanes(trace) == [
        ("ops", "thread 2"),
        ("ops", "thread 1"),
        ("stream", "GPU 0 stream 7"),
        ("stream", "GPU 1 stream 7"),
        ("stream", "GPU 1 stream 20"),
        ("other", "PyTorch Profiler"),
    ]


def test_category_decides_and_not_pid(trace_of: Make, event: Make) -> None:
    frame = event("f", 0, 5, cat="python_function", pid=0, tid=0)
    kernel = event("k", 0, 5, cat="kernel", pid=0, tid=0)
    assert [t.layer for t in trace_of([frame, kernel]).tracks] == [
        Layer.PYTHON,
        Layer.STREAM,
    ]


def test_labels_behind_the_events_name_their_lanes(trace_of: Make, event: Make) -> None:
    events = [event("aten::a"), event("k", 0, 1, cat="kernel", pid=0, tid=7)]
    names = [
        meta("process_labels", 0, 0, labels="GPU 0"),
        meta("thread_name", 0, 7, name="stream 7 "),
        meta("thread_name", 1, 1, name="thread 1 (python3)"),
        meta("thread_name", 1, 1, name="thread 1 (pt_autograd_0)"),
    ]
    assert lanes(trace_of([*events, *names])) == [
        ("ops", "pt_autograd_0 1"),
        ("stream", "GPU 0 stream 7"),
    ]


def test_the_number_of_a_thread_does_not_replace_its_name(
    trace_of: Make, event: Make
) -> None:
    names = ("thread 1 (python)", "thread 1")
    labels = [meta("thread_name", 1, 1, name=name) for name in names]
    assert lanes(trace_of([event("f", 0, 1), *labels])) == [("ops", "python 1")]


def test_process_and_thread_ids_may_be_texts(trace_of: Make, event: Make) -> None:
    trace = trace_of(
        [event(pid="CPU functions", tid="main"), event(pid="CPU functions", tid=1)]
    )
    assert {track.label for track in trace.tracks} == {"main", "thread 1"}


def test_overlapping_kernels_open_a_subrow(trace_of: Make, event: Make) -> None:
    kernels = [event("k", ts, 10, cat="kernel", pid=0, tid=7) for ts in (0, 5, 20)]
    trace = trace_of(kernels)
    assert [(track.subrow, len(track)) for track in trace.tracks] == [(0, 2), (1, 1)]
    assert len({track.label for track in trace.tracks}) == 1


def test_rows_are_sorted_and_contiguous(trace_of: Make, event: Make) -> None:
    trace = trace_of([event("b", 5, 1), event("a", 0, 9), event("c", 0, 3, tid=2)])
    assert [trace.name_of(n) for n in range(3)] == ["a", "b", "c"]
    assert [(track.first_row, track.end_row) for track in trace.tracks] == [
        (0, 2),
        (2, 3),
    ]


def test_steps_of_2021_are_annotations(trace_of: Make, event: Make) -> None:
    trace = trace_of([event("ProfilerStep#1", 0, 10, cat="Operator")])
    assert trace.tracks[0].layer is Layer.ANNOTATIONS


def test_device_names_are_those_of_the_device_properties(
    trace_of: Make, event: Make
) -> None:
    kernel = event("k", cat="kernel", pid=2, tid=7)
    one = [{"id": 0, "name": "MI300X"}]
    from fusetui.trace.layout.devices import device_names

    assert device_names(
        trace_of([kernel], deviceProperties=one, roctracer_version=4.1)
    ) == ["MI300X"]
    two = [{"id": 2, "name": "A"}, {"id": 3, "name": "B"}]
    assert device_names(trace_of([kernel], deviceProperties=two)) == ["A"]
    assert device_names(trace_of([kernel])) == []


def test_ops_of_one_time_nest_by_their_ids_wherever_the_file_puts_them(
    trace_of: Make, event: Make
) -> None:
    outer = event("aten::linear", 5, 10, args={"External id": 3})
    inner = event("aten::addmm", 5, 10, args={"External id": 4})
    for events in ([outer, inner], [inner, outer]):
        trace = trace_of(events)
        assert [trace.name_of(row) for row in range(2)] == [
            "aten::linear",
            "aten::addmm",
        ]
        assert trace.parent.tolist() == [-1, 0]


ON_ROCM = {"deviceProperties": [{"id": 0, "name": "MI300X"}], "roctracer_version": 4.1}


def test_the_device_that_an_event_names_is_its_number_and_not_the_pid(
    trace_of: Make, event: Make
) -> None:
    kernel = event("k", 0, 5, cat="kernel", pid=2, tid=7, args={"device": 0})
    # says none: that of its pid
    copy = event("Memset", 9, 1, cat="gpu_memset", pid=2, tid=7)
    note = event("step", 0, 9, cat="gpu_user_annotation", pid=2, tid=7)
    label = meta("process_labels", 2, 0, labels="GPU 2")
    trace = trace_of(
        [event("f", 0, 9, pid=2, tid=7), kernel, copy, note, label], **ON_ROCM
    )
    assert [
        (track.layer, track.pid, track.label, len(track)) for track in trace.tracks
    ] == [
        (Layer.OPS, 2, "thread 7", 1),
        (Layer.GPU_ANNOTATIONS, 0, "GPU 0 stream 7", 1),
        (Layer.STREAM, 0, "GPU 0 stream 7", 2),
    ]


def test_devices_with_one_pid_and_stream_have_lanes_of_their_own(
    trace_of: Make, event: Make
) -> None:
    both = [
        event("k", 0, 5, cat="kernel", pid=9, tid=7, args={"device": d}) for d in (0, 1)
    ]
    assert lanes(trace_of(both)) == [
        ("stream", "GPU 0 stream 7"),
        ("stream", "GPU 1 stream 7"),
    ]


def test_ranks_in_one_file_that_each_count_from_0_keep_their_pids(
    trace_of: Make, event: Make
) -> None:
    both = [
        event("k", 0, 5, cat="kernel", pid=pid, tid=7, args={"device": 0})
        for pid in (3, 4)
    ]
    assert lanes(trace_of(both)) == [
        ("stream", "GPU 3 stream 7"),
        ("stream", "GPU 4 stream 7"),
    ]


@pytest.mark.parametrize("odd", [-1, "x", None, True, 1.5, [0], 2**70])
def test_a_device_that_is_no_number_is_none(
    trace_of: Make, event: Make, odd: object
) -> None:
    trace = trace_of(
        [event("k", 0, 5, cat="kernel", pid=2, tid=7, args={"device": odd})]
    )
    assert trace.tracks[0].pid == 2


def test_the_listed_device_of_that_number_gives_the_name(
    trace_of: Make, event: Make
) -> None:
    from fusetui.trace.layout.devices import device_names

    mixed = {
        "deviceProperties": [
            {"id": 0, "name": "dedicated"},
            {"id": 1, "name": "built in"},
        ],
        "roctracer_version": 4.1,
    }
    named = event("k", 0, 5, cat="kernel", pid=2, tid=7, args={"device": 0})
    agent = event("k", 0, 5, cat="kernel", pid=1, tid=7, args={"device": 1})
    assert device_names(trace_of([named], **mixed)) == ["dedicated"]
    assert device_names(trace_of([agent], **mixed)) == []
