"""A small export of Nsight Systems, written as nsys writes one, with whatever rows a
test needs."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

MACHINE = 1 << 48
Rows = Sequence[Mapping[str, Any]]
STRINGS = {
    1: "gemm",
    2: "cudaLaunchKernel_v7000",
    3: "cudaMemcpyAsync_v3020",
    4: "python3",
}
COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId contextId streamId correlationId globalPid "
    "demangledName shortName gridX gridY gridZ blockX blockY blockZ registersPerThread "
    "staticSharedMemory dynamicSharedMemory graphNodeId graphId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId contextId streamId correlationId globalPid "
    "bytes copyKind srcKind dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId contextId streamId correlationId globalPid "
    "bytes value memKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start end deviceId contextId streamId correlationId "
    "globalPid syncType",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId contextId streamId correlationId "
    "globalPid graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "timestamp deviceId contextId streamId correlationId "
    "globalPid eventId",
    "NVTX_EVENTS": "start end eventType text globalTid textId domainId int64Value jsonText",
    "OSRT_API": "start end nameId globalTid",
    "GPU_METRICS": "timestamp typeId metricId value",
    "TARGET_INFO_GPU_METRICS": "typeId metricId metricName",
    "TARGET_INFO_GPU": "id name totalMemory smCount computeMajor computeMinor threadsPerWarp",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs systemClockNs",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
    "ANALYSIS_DETAILS": "startTime stopTime",
    "ThreadNames": "nameId globalTid",
    "PROCESSES": "globalPid pid name",
}


def process(pid: int) -> int:
    return MACHINE | pid << 24


def thread(pid: int, tid: int) -> int:
    return process(pid) | tid


def kernel(
    start: int, end: int, correlation: int | None = 1, pid: int = 7, **more: Any
) -> dict[str, Any]:
    """On device 0, stream 7, unless `more` says otherwise."""
    own = {"deviceId": 0, "contextId": 1, "streamId": 7, "demangledName": 1}
    times = {
        "start": start,
        "end": end,
        "correlationId": correlation,
        "globalPid": process(pid),
    }
    return {**own, **times, **more}


def call(
    start: int, end: int, correlation: int = 1, pid: int = 7, **more: Any
) -> dict[str, Any]:
    who = {"globalTid": thread(pid, pid), "correlationId": correlation, "nameId": 2}
    return {"start": start, "end": end, "eventClass": 0, **who, **more}


def span(
    start: int, end: int | None, text: str | None, pid: int = 7, **more: Any
) -> dict[str, Any]:
    """A range of NVTX."""
    who = {"globalTid": thread(pid, pid), "eventType": 59, "domainId": 0}
    return {"start": start, "end": end, "text": text, **who, **more}


def write(path: Path, strings: Mapping[int, str] = STRINGS, **tables: Rows) -> str:
    """`tables` by their names, those of CUPTI without what all of them begin with."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table META_DATA_EXPORT (name text, value text)")
        db.execute(
            "insert into META_DATA_EXPORT values ('EXPORT_PRODUCT_VERSION', '2026.2')"
        )
        db.execute(
            "create table StringIds (id integer not null primary key, value text not null)"
        )
        db.executemany("insert into StringIds values (?, ?)", strings.items())
        for name, rows in tables.items():
            table = name if name in COLUMNS else f"CUPTI_ACTIVITY_KIND_{name}"
            columns = COLUMNS[table].split()
            typed = ", ".join(f'"{c}"{_affinity(c)}' for c in columns)
            db.execute(f'create table "{table}" ({typed})')
            asked = ", ".join(f":{c}" for c in columns)
            blank = dict.fromkeys(columns)
            db.executemany(
                f'insert into "{table}" values ({asked})',
                [blank | dict(r) for r in rows],
            )
        db.commit()
    return str(path)


def _affinity(column: str) -> str:
    texts = ("text", "name", "metricName", "jsonText")
    return " text" if column in texts else " real" if column == "value" else " integer"


STEPS = 3
STEP_NS = 100_000
OPS = ("aten::linear", "aten::addmm", "aten::copy_")


def two_processes(path: Path) -> str:
    """An export of two processes, each with a GPU: steps with ops, copies, a kernel on a
    second stream, and a wait for the device."""
    tables: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for device, pid in enumerate((7, 8)):
        for step in range(STEPS):
            _add_step(tables, step, pid, device)
    tables["TARGET_INFO_SESSION_START_TIME"] = [
        {"utcEpochNs": 1_700_000_000_000_000_000, "systemClockNs": 0}
    ]
    tables["ANALYSIS_DETAILS"] = [{"startTime": 0, "stopTime": STEPS * STEP_NS}]
    strings = STRINGS | {5: "gemm_on_side_stream", 6: "cudaDeviceSynchronize_v3020"}
    return write(path, strings, **tables)


def _add_step(
    tables: defaultdict[str, list[dict[str, Any]]], step: int, pid: int, device: int
) -> None:
    begin = STEP_NS * step + 1_000 * device
    first = 10 * step + 1
    who: dict[str, Any] = {"deviceId": device, "contextId": device + 1}

    def event(start: int, dur: int, number: int, **more: Any) -> dict[str, Any]:
        at = begin + start
        return kernel(at, at + dur, first + number, pid, **{**who, **more})

    tables["RUNTIME"] += [
        call(begin + 2_000, begin + 6_000, first, pid),
        call(begin + 12_000, begin + 15_000, first + 1, pid),
        call(begin + 22_000, begin + 25_000, first + 2, pid, nameId=3),
        call(begin + 32_000, begin + 34_000, first + 3, pid),
        call(begin + 40_000, begin + 70_000, first + 4, pid, nameId=6),
    ]
    sizes = {f"{what}{axis}": 4 for what in ("grid", "block") for axis in "XYZ"}
    tables["KERNEL"] += [
        event(9_000, 21_000, 0, registersPerThread=32, **sizes),
        event(16_000, 20_000, 1, streamId=13, demangledName=5, **sizes),
    ]
    kind = {"bytes": 4096, "copyKind": 1, "srcKind": 1, "dstKind": 2}
    tables["MEMCPY"].append(event(40_000, 5_000, 2, **kind))
    tables["MEMSET"].append(event(50_000, 1_000, 3, bytes=64, value=0, memKind=2))
    tables["SYNCHRONIZATION"].append(event(40_000, 30_000, 4, streamId=-1, syncType=4))
    first_id = 100 * step + 1
    tables["NVTX_EVENTS"] += [
        span(begin, begin + 20_000, f"FSDP::pre_forward, op_id = {first_id}", pid),
        span(
            begin + 20_500,
            begin + 80_000,
            f"FSDP::pre_backward, op_id = {first_id + 1}",
            pid,
        ),
    ]
    for number, name in enumerate(OPS, 2):
        start = begin + 10_000 * (number - 2) + 1_000
        text = f"{name}, op_id = {first_id + number}"
        tables["NVTX_EVENTS"].append(span(start, start + 8_000, text, pid))
