"""What torch's Python exporter writes in another way: instants as slices, and GPU work
on lanes for display. Files of both exporters give the same figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fusetui.analysis.questions.summary import summary
from fusetui.trace import Trace, open_trace
from fusetui.trace.cut import part_of, texts_of
from fusetui.trace.layout.counters import counters
from fusetui.trace.model.categories import Layer
from fusetui.trace.read import scanned
from fusetui.trace.read.events import INSTANT

Open = Callable[[list[dict[str, Any]]], Trace]
HERE = {"pid": 1, "tid": 1}


@pytest.fixture(params=["compiled", "python"])
def opened(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Open:
    if request.param == "python":
        monkeypatch.setattr(scanned, "scan", None)
    elif scanned.scan is None:
        pytest.skip("there is no compiled scanner")

    numbers = count()

    def open_events(events: list[dict[str, Any]]) -> Trace:
        path = tmp_path / f"{next(numbers)}.json"
        path.write_text(json.dumps({"traceEvents": events}))
        return open_trace(str(path), cached=False)

    return open_events


def memory_event(ts: float, total: int, **form: Any) -> dict[str, Any]:
    totals = {"Total Allocated": total, "Total Reserved": 4096}
    args = {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Addr": 4096, **totals}
    return {**form, "cat": INSTANT, "name": "[memory]", **HERE, "ts": ts, "args": args}


def op(ts: float, dur: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        **HERE,
        "ts": ts,
        "dur": dur,
    }


def kernel(ts: float, tid: int, **args: int) -> dict[str, Any]:
    own = {"device": 0, "stream": tid, **args}
    place = {"pid": 0, "tid": tid, "ts": ts, "dur": 5}
    return {"ph": "X", "cat": "kernel", "name": "gemm", **place, "args": own}


def test_an_instant_that_is_written_as_a_slice_is_an_instant(opened: Open) -> None:
    ops = [op(0, 9), op(10, 9)]
    as_instants = [memory_event(n, 100 * n, ph="i", s="t") for n in (2, 12)]
    as_slices = [memory_event(n, 100 * n, ph="X", dur=700) for n in (2, 12)]
    by_instants = opened([*ops, *as_instants])
    by_slices = opened([*ops, *as_slices])
    assert by_slices.report.phases == by_instants.report.phases
    assert (len(by_slices), by_slices.end_ns) == (2, 19_000)
    expected = [
        (one.label, one.time.tolist(), one.value.tolist())
        for one in counters(by_instants)
    ]
    assert expected
    found = [
        (one.label, one.time.tolist(), one.value.tolist())
        for one in counters(by_slices)
    ]
    assert found == expected


def test_a_slice_of_another_category_stays_one(opened: Open) -> None:
    named = {**op(2, 700), "name": "[memory]"}
    trace = opened([op(0, 9), named])
    assert len(trace) == 2
    assert not counters(trace)


def test_cut_keeps_instants_that_are_written_as_slices(opened: Open) -> None:
    trace = opened(
        [op(0, 9), *(memory_event(n, n, ph="X", dur=700) for n in (2, 500)), op(600, 1)]
    )
    part = part_of(trace, 0, 10_000)
    written = json.loads(b"".join(texts_of(trace, part, {})))
    names = [event["name"] for event in written["traceEvents"]]
    assert names == ["aten::mm", "[memory]"]


def test_work_on_a_lane_for_display_ran_on_its_own_stream(opened: Open) -> None:
    events = [
        kernel(0, 60, original_stream=13),
        kernel(6, 61, original_stream=13),
        kernel(12, 13),
        kernel(18, 29, annotated_stream=60),
    ]
    note = {**kernel(0, 60), "cat": "gpu_user_annotation", "name": "attention"}
    moved = {
        **kernel(6, 61, original_stream=13),
        "cat": "gpu_user_annotation",
        "name": "mlp",
    }
    trace = opened([*events, note, moved])
    streams = {
        track.tid: len(track) for track in trace.tracks if track.layer is Layer.STREAM
    }
    assert streams == {13: 3, 29: 1}
    annotations = {
        track.tid for track in trace.tracks if track.layer is Layer.GPU_ANNOTATIONS
    }
    assert annotations == {13, 60}


def test_the_slice_of_the_profiler_itself_adds_nothing_to_the_span(
    opened: Open,
) -> None:
    around = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans"}
    native = opened(
        [
            op(10, 5),
            op(20, 5),
            {**around, "tid": "PyTorch Profiler", "ts": 3, "dur": 23},
        ]
    )
    python = opened(
        [
            op(10, 5),
            op(20, 5),
            {**around, "tid": "PyTorch Profiler", "ts": 10, "dur": 99},
        ]
    )
    assert summary(native).span_ns == summary(python).span_ns == 15_000
    assert len(native) == len(python) == 3  # it is a slice like others nevertheless


def test_the_slice_of_the_profiler_is_the_span_of_a_file_without_others(
    opened: Open,
) -> None:
    around = {
        "ph": "X",
        "cat": "Trace",
        "name": "PyTorch Profiler (0)",
        "pid": "Spans",
        "tid": 0,
    }
    assert summary(opened([{**around, "ts": 3, "dur": 23}])).span_ns == 23_000
    assert summary(opened([])).span_ns == 0


def test_a_stream_that_is_no_number_says_nothing(opened: Open) -> None:
    odd = kernel(0, 60)
    odd["args"]["original_stream"] = "compute"
    negative = kernel(6, 61, original_stream=-4)
    trace = opened([odd, negative])
    streams = {track.tid for track in trace.tracks if track.layer is Layer.STREAM}
    assert streams == {60, 61}
    assert not trace.report.unreadable


def test_both_exporters_of_torch_write_the_same_profile(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    profiler = pytest.importorskip("torch.profiler")
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        profile_memory=True,
        record_shapes=True,
    ) as profiled:
        for _ in range(2):
            torch.nn.Linear(8, 8)(torch.randn(4, 8)).sum().backward()
    paths = [str(tmp_path / name) for name in ("native.json", "python.json")]
    profiled.export_chrome_trace(paths[0])
    try:
        profiled.export_chrome_trace(paths[1], use_python_export=True)
    except TypeError:
        pytest.skip("this torch has one exporter only")
    native, python = (open_trace(path, cached=False) for path in paths)
    assert native.report.phases["i"] > 2
    for phase in ("X", "i"):
        assert native.report.phases[phase] == python.report.phases[phase]
    values = [
        [one.value.tolist() for one in counters(trace)] for trace in (native, python)
    ]
    assert values[0] == values[1]
    assert summary(native).span_ns == summary(python).span_ns
