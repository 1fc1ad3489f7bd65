"""Builds the whole answer of `fusetui memory` about a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.memory.categories import (
    Category,
    CategoryShare,
    MemoryFacts,
    categorize_allocations,
    determine_phases,
    sum_bytes_by_category,
)
from fusetui.analysis.memory.evidence import (
    Holder,
    derive_evidence,
    group_live_allocations,
)
from fusetui.analysis.memory.findings import MemoryFinding, list_memory_findings
from fusetui.analysis.memory.history import BEFORE, History, build_histories
from fusetui.analysis.memory.layout import Waste, compute_layout, measure_waste
from fusetui.analysis.memory.oom import OutOfMemory, explain_failures
from fusetui.trace.model.quantiles import lower_median
from fusetui.trace.snapshot.columns import Snapshot

AT = ("peak", "end", "oom")
"""Moments with a name."""


class NoMomentError(Exception):
    """The snapshot does not have the moment that was requested.

    The message is the end of a sentence.
    """


class Totals(msgspec.Struct, frozen=True):
    """The totals of one device.

    Bytes are those that the program requested; those of `reserved` are what the device
    gave. The figures from `at_index` on are of the moment after that event; -1 is
    before the first event.
    """

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
    """All that is reported about the memory of one device.

    Each byte is in one row of `categories`, one of `by_code` and one of `by_module`.
    """

    active_end_bytes: int
    unrecorded: tuple[str, ...]  # actions that happened although no event says so
    categories: tuple[CategoryShare, ...]
    by_code: tuple[Holder, ...]
    by_module: tuple[Holder, ...]
    waste: Waste
    ooms_count: int
    ooms: tuple[OutOfMemory, ...]  # the last ones
    findings: tuple[MemoryFinding, ...]


class MemoryAnswer(msgspec.Struct, frozen=True):
    """Every device of a snapshot at one moment.

    `at` is the moment that was requested: peak, end, oom, or a Unix time in us.
    """

    file: str
    at: str
    devices: tuple[DeviceMemory, ...]


def derive_memory_facts(snapshot: Snapshot) -> tuple[MemoryFacts, ...]:
    """Derive from a memory snapshot what each device held, and for what purpose.

    Each device gets its history, the phases of training, and the category of each
    allocation. Devices are in the order of their numbers.
    """
    stack_evidence = derive_evidence(snapshot.stacks)
    facts_of_devices = []
    for history in build_histories(snapshot):
        phases = determine_phases(history, stack_evidence)
        category_numbers = categorize_allocations(history, stack_evidence, phases)
        facts = MemoryFacts(
            history=history,
            evidence=stack_evidence,
            phases=phases,
            category_numbers=category_numbers,
        )
        facts_of_devices.append(facts)

    return tuple(facts_of_devices)


def memory(snapshot: Snapshot, at: str | int = "peak") -> MemoryAnswer:
    """Report what each device of a memory snapshot holds at a moment.

    Args:
        snapshot: The snapshot.
        at: The moment: a name from AT, such as the peak, or a Unix time in
            microseconds.

    Raises:
        NoMomentError: The snapshot does not have that moment.
    """
    facts_of_devices = derive_memory_facts(snapshot)
    events = find_events_at([device.history for device in facts_of_devices], at)

    devices = [
        _report_device(device, event)
        for device, event in zip(facts_of_devices, events, strict=True)
    ]
    return MemoryAnswer(file=snapshot.path, at=str(at), devices=tuple(devices))


def find_events_at(histories: Sequence[History], at: str | int) -> list[int]:
    """Find for each device the last event that happened before or at a moment.

    Args:
        histories: The histories of the devices.
        at: The moment: a name from AT, such as the peak, or a Unix time in
            microseconds.

    Returns:
        One event for each history; BEFORE if nothing had happened by then.

    Raises:
        NoMomentError: No device has that moment.
    """
    if at == "peak":
        return [history.peak_index for history in histories]

    if at == "end":
        return [_find_last_event(history) for history in histories]

    if at == "oom":
        return _find_events_of_failure(histories)

    if all(history.time_us(BEFORE) is None for history in histories):
        raise NoMomentError("its events have no timestamps.")

    return [_find_last_event_until(history, int(at)) for history in histories]


def _find_events_of_failure(histories: Sequence[History]) -> list[int]:
    """Find the event of each device at which memory ran out for the last time.

    For a device that never ran out, it is its last event until the last failure of
    another device. If the time of that is not known, it is its last event.
    """
    failed = [history for history in histories if len(history.failures)]
    if not failed:
        raise NoMomentError("it has no out-of-memory event.")

    times_us = [history.time_us(int(history.failures[-1])) for history in failed]
    known_times_us = [time_us for time_us in times_us if time_us is not None]

    events = []
    for history in histories:
        if len(history.failures):
            events.append(int(history.failures[-1]))
        elif known_times_us:
            events.append(_find_last_event_until(history, max(known_times_us)))
        else:
            events.append(_find_last_event(history))

    return events


def _find_last_event(history: History) -> int:
    """Return the index of the last event of a history. Returns BEFORE, the moment
    before the first event, if there is none."""
    return len(history.events) - 1


def _find_last_event_until(history: History, time_us: int) -> int:
    """Return the last event that is not after a time; BEFORE if there is none."""
    return int(np.searchsorted(history.events.time_us, time_us, side="right")) - 1


def summarize_totals(history: History, event: int) -> dict[str, Any]:
    """Return the figures of a device that follow from its memory history, as fields of
    Totals.

    They are the peak, the state at the start and at the end, and the state at a moment.
    The fields `place` and `annotation` are not among them.

    Args:
        history: The history of the device.
        event: The event after which the moment `at_...` is; BEFORE for the moment
            before the first one.
    """
    allocated = history.allocated
    reserved = history.reserved
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
        "at_allocated_bytes": history.allocated_after(event),
        "at_reserved_bytes": history.reserved_after(event),
    }


def _report_device(facts: MemoryFacts, event: int) -> DeviceMemory:
    """Describe a device at a moment: its totals, who holds its memory, failures and
    findings.

    Args:
        facts: What follows from the history of the device.
        event: The event after which the moment is. BEFORE is the moment before
            the first event.
    """
    history = facts.history
    code_of_stack = facts.evidence.describe_code
    module_of_stack = facts.evidence.describe_module
    ooms = explain_failures(history, facts.evidence)

    place = None
    if event != BEFORE:
        stack = int(history.events.stack[event])
        if stack >= 0:  # -1: none was recorded
            place = code_of_stack(stack)

    return DeviceMemory(
        **summarize_totals(history, event),
        active_end_bytes=int(history.active[-1]),
        unrecorded=tuple(action.name.lower() for action in history.unrecorded),
        place=place,
        annotation=_find_open_annotation(history, event),
        categories=sum_bytes_by_category(history, facts.category_numbers, event),
        by_code=group_live_allocations(history, event, code_of_stack),
        by_module=group_live_allocations(history, event, module_of_stack),
        waste=measure_waste(history, event, compute_layout(history, event)),
        ooms_count=len(history.failures),
        ooms=ooms,
        findings=list_memory_findings(facts, ooms) if history.is_known else (),
    )


def _find_open_annotation(history: History, event: int) -> str | None:
    """Return the name of the innermost annotation that is open at an event of the
    history.

    It is the one that began last and has not ended. Returns None if there is none,
    before the first event (BEFORE), and if events have no times.
    """
    time_us = history.time_us(event)
    if time_us is None or event == BEFORE:
        return None

    annotations = history.snapshot.annotations
    is_until_event = annotations.time_us <= time_us
    names = annotations.name[is_until_event].tolist()
    are_starts = annotations.is_start[is_until_event].tolist()

    # For each name the positions of starts that have no end yet.
    open_starts: dict[int, list[int]] = {}
    for position, (name, is_start) in enumerate(zip(names, are_starts, strict=True)):
        starts_of_name = open_starts.setdefault(name, [])
        if is_start:
            starts_of_name.append(position)
        elif starts_of_name:
            starts_of_name.pop()

    last_starts = [starts[-1] for starts in open_starts.values() if starts]
    if not last_starts:
        return None

    innermost: int = names[max(last_starts)]
    return history.snapshot.strings[innermost]


By = Literal["code", "module", "category"]


class HoldingChange(msgspec.Struct, frozen=True):
    """How the live memory of one holder differs between A and B.

    A holder is a line of code, a module or a category. `difference_bytes` is B minus A.
    """

    holder: str
    a_bytes: int
    b_bytes: int
    difference_bytes: int


class DeviceChange(msgspec.Struct, frozen=True):
    """How the live memory of one device differs between A and B.

    A device that is only in one of them counts as empty in the other. The differences
    of the rows add up to that of the device.
    """

    device: int
    a_bytes: int
    b_bytes: int
    difference_bytes: int
    rows: tuple[HoldingChange, ...]


class MemoryChange(msgspec.Struct, frozen=True):
    """How snapshot B differs from A, each at its moment `at`."""

    a: str
    b: str
    at: str
    by: By
    devices: tuple[DeviceChange, ...]


class MemoryRank(msgspec.Struct, frozen=True):
    """The figures of one device of one of several snapshots.

    `from_median_bytes` is its peak minus the median of all peaks.
    """

    file: str
    device: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    allocated_end_bytes: int
    category: Category | None  # the largest at the peak
    category_bytes: int
    ooms: int
    from_median_bytes: int


def index_rows_by_holder(
    device: Totals, grouping: By | Literal["op"]
) -> dict[str, CategoryShare | Holder]:
    """Return who holds the memory of a device, for one way of grouping.

    Args:
        device: The device, of a memory snapshot or of a trace.
        grouping: The way of grouping, such as by code; `op` exists only for a
            trace.

    Returns:
        The holders by their names, or the categories for that grouping.
    """
    # The fields are categories, by_code, by_module and by_op; a device has some of them.
    field = "categories" if grouping == "category" else f"by_{grouping}"
    rows: tuple[CategoryShare | Holder, ...] = getattr(device, field)

    by_name: dict[str, CategoryShare | Holder] = {}
    for row in rows:
        name = row.category if isinstance(row, CategoryShare) else row.place
        by_name[name] = row
    return by_name


def compare_snapshots(a: MemoryAnswer, b: MemoryAnswer, by: By) -> MemoryChange:
    """Compare the live memory of two snapshots, the largest difference first.

    Args:
        a: The first snapshot.
        b: The second snapshot.
        by: What is compared: lines of code, modules or categories.
    """
    devices_a = {device.device: device for device in a.devices}
    devices_b = {device.device: device for device in b.devices}
    changes = []
    for number in sorted({*devices_a, *devices_b}):
        device_a = devices_a.get(number)
        device_b = devices_b.get(number)
        changes.append(_compare_devices(number, device_a, device_b, by))

    return MemoryChange(a=a.file, b=b.file, at=a.at, by=by, devices=tuple(changes))


def _compare_devices(
    number: int, a: DeviceMemory | None, b: DeviceMemory | None, by: By
) -> DeviceChange:
    """Compare the live memory of a device in two snapshots, the largest difference
    first.

    Args:
        number: The number of the device.
        a: The device in the first snapshot; None if it is not there, so that it
            holds nothing.
        b: The device in the second snapshot, likewise.
        by: What is compared: lines of code, modules or categories.
    """
    bytes_in_a = _sum_bytes_by_holder(a, by)
    bytes_in_b = _sum_bytes_by_holder(b, by)

    rows = []
    for holder in {**bytes_in_a, **bytes_in_b}:
        a_bytes = bytes_in_a.get(holder, 0)
        b_bytes = bytes_in_b.get(holder, 0)
        row = HoldingChange(
            holder=holder,
            a_bytes=a_bytes,
            b_bytes=b_bytes,
            difference_bytes=b_bytes - a_bytes,
        )
        rows.append(row)

    rows.sort(key=lambda row: (-abs(row.difference_bytes), -row.b_bytes, row.holder))

    a_total = 0 if a is None else a.at_allocated_bytes
    b_total = 0 if b is None else b.at_allocated_bytes
    return DeviceChange(
        device=number,
        a_bytes=a_total,
        b_bytes=b_total,
        difference_bytes=b_total - a_total,
        rows=tuple(rows),
    )


def _sum_bytes_by_holder(device: DeviceMemory | None, by: By) -> dict[str, int]:
    """Return how many bytes each holder on a device has; {} without the device.

    A *holder* is a line of code, a module or a category, as `by` says.
    """
    if device is None:
        return {}
    return {name: row.bytes for name, row in index_rows_by_holder(device, by).items()}


def rank_devices(answers: Iterable[MemoryAnswer]) -> tuple[MemoryRank, ...]:
    """Order the devices of several snapshots by how unusual their peaks are.

    The device whose peak is farthest from the median of all peaks comes first. Only the
    figures are kept, so that `answers` may be made one after another.
    """
    ranks: list[MemoryRank] = []
    for answer in answers:
        ranks += [_make_rank(answer.file, device) for device in answer.devices]
    if not ranks:
        return ()

    median = lower_median([rank.peak_allocated_bytes for rank in ranks])
    with_distances = []
    for rank in ranks:
        distance = rank.peak_allocated_bytes - median
        with_distances.append(replace(rank, from_median_bytes=distance))

    with_distances.sort(
        key=lambda rank: (-abs(rank.from_median_bytes), rank.file, rank.device)
    )
    return tuple(with_distances)


def _make_rank(file: str, device: DeviceMemory) -> MemoryRank:
    """Return the figures of a device by which several snapshots are compared.

    The distance from the median peak is 0 until the peaks of all snapshots are known.
    """
    largest_category = None
    largest_bytes = 0
    if device.categories:  # sorted by size
        largest_category = device.categories[0].category
        largest_bytes = device.categories[0].bytes
    return MemoryRank(
        file=file,
        device=device.device,
        peak_allocated_bytes=device.peak_allocated_bytes,
        peak_reserved_bytes=device.peak_reserved_bytes,
        allocated_end_bytes=device.allocated_end_bytes,
        category=largest_category,
        category_bytes=largest_bytes,
        ooms=device.ooms_count,
        from_median_bytes=0,
    )
