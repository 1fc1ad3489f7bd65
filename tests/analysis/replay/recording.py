"""Writes a simulated run as torch.profiler writes a trace, and tells the steps of a
run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.analysis.replay.programs import (
    FRAME,
    KERNEL,
    MEMCPY,
    MEMSET,
    NOTE,
    OP,
    Copy,
    GraphLaunch,
    Item,
    Launch,
    Range,
)
from tests.analysis.replay.simulator import CALL, SYNC, Slice

Event = dict[str, Any]
# the trace begins so many ns after its base
PROCESS, BEGIN = 4100, 4_458_676_000_000_000
BASE = 1_711_964_646_000_000_000
GPU_KINDS = frozenset({KERNEL, MEMCPY, MEMSET})
FLOW_CALLS = ("Synchronize", "StreamWaitEvent")
CALL_NUMBERS = {
    "cudaLaunchKernel": 211,
    "cudaMemcpyAsync": 41,
    "cudaMemcpy": 31,
    "cudaMemsetAsync": 51,
    "cudaGraphLaunch": 311,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
    "cudaEventSynchronize": 137,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaFree": 22,
    "cudaStreamIsCapturing": 317,
}
DEVICE = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "totalGlobalMem": 85051572224,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "warpSize": 32,
    "sharedMemPerBlock": 49152,
    "numSms": 108,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerBlockOptin": 166912,
    "sharedMemPerMultiprocessor": 167936,
}


class Step(NamedTuple):
    name: str
    start: int
    end: int


def gpu(run: Sequence[Slice]) -> list[Slice]:
    return [one for one in run if one.kind in GPU_KINDS]


def span_of(run: Sequence[Slice]) -> int:
    """From the first start to the last end of all."""
    return max(one.end for one in run) - min(one.start for one in run)


def step_of_items(run: Sequence[Slice]) -> dict[int, str]:
    """The step in whose annotation an item's launch call begins, by the key of the
    item."""
    calls = {one.link: one.start for one in run if one.kind == CALL}
    notes = [
        one for one in run if one.kind == NOTE and one.name.startswith("ProfilerStep#")
    ]
    return {
        one.source.key: note.name
        for one in gpu(run)
        for note in notes
        if isinstance(one.source, Item) and note.start <= calls[one.link] < note.end
    }


def steps_of(
    run: Sequence[Slice], belongs: Mapping[int, str] | None = None
) -> list[Step]:
    """A step ends with its annotation, or with the last of its items if that is later:
    those that it launched, or had launched when `belongs` was taken from the run before
    a change. None ends before the one before it."""
    belongs = step_of_items(run) if belongs is None else belongs
    ends: defaultdict[str, int] = defaultdict(int)
    for one in gpu(run):
        if isinstance(one.source, Item) and one.source.key in belongs:
            name = belongs[one.source.key]
            ends[name] = max(ends[name], one.end)
    notes = [
        one for one in run if one.kind == NOTE and one.name.startswith("ProfilerStep#")
    ]
    notes.sort(key=lambda note: note.start)
    reached = accumulate((max(one.end, ends[one.name]) for one in notes), max)
    return [
        Step(one.name, one.start, end) for one, end in zip(notes, reached, strict=True)
    ]


def lengths(
    run: Sequence[Slice], belongs: Mapping[int, str] | None = None
) -> dict[str, int]:
    """Of each step after the first one, the distance from the end of the step before
    it."""
    steps = steps_of(run, belongs)
    return {after.name: after.end - before.end for before, after in pairwise(steps)}


def write(run: Sequence[Slice], path: Path) -> Path:
    """The trace of a run as one file."""
    text = json.dumps(document(run))  # with an indent it takes ten times as long
    path.write_text(text.replace('}, {"ph"', '},\n{"ph"'), encoding="utf-8")
    return path


def document(run: Sequence[Slice]) -> dict[str, Any]:
    begin, end = min(one.start for one in run), max(one.end for one in run)
    made = {
        "ph": "X",
        "cat": "Trace",
        "ts": _us(begin - 2000),
        "dur": _dur(end - begin + 4000),
        "pid": "Spans",
        "tid": "PyTorch Profiler",
        "name": "PyTorch Profiler (0)",
        "args": {"Op count": 0},
    }
    window = {
        "name": "Record Window End",
        "ph": "i",
        "s": "g",
        "pid": "",
        "tid": "",
        "ts": _us(end + 2000),
    }
    events = [*_host(run), *_device(run), *_names(run), made, window]
    return {
        "schemaVersion": 1,
        "deviceProperties": [DEVICE],
        "cupti_version": 24,
        "cuda_runtime_version": 12060,
        "cuda_driver_version": 12080,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE,
        "traceEvents": events,
        "traceName": "invented.json",
    }


def _us(ns: int) -> Any:
    return _dur(BEGIN + ns)


def _dur(ns: int) -> Any:
    """Microseconds with three decimals; up to 2^53 ns a float prints them as they
    are."""
    return round(ns / 1000, 3)


def _slice(one: Slice, pid: int, args: Event) -> Event:
    event: Event = {
        "ph": "X",
        "cat": one.kind,
        "name": one.name,
        "pid": pid,
        "tid": one.lane,
    }
    return event | {
        "ts": _us(one.start),
        "dur": _dur(one.end - one.start),
        "args": args,
    }


def _ordered(run: Sequence[Slice], kinds: set[str]) -> list[Slice]:
    """By thread and time; outer ones come first in a run."""
    chosen = [one for one in run if one.kind in kinds]
    return sorted(chosen, key=lambda one: (one.lane, one.start, -one.end))


def _host(run: Sequence[Slice]) -> Iterator[Event]:
    """Ops and annotations with the flows of autograd, then Python frames."""
    ids, numbers = _external(run), count()
    for one in _ordered(run, {OP, NOTE}):
        args: Event = {"External id": ids[id(one)], "Record function id": 0}
        source = one.source
        if isinstance(source, Range) and (source.forward or source.backward):
            args["Sequence number"] = source.forward or source.backward
            args["Fwd thread id"] = 1 if source.backward else 0
        args["Ev Idx"] = next(numbers)
        if isinstance(source, Range) and source.dims:
            args["Input Dims"] = [list(dims) for dims in source.dims]
            args["Input type"] = ["float"] * len(source.dims)
        yield _slice(one, PROCESS, args)
        if isinstance(source, Range) and (source.forward or source.backward):
            yield _flow(
                "s" if source.forward else "f", "fwdbwd", args["Sequence number"], one
            )
    open_frames: list[tuple[int, int]] = []
    for python, one in enumerate(_ordered(run, {FRAME}), 1):
        while open_frames and open_frames[-1][0] <= one.start:
            open_frames.pop()
        args = {
            "Python parent id": open_frames[-1][1] if open_frames else None,
            "Python id": python,
        }
        if one.name.startswith("nn.Module: "):
            args["Python module id"] = python
        open_frames.append((one.end, python))
        yield _slice(one, PROCESS, args | {"Ev Idx": next(numbers)})


def _flow(phase: str, kind: str, number: int, one: Slice, pid: int = PROCESS) -> Event:
    event: Event = {
        "ph": phase,
        "id": number,
        "pid": pid,
        "tid": one.lane,
        "ts": _us(one.start),
    }
    return event | {"cat": kind, "name": kind} | ({"bp": "e"} if phase == "f" else {})


def _external(run: Sequence[Slice]) -> dict[int, int]:
    """The External id of each op and annotation, by the slice's own id."""
    return {id(one): number for number, one in enumerate(_ordered(run, {OP, NOTE}), 1)}


def _device(run: Sequence[Slice]) -> Iterator[Event]:
    """Calls and what they gave to the GPU, each followed by its flow, then annotations
    there."""
    owners = _owners(run)
    given: defaultdict[int, list[Slice]] = defaultdict(list)
    for one in run:
        if one.kind in GPU_KINDS or one.kind == SYNC:
            given[one.link].append(one)
    for call in (one for one in run if one.kind == CALL):
        owner = {"External id": owners[call.link]} if owners[call.link] else {}
        link = {"cbid": CALL_NUMBERS.get(call.name, 0), "correlation": call.link}
        for one in given[call.link]:
            args = {**owner, **_details(one), "correlation": call.link}
            yield _slice(one, 0, args)
            if one.kind in GPU_KINDS:
                yield _flow("f", "ac2g", call.link, one, pid=0)
        yield _slice(call, PROCESS, owner | link)
        starts = isinstance(
            call.source, Launch | GraphLaunch | Copy
        ) or call.name.endswith(FLOW_CALLS)
        yield _flow("s" if starts else "f", "ac2g", call.link, call)
    yield from _annotations(run, given)


def _details(one: Slice) -> Event:
    if one.kind == SYNC:
        return {**one.args, "device": 0, "context": 1}
    found: Event = {"device": 0, "context": 1, "stream": one.lane}
    if one.kind == KERNEL:
        found |= {"queued": 0, "registers per thread": 32, "shared memory": 0}
        found |= {"blocks per SM": 8.0, "warps per SM": 32.0, "grid": [864, 1, 1]}
        return found | {"block": [128, 1, 1], "est. achieved occupancy %": 50}
    size = getattr(one.source, "bytes", 0)
    rate = size / (one.end - one.start) if one.end > one.start else 0.0
    return found | {"bytes": size, "memory bandwidth (GB/s)": rate}


def _owners(run: Sequence[Slice]) -> dict[int, int]:
    """The External id of the innermost op around each call, by its link; 0 where there
    is none."""
    ids, found = _external(run), {}
    threads: defaultdict[int, list[Slice]] = defaultdict(list)
    for one in _ordered(run, {OP, NOTE, CALL}):
        open_ranges = threads[one.lane]
        while open_ranges and open_ranges[-1].end <= one.start:
            open_ranges.pop()
        if one.kind != CALL:
            open_ranges.append(one)
            continue
        around = [outer for outer in open_ranges if outer.kind == OP]
        found[one.link] = ids[id(around[-1])] if around else 0
    return found


def _annotations(
    run: Sequence[Slice], given: dict[int, list[Slice]]
) -> Iterator[Event]:
    """Each annotation again on each stream that it gave work to."""
    ids = _external(run)
    calls = [one for one in run if one.kind == CALL]
    for note in (one for one in run if one.kind == NOTE):
        inside = [
            item
            for call in calls
            if call.lane == note.lane and note.start <= call.start < note.end
            for item in given[call.link]
            if item.kind in GPU_KINDS
        ]
        for stream in sorted({item.lane for item in inside}):
            there = [item for item in inside if item.lane == stream]
            first, last = (
                min(item.start for item in there),
                max(item.end for item in there),
            )
            twin = Slice("gpu_user_annotation", note.name, stream, first - 1, last + 1)
            yield _slice(twin, 0, {"External id": ids[id(note)]})


def _names(run: Sequence[Slice]) -> Iterator[Event]:
    at = _us(min(one.start for one in run))

    def named(name: str, pid: int, tid: int, args: Event) -> Event:
        return {"name": name, "ph": "M", "ts": at, "pid": pid, "tid": tid, "args": args}

    for pid, label in ((PROCESS, "CPU"), (0, "GPU 0")):
        yield named("process_name", pid, 0, {"name": "python"})
        yield named("process_labels", pid, 0, {"labels": label})
    for lane, pid in sorted(
        {
            (one.lane, 0 if one.kind in GPU_KINDS else PROCESS)
            for one in run
            if one.kind != SYNC
        }
    ):
        text = f"thread {lane} (python)" if pid else f"stream {lane} "
        yield named("thread_name", pid, lane, {"name": text})
