"""All that `fusetui memory` tells about a snapshot, a record for each device."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.memory.categories import Share, by_category, categories
from fusetui.analysis.memory.evidence import Evidence, evidence
from fusetui.analysis.memory.history import BEFORE, History, histories
from fusetui.analysis.memory.holders import Holder, by_code, by_module, code_of
from fusetui.analysis.memory.phases import Phases, phases
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.snapshot import Action, Snapshot

AT = ("peak", "end", "oom")


class NoMoment(Exception):  # noqa: N818
    """What is asked for is not in the snapshot; a sentence."""


class Known(msgspec.Struct, frozen=True, eq=False):
    """What follows from a history, once."""

    history: History
    evidence: Evidence
    phases: Phases
    kinds: Int64s  # of each life, the number of its category


class DeviceMemory(msgspec.Struct, frozen=True):
    """One device. Bytes are those asked for, those of `reserved` what the device gave. The figures
    after `at_index` are of the moment after that event (-1: before the first), each byte in one
    row of `categories`, of `by_code` and of `by_module`."""

    device: int
    events: int
    start_time_us: int | None  # the first event
    allocated_start_bytes: int
    peak_allocated_bytes: int
    peak_index: int
    peak_time_us: int | None
    peak_reserved_bytes: int
    allocated_end_bytes: int
    reserved_end_bytes: int
    active_end_bytes: int
    difference_end_bytes: int
    at_index: int
    at_time_us: int | None
    at_allocated_bytes: int
    at_reserved_bytes: int
    place: str | None  # of the code that was running
    annotation: str | None
    categories: tuple[Share, ...]
    by_code: tuple[Holder, ...]
    by_module: tuple[Holder, ...]


class MemoryAnswer(msgspec.Struct, frozen=True):
    """`at`: the moment asked for: peak, end, oom, or a Unix time in us."""

    file: str
    at: str
    devices: tuple[DeviceMemory, ...]


def known(snapshot: Snapshot) -> tuple[Known, ...]:
    """One for each device."""
    found = evidence(snapshot)
    each = ((one, phases(one, found)) for one in histories(snapshot))
    return tuple(Known(one, found, when, categories(one, found, when)) for one, when in each)


def memory(snapshot: Snapshot, at: str | int = "peak") -> MemoryAnswer:
    """`at`: one of AT, or a Unix time in us. Raises NoMoment."""
    devices = tuple(_device(one, at) for one in known(snapshot))
    return MemoryAnswer(snapshot.path, str(at), devices)


def event_at(history: History, at: str | int) -> int:
    """The event after which the state is meant. Raises NoMoment."""
    events = history.events
    if at == "peak":
        return history.peak_index
    if at == "end":
        return len(events) - 1
    if at == "oom":
        failed = np.flatnonzero(events.action == Action.OOM)
        if not len(failed):
            raise NoMoment("The snapshot has no out-of-memory event.")
        return int(failed[-1])
    times = events.time_us
    if not len(times) or times[0] < 0:
        raise NoMoment("The events of this snapshot have no times.")
    return int(np.searchsorted(times, int(at), side="right")) - 1


def _device(known: Known, at: str | int) -> DeviceMemory:
    history, found = known.history, known.evidence
    event = event_at(history, at)
    stack = int(history.events.stack[event]) if event != BEFORE else -1
    return DeviceMemory(
        device=history.device,
        events=len(history.events),
        start_time_us=history.time_us(BEFORE),
        allocated_start_bytes=int(history.allocated[0]),
        peak_allocated_bytes=int(history.allocated.max()),
        peak_index=history.peak_index,
        peak_time_us=history.time_us(history.peak_index),
        peak_reserved_bytes=int(history.reserved.max()),
        allocated_end_bytes=int(history.allocated[-1]),
        reserved_end_bytes=int(history.reserved[-1]),
        active_end_bytes=int(history.active[-1]),
        difference_end_bytes=history.difference_end_bytes,
        at_index=event,
        at_time_us=history.time_us(event),
        at_allocated_bytes=int(history.allocated[event + 1]),
        at_reserved_bytes=int(history.reserved[event + 1]),
        place=code_of(history.snapshot, found, stack) if stack >= 0 else None,
        annotation=_annotation(history, event),
        categories=by_category(history, known.kinds, event),
        by_code=by_code(history, found, event),
        by_module=by_module(history, found, event),
    )


def _annotation(history: History, event: int) -> str | None:
    """The innermost range that is open at an event."""
    time, rows = history.time_us(event), history.snapshot.annotations
    if time is None or event == BEFORE:
        return None
    before = rows.time_us <= time
    names, starts = rows.name[before].tolist(), rows.is_start[before].tolist()
    open_: list[int] = []
    for name, is_start in zip(names, starts, strict=True):
        if is_start:
            open_.append(name)
        elif name in open_:
            open_.reverse()
            open_.remove(name)
            open_.reverse()
    return history.snapshot.strings[open_[-1]] if open_ and open_[-1] >= 0 else None
