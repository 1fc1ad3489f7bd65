"""Write a recording as a trace, in the format of Kineto in PyTorch 2.13.

The order of events and keys also follows Kineto: ops and annotations of the thread,
memory, Python frames, then calls and kernels. Each call and kernel is followed by
its flow arrow, which leads from a launch call to its kernel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from itertools import count

from docs.lessons.device import A100, Occupancy
from docs.lessons.figures import NOTES
from docs.lessons.machine import Call, Kernel, Memory, Recorded, Slice

PID = 1000
TID = 1000
DEVICE = 0
STREAM = 7
CONTEXT = 1
_BASE_NS = 1775078550000000000
"""The begin of the quarter that the source is from: Kineto rounds down to it."""
_GPU_SORT_INDEX = 5000000
_SPANS_SORT_INDEX = 536870912
Args = dict[str, object]


def document(name: str, recorded: Recorded) -> str:
    """Return the trace of a lesson. Only the key `reconstructed` is not from Kineto."""
    head: Args = {
        "schemaVersion": 1,
        "deviceProperties": [A100],
        "reconstructed": NOTES[name.partition("-")[0]],
        "trace_id": sha256(name.encode()).hexdigest()[:32].upper(),
        "with_stack": 1,
        "with_modules": 1,
        "profile_memory": 1,
        "record_shapes": 1,
        "cuda_driver_version": 13000,
        "cuda_runtime_version": 13000,
        "cupti_version": 130001,
        "host_name": "scrubbed",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": _BASE_NS,
    }
    keys = "".join(f"  {_json(key)}: {_json(value)},\n" for key, value in head.items())
    events = ",".join(_events(recorded))
    tail = f'],"traceName": {_json(f"{name}.json")}'
    return f'{{\n{keys}  "traceEvents": [{events}\n  {tail} }}\n'


def _events(recorded: Recorded) -> Iterator[str]:
    """Yield the JSON of each event; `Ev Idx` numbers the events of the CPU thread
    from 0."""
    yield from _names(recorded.start)
    event_index = count()
    annotation_numbers = {annotation.number for annotation in recorded.annotations}
    slices = [*recorded.ops, *recorded.annotations]
    for item in sorted(slices, key=lambda item: item.number):
        is_annotation = item.number in annotation_numbers
        cat = "user_annotation" if is_annotation else "cpu_op"
        args: Args = {
            "External id": item.number,
            "Record function id": 0,
            **item.args,
            "Ev Idx": next(event_index),
        }
        yield _slice(cat, item, args)
    for memory in recorded.memory:
        yield _memory(memory, next(event_index))
    for frame in recorded.frames:
        args = {**frame.args, "Ev Idx": next(event_index)}
        yield _slice("python_function", frame, args)
    yield from _cuda(recorded)
    for annotation in recorded.annotations:
        yield from _on_gpu(annotation, recorded)
    yield from _spans(recorded)


def _cuda(recorded: Recorded) -> Iterator[str]:
    """Yield calls and kernels, each with its arrow. The arrow of a call without a
    kernel has only one end: its start for a synchronization, its end for other
    calls."""
    kernels = {kernel.call.correlation: kernel for kernel in recorded.kernels}
    for call in recorded.calls:
        cat = "cuda_driver" if call.is_driver else "cuda_runtime"
        yield _slice(cat, call, _call_args(call))
        kernel = kernels.get(call.correlation)
        is_start = kernel is not None or call.name == "cudaDeviceSynchronize"
        phase = "s" if is_start else "f"
        yield _arrow(phase, call.correlation, PID, TID, call.start)
        if kernel is None:
            continue
        yield _complete_event(
            "kernel",
            kernel.name,
            pid=DEVICE,
            tid=STREAM,
            start=kernel.start,
            dur=kernel.dur,
            args=_kernel_args(kernel),
        )
        yield _arrow("f", call.correlation, DEVICE, STREAM, kernel.start)


def _on_gpu(annotation: Slice, recorded: Recorded) -> Iterator[str]:
    """Return the annotation on the GPU, from 1 ns before its first kernel to 1 ns
    after its last kernel. Return nothing if it launched no kernel."""
    annotation_end = annotation.start + annotation.dur
    launched = [
        kernel
        for kernel in recorded.kernels
        if annotation.start <= kernel.call.start < annotation_end
    ]
    if not launched:
        return
    start = launched[0].start - 1
    end = launched[-1].end + 1
    yield _complete_event(
        "gpu_user_annotation",
        annotation.name,
        pid=DEVICE,
        tid=STREAM,
        start=start,
        dur=end - start,
        args={"External id": annotation.number},
    )


def _call_args(call: Call) -> Args:
    args: Args = {}
    if call.op:
        args["External id"] = call.op
    return {**args, **call.args, "correlation": call.correlation}


def _kernel_args(kernel: Kernel) -> Args:
    launch = kernel.launch
    occupancy = Occupancy(launch)
    return {
        "External id": kernel.call.op,
        "queued": 0,
        "device": DEVICE,
        "context": CONTEXT,
        "stream": STREAM,
        "correlation": kernel.call.correlation,
        "registers per thread": launch.registers,
        "shared memory": launch.shared,
        "blocks per SM": round(launch.blocks_per_sm, 6),
        "warps per SM": round(launch.warps_per_sm, 6),
        "grid": list(launch.grid),
        "block": list(launch.block),
        "est. achieved occupancy %": occupancy.percent,
        "occupancy": occupancy.as_args(),
        "graph id": 0,
        "graph node id": 0,
        "channel": 0,
        "channel_type": 0,
    }


def _memory(memory: Memory, index: int) -> str:
    args: Args = {
        "Total Reserved": memory.reserved,
        "Total Allocated": memory.allocated,
        "Bytes": memory.nbytes,
        "Device Id": DEVICE,
        "Device Type": 1,
        "Addr": memory.address,
        "finished": False,
        "Ev Idx": index,
    }
    return _event(
        {
            "ph": _json("i"),
            "cat": _json("cpu_instant_event"),
            "s": _json("t"),
            "name": _json("[memory]"),
            **_where_and_when(PID, TID, memory.at),
            "args": _json(args),
        }
    )


def _slice(cat: str, item: Slice, args: Args) -> str:
    """Return an event of the CPU thread."""
    return _complete_event(
        cat, item.name, pid=PID, tid=TID, start=item.start, dur=item.dur, args=args
    )


def _complete_event(
    cat: str,
    name: str,
    pid: int | str,
    tid: int | str,
    start: int,
    dur: int,
    args: Args,
) -> str:
    """Return an event with a start and a duration."""
    return _event(
        {
            "ph": _json("X"),
            "cat": _json(cat),
            "name": _json(name),
            **_where_and_when(pid, tid, start),
            "dur": _us(dur),
            "args": _json(args),
        }
    )


def _arrow(phase: str, correlation: int, pid: int, tid: int, at: int) -> str:
    """Return one end of an arrow; `phase` is `s` for the start and `f` for the end."""
    keys = {
        "ph": _json(phase),
        "id": _json(correlation),
        **_where_and_when(pid, tid, at),
        "cat": _json("ac2g"),
        "name": _json("ac2g"),
    }
    if phase == "f":
        keys["bp"] = _json("e")
    return _event(keys)


def _names(at: int) -> Iterator[str]:
    """Yield the names of the process, the device, the thread and the stream."""
    yield from _process_names(PID, "CPU", sort_index=PID, at=at)
    yield from _process_names(DEVICE, f"GPU {DEVICE}", _GPU_SORT_INDEX, at)
    yield from _thread_names(PID, TID, f"thread {TID} (python)", at)
    yield from _thread_names(DEVICE, STREAM, f"stream {STREAM} ", at)


def _process_names(pid: int, label: str, sort_index: int, at: int) -> Iterator[str]:
    yield _metadata("process_name", pid, 0, at, {"name": "python"})
    yield _metadata("process_labels", pid, 0, at, {"labels": label})
    yield _metadata("process_sort_index", pid, 0, at, {"sort_index": sort_index})


def _thread_names(pid: int, tid: int, name: str, at: int) -> Iterator[str]:
    yield _metadata("thread_name", pid, tid, at, {"name": name})
    yield _metadata("thread_sort_index", pid, tid, at, {"sort_index": tid})


def _spans(recorded: Recorded) -> Iterator[str]:
    """Yield the events that Kineto writes about its own recording."""
    start = recorded.start
    end = recorded.end
    yield _complete_event(
        "Trace",
        "PyTorch Profiler (0)",
        pid="Spans",
        tid="PyTorch Profiler",
        start=start,
        dur=end - start,
        args={"Op count": 0},
    )
    sort_index: Args = {"sort_index": _SPANS_SORT_INDEX}
    yield _metadata("process_sort_index", "Spans", 0, start, sort_index)
    yield _global_instant(
        "Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", start
    )
    yield _global_instant("Record Window End", "", "", end)


def _global_instant(name: str, pid: str, tid: str, at: int) -> str:
    return _event(
        {
            "ph": _json("i"),
            "s": _json("g"),
            "name": _json(name),
            **_where_and_when(pid, tid, at),
        }
    )


def _metadata(name: str, pid: int | str, tid: int, at: int, args: Args) -> str:
    """Return a metadata event, in which Kineto writes the time before the process."""
    return _event(
        {
            "ph": _json("M"),
            "name": _json(name),
            "ts": _us(at),
            "pid": _json(pid),
            "tid": _json(tid),
            "args": _json(args),
        }
    )


def _where_and_when(pid: int | str, tid: int | str, at: int) -> dict[str, str]:
    return {"pid": _json(pid), "tid": _json(tid), "ts": _us(at)}


def _us(ns: int) -> str:
    """Format ns as microseconds with exactly three decimals: `1.500` for 1500."""
    return f"{ns // 1000}.{ns % 1000:03}"


def _event(keys: dict[str, str]) -> str:
    """Return an event, given the JSON of the value of each key."""
    lines = ",\n".join(f'    "{key}": {value}' for key, value in keys.items())
    return f"\n  {{\n{lines}\n  }}"


def _json(value: object) -> str:
    """Encode a value with Python's json, because the lessons are compared byte for
    byte."""
    return json.dumps(value)
