"""What follows from the [memory] events of a trace (profile_memory=True): the history
of each device, and by which op what lives was allocated. Sizes are those of blocks, as
the allocator rounds them."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.memory.answer import NoMomentError, Totals, events_at, totals
from fusetui.analysis.memory.categories import CATEGORY_NUMBER, UNKNOWN
from fusetui.analysis.memory.evidence import BEFORE_RECORDING, Holder, held_at
from fusetui.analysis.memory.history import (
    BEFORE,
    History,
    allocations_of,
    unknown_table,
)
from fusetui.analysis.memory.moments import Moments, prepared_moments
from fusetui.trace.layout.counters import DEVICE_TYPES
from fusetui.trace.layout.links import enclosing_rows
from fusetui.trace.model.arrays import Int32s, Int64s, at
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.ids import LARGEST, Id
from fusetui.trace.snapshot.columns import (
    Annotations,
    Blocks,
    MemoryAction,
    MemoryEvents,
    Segments,
    Snapshot,
    Stacks,
)

NO_OP = "no op"
NO_ANNOTATION = "no annotation"
"""Names of holders. Where numbers of names (indices of Trace.names) say who holds
something, the number after all names means no op, and the next one no annotation."""

ALLOCATORS = frozenset(
    {
        "aten::empty",
        "aten::empty_like",
        "aten::empty_strided",
        "aten::new_empty",
        "aten::new_empty_strided",
        "aten::resize_",
    }
)
"""Ops that do nothing but allocate."""

_ARGS_READ = (
    "Addr",
    "Bytes",
    "Total Allocated",
    "Total Reserved",
    "Device Type",
    "Device Id",
)


class TracedDevice(NamedTuple):
    """A device as one process saw it."""

    process: Id
    kind: int  # the arg `Device Type`
    number: int  # the arg `Device Id`


class MemorySample(NamedTuple):
    """A memory event of a device: an allocation, or a block that is freed."""

    time_ns: int  # as in the file
    thread: Id
    address: int
    change: int  # bytes, negative where they are freed
    allocated: int  # bytes, after it
    reserved: int


class TracedMemory(Totals, frozen=True):
    """One device in one process, in bytes of blocks. `place` is the op that was
    running. `difference_end_bytes`: the sum of the events minus the last total.
    Times start with the trace, and are as in the file if it does not date its clock."""

    # GPU, CPU, ...; of the CPU, torch counts only what it allocates while it records
    kind: str
    process: Id
    # `blocks` is 0 of what was there before: their number is not known
    by_op: tuple[Holder, ...]


def memory_of_trace(trace: Trace, at: str | int = "peak") -> tuple[TracedMemory, ...]:
    """Every device that events name with addresses and totals, GPUs first; reads the
    file again. `at` and NoMomentError are as of `answer.memory`."""
    if at == "oom":
        raise NoMomentError(
            "its memory events do not tell where memory ran out, as a snapshot does."
        )
    samples = _samples(trace)
    if not samples:
        return ()
    histories = [_history(trace, device, rows) for device, rows in samples.items()]
    events = events_at(histories, at)
    reported = []
    for device, history, event in zip(samples, histories, events, strict=True):
        reported.append(_traced_memory(trace, device, history, event))
    return tuple(reported)


def moments_of_trace(trace: Trace) -> tuple[Moments, ...]:
    """What each device holds at any moment, by op and by annotation, GPUs first; times
    to the ns, as the timeline has them. Of what was there before the first event, the
    number of blocks is not known."""
    samples = _samples(trace)
    has_several_processes = len({device.process for device in samples}) > 1
    return tuple(
        _moments(trace, device, rows, has_several_processes)
        for device, rows in samples.items()
    )


def _moments(
    trace: Trace,
    device: TracedDevice,
    samples: list[MemorySample],
    has_several_processes: bool,
) -> Moments:
    """What a device holds at any moment; the title names its process if there are
    several."""
    history = _history(trace, device, samples)
    lives = history.lives
    is_early = lives.born == BEFORE
    recorded = at(history.events.user_metadata, lives.born, missing=-1)
    no_annotation = len(trace.names) + 1
    # -1 stays for what was there before: its annotation is not known
    annotation = np.where(~is_early & (recorded < 0), no_annotation, recorded)
    title = _kind(device)
    if device.number >= 0:
        title += f" {device.number}"
    if has_several_processes:
        title += f" of process {device.process}"
    name_of = partial(_name, trace)
    return prepared_moments(
        history,
        kinds=np.where(is_early, CATEGORY_NUMBER["before_recording"], UNKNOWN),
        title=title,
        times=np.array(
            [trace.epoch_ns + sample.time_ns for sample in samples], np.int64
        ),
        keys={"op": (lives.stack, name_of), "annotation": (annotation, name_of)},
        is_of_trace=True,
    )


def _name(trace: Trace, number: int) -> str:
    """The name of an op or an annotation by its number; NO_OP and NO_ANNOTATION for the
    two numbers after those of all names."""
    if number < len(trace.names):
        return trace.names[number]
    return NO_OP if number == len(trace.names) else NO_ANNOTATION


def _kind(device: TracedDevice) -> str:
    """The kind of a device for users, as `GPU` or `CPU`."""
    return DEVICE_TYPES.get(device.kind, f"device type {device.kind}")


def _traced_memory(
    trace: Trace, device: TracedDevice, history: History, event: int
) -> TracedMemory:
    """What is reported about a device at the moment after `event`, or BEFORE: its
    totals, the op and the annotation in which the event happened, and what lives then
    by the op that allocated it."""
    by_op: list[Holder] = []
    for holder in held_at(history, event, partial(_name, trace)):
        if holder.place == BEFORE_RECORDING:
            # one block stands for all of them: their number is not known
            holder = replace(holder, blocks=0)
        by_op.append(holder)
    fields = totals(history, event)
    # times are told from the begin of the trace, not from the first memory event
    fields["start_time_us"] = start_us(trace)
    return TracedMemory(
        **fields,
        kind=_kind(device),
        process=device.process,
        place=_op_at(trace, history.events, event),
        annotation=_annotation_at(trace, history.events, event),
        by_op=tuple(by_op),
    )


def _op_at(trace: Trace, events: MemoryEvents, event: int) -> str | None:
    """The name of the op in which an event happened; None for none, and for BEFORE."""
    if event == BEFORE:
        return None
    name = int(events.stack[event])  # see _events
    return trace.names[name] if name < len(trace.names) else None


def _annotation_at(trace: Trace, events: MemoryEvents, event: int) -> str | None:
    """The name of the annotation in which an event happened; None for none, and for
    BEFORE."""
    if event == BEFORE:
        return None
    name = int(events.user_metadata[event])  # see _events
    return trace.names[name] if name >= 0 else None


def start_us(trace: Trace) -> int:
    """When the trace begins, in us since 1970, as far as the file says it."""
    return (trace.epoch_ns + trace.begin_ns) // 1000


def _samples(trace: Trace) -> dict[TracedDevice, list[MemorySample]]:
    """The events of each device in the order of time, GPUs first."""
    samples: dict[TracedDevice, list[MemorySample]] = {}
    for number, stretch in enumerate(trace.elements.stretches):
        if not stretch.samples:
            continue
        for event, time_ns in trace.elements.samples(number):
            values: list[Any] = [event.args.get(name) for name in _ARGS_READ]
            if not event.is_memory or any(type(value) is not int for value in values):
                continue
            address, change, allocated, reserved, kind, device_number = values
            # Columns are int64. Addresses may be larger, and are cut below.
            if max(map(abs, values[1:])) > LARGEST:
                continue
            sample = MemorySample(
                time_ns=time_ns,
                thread=event.tid,
                address=address & LARGEST,
                change=change,
                allocated=allocated,
                reserved=reserved,
            )
            device = TracedDevice(event.pid, kind, device_number)
            samples.setdefault(device, []).append(sample)
    sorted_samples = {}
    for device in sorted(samples, key=_device_order):
        by_time = sorted(samples[device], key=lambda sample: sample.time_ns)
        sorted_samples[device] = by_time
    return sorted_samples


def _device_order(device: TracedDevice) -> tuple[bool, int, int, str]:
    """A key that sorts the CPU last."""
    is_cpu = device.kind == 0
    return is_cpu, device.kind, device.number, str(device.process)


def _history(
    trace: Trace, device: TracedDevice, samples: list[MemorySample]
) -> History:
    """The history of a device from its memory events, which are given in the order of
    time and at least one. What was allocated before the first event and is never freed
    is one block. `_events` says what stands in the place of stacks."""
    allocated = np.array([sample.allocated for sample in samples], np.int64)
    reserved = np.array([sample.reserved for sample in samples], np.int64)
    events = _events(trace, device, samples)
    allocated_before = samples[0].allocated - samples[0].change
    never_freed = max(allocated_before - _freed_from_before(events), 0)
    never_freed_bytes = np.array([never_freed], np.int64)
    blocks = unknown_table(
        Blocks, 1, size=never_freed_bytes, requested_size=never_freed_bytes
    )
    kept_blocks = np.flatnonzero(never_freed_bytes)
    lives = allocations_of(events, blocks, kept_blocks, MemoryAction.FREE_REQUESTED)
    allocated_after = lives.live_bytes()
    return History(
        snapshot=_snapshot(trace, events, blocks),
        device=device.number,
        events=events,
        segments=np.arange(0),
        lives=lives,
        occupied=lives,  # a trace does not tell freeing from being free
        allocated=allocated_after,
        active=allocated_after,
        reserved=np.append(reserved[:1], reserved),
        difference_end_bytes=int(allocated_after[-1] - allocated[-1]),
    )


def _events(
    trace: Trace, device: TracedDevice, samples: list[MemorySample]
) -> MemoryEvents:
    """The memory events of a device as those of a snapshot. `stack` of them is the
    number of the name of the op around each, len(trace.names) for none;
    `user_metadata` that of the annotation, -1 for none."""
    time_ns = np.array([sample.time_ns for sample in samples], np.int64)
    change = np.array([sample.change for sample in samples], np.int64)
    rows_of_threads = by_key(range(len(samples)), lambda row: samples[row].thread)
    op = _names_around(trace, device.process, rows_of_threads, time_ns, Layer.OPS)
    annotation = _names_around(
        trace, device.process, rows_of_threads, time_ns, Layer.ANNOTATIONS
    )
    return unknown_table(
        MemoryEvents,
        len(samples),
        device=device.number,
        action=np.where(change < 0, MemoryAction.FREE_REQUESTED, MemoryAction.ALLOC),
        addr=np.array([sample.address for sample in samples], np.int64),
        size=np.abs(change),
        time_us=(trace.epoch_ns + time_ns) // 1000,
        stack=np.where(op < 0, len(trace.names), op),
        user_metadata=annotation,
    )


def _snapshot(trace: Trace, events: MemoryEvents, blocks: Blocks) -> Snapshot:
    """A snapshot that has these events and blocks, and nothing else."""
    no_frames = np.empty(0, np.int32)
    return Snapshot(
        path=trace.report.file,
        bytes=0,
        segments=unknown_table(Segments, 0),
        blocks=blocks,
        events=(events,),
        annotations=unknown_table(Annotations, 0),
        stacks=Stacks((), no_frames, np.zeros(1, np.int64)),
        strings=trace.names,
        pools=(),
        settings={},
    )


def _freed_from_before(events: MemoryEvents) -> int:
    """The bytes that events free and that no event allocated. In a history of these
    events alone, without any block, this is all that lives before the first event."""
    no_blocks = unknown_table(Blocks, 0)
    no_rows = np.arange(0)
    lives = allocations_of(events, no_blocks, no_rows, MemoryAction.FREE_REQUESTED)
    return int(lives.live_bytes()[0])


def _names_around(
    trace: Trace,
    process: Id,
    rows_of_threads: dict[Id, list[int]],
    time_ns: Int64s,
    layer: Layer,
) -> Int32s:
    """For each time the number of the name of the innermost slice of a layer around it,
    on the thread of that time; -1 for none. Of ops it is the innermost one that does
    more than allocate, if any does. `rows_of_threads`: by thread, places in
    `time_ns`."""
    names = np.full(len(time_ns), -1, np.int32)
    for track in trace.tracks:
        if track.layer != layer or track.pid != process or track.subrow != 0:
            continue
        of_thread = rows_of_threads.get(track.tid, [])
        times = time_ns[of_thread]
        slices = enclosing_rows(
            track, trace.start, trace.end, trace.parent, times, times
        )
        if layer is Layer.OPS:
            slices = _working(trace, slices)
        names[of_thread] = np.where(slices >= 0, trace.name[slices], -1)
    return names


def _working(trace: Trace, rows: Int32s) -> Int32s:
    """For each row (-1: none) the op that it is in; in place of an op that only
    allocates the next one around it, as long as there is one."""
    is_allocator = trace.named(ALLOCATORS.__contains__)
    ops = np.where(rows >= 0, trace.op[rows], -1)
    while True:
        parents = np.where(ops >= 0, trace.parent[ops], -1)
        ops_around = np.where(parents >= 0, trace.op[parents], -1)
        is_replaced = (ops_around >= 0) & is_allocator[trace.name[ops]]
        if not is_replaced.any():
            return ops
        ops = np.where(is_replaced, ops_around, ops)
