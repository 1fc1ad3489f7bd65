"""What an export of Nsight Systems says, table by table, and what is wrong with one."""

from __future__ import annotations

import gzip
import os
import sqlite3
import tracemalloc
import zipfile
from contextlib import closing
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.trace.nsys.export import MACHINE, call, kernel, process, span, thread, write

from fusetui.trace import CannotReadError, NotATraceError, Trace, open_trace
from fusetui.trace.formats import processes_in
from fusetui.trace.layout.counters import counters
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.categories import Layer, Role
from fusetui.trace.model.events import arguments
from fusetui.trace.read import source
from fusetui.trace.read.document_text import Rendered, stretches_of
from fusetui.trace.read.elements import Elements
from fusetui.trace.read.foreign import HEAD


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.sqlite"


def opened(path: Path, **tables: Any) -> Trace:
    return open_trace(write(path, **tables), cached=False)


def names(trace: Trace, *roles: Role) -> list[str]:
    return [trace.name_of(row) for row in trace.rows_of(*roles).tolist()]


def lanes(trace: Trace, layer: Layer) -> list[tuple[object, object]]:
    return [(track.pid, track.tid) for track in trace.tracks if track.layer is layer]


def args(trace: Trace, *roles: Role) -> list[dict[str, Any]]:
    return [trace.args_of(row) for row in trace.rows_of(*roles).tolist()]


def test_a_kernel_has_the_args_that_torch_writes(path: Path) -> None:
    sizes = {f"{what}{axis}": 2 for what in ("grid", "block") for axis in "XYZ"}
    more = {
        "registersPerThread": 32,
        "staticSharedMemory": 8,
        "dynamicSharedMemory": 100,
    }
    trace = opened(path, KERNEL=[kernel(10, 30, 5, **sizes, **more, graphNodeId=9)])
    assert args(trace, Role.KERNEL) == [
        {
            **{"device": 0, "context": 1, "stream": 7, "correlation": 5},
            **{"registers per thread": 32, "shared memory": 108},
            **{"grid": [2, 2, 2], "block": [2, 2, 2], "graph node id": 9},
        }
    ]


def test_nsys_values_that_are_not_recorded_are_left_out_of_args(path: Path) -> None:
    trace = opened(path, KERNEL=[kernel(10, 30, None, contextId=None)])
    assert args(trace, Role.KERNEL) == [{"device": 0, "stream": 7}]


def test_copies_are_named_as_torch_names_them(path: Path) -> None:
    own = {"bytes": 16, "copyKind": 1, "srcKind": 1, "dstKind": 2}
    copies = [kernel(10, 30, **own)]
    trace = opened(path, MEMCPY=copies, MEMSET=[kernel(40, 50, memKind=2, bytes=4)])
    assert names(trace, Role.MEMCPY, Role.MEMSET) == [
        "Memcpy HtoD (Pinned -> Device)",
        "Memset (Device)",
    ]
    assert [one["bytes"] for one in args(trace, Role.MEMCPY, Role.MEMSET)] == [16, 4]


def test_kinds_that_are_not_recorded_are_unknown(path: Path) -> None:
    trace = opened(path, MEMCPY=[kernel(10, 30, copyKind=8)], MEMSET=[kernel(40, 50)])
    assert names(trace, Role.MEMCPY, Role.MEMSET) == [
        "Memcpy DtoD (Unknown -> Unknown)",
        "Memset (Unknown)",
    ]


def test_calls_have_their_names_without_a_version(path: Path) -> None:
    trace = opened(path, RUNTIME=[call(0, 5), call(6, 9, eventClass=1)])
    assert names(trace, Role.CALL) == ["cudaLaunchKernel"] * 2
    assert trace.categories == ("cuda_runtime", "cuda_driver")


def test_a_launch_is_one_of_its_own_process(path: Path) -> None:
    calls = [call(0, 5, 1, pid=7), call(1, 6, 1, pid=8)]
    work = [kernel(10, 20, 1, pid=8, deviceId=1), kernel(11, 21, 1, pid=7)]
    trace = opened(path, RUNTIME=calls, KERNEL=work)
    found = {
        trace.track_of(row).pid: trace.track_of(int(trace.launch[row])).pid
        for row in trace.gpu_rows.tolist()
    }
    assert found == {0: 7, 1: 8}


def test_ops_of_torch_are_those_of_emit_nvtx(path: Path) -> None:
    ranges = [
        span(0, 90, "train step"),
        span(5, 80, "aten::mm, seq = 12, op_id = 34, sizes = [[2, 3], [3, 4]]"),
        span(6, 70, "FSDP::pre_forward (blocks.1), op_id = 35"),
        span(7, 60, "MyFunction, seq = 13, op_id = 36"),
        span(8, 50, "prefill, seq = 128"),
    ]
    trace = opened(path, NVTX_EVENTS=ranges)
    assert names(trace, Role.OP) == ["aten::mm", "MyFunction"]
    notes = ["train step", "FSDP::pre_forward (blocks.1)", "prefill, seq = 128"]
    assert names(trace, Role.ANNOTATION) == notes
    assert args(trace, Role.OP)[0] == {
        "External id": 34,
        "Record function id": 34,
        "Sequence number": 12,
        "Input Dims": [[2, 3], [3, 4]],
    }


@pytest.mark.parametrize(
    ("name", "is_op"),
    [
        ("aten::add_", True),
        ("_C::rms_norm", True),
        ("autograd::engine::evaluate_function: MmBackward0", True),
        ("AddmmBackward0", True),
        ("detach_", True),
        ("triton_poi_fused_add_1", True),
        ("record_param_comms", True),
        ("nccl:all_reduce", False),
        ("Optimizer.step#Adam.step", False),
        ("Stage::run", False),
        ("mymodel::layer 3", False),
    ],
)
def test_an_nvtx_range_without_a_sequence_number_is_an_op_by_its_name(
    path: Path, name: str, is_op: bool
) -> None:
    trace = opened(path, NVTX_EVENTS=[span(0, 9, f"{name}, op_id = 3")])
    assert names(trace, Role.OP if is_op else Role.ANNOTATION) == [name]


def test_nccl_payload_becomes_args(path: Path) -> None:
    said = '{"Message size [bytes]": 4096, "Peer rank": 1}'
    ranges = [
        span(0, 0, "NCCL", eventType=75, domainId=1),
        span(0, 9, None, textId=1, domainId=1, jsonText=said),
    ]
    trace = opened(path, NVTX_EVENTS=ranges)
    assert args(trace, Role.ANNOTATION) == [
        {"domain": "NCCL", "Message size [bytes]": 4096, "Peer rank": 1}
    ]
    assert not trace.report.left_out


def test_marks_and_open_ranges(path: Path) -> None:
    ranges = [
        span(5, None, "here", eventType=34),
        span(0, None, "open"),
        span(1, 40, "closed"),
    ]
    trace = opened(path, NVTX_EVENTS=[{**ranges[0], "end": 5}, *ranges[1:]])
    dur = {trace.name_of(row): int(trace.dur[row]) for row in range(len(trace))}
    assert dur == {"here": 0, "open": 40, "closed": 39}
    assert trace.report.unfinished == 1


def test_a_whole_graph_is_one_event_and_that_is_said(path: Path) -> None:
    trace = opened(path, GRAPH_TRACE=[kernel(10, 90, graphId=4)], RUNTIME=[call(0, 5)])
    assert names(trace, Role.KERNEL) == ["CUDA graph 4"]
    assert trace.launch[trace.gpu_rows].tolist() == trace.rows_of(Role.CALL).tolist()
    assert "--cuda-graph-trace=node" in trace.report.remarks[0]


def test_waits_are_on_the_device_of_their_context(path: Path) -> None:
    """CUPTI says of them no device: nsys writes 0."""
    waits = [
        kernel(0, 9, contextId=2, deviceId=0, syncType=3),
        kernel(1, 8, streamId=2**32 - 1),
    ]
    work = [kernel(10, 20, contextId=2, deviceId=1), kernel(10, 20)]
    trace = opened(path, SYNCHRONIZATION=waits, KERNEL=work)
    assert names(trace, Role.SYNC) == ["Unknown Sync", "Stream Sync"]
    assert lanes(trace, Layer.SYNC) == [(0, -1), (1, 7)]


def test_metrics_are_counters(path: Path) -> None:
    rows = [
        {"timestamp": n * 10, "typeId": 1 << 56, "metricId": 3, "value": n}
        for n in range(3)
    ]
    known = [{"typeId": 1 << 56, "metricId": 3, "metricName": "SMs Active"}]
    trace = opened(
        path, KERNEL=[kernel(0, 9)], GPU_METRICS=rows, TARGET_INFO_GPU_METRICS=known
    )
    (found,) = counters(trace)
    assert found.label == "SMs Active GPU 0"
    assert (found.time.tolist(), found.value.tolist()) == ([0, 10, 20], [0, 1, 2])


def test_values_that_no_counter_has_are_counted(path: Path) -> None:
    values = (-(2**63), 1e308, None, 5)
    rows = [
        {"timestamp": 1, "typeId": 0, "metricId": 3, "value": value} for value in values
    ]
    trace = opened(path, KERNEL=[kernel(0, 9)], GPU_METRICS=rows)
    assert trace.report.phases["C"] == 2
    assert trace.report.unreadable == 2
    assert trace.report.complete


def test_devices_are_those_of_torch(path: Path) -> None:
    gpu = {"id": 0, "name": "NVIDIA H100", "smCount": 132, "totalMemory": 10**11}
    trace = opened(path, KERNEL=[kernel(0, 9)], TARGET_INFO_GPU=[gpu])
    assert device_properties(trace) == {
        0: {"id": 0, "name": "NVIDIA H100", "numSms": 132, "totalGlobalMem": 10**11}
    }


def test_cuda_device_of_a_process_is_mapped_to_its_gpu(path: Path) -> None:
    known = [{"pid": 7, "cudaId": 0, "gpuId": 3}, {"pid": 8, "cudaId": 0, "gpuId": 2}]
    work = [kernel(0, 9, pid=7), kernel(0, 9, pid=8)]
    trace = opened(path, KERNEL=work, TARGET_INFO_CUDA_DEVICE=known)
    assert lanes(trace, Layer.STREAM) == [(2, 7), (3, 7)]


def test_devices_of_two_processes_are_kept_apart_where_nothing_tells_them(
    path: Path,
) -> None:
    trace = opened(path, KERNEL=[kernel(0, 9, pid=7), kernel(0, 9, pid=8)])
    told = [(f"GPU 0 of process {pid}", 7) for pid in (7, 8)]
    assert lanes(trace, Layer.STREAM) == told


def test_streams_of_two_processes_on_one_device_are_kept_apart(path: Path) -> None:
    known = [{"pid": pid, "cudaId": 0, "gpuId": 0} for pid in (7, 8)]
    work = [kernel(0, 9, pid=7), kernel(5, 19, pid=8)]
    trace = opened(path, KERNEL=work, TARGET_INFO_CUDA_DEVICE=known)
    assert len(lanes(trace, Layer.STREAM)) == 2
    assert {pid for pid, _ in lanes(trace, Layer.STREAM)} == {0}


def test_processes_of_two_machines_with_one_pid_have_lanes_of_their_own(
    path: Path,
) -> None:
    other = {"globalTid": (2 << 48) | (7 << 24) | 7}
    trace = opened(path, RUNTIME=[call(0, 9), call(0, 9) | other])
    assert len(lanes(trace, Layer.OPS)) == 2


def test_threads_have_names(path: Path) -> None:
    named = [
        {"nameId": 4, "globalTid": thread(7, 7)},
        {"nameId": 4, "globalTid": MACHINE},
    ]
    trace = opened(path, RUNTIME=[call(0, 9)], ThreadNames=named)
    assert [track.label for track in trace.tracks] == ["python3 7"]


def test_session_time_gives_the_time_of_day(path: Path) -> None:
    when = {"TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 10**18}]}
    session = {"ANALYSIS_DETAILS": [{"startTime": 100, "stopTime": 1000}]}
    trace = opened(path, KERNEL=[kernel(150, 190)], **when, **session)
    assert trace.epoch_ns == 10**18 - 100
    path.unlink()
    beyond = opened(path, KERNEL=[kernel(50, 190)], **when, **session)
    assert beyond.epoch_ns == 0


def test_tables_that_are_not_read_are_told(path: Path) -> None:
    calls = [{"start": n, "end": n + 1, "globalTid": thread(7, 7)} for n in range(3)]
    trace = opened(path, KERNEL=[kernel(0, 9)], OSRT_API=calls)
    assert trace.report.left_out == {"OSRT_API": 3}


def test_names_that_are_missing_are_counted(path: Path) -> None:
    trace = opened(path, KERNEL=[kernel(0, 9, demangledName=77), kernel(10, 19)])
    assert names(trace, Role.KERNEL) == ["unnamed 77", "gemm"]
    assert (
        "names of 1 row of CUPTI_ACTIVITY_KIND_KERNEL are missing"
        in trace.report.remarks[0]
    )


def test_times_that_cannot_be_are_counted(path: Path) -> None:
    work = [
        kernel(10, 5),
        kernel(0, "late"),  # type: ignore[arg-type]
        kernel(None, 9),  # type: ignore[arg-type]
        kernel(2**62, 2**62),
        kernel(1, 2),
    ]
    trace = opened(path, KERNEL=work)
    assert trace.dur.tolist() == [1, 0]
    assert (trace.report.negative_durations, trace.report.unreadable) == (1, 3)


def test_a_view_in_the_place_of_a_table_is_not_asked(path: Path) -> None:
    write(path, KERNEL=[kernel(0, 9)])
    endless = "with recursive n(start) as (select 1 union all select start + 1 from n)"
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            f'create view NVTX_EVENTS as {endless} select start, start as "end" from n'
        )
        db.commit()
    assert len(open_trace(str(path), cached=False)) == 1


def test_nsys_reading_writes_no_file_beside_the_export(path: Path) -> None:
    write(path, KERNEL=[kernel(0, 9)])
    path.with_name("a.sqlite-wal").write_bytes(b"changes")
    trace = open_trace(str(path), cached=False)
    assert "a.sqlite-wal are not read" in trace.report.remarks[-1]
    assert not trace.report.whole
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "a.sqlite",
        "a.sqlite-wal",
    ]


def test_packed_nsys_export_is_read(path: Path) -> None:
    write(path, KERNEL=[kernel(0, 9)])
    packed = path.with_suffix(".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    trace = open_trace(str(packed), cached=False)
    assert args(trace, Role.KERNEL)[0]["stream"] == 7


def test_nsys_export_in_a_zip_is_read(path: Path) -> None:
    write(path, KERNEL=[kernel(0, 9)])
    with zipfile.ZipFile(path.with_suffix(".zip"), "w") as archive:
        archive.write(path, "a.sqlite")
    trace = open_trace(str(path.with_suffix(".zip")), cached=False)
    assert args(trace, Role.KERNEL)[0]["stream"] == 7


def test_nsys_export_from_a_long_pipe_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no text has no text of an event in its first 64 MB."""
    write(path, NVTX_EVENTS=[span(0, 9, "x" * 3_000_000)])
    monkeypatch.setattr(source, "MAX_PIPE_BYTES_BEFORE_EVENT", 1 << 20)
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    writer = Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    assert len(open_trace(str(pipe), cached=False)) == 1
    writer.join()


def test_nsys_export_without_events_is_refused(path: Path) -> None:
    with pytest.raises(NotATraceError, match="without Nsight Systems events"):
        opened(path)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_file_that_is_cut_short_is_read_up_to_there(path: Path, share: float) -> None:
    write(path, KERNEL=[kernel(n, n + 1) for n in range(5000)])
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    trace = open_trace(str(path), cached=False)
    assert 5000 * share - 300 < len(trace) < 5000
    assert trace.start.tolist() == list(range(len(trace)))
    assert not trace.report.complete
    assert "truncated" in trace.report.remarks[0]


def test_a_file_that_is_no_database_after_its_first_bytes(path: Path) -> None:
    write(path, KERNEL=[kernel(0, 9)])
    path.write_bytes(path.read_bytes()[:100] + b"StringIds" * 100)
    with pytest.raises(CannotReadError, match="damaged SQLite database"):
        open_trace(str(path), cached=False)


def test_args_of_a_file_that_has_changed(path: Path) -> None:
    trace = opened(path, KERNEL=[kernel(0, 9)])
    path.write_bytes(path.read_bytes() + b"\0")
    assert trace.elements.text.problem().endswith("has changed since it was read")
    assert args(trace, Role.KERNEL) == [{}]


def test_nsys_call_without_an_owner_has_a_lane_not_recorded(path: Path) -> None:
    trace = opened(
        path,
        RUNTIME=[call(0, 9, globalTid=None)],
        PROCESSES=[{"globalPid": process(7)}],
    )
    assert lanes(trace, Layer.OPS) == [("not recorded", "not recorded")]


def test_one_process_of_an_nsys_export_is_read_alone(path: Path) -> None:
    calls = [call(0, 5, 1, pid=7), call(1, 6, 1, pid=8)]
    work = [kernel(10, 20, 1, pid=8, deviceId=1), kernel(11, 21, 1, pid=7)]
    write(
        path,
        RUNTIME=calls,
        KERNEL=work,
        NVTX_EVENTS=[span(0, 9, "mine"), span(0, 9, "its", 8)],
    )
    assert processes_in(str(path)) == [f"{path}#7", f"{path}#8"]
    trace = open_trace(f"{path}#8", cached=False)
    assert trace.report.path == f"{path}#8"
    assert names(trace, Role.ANNOTATION) == ["its"]
    assert lanes(trace, Layer.STREAM) == [(1, 7)]
    assert [one["correlation"] for one in args(trace, Role.KERNEL)] == [1]
    with pytest.raises(NotATraceError, match="no events of process 9"):
        open_trace(f"{path}#9", cached=False)


def test_a_file_of_one_process_is_not_divided(path: Path) -> None:
    write(path, KERNEL=[kernel(0, 9)], RUNTIME=[call(0, 5, pid=8)])
    assert processes_in(str(path)) == [str(path)]
    (path.parent / "a.json").write_text("{}")
    assert processes_in(str(path.parent / "a.json")) == [str(path.parent / "a.json")]


def test_rowids_far_apart_make_no_empty_stretches(path: Path) -> None:
    write(path, KERNEL=[kernel(0, 9, 1), kernel(10, 19, 2)])
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "update CUPTI_ACTIVITY_KIND_KERNEL set rowid = rowid + (1 << 62) where start"
        )
        db.commit()
    trace = open_trace(str(path), cached=False)
    assert len(trace.elements.stretches) == 2
    assert [one["correlation"] for one in args(trace, Role.KERNEL)] == [1, 2]


def test_nvtx_domains_are_numbered_per_process(path: Path) -> None:
    declared = {"eventType": 75, "domainId": 1}
    ranges = [
        span(0, 0, "NCCL", 7, **declared),
        span(0, 0, "cuBLAS", 8, **declared),
        span(0, 9, "a", 7, domainId=1),
        span(0, 9, "b", 8, domainId=1),
        span(0, 9, "c", 9, domainId=1),
    ]
    trace = opened(path, NVTX_EVENTS=ranges)
    domains = {
        trace.name_of(row): trace.args_of(row).get("domain")
        for row in range(len(trace))
    }
    assert domains == {"a": "NCCL", "b": "cuBLAS", "c": None}


@pytest.mark.parametrize("kind", [34, 65])
def test_a_mark_without_an_end_lasts_no_time(path: Path, kind: int) -> None:
    ranges = [span(5, None, "here", eventType=kind), span(1, 40, "closed")]
    trace = opened(path, NVTX_EVENTS=ranges)
    dur = {trace.name_of(row): int(trace.dur[row]) for row in range(len(trace))}
    assert dur == {"here": 0, "closed": 39}
    assert trace.report.unfinished == 0
    here = trace.elements.element(0)
    assert (here["ph"], here["dur"]) == ("X", 0.0)


def without_owners(path: Path) -> Trace:
    """The export, with a table of kernels as nsys writes it without globalPid."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("alter table CUPTI_ACTIVITY_KIND_KERNEL drop column globalPid")
        db.commit()
    return open_trace(str(path), cached=False)


def test_kernels_without_a_process_are_those_of_the_only_one(path: Path) -> None:
    marked = [span(0, 90, "another process draws", pid=8)]
    calls = [call(n, n + 5, n) for n in (1, 2)]
    work = [kernel(20 * n, 20 * n + 10, n) for n in (1, 2)]
    write(path, RUNTIME=calls, KERNEL=work, NVTX_EVENTS=marked)
    trace = without_owners(path)
    assert (trace.launch[trace.gpu_rows] >= 0).all()
    assert [one["correlation"] for one in args(trace, Role.KERNEL)] == [1, 2]
    assert lanes(trace, Layer.STREAM) == [(0, 7)]
    assert len(open_trace(f"{path}#7", cached=False).gpu_rows) == 2


def test_kernels_without_a_process_are_of_none_where_there_are_two(path: Path) -> None:
    calls = [call(1, 6, 1, pid=pid) for pid in (7, 8)]
    write(path, RUNTIME=calls, KERNEL=[kernel(10, 20, 1)])
    trace = without_owners(path)
    assert (trace.launch[trace.gpu_rows] < 0).all()


def test_rows_that_are_not_read_are_counted_for_one_process(path: Path) -> None:
    calls = [{"start": 0, "end": 1, "globalTid": thread(pid, pid)} for pid in (7, 7, 8)]
    ranges = [span(0, 9, "a", pid=pid, eventType=40) for pid in (7, 8, 8, 8)]
    work = [kernel(0, 9, pid=7), kernel(0, 9, pid=8)]
    trace = opened(path, KERNEL=work, OSRT_API=calls, NVTX_EVENTS=ranges)
    assert trace.report.left_out == {"OSRT_API": 3, "NVTX_EVENTS": 4}
    own = open_trace(f"{path}#7", cached=False)
    assert own.report.left_out == {"OSRT_API": 2, "NVTX_EVENTS": 1}


@pytest.mark.parametrize("seed", range(12))
def test_args_read_again_from_damaged_tables_belong_to_the_rows_counted_first(
    path: Path, seed: int
) -> None:
    """A row that one query finds may be hidden from another, where the page that leads
    to it is damaged."""
    count = 3000
    write(
        path,
        NVTX_EVENTS=[
            span(n * 10, n * 10 + 9, f"aten::mm, op_id = {n + 1}") for n in range(count)
        ],
        RUNTIME=[call(n * 10, n * 10 + 5, n + 1) for n in range(count)],
        KERNEL=[kernel(n * 10 + 20, n * 10 + 25, n + 1) for n in range(count)],
    )
    rnd = Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(30):
        data[rnd.randrange(1 << 14, len(data))] = rnd.randrange(256)
    path.write_bytes(data)
    trace = open_trace(str(path), cached=False)
    found = arguments(
        trace.elements, trace.order, ("correlation", "Record function id")
    )
    assert len(found.number) == len(trace)
    for stretch in trace.elements.stretches:
        text = trace.elements.text.part(stretch.start, stretch.end)
        elements = msgspec.json.decode(b"[" + bytes(text) + b"]")
        assert len(elements) == stretch.events
        assert all(elements) or not trace.report.complete
    assert len(trace) == 3 * count or not trace.report.complete
    assert trace.report.complete or "damaged" in " ".join(trace.report.remarks)


def test_an_element_that_is_not_found_again_leaves_the_others_in_their_places() -> None:
    texts = [b'{"args":{"a":1}}', b'{"args":{"a":2}}', b'{"args":{"a":3}}']
    stretches = stretches_of([0, 5, 2], [0, 0, 0])[1:]
    elements = Elements(Rendered(lambda number: texts, lambda: ""), stretches)
    found = [elements.element(order).get("args") for order in range(7)]
    assert found == [{"a": 1}, {"a": 2}, {"a": 3}, None, None, {"a": 1}, {"a": 2}]
    wanted = arguments(elements, np.arange(7), ("a",))
    assert [
        wanted.distinct[n][0] if n >= 0 else b"" for n in wanted.number.tolist()
    ] == [
        *(b"1", b"2", b"3", b"", b"", b"1", b"2"),
    ]


def test_a_name_that_many_kernels_share_is_held_once(path: Path) -> None:
    name = "gemm<" + "x" * 3_000_000
    strings = {1: name, 2: "cudaLaunchKernel", 3: f"{name}>"}
    work = [
        kernel(n * 10, n * 10 + 5, n + 1, demangledName=1 + 2 * (n % 2))
        for n in range(400)
    ]
    write(path, strings, KERNEL=work)
    tracemalloc.start()
    trace = open_trace(str(path), cached=False)
    found = arguments(trace.elements, trace.order, ("correlation",))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * len(name)
    assert len(found.texts) == 400
    assert [text[:5] for text in trace.names] == ["gemm<", "gemm<"]
    assert all(
        text.endswith(f"(name {n})")
        for text, n in zip(trace.names, (1, 3), strict=True)
    )
    assert (
        "2 names have more than 32,768 characters and are cut there."
        in trace.report.remarks
    )


def diagnostic(severity: int | None, text: Any, **more: Any) -> dict[str, Any]:
    return {"timestamp": 5, "severity": severity, "text": text} | more


def test_warnings_of_the_profiler_are_told_errors_first(path: Path) -> None:
    events = [
        diagnostic(1, "Profiling has started."),
        diagnostic(2, "CUDA trace data\nmight be lost."),
        diagnostic(2, "CUDA trace data might be lost."),
        diagnostic(3, "CUPTI could not be initialized."),
        diagnostic(4, "Number of events: 7"),
    ]
    trace = opened(path, KERNEL=[kernel(0, 9)], DIAGNOSTIC_EVENT=events)
    assert trace.report.remarks == (
        "Nsight Systems recorded an error: CUPTI could not be initialized.",
        "Nsight Systems recorded a warning (2 times): CUDA trace data might be lost.",
    )
    assert not trace.report.left_out


def test_nsys_informational_diagnostics_are_not_reported(path: Path) -> None:
    events = [
        diagnostic(1, "Profiling has started."),
        diagnostic(2, None),
        diagnostic(None, "a"),
    ]
    trace = opened(path, KERNEL=[kernel(0, 9)], DIAGNOSTIC_EVENT=events)
    assert trace.report.remarks == ()
    assert not trace.report.left_out


def test_many_and_long_warnings_are_cut(path: Path) -> None:
    events = [diagnostic(2, f"{n} " + "a" * 1_000) for n in range(8)]
    trace = opened(path, KERNEL=[kernel(0, 9)], DIAGNOSTIC_EVENT=events)
    assert len(trace.report.remarks) == 6
    assert trace.report.remarks[-1] == "Nsight Systems recorded 3 more warnings."
    assert max(map(len, trace.report.remarks)) < 500


def test_of_one_process_its_warnings_and_those_of_none_are_told(path: Path) -> None:
    events = [
        diagnostic(2, "mine", globalPid=process(7)),
        diagnostic(2, "another's", globalPid=process(8)),
        diagnostic(2, "of the daemon", globalPid=0),
        diagnostic(2, "of nobody"),
    ]
    work = [kernel(0, 9, pid=7), kernel(0, 9, pid=8)]
    trace = opened(path, KERNEL=work, DIAGNOSTIC_EVENT=events)
    assert len(trace.report.remarks) == 4
    own = open_trace(f"{path}#7", cached=False)
    assert [one.rpartition(": ")[2] for one in own.report.remarks] == [
        "mine.",
        "of the daemon.",
        "of nobody.",
    ]


def add_tables_that_fill_the_first_page(path: Path) -> None:
    """SQLite then moves the schema to a new page, at the end of the file."""
    columns = ", ".join(f"column_{number} text" for number in range(150))
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table ROWS (data blob)")
        db.execute("insert into ROWS values (zeroblob(200000))")
        for number in range(4):
            db.execute(f"create table OF_ANOTHER_PROGRAM_{number} ({columns})")
        db.commit()


def test_an_export_whose_schema_is_at_the_end_of_the_file_is_read(path: Path) -> None:
    write(path, KERNEL=[kernel(0, 10)])
    add_tables_that_fill_the_first_page(path)
    assert b"CUPTI" not in path.read_bytes()[:HEAD]
    assert names(open_trace(str(path), cached=False), Role.KERNEL) == ["gemm"]


def test_a_database_of_another_program_is_named_wherever_its_schema_is(
    path: Path,
) -> None:
    add_tables_that_fill_the_first_page(path)
    with pytest.raises(NotATraceError, match="is a SQLite database: record with torch"):
        open_trace(str(path), cached=False)
