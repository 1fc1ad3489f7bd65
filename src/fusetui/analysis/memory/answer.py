"""All that `fusetui memory` tells about a snapshot, a record for each device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.memory.categories import (
    Category,
    CategoryShare,
    Known,
    categories,
    phases,
    shares,
)
from fusetui.analysis.memory.evidence import Holder, evidence, held_at
from fusetui.analysis.memory.findings import MemoryFinding, findings
from fusetui.analysis.memory.history import BEFORE, History, histories
from fusetui.analysis.memory.layout import Waste, layout, waste
from fusetui.analysis.memory.oom import OutOfMemory, out_of_memory
from fusetui.trace.snapshot.columns import Snapshot

AT = ("peak", "end", "oom")


class NoMoment(Exception):  # noqa: N818
    """What is asked for is not in the snapshot: the end of a sentence."""


class Totals(msgspec.Struct, frozen=True):
    """Of one device. Bytes are those asked for, those of `reserved` what the device
    gave. The figures after `at_index` are of the moment after that event (-1: before
    the first)."""

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
    """One device, with each byte in one row of `categories`, of `by_code` and of
    `by_module`."""

    active_end_bytes: int
    unrecorded: tuple[str, ...]  # actions of which there must have been events
    categories: tuple[CategoryShare, ...]
    by_code: tuple[Holder, ...]
    by_module: tuple[Holder, ...]
    waste: Waste
    ooms_count: int
    ooms: tuple[OutOfMemory, ...]  # the last ones
    findings: tuple[MemoryFinding, ...]


class MemoryAnswer(msgspec.Struct, frozen=True):
    """`at`: the moment asked for: peak, end, oom, or a Unix time in us."""

    file: str
    at: str
    devices: tuple[DeviceMemory, ...]


def known(snapshot: Snapshot) -> tuple[Known, ...]:
    """One for each device."""
    found = evidence(snapshot.stacks)
    each = ((one, phases(one, found)) for one in histories(snapshot))
    return tuple(
        Known(one, found, when, categories(one, found, when)) for one, when in each
    )


def memory(snapshot: Snapshot, at: str | int = "peak") -> MemoryAnswer:
    """`at`: one of AT, or a Unix time in us. Raises NoMoment."""
    found = known(snapshot)
    events = events_at([one.history for one in found], at)
    return MemoryAnswer(snapshot.path, str(at), tuple(map(_device, found, events)))


def events_at(histories: Sequence[History], at: str | int) -> list[int]:
    """The event of each device after which the state is meant. Raises NoMoment."""
    if at == "peak":
        return [one.peak_index for one in histories]
    ends = [len(one.events) - 1 for one in histories]
    if at == "end":
        return ends
    failed, time = [list[int]() for _ in histories], 0 if at == "oom" else int(at)
    # the last of each device; of the others the same time, if it is known
    if at == "oom":
        failed = [one.failures[-1:].tolist() for one in histories]
        pairs = zip(histories, failed, strict=True)
        time = max(
            (one.time_us(rows[0]) or -1 for one, rows in pairs if rows), default=0
        )
        if not any(failed):
            raise NoMoment("it has no event of memory that ran out.")
    elif all(one.time_us(BEFORE) is None for one in histories):
        raise NoMoment("its events have no times.")
    until = (
        np.searchsorted(one.events.time_us, time, side="right") for one in histories
    )
    others = ends if at == "oom" and time < 0 else [int(place) - 1 for place in until]
    return [
        rows[0] if rows else other for rows, other in zip(failed, others, strict=True)
    ]


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
        unrecorded=tuple(one.name.lower() for one in history.unrecorded),
        place=found.code(stack) if stack >= 0 else None,
        annotation=_annotation(history, event),
        categories=shares(history, known.kinds, event),
        by_code=held_at(history, event, found.code),
        by_module=held_at(history, event, found.module),
        waste=waste(history, event, layout(history, event)),
        ooms_count=len(history.failures),
        ooms=failed,
        findings=findings(known, failed) if history.is_known else (),
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
    last = max(
        ((begun[-1], name) for name, begun in open_.items() if begun), default=(0, -1)
    )[1]
    return history.snapshot.strings[last] if last >= 0 else None


By = Literal["code", "module", "category"]


class HoldingChange(msgspec.Struct, frozen=True):
    """What one place, or one category, holds in each; `difference_bytes` is that of B
    less A's."""

    holder: str
    a_bytes: int
    b_bytes: int
    difference_bytes: int


class DeviceChange(msgspec.Struct, frozen=True):
    """One device; a device that only one of them has holds nothing in the other. The
    differences of the rows add up to that of the device."""

    device: int
    a_bytes: int
    b_bytes: int
    difference_bytes: int
    rows: tuple[HoldingChange, ...]


class MemoryChange(msgspec.Struct, frozen=True):
    """B beside A, each at its moment `at`."""

    a: str
    b: str
    at: str
    by: By
    devices: tuple[DeviceChange, ...]


class MemoryRank(msgspec.Struct, frozen=True):
    """One device of one of several snapshots; `from_median_bytes`: its peak less the
    median."""

    file: str
    device: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    allocated_end_bytes: int
    category: Category | None  # the largest at the peak
    category_bytes: int
    ooms: int
    from_median_bytes: int


def held_by(
    device: Totals, by: By | Literal["op"]
) -> dict[str, CategoryShare | Holder]:
    """What each holder holds."""
    key, held = (
        ("category", "categories") if by == "category" else ("place", f"by_{by}")
    )
    return {getattr(one, key): one for one in getattr(device, held)}


def versus(a: MemoryAnswer, b: MemoryAnswer, by: By) -> MemoryChange:
    """Rows of the same holder are compared, the largest difference first."""
    sides = [{one.device: one for one in answer.devices} for answer in (a, b)]
    devices = sorted({*sides[0], *sides[1]})
    changes = (
        _changed(one, sides[0].get(one), sides[1].get(one), by) for one in devices
    )
    return MemoryChange(a.file, b.file, a.at, by, tuple(changes))


def _changed(
    number: int, a: DeviceMemory | None, b: DeviceMemory | None, by: By
) -> DeviceChange:
    sides = [held_by(one, by) if one else {} for one in (a, b)]
    rows = []
    for name in {**sides[0], **sides[1]}:
        before, after = (side[name].bytes if name in side else 0 for side in sides)
        rows.append(HoldingChange(name, before, after, after - before))
    rows.sort(key=lambda one: (-abs(one.difference_bytes), -one.b_bytes, one.holder))
    whole = [one.at_allocated_bytes if one else 0 for one in (a, b)]
    return DeviceChange(number, whole[0], whole[1], whole[1] - whole[0], tuple(rows))


def ranked(answers: Iterable[MemoryAnswer]) -> tuple[MemoryRank, ...]:
    """The one whose peak is farthest from the median first. Only figures are kept of
    each."""
    found = []
    for answer in answers:
        for one in answer.devices:
            figures = (
                one.peak_allocated_bytes,
                one.peak_reserved_bytes,
                one.allocated_end_bytes,
            )
            first = [(share.category, share.bytes) for share in one.categories[:1]]
            category, size = first[0] if first else (None, 0)
            found.append(
                MemoryRank(
                    answer.file, one.device, *figures, category, size, one.ooms_count, 0
                )
            )
    middle = median_low([one.peak_allocated_bytes for one in found]) if found else 0
    placed = (
        replace(one, from_median_bytes=one.peak_allocated_bytes - middle)
        for one in found
    )
    odd = sorted(
        placed, key=lambda one: (-abs(one.from_median_bytes), one.file, one.device)
    )
    return tuple(odd)
