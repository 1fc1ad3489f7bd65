"""What the [memory] events of a trace tell (profile_memory=True): the history of each
device, and by which op what lives was allocated. Sizes are those of blocks, as the
allocator rounds them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.memory.answer import NoMoment, Totals, events_at, totals
from fusetui.analysis.memory.categories import CATEGORY_NUMBER, UNKNOWN
from fusetui.analysis.memory.evidence import BEFORE_RECORDING, Holder, held_at
from fusetui.analysis.memory.history import BEFORE, History, blank, lives_of
from fusetui.analysis.memory.moments import Keys, Moments, worked_out
from fusetui.trace.layout.counters import DEVICES
from fusetui.trace.layout.links import enclosing_rows
from fusetui.trace.model.arrays import Int32s, Int64s
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

NO_OP, NO_ANNOTATION = "no op", "no annotation"
ALLOCATORS = frozenset(
    {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::resize_"}
)
ALLOCATORS |= {"aten::new_empty", "aten::new_empty_strided"}
OF_DEVICE = ("Device Type", "Device Id")
VALUES = ("Addr", "Bytes", "Total Allocated", "Total Reserved")
Device = tuple[Id, int, int]  # the process, and the values of OF_DEVICE
Sampled = tuple[int, Id, tuple[int, ...]]  # ns as in the file, the thread, and VALUES


class TracedMemory(Totals, frozen=True):
    """One device, as one process saw it, in bytes of blocks. `place` is the op that was
    running. `difference_end_bytes`: what the events add up to less the last total.
    Times begin with the trace, and are as in the file where it does not say when its
    clock began."""

    # GPU, CPU, ...; of the CPU, torch counts only what it allocates while it records
    kind: str
    process: Id
    # `blocks` is 0 of what was there before: their number is not known
    by_op: tuple[Holder, ...]


def memory_of_trace(trace: Trace, at: str | int = "peak") -> tuple[TracedMemory, ...]:
    """Every device that events name with addresses and totals, GPUs first; reads the
    file again. `at` and NoMoment are as of `answer.memory`."""
    if at == "oom":
        raise NoMoment(
            "its memory events do not tell where memory ran out, as a snapshot does."
        )
    found = _sampled(trace)
    histories = [_history(trace, *one) for one in found.items()]
    each = zip(found, histories, events_at(histories, at) if found else (), strict=True)
    return tuple(_told(trace, *one) for one in each)


def moments_of_trace(trace: Trace) -> tuple[Moments, ...]:
    """The same at any moment, by op and by annotation; times to the ns, as the timeline
    has them. Of what was there before, the number of blocks is not known."""
    found = _sampled(trace)
    several = len({device[0] for device in found}) > 1
    return tuple(_moments(trace, *one, several) for one in found.items())


def _moments(
    trace: Trace, device: Device, rows: list[Sampled], several: bool
) -> Moments:
    history, named = _history(trace, device, rows), partial(_named, trace)
    lives = history.lives
    early = lives.born == BEFORE
    around = np.append(history.events.user_metadata, -1)[lives.born]  # BEFORE: the last
    around = np.where(~early & (around < 0), len(trace.names) + 1, around)
    kinds = np.where(early, CATEGORY_NUMBER["before_recording"], UNKNOWN)
    title = f"{_kind(device)} {device[2]}" if device[2] >= 0 else _kind(device)
    title += f" of process {device[0]}" if several else ""
    times = np.array([trace.epoch_ns + one[0] for one in rows], np.int64)
    keys: Keys = {"op": (lives.stack, named), "annotation": (around, named)}
    return worked_out(history, kinds, title, times, keys, True)


def _named(trace: Trace, number: int) -> str:
    there = number < len(trace.names)
    return (
        trace.names[number]
        if there
        else (NO_OP, NO_ANNOTATION)[number - len(trace.names)]
    )


def _kind(device: Device) -> str:
    return DEVICES.get(device[1], f"device type {device[1]}")


def _told(trace: Trace, device: Device, history: History, event: int) -> TracedMemory:
    names, events = (*trace.names, NO_OP), history.events
    op, around = (int(column[event]) for column in (events.stack, events.user_metadata))
    return TracedMemory(
        **totals(history, event) | {"start_time_us": start_us(trace)},
        kind=_kind(device),
        process=device[0],
        place=names[op] if event != BEFORE and op < len(trace.names) else None,
        annotation=names[around] if event != BEFORE and around >= 0 else None,
        by_op=tuple(
            replace(one, blocks=0) if one.place == BEFORE_RECORDING else one
            for one in held_at(history, event, names.__getitem__)
        ),
    )


def start_us(trace: Trace) -> int:
    return (trace.epoch_ns + trace.begin_ns) // 1000


def _sampled(trace: Trace) -> dict[Device, list[Sampled]]:
    """The events of each device in the order of time, GPUs first."""
    found: dict[Device, list[Sampled]] = {}
    for number, stretch in enumerate(trace.elements.stretches):
        for sample, time in trace.elements.samples(number) if stretch.samples else ():
            values: list[Any] = [
                sample.args.get(name) for name in (*VALUES, *OF_DEVICE)
            ]
            if sample.is_memory and all(type(one) is int for one in values):
                address, *sizes, kind, device = values
                if max(map(abs, values[1:])) <= LARGEST:
                    one = time, sample.tid, (address & LARGEST, *sizes)
                    found.setdefault((sample.pid, kind, device), []).append(one)
    order = sorted(found, key=lambda one: (one[1] == 0, one[1:], str(one[0])))
    return {device: sorted(found[device], key=lambda one: one[0]) for device in order}


def _history(trace: Trace, device: Device, rows: list[Sampled]) -> History:
    """What was there before, and is not freed, is one block of the rest of the first
    total."""
    time = np.array([one[0] for one in rows], np.int64)
    address, change, allocated, reserved = np.array(
        [one[2] for one in rows], np.int64
    ).T
    threads = by_key(range(len(rows)), lambda place: rows[place][1])
    op = _names_around(trace, device[0], threads, time, Layer.OPS)
    events = blank(
        MemoryEvents,
        len(rows),
        device=device[2],
        action=np.where(change < 0, MemoryAction.FREE_REQUESTED, MemoryAction.ALLOC),
        addr=address,
        size=np.abs(change),
        time_us=(trace.epoch_ns + time) // 1000,
        stack=np.where(op < 0, len(trace.names), op),
        user_metadata=_names_around(trace, device[0], threads, time, Layer.ANNOTATIONS),
    )
    segments, annotations, no_rows = (
        blank(Segments, 0),
        blank(Annotations, 0),
        np.arange(0),
    )
    freed = lives_of(
        events, blank(Blocks, 0), no_rows, MemoryAction.FREE_REQUESTED
    ).sums()[0]
    rest = np.maximum(allocated[:1] - change[:1] - freed, 0)
    blocks = blank(Blocks, 1, size=rest, requested_size=rest)
    lives = lives_of(events, blocks, np.flatnonzero(rest), MemoryAction.FREE_REQUESTED)
    sums, stacks = (
        lives.sums(),
        Stacks((), no_rows.astype(np.int32), np.zeros(1, np.int64)),
    )
    tables = segments, blocks, (events,), annotations, stacks
    snapshot = Snapshot(
        trace.report.file, 0, *tables, strings=trace.names, pools=(), settings={}
    )
    known = lives, lives, sums, sums, np.append(reserved[:1], reserved)
    difference = int(sums[-1] - allocated[-1])
    return History(snapshot, device[2], events, no_rows, *known, difference)


def _names_around(
    trace: Trace, process: Id, threads: dict[Id, list[int]], time: Int64s, layer: Layer
) -> Int32s:
    """The name of the innermost slice of a layer around each time, by thread, -1 for
    none; of ops, that of the innermost which does more than allocate, if any does."""
    found = np.full(len(time), -1, np.int32)
    for track in trace.tracks:
        if (track.layer, track.pid, track.subrow) == (layer, process, 0):
            own = threads.get(track.tid, [])
            ends = trace.start, trace.end, trace.parent, time[own], time[own]
            rows = enclosing_rows(track, *ends)
            rows = _working(trace, rows) if layer is Layer.OPS else rows
            found[own] = np.where(rows >= 0, trace.name[rows], -1)
    return found


def _working(trace: Trace, rows: Int32s) -> Int32s:
    """The ops that rows are in, or what is around those that only allocate."""
    allocates = trace.named(ALLOCATORS.__contains__)
    ops = np.where(rows >= 0, trace.op[rows], -1)
    while True:
        above = np.where(ops >= 0, trace.parent[ops], -1)
        above = np.where(above >= 0, trace.op[above], -1)
        only = (above >= 0) & allocates[trace.name[ops]]
        if not only.any():
            return ops
        ops = np.where(only, above, ops)
