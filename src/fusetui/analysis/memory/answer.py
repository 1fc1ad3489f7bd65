"""All that `fusetui memory` tells about a snapshot, a record for each device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from fusetui.analysis.memory.categories import Phases, Share, by_category, categories, phases
from fusetui.analysis.memory.evidence import Evidence, evidence
from fusetui.analysis.memory.findings import Finding, findings
from fusetui.analysis.memory.history import BEFORE, History, histories
from fusetui.analysis.memory.holders import Holder, code_of, held_at, module_of
from fusetui.analysis.memory.layout import Waste, waste
from fusetui.analysis.memory.oom import OutOfMemory, out_of_memory
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.snapshot.columns import Action, Snapshot

AT = ("peak", "end", "oom")


class NoMoment(Exception):  # noqa: N818
    """What is asked for is not in the snapshot: the end of a sentence."""


class Known(msgspec.Struct, frozen=True, eq=False):
    """What follows from a history, once."""

    history: History
    evidence: Evidence
    phases: Phases
    kinds: Int64s  # of each life, the number of its category


class Totals(msgspec.Struct, frozen=True):
    """Of one device. Bytes are those asked for, those of `reserved` what the device gave. The
    figures after `at_index` are of the moment after that event (-1: before the first)."""

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
    difference_end_bytes: int
    at_index: int
    at_time_us: int | None
    at_allocated_bytes: int
    at_reserved_bytes: int
    place: str | None  # of the code that was running
    annotation: str | None


class DeviceMemory(Totals, frozen=True):
    """One device, with each byte in one row of `categories`, of `by_code` and of `by_module`."""

    active_end_bytes: int
    categories: tuple[Share, ...]
    by_code: tuple[Holder, ...]
    by_module: tuple[Holder, ...]
    waste: Waste
    ooms_count: int
    ooms: tuple[OutOfMemory, ...]  # the last ones
    findings: tuple[Finding, ...]


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
    found = known(snapshot)
    events = events_at([one.history for one in found], at)
    devices = tuple(map(_device, found, events))
    return MemoryAnswer(snapshot.path, str(at), devices)


def events_at(histories: Sequence[History], at: str | int) -> list[int]:
    """The event of each device after which the state is meant. Raises NoMoment."""
    if at == "peak":
        return [one.peak_index for one in histories]
    ends = [len(one.events) - 1 for one in histories]
    if at == "end":
        return ends
    if at == "oom":
        return _failures(histories, ends)
    if all(one.time_us(BEFORE) is None for one in histories):
        raise NoMoment("its events have no times.")
    return [_event_by(one, int(at)) for one in histories]


def _failures(histories: Sequence[History], ends: list[int]) -> list[int]:
    """The last `oom` of each device; of the others the same time, if it is known."""
    failed = [np.flatnonzero(one.events.action == Action.OOM)[-1:].tolist() for one in histories]
    pairs = list(zip(histories, failed, strict=True))
    if not any(failed):
        raise NoMoment("it has no event of memory that ran out.")
    time = max(one.time_us(rows[0]) or -1 for one, rows in pairs if rows)
    others = ends if time < 0 else [_event_by(one, time) for one in histories]
    return [rows[0] if rows else other for rows, other in zip(failed, others, strict=True)]


def _event_by(history: History, time_us: int) -> int:
    """The last event until a time."""
    return int(np.searchsorted(history.events.time_us, time_us, side="right")) - 1


def totals(history: History, event: int) -> dict[str, Any]:
    """The fields of Totals that a history tells."""
    allocated, reserved = history.allocated, history.reserved
    return {
        "device": history.device,
        "events": len(history.events),
        "start_time_us": history.time_us(BEFORE),
        "allocated_start_bytes": int(allocated[0]),
        "peak_allocated_bytes": int(allocated.max()),
        "peak_index": history.peak_index,
        "peak_time_us": history.time_us(history.peak_index),
        "peak_reserved_bytes": int(reserved.max()),
        "allocated_end_bytes": int(allocated[-1]),
        "reserved_end_bytes": int(reserved[-1]),
        "difference_end_bytes": history.difference_end_bytes,
        "at_index": event,
        "at_time_us": history.time_us(event),
        "at_allocated_bytes": int(allocated[event + 1]),
        "at_reserved_bytes": int(reserved[event + 1]),
    }


def _device(known: Known, event: int) -> DeviceMemory:
    history, found = known.history, known.evidence
    failed = out_of_memory(history, found)
    stack = int(history.events.stack[event]) if event != BEFORE else -1
    return DeviceMemory(
        **totals(history, event),
        active_end_bytes=int(history.active[-1]),
        place=code_of(history.snapshot, found, stack) if stack >= 0 else None,
        annotation=_annotation(history, event),
        categories=by_category(history, known.kinds, event),
        by_code=held_at(history, event, partial(code_of, history.snapshot, found)),
        by_module=held_at(history, event, partial(module_of, history.snapshot, found)),
        waste=waste(history, event),
        ooms_count=int((history.events.action == Action.OOM).sum()),
        ooms=failed,
        findings=findings(history, found, known.phases, known.kinds, failed),
    )


def _annotation(history: History, event: int) -> str | None:
    """The innermost range that is open at an event."""
    time, rows = history.time_us(event), history.snapshot.annotations
    if time is None or event == BEFORE:
        return None
    before = rows.time_us <= time
    names, starts = rows.name[before].tolist(), rows.is_start[before].tolist()
    open_: dict[int, list[int]] = {}
    for place, (name, is_start) in enumerate(zip(names, starts, strict=True)):
        begun = open_.setdefault(name, [])
        if is_start:
            begun.append(place)
        elif begun:
            begun.pop()
    last = max(((begun[-1], name) for name, begun in open_.items() if begun), default=(0, -1))[1]
    return history.snapshot.strings[last] if last >= 0 else None
