"""Follows device memory through the [memory] events of a trace (profile_memory=True).

Such a trace has no snapshot. The module builds the history of each device and says by
which op live memory was allocated. Sizes are those of blocks, as the allocator rounds
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.memory.answer import (
    NoMomentError,
    Totals,
    find_events_at,
    summarize_totals,
)
from fusetui.analysis.memory.categories import CATEGORY_NUMBER, UNKNOWN
from fusetui.analysis.memory.evidence import (
    BEFORE_RECORDING,
    Holder,
    group_live_allocations,
)
from fusetui.analysis.memory.history import (
    BEFORE,
    History,
    make_table_with_unknowns,
    pair_allocations,
)
from fusetui.analysis.memory.moments import GroupingKey, Moments, compute_moments
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

_OTHER_ARGS = (
    "Bytes",
    "Total Allocated",
    "Total Reserved",
    "Device Type",
    "Device Id",
)
"""The args of a memory event that are read besides its address, `Addr`."""


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
    allocated: int  # bytes, after the event
    reserved: int  # bytes, after the event


class TracedMemory(Totals, frozen=True):
    """The memory of one device in one process, in bytes of blocks.

    `place` is the op that was running. `difference_end_bytes` is the sum of the
    events minus the last total. Times count from the begin of the trace, and are as
    in the file if it does not date its clock.
    """

    # GPU, CPU, ...; of the CPU, torch counts only what it allocates while it records
    kind: str
    process: Id
    # `blocks` is 0 for what was there before recording: their number is not known
    by_op: tuple[Holder, ...]


def report_memory_of_trace(
    trace: Trace, at: str | int = "peak"
) -> tuple[TracedMemory, ...]:
    """Report the memory of every device from the memory events of a trace, GPUs first.

    The file is read again. Only devices whose events have addresses and totals are
    reported.

    Args:
        trace: The trace.
        at: The moment, as in `answer.memory`, except for "oom".

    Raises:
        NoMomentError: The trace does not have that moment.
    """
    if at == "oom":
        raise NoMomentError(
            "its memory events do not show where memory ran out; a snapshot does."
        )

    samples = _read_samples(trace)
    if not samples:
        return ()

    histories = [
        _build_device_history(trace, device, samples_of_device)
        for device, samples_of_device in samples.items()
    ]
    events = find_events_at(histories, at)

    reported = []
    for device, history, event in zip(samples, histories, events, strict=True):
        reported.append(_report_traced_device(trace, device, history, event))
    return tuple(reported)


def prepare_moments_of_trace(trace: Trace) -> tuple[Moments, ...]:
    """Return what each device holds at any moment, by op and by annotation, GPUs first.

    The memory page of the app shows it. Times are exact to the ns, as the timeline has
    them. For what was there before the first event, the number of blocks is not known.
    """
    samples = _read_samples(trace)
    has_several_processes = len({device.process for device in samples}) > 1
    return tuple(
        _prepare_device_moments(trace, device, rows, has_several_processes)
        for device, rows in samples.items()
    )


def _prepare_device_moments(
    trace: Trace,
    device: TracedDevice,
    samples: list[MemorySample],
    has_several_processes: bool,
) -> Moments:
    """Prepare what a device holds at any moment, from the memory events of a trace.

    Args:
        trace: The trace.
        device: The device.
        samples: Its memory events in the order of time, at least one.
        has_several_processes: Whether the title must name the process.
    """
    history = _build_device_history(trace, device, samples)
    allocations = history.allocations
    is_early = allocations.is_early

    # Of what was there before recording, op and annotation are not known: they are -1.
    # Other allocations without an annotation have the number of NO_ANNOTATION.
    recorded = at(history.events.user_metadata, allocations.allocated_at, missing=-1)
    has_no_annotation = ~is_early & (recorded < 0)
    annotation = np.where(has_no_annotation, len(trace.names) + 1, recorded)

    title = _describe_kind(device)
    if device.number >= 0:
        title += f" {device.number}"
    if has_several_processes:
        title += f" of process {device.process}"

    times_ns = [trace.epoch_ns + sample.time_ns for sample in samples]
    name_of = partial(_look_up_name, trace)
    return compute_moments(
        history,
        category_numbers=np.where(
            is_early, CATEGORY_NUMBER["before_recording"], UNKNOWN
        ),
        title=title,
        times=np.array(times_ns, np.int64),
        name_of_stack=name_of,
        keys={
            "op": GroupingKey(allocations.stack, name_of),
            "annotation": GroupingKey(annotation, name_of),
        },
        is_of_trace=True,
    )


def _look_up_name(trace: Trace, name_index: int) -> str:
    """Return the name of an op or an annotation by its number.

    Two numbers after those of all names stand for NO_OP and NO_ANNOTATION.
    """
    if name_index < len(trace.names):
        return trace.names[name_index]
    return NO_OP if name_index == len(trace.names) else NO_ANNOTATION


def _describe_kind(device: TracedDevice) -> str:
    """Return the kind of a device for users, such as `GPU` or `CPU`."""
    return DEVICE_TYPES.get(device.kind, f"device type {device.kind}")


def _report_traced_device(
    trace: Trace, device: TracedDevice, history: History, event: int
) -> TracedMemory:
    """Describe a device at a moment: its totals, and which ops and annotations hold its
    memory.

    Args:
        trace: The trace.
        device: The device.
        history: Its history.
        event: The event after which the moment is. BEFORE is the moment before
            the first event.
    """
    held_by_op: list[Holder] = []
    for holder in group_live_allocations(history, event, partial(_look_up_name, trace)):
        # Of what was there before recording, the number of blocks is not known.
        is_counted = holder.place != BEFORE_RECORDING
        held_by_op.append(holder if is_counted else replace(holder, blocks=0))

    fields = summarize_totals(history, event)
    # Times count from the begin of the trace, not from the first memory event.
    fields["start_time_us"] = trace_start_us(trace)

    return TracedMemory(
        **fields,
        kind=_describe_kind(device),
        process=device.process,
        place=_find_op_at(trace, history.events, event),
        annotation=_find_annotation_at(trace, history.events, event),
        by_op=tuple(held_by_op),
    )


def _find_op_at(trace: Trace, events: MemoryEvents, event: int) -> str | None:
    """Return the name of the op in which an event happened.

    Returns None if there was none, and for BEFORE.
    """
    if event == BEFORE:
        return None
    name = int(events.stack[event])  # see _convert_samples
    return trace.names[name] if name < len(trace.names) else None


def _find_annotation_at(trace: Trace, events: MemoryEvents, event: int) -> str | None:
    """Return the name of the annotation in which an event happened.

    Returns None if there was none, and for BEFORE.
    """
    if event == BEFORE:
        return None
    name = int(events.user_metadata[event])  # see _convert_samples
    return trace.names[name] if name >= 0 else None


def trace_start_us(trace: Trace) -> int:
    """Return when the trace begins, in us since 1970, as far as the file says it."""
    return (trace.epoch_ns + trace.begin_ns) // 1000


def _read_samples(trace: Trace) -> dict[TracedDevice, list[MemorySample]]:
    """Read the memory events of each device in the order of time, GPUs first.

    Events that lack one of their numbers, or have one that no column can hold, are left
    out.
    """
    samples: dict[TracedDevice, list[MemorySample]] = {}
    for stretch_index, stretch in enumerate(trace.elements.stretches):
        if not stretch.samples:
            continue

        for event, time_ns in trace.elements.samples(stretch_index):
            if not event.is_memory or not _has_usable_args(event.args):
                continue

            sample = MemorySample(
                time_ns=time_ns,
                thread=event.tid,
                address=event.args["Addr"] & LARGEST,
                change=event.args["Bytes"],
                allocated=event.args["Total Allocated"],
                reserved=event.args["Total Reserved"],
            )
            device = TracedDevice(
                process=event.pid,
                kind=event.args["Device Type"],
                number=event.args["Device Id"],
            )
            samples.setdefault(device, []).append(sample)

    in_order = {}
    for device in sorted(samples, key=_device_sort_key):
        in_order[device] = sorted(samples[device], key=lambda sample: sample.time_ns)
    return in_order


def _has_usable_args(args: Mapping[str, Any]) -> bool:
    """Return whether a memory event has all of its numbers, and columns can hold them.

    Columns are int64. An address may be larger, because its upper bits are cut off.
    """
    is_address = type(args.get("Addr")) is int
    for name in _OTHER_ARGS:
        value = args.get(name)
        if type(value) is not int or abs(value) > LARGEST:
            return False
    return is_address


def _device_sort_key(device: TracedDevice) -> tuple[bool, int, int, str]:
    """Return a key that sorts devices by their numbers, the CPU last."""
    is_cpu = device.kind == 0
    return is_cpu, device.kind, device.number, str(device.process)


def _build_device_history(
    trace: Trace, device: TracedDevice, samples: list[MemorySample]
) -> History:
    """Build the allocation history of a device from its memory events.

    Memory events have no call stacks; `_convert_samples` says what takes their place.
    Memory from before the first event that is never freed becomes a single block.

    Args:
        trace: The trace.
        device: The device.
        samples: Its memory events in the order of time, at least one.
    """
    events = _convert_samples(trace, device, samples)

    # The first total tells what was there before the first event. What no event frees
    # becomes a block, which is there at the end.
    first = samples[0]
    last = samples[-1]
    allocated_before = first.allocated - first.change
    never_freed = max(allocated_before - _sum_freed_unallocated(events), 0)
    block_sizes = np.array([never_freed] if never_freed else [], np.int64)
    blocks = make_table_with_unknowns(
        Blocks, len(block_sizes), size=block_sizes, requested_size=block_sizes
    )

    allocations = pair_allocations(
        events, blocks, np.arange(len(block_sizes)), MemoryAction.FREE_REQUESTED
    )
    allocated = allocations.sum_live_bytes()

    # What was reserved before the first event is not recorded: its own total stands in.
    reserved = [first.reserved, *(sample.reserved for sample in samples)]

    return History(
        snapshot=_make_snapshot(trace, events, blocks),
        device=device.number,
        events=events,
        segments=np.arange(0),
        allocations=allocations,
        occupied=allocations,  # a trace does not tell freeing from being free
        allocated=allocated,
        active=allocated,
        reserved=np.array(reserved, np.int64),
        difference_end_bytes=int(allocated[-1]) - last.allocated,
    )


def _convert_samples(
    trace: Trace, device: TracedDevice, samples: list[MemorySample]
) -> MemoryEvents:
    """Convert the memory events of a trace to the form of those of a memory snapshot.

    Two columns have another meaning, because memory events have no call stacks: `stack`
    is the name of the op around the event, as an index of `trace.names`, whose length
    stands for no op; `user_metadata` is the name of the annotation, -1 for none.
    """
    time_ns = np.array([sample.time_ns for sample in samples], np.int64)
    change = np.array([sample.change for sample in samples], np.int64)
    address = np.array([sample.address for sample in samples], np.int64)
    is_freed = change < 0

    samples_of_threads = by_key(range(len(samples)), lambda row: samples[row].thread)
    op_name = _find_names_around(
        trace, device.process, samples_of_threads, time_ns, Layer.OPS
    )
    annotation_name = _find_names_around(
        trace, device.process, samples_of_threads, time_ns, Layer.ANNOTATIONS
    )
    has_op = op_name >= 0

    return make_table_with_unknowns(
        MemoryEvents,
        len(samples),
        device=device.number,
        action=np.where(is_freed, MemoryAction.FREE_REQUESTED, MemoryAction.ALLOC),
        addr=address,
        size=np.abs(change),
        time_us=(trace.epoch_ns + time_ns) // 1000,
        stack=np.where(has_op, op_name, len(trace.names)),
        user_metadata=annotation_name,
    )


def _make_snapshot(trace: Trace, events: MemoryEvents, blocks: Blocks) -> Snapshot:
    """Make a memory snapshot from the memory events of a trace. It has these events and
    blocks, but no segments, stacks, pools or settings."""
    no_frames = np.empty(0, np.int32)
    return Snapshot(
        path=trace.report.file,
        bytes=0,
        segments=make_table_with_unknowns(Segments, 0),
        blocks=blocks,
        events=(events,),
        annotations=make_table_with_unknowns(Annotations, 0),
        stacks=Stacks((), no_frames, np.zeros(1, np.int64)),
        strings=trace.names,
        pools=(),
        settings={},
    )


def _sum_freed_unallocated(events: MemoryEvents) -> int:
    """Return the bytes that events free although no event allocated them.

    This is all that is live before the first event in a history of these events alone.
    """
    no_blocks = make_table_with_unknowns(Blocks, 0)
    no_rows = np.arange(0)
    allocations = pair_allocations(
        events, no_blocks, no_rows, MemoryAction.FREE_REQUESTED
    )
    return int(allocations.sum_live_bytes()[0])


def _find_names_around(
    trace: Trace,
    process: Id,
    events_of_threads: dict[Id, list[int]],
    time_ns: Int64s,
    layer: Layer,
) -> Int32s:
    """Find the innermost slice of a layer around each memory event, on its thread.

    Of ops it is the innermost one that does more than allocate, if there is one.

    Args:
        trace: The trace.
        process: The process of the events.
        events_of_threads: For each thread the indices of its events in `time_ns`.
        time_ns: The time of each event.
        layer: Which slices to look at.

    Returns:
        For each event the number of the name of the slice, -1 for none.
    """
    names = np.full(len(time_ns), -1, np.int32)
    for track in trace.tracks:
        # Slices that overlap others without nesting are in further subrows of the
        # thread; nothing is enclosed by them.
        is_wanted = track.layer == layer and track.pid == process
        if not is_wanted or track.subrow != 0:
            continue

        events_of_thread = events_of_threads.get(track.tid, [])
        times = time_ns[events_of_thread]
        rows = enclosing_rows(track, trace.start, trace.end, trace.parent, times, times)
        if layer is Layer.OPS:
            rows = _skip_allocating_ops(trace, rows)

        is_in_slice = rows >= 0
        names[events_of_thread] = np.where(is_in_slice, trace.name[rows], -1)

    return names


def _skip_allocating_ops(trace: Trace, rows: Int32s) -> Int32s:
    """Return the op that each row is in, skipping ops that only allocate.

    E.g. in aten::empty inside of aten::mm, that is aten::mm. An op that only allocates
    and has no op around it stays.

    Args:
        trace: The trace.
        rows: Rows of the trace; -1 for none.
    """
    is_allocator_name = trace.named(ALLOCATORS.__contains__)
    ops = np.where(rows >= 0, trace.op[rows], -1)

    # Climb one level in each round, until no op is replaced any more.
    while True:
        has_op = ops >= 0
        only_allocates = has_op & is_allocator_name[trace.name[ops]]
        parents = np.where(has_op, trace.parent[ops], -1)
        ops_around = np.where(parents >= 0, trace.op[parents], -1)
        is_replaced = only_allocates & (ops_around >= 0)
        if not is_replaced.any():
            return ops

        ops = np.where(is_replaced, ops_around, ops)
