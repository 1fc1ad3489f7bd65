"""What was recorded -> the text of a trace, as Kineto writes it in PyTorch 2.13.

The order of the events and of their keys is Kineto's too: ops and annotations of the
thread, memory, Python frames, then calls and kernels, each followed by its arrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

from docs.lessons.device import A100, Occupancy
from docs.lessons.figures import NOTES
from docs.lessons.machine import Call, Kernel, Memory, Recorded, Slice

PID = TID = 1000
DEVICE, STREAM, CONTEXT = 0, 7, 1
# the quarter that the source is from, as Kineto floors it
_BASE_NS = 1775078550000000000
_GPU_SORT_INDEX = 5000000
_SPANS_SORT_INDEX = 536870912
Args = dict[str, object]


def document(name: str, recorded: Recorded) -> str:
    """The trace of a lesson. Only `reconstructed` is a key that Kineto does not
    write."""
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
    yield from _names(recorded.start)
    slices = sorted(
        [*recorded.ops, *recorded.annotations], key=lambda found: found.number
    )
    notes = {note.number for note in recorded.annotations}
    for index, found in enumerate(slices):
        cat = "user_annotation" if found.number in notes else "cpu_op"
        yield _slice(cat, found, _op_args(found, index))
    index = len(slices)
    for offset, memory in enumerate(recorded.memory):
        yield _memory(memory, index + offset)
    index += len(recorded.memory)
    for offset, frame in enumerate(recorded.frames):
        yield _slice("python_function", frame, {**frame.args, "Ev Idx": index + offset})
    yield from _cuda(recorded)
    for note in recorded.annotations:
        yield from _on_gpu(note, recorded)
    yield from _frame_of_file(recorded)


def _cuda(recorded: Recorded) -> Iterator[str]:
    """Calls and kernels; an arrow leads from a call to its kernel, and marks the other
    calls."""
    kernels = {kernel.call.correlation: kernel for kernel in recorded.kernels}
    for call in recorded.calls:
        cat = "cuda_driver" if call.is_driver else "cuda_runtime"
        yield _slice(cat, call, _call_args(call))
        starts_arrow = (
            call.correlation in kernels or call.name == "cudaDeviceSynchronize"
        )
        yield _arrow(
            "s" if starts_arrow else "f", call.correlation, PID, TID, call.start
        )
        if kernel := kernels.get(call.correlation):
            place = (DEVICE, STREAM, kernel.start)
            yield _timed(
                "kernel", kernel.name, *place, kernel.dur, _kernel_args(kernel)
            )
            yield _arrow("f", call.correlation, *place)


def _on_gpu(note: Slice, recorded: Recorded) -> Iterator[str]:
    """The annotation's twin: 1 ns before its first kernel to 1 ns after its last."""
    begin, end = note.start, note.start + note.dur
    inside = [kernel for kernel in recorded.kernels if begin <= kernel.call.start < end]
    if inside:
        start, after = inside[0].start - 1, inside[-1].end + 1
        args: Args = {"External id": note.number}
        name, place = note.name, (DEVICE, STREAM, start)
        yield _timed("gpu_user_annotation", name, *place, after - start, args)


def _op_args(found: Slice, index: int) -> Args:
    ids: Args = {"External id": found.number, "Record function id": 0}
    return {**ids, **found.args, "Ev Idx": index}


def _call_args(call: Call) -> Args:
    linked: Args = {"External id": call.op} if call.op else {}
    return {**linked, **call.args, "correlation": call.correlation}


def _kernel_args(kernel: Kernel) -> Args:
    launch, occupancy = kernel.launch, Occupancy(kernel.launch)
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
    keys = {"ph": '"i"', "cat": '"cpu_instant_event"', "s": '"t"', "name": '"[memory]"'}
    return _event({**keys, **_place(PID, TID, memory.at), "args": _json(args)})


def _slice(cat: str, found: Slice, args: Args) -> str:
    return _timed(cat, found.name, PID, TID, found.start, found.dur, args)


def _timed(
    cat: str,
    name: str,
    pid: int | str,
    tid: int | str,
    start: int,
    dur: int,
    args: Args,
) -> str:
    keys = {
        "ph": '"X"',
        "cat": _json(cat),
        "name": _json(name),
        **_place(pid, tid, start),
    }
    return _event({**keys, "dur": _us(dur), "args": _json(args)})


def _arrow(ph: str, number: int, pid: int, tid: int, at: int) -> str:
    keys = {"ph": _json(ph), "id": _json(number), **_place(pid, tid, at)}
    keys |= {"cat": '"ac2g"', "name": '"ac2g"'}
    return _event({**keys, "bp": '"e"'} if ph == "f" else keys)


def _names(at: int) -> Iterator[str]:
    """Names of the process, the device, the thread and the stream."""
    for pid, label, order in (
        (PID, "CPU", PID),
        (DEVICE, f"GPU {DEVICE}", _GPU_SORT_INDEX),
    ):
        yield _named("process_name", pid, 0, at, {"name": "python"})
        yield _named("process_labels", pid, 0, at, {"labels": label})
        yield _named("process_sort_index", pid, 0, at, {"sort_index": order})
    for pid, tid, name in (
        (PID, TID, f"thread {TID} (python)"),
        (DEVICE, STREAM, "stream 7 "),
    ):
        yield _named("thread_name", pid, tid, at, {"name": name})
        yield _named("thread_sort_index", pid, tid, at, {"sort_index": tid})


def _frame_of_file(recorded: Recorded) -> Iterator[str]:
    start, dur = recorded.start, recorded.end - recorded.start
    spans = ("Spans", "PyTorch Profiler")
    yield _timed("Trace", "PyTorch Profiler (0)", *spans, start, dur, {"Op count": 0})
    order: Args = {"sort_index": _SPANS_SORT_INDEX}
    yield _named("process_sort_index", "Spans", 0, start, order)
    for name, pid, tid, at in (
        (
            "Iteration Start: PyTorch Profiler",
            "Traces",
            "Trace PyTorch Profiler",
            start,
        ),
        ("Record Window End", "", "", recorded.end),
    ):
        yield _event(
            {"ph": '"i"', "s": '"g"', "name": _json(name), **_place(pid, tid, at)}
        )


def _named(name: str, pid: int | str, tid: int, at: int, args: Args) -> str:
    """A metadata event."""
    place = _place(pid, tid, at)
    ts = place.pop("ts")
    return _event(
        {"ph": '"M"', "name": _json(name), "ts": ts, **place, "args": _json(args)}
    )


def _place(pid: int | str, tid: int | str, at: int) -> dict[str, str]:
    return {"pid": _json(pid), "tid": _json(tid), "ts": _us(at)}


def _us(ns: int) -> str:
    """Microseconds with three digits, exactly."""
    return f"{ns // 1000}.{ns % 1000:03}"


def _event(keys: dict[str, str]) -> str:
    """An event of keys and their JSON."""
    lines = ",\n".join(f'    "{key}": {value}' for key, value in keys.items())
    return f"\n  {{\n{lines}\n  }}"


def _json(value: object) -> str:
    return json.dumps(value)
