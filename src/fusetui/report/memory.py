"""The output of `memory` for snapshots: text, documents, and rows of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import basename
from textwrap import wrap
from typing import Any, Literal

import msgspec

from fusetui.analysis.memory.answer import (
    By,
    DeviceMemory,
    MemoryAnswer,
    MemoryChange,
    MemoryRank,
    Totals,
    index_rows_by_holder,
)
from fusetui.analysis.memory.findings import MemoryFinding
from fusetui.analysis.memory.of_trace import TracedMemory
from fusetui.analysis.memory.oom import OutOfMemory
from fusetui.report import printed
from fusetui.report.memory_words import (
    MORE,
    describe_finding,
    describe_oom,
    remedy,
    short_place,
)
from fusetui.text.figures import count, duration, percent, signed_size, size
from fusetui.text.printable import printable
from fusetui.text.tables import MAX_SENTENCE_CELLS, Column, top_table, wrapped_lines

MOMENTS = {"peak": "At the peak", "end": "At the end", "oom": "Out of memory"}
NS_OF_US = 1000
"""Nanoseconds in a microsecond."""

MAX_PINNED = 3
"""Segments that are listed where memory is fragmented."""


class FindingDocument(MemoryFinding, frozen=True, kw_only=True):
    """A finding with its figures, as sentences, and what to try."""

    text: str
    try_: str = msgspec.field(name="try")


class OomDocument(OutOfMemory, frozen=True, kw_only=True):
    """An `oom` event, as sentences."""

    text: str


class DeviceMemoryDocument(DeviceMemory, frozen=True, kw_only=True):
    """One device."""

    ooms: tuple[OomDocument, ...]
    findings: tuple[FindingDocument, ...]


class MemoryDocument(MemoryAnswer, frozen=True):
    """The output of `memory --json` for one snapshot."""

    devices: tuple[DeviceMemoryDocument, ...]


class TracedMemoryDocument(msgspec.Struct, frozen=True):
    """Its output for a trace with memory events."""

    file: str
    at: str
    devices: tuple[TracedMemory, ...]


class NoSnapshot(msgspec.Struct, frozen=True):
    """A file that is not a snapshot."""

    file: str
    reason: str


class MemoryRanksDocument(msgspec.Struct, frozen=True):
    """Its output for a folder."""

    ranks: tuple[MemoryRank, ...]
    left_out: tuple[NoSnapshot, ...]


def make_memory_document(answer: MemoryAnswer) -> MemoryDocument:
    """Return the answer of `memory` for --json, with its sentences."""
    devices = tuple(_make_device_document(device) for device in answer.devices)
    return printed(answer, MemoryDocument, devices=devices)


def _make_device_document(device: DeviceMemory) -> DeviceMemoryDocument:
    """Return the memory of one device for --json, with sentences about its findings and
    out-of-memory errors."""
    ooms = [printed(oom, OomDocument, text=describe_oom(oom)) for oom in device.ooms]
    findings = []
    for finding in device.findings:
        findings.append(
            printed(
                finding,
                FindingDocument,
                text=describe_finding(finding),
                try_=remedy(finding),
            )
        )
    return printed(
        device, DeviceMemoryDocument, ooms=tuple(ooms), findings=tuple(findings)
    )


def format_memory(answer: MemoryAnswer, by: By, top: int, width: int) -> str:
    """Return the memory of each device as text: its figures, who holds memory at the
    moment, and what stands out. `by` is what holders are grouped by, and `top` limits
    the rows (0: all)."""
    lines = [printable(answer.file)]
    for device in answer.devices:
        if len(answer.devices) > 1:
            lines += ["", f"device {device.device}"]
        lines += _format_device(device, answer.at, by, top, width)
    if not answer.devices:
        lines.append("No device memory was recorded.")
    return "\n".join(lines)


def _format_device(
    device: DeviceMemory, at: str, by: By, top: int, width: int
) -> Iterator[str]:
    """Yield the lines about the memory of one device, at the moment `at`."""
    yield from wrapped_lines(_describe_peak(device), width)
    for oom in device.ooms:
        yield ""
        yield from wrapped_lines(describe_oom(oom), width)
        yield from _format_pinned(oom, width)
    yield ""
    yield from wrapped_lines(_describe_moment(at, device), width)
    yield from _format_table(device, "category", 0, width)
    if by != "category":
        yield ""
        yield from _format_table(device, by, top, width)
    yield ""
    yield from wrapped_lines(_describe_waste(device), width)
    if device.findings:
        yield ""
    for number, finding in enumerate(device.findings, 1):
        text = f"{number}. {describe_finding(finding)} Try: {remedy(finding)}."
        yield from wrapped_lines(text, width, "   ")


def format_traced_memory(document: TracedMemoryDocument, top: int, width: int) -> str:
    """Return the memory of each device as text, by the memory events of a trace. `top`
    limits the rows of each table; 0 means all."""
    lines = [printable(document.file)]
    processes = {device.process for device in document.devices}
    for device in document.devices:
        title = _name_device(device)
        if len(processes) > 1:
            title += f" of process {printable(str(device.process))}"
        if device.kind == "CPU":
            title += ": allocations during the recording"
        lines += ["", title, *wrapped_lines(_describe_peak(device), width), ""]
        lines += wrapped_lines(_describe_moment(document.at, device), width)
        lines += _format_table(device, "op", top, width)
    if any(device.kind == "GPU" for device in document.devices):
        lines += ["", *wrapped_lines(MORE, width)]
    return "\n".join(lines)


def format_comparison(answer: MemoryChange, top: int, width: int) -> str:
    """Return what holds more or less memory in snapshot B than in A, as text with a
    table for each device."""
    columns = (
        Column("A", cell=lambda row: size(row.a_bytes)),
        Column("B", cell=lambda row: size(row.b_bytes)),
        Column("B - A", cell=lambda row: signed_size(row.difference_bytes)),
        Column(answer.by, left=True, cell=lambda row: short_place(row.holder)),
    )
    moment = MOMENTS.get(answer.at, "Then")
    lines = [f"A: {printable(answer.a)}", f"B: {printable(answer.b)}"]
    for device in answer.devices:
        sides = f"{size(device.a_bytes)} in A, {size(device.b_bytes)} in B"
        change = signed_size(device.difference_bytes)
        lines += ["", f"{moment}, device {device.device}: {sides}, {change}"]
        lines.append(top_table(columns, device.rows, top, width, "row"))
    return "\n".join(lines)


RANK_COLUMNS = (
    Column("peak", cell=lambda rank: size(rank.peak_allocated_bytes)),
    Column("from median", cell=lambda rank: signed_size(rank.from_median_bytes)),
    Column("reserved", cell=lambda rank: size(rank.peak_reserved_bytes)),
    Column("mostly", left=True, cell=lambda rank: short_place(rank.category or "")),
    Column("of it", spare=2, cell=lambda rank: size(rank.category_bytes)),
    Column("out of memory", spare=1, cell=lambda rank: _count_or_blank(rank.ooms)),
    Column("device", spare=3, cell=lambda rank: str(rank.device)),
    Column("file", left=True, cell=lambda rank: printable(basename(rank.file))),
)


def _count_or_blank(number: int) -> str:
    return count(number) if number else ""


def format_ranks(ranks: Sequence[MemoryRank], top: int, width: int) -> str:
    """Return a table with a row for each device of each snapshot. The one that differs
    most comes first."""
    return top_table(RANK_COLUMNS, ranks, top, width, "row")


def rows_of(device: Totals, by: By | Literal["op"]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table of who holds the memory of a device at the moment,
    grouped by `by`. The share is None if nothing is allocated."""
    whole_bytes = device.at_allocated_bytes
    for name, holder in index_rows_by_holder(device, by).items():
        yield {
            "device": _name_device(device),
            "holder": name,
            "bytes": holder.bytes,
            "share": holder.bytes / whole_bytes if whole_bytes else None,
            "blocks": holder.blocks,
        }


def _name_device(device: Totals) -> str:
    """Return the name of a device: its number in a snapshot, or its kind and number in
    a trace."""
    if not isinstance(device, TracedMemory):
        return str(device.device)
    return f"{device.kind} {device.device}" if device.device >= 0 else device.kind


def _describe_peak(device: Totals) -> str:
    """Return sentences about the peak of a device, and its allocated memory at the
    start and end."""
    peak = (
        f"{size(device.peak_allocated_bytes)} allocated"
        f"{_describe_time(device, device.peak_index, device.peak_time_us)}"
    )
    end = f"{size(device.allocated_end_bytes)}"
    if device.peak_reserved_bytes:  # the CPU's allocator has none
        peak += f"; peak reserved memory: {size(device.peak_reserved_bytes)}"
        end += f", with {size(device.reserved_end_bytes)} reserved"
    start = size(device.allocated_start_bytes)
    return (
        f"Peak: {peak}. Allocated at the start: {start}; at the end: "
        f"{end}.{_describe_doubts(device)}"
    )


def _describe_time(device: Totals, event: int, time_us: int | None) -> str:
    """Return when an event occurred after the first one, such as ` at 1.2 s (event
    12,345)`. `event` is below 0 for a time before the first event."""
    if event < 0:
        return " before the first event" if device.events else ""
    if time_us is None or device.start_time_us is None:
        return f" after event {count(event)}"
    since_start_us = time_us - device.start_time_us
    return f" at {duration(NS_OF_US * since_start_us)} (event {count(event)})"


UNRECORDED = {
    "free_requested": "an allocation counts until its memory is free",
    "free_completed": "memory that a stream still uses counts as free",
    "segment_alloc": "earlier reserved sizes are not exact",
    "segment_free": "earlier reserved sizes are not exact",
}
"""What follows for the figures where events of this action alone were not recorded."""


def _describe_doubts(device: Totals) -> str:
    """Return a sentence about what makes the figures inexact: events that torch was
    told not to record (`skip_actions`), or a file that contradicts itself. "" if
    nothing does."""
    is_snapshot = isinstance(device, DeviceMemory)
    if isinstance(device, DeviceMemory) and device.unrecorded:
        actions = device.unrecorded
        follows = " and ".join(_list_consequences(actions))
        return f" {_describe_unrecorded(actions).capitalize()}: {follows}."
    difference = device.difference_end_bytes
    if not difference:
        return ""
    direction = "more" if difference > 0 else "less"
    compared_total = "its blocks hold" if is_snapshot else "the total of the last event"
    return (
        f" The file contradicts itself: its events add up to {size(abs(difference))} {direction} "
        f"than {compared_total}."
    )


def _list_consequences(actions: Sequence[str]) -> list[str]:
    """Return what follows for the figures if events of these actions were not recorded."""
    lacks_frees = "free_requested" in actions and "free_completed" in actions
    if "alloc" in actions or lacks_frees:
        return ["figures of moments before the end are not exact"]
    return list(dict.fromkeys(UNRECORDED[action] for action in actions))


def _describe_unrecorded(actions: Sequence[str]) -> str:
    """Return a clause about the actions whose events were not recorded."""
    return f"events {' and '.join(actions)} were not recorded"


def _describe_moment(at: str, device: Totals) -> str:
    """Return a phrase about the moment that is shown, and what was allocated then.

    At the peak, while running train.py:12 (forward): 1.2 GB allocated
    """
    moment = MOMENTS.get(at, "Then")
    if at != "peak":
        moment += _describe_time(device, device.at_index, device.at_time_us)
    if device.place:
        moment += f", while running {short_place(device.place)}"
    if device.annotation:
        moment += f" ({printable(device.annotation)})"
    return f"{moment}: {size(device.at_allocated_bytes)} allocated"


def _format_pinned(oom: OutOfMemory, width: int) -> list[str]:
    """Return lines about the segments with most inactive memory, and what keeps them
    from being freed. Empty if memory is not fragmented."""
    if oom.reason != "fragmented":
        return []
    listed_segments = oom.pinned[:MAX_PINNED]
    lines: list[str] = []
    for segment in listed_segments:
        holders = ", ".join(map(short_place, segment.holders))
        text = (
            f"{size(segment.inactive_bytes)} of the segment of {size(segment.total_size)}"
            f" at {segment.address:#x}, kept by {holders}"
        )
        lines += wrap(
            text,
            min(width, MAX_SENTENCE_CELLS),
            initial_indent="  ",
            subsequent_indent="    ",
        )
    unlisted_count = oom.pinned_count - len(listed_segments)
    if unlisted_count:
        lines.append(f"  and {count(unlisted_count)} more")
    return lines


def _describe_waste(device: DeviceMemory) -> str:
    """Return sentences about how much of the reserved memory is in use, and what the
    rest is."""
    waste = device.waste
    used = f"{size(waste.active_bytes)} of the {size(waste.reserved_bytes)} reserved is in use"
    rounding_bytes = waste.rounding_bytes
    split_bytes = waste.split_bytes
    cached_bytes = waste.cached_bytes
    if rounding_bytes is None or split_bytes is None or cached_bytes is None:
        reason = "blocks and segments contradict each other"
        if device.unrecorded:
            reason = _describe_unrecorded(device.unrecorded)
        return f"{used}; the rest is unknown, because {reason}."
    at_least = "" if waste.is_exact else "at least "
    at_most = "" if waste.is_exact else "at most "
    return (
        f"{used}. The rest is {at_least}{size(rounding_bytes)} lost to rounding, "
        f"{at_most}{size(split_bytes)} free in used segments, and {size(cached_bytes)} in "
        "empty segments."
    )


def _format_table(
    device: Totals, by: By | Literal["op"], top: int, width: int
) -> list[str]:
    """Return the lines of a table of who holds memory, with at most `top` rows (0: all)
    and the share of the others."""
    rows = list(rows_of(device, by))
    whole_bytes = device.at_allocated_bytes
    columns = (
        Column("bytes", cell=lambda row: size(row["bytes"])),
        Column("share", cell=lambda row: percent(row["bytes"], whole_bytes)),
        Column("blocks", spare=1, cell=lambda row: _count_or_blank(row["blocks"])),
        Column(by, left=True, cell=lambda row: short_place(row["holder"])),
    )
    left_out = rows[top:] if top else []
    left_out_bytes = sum(row["bytes"] for row in left_out)
    share = percent(left_out_bytes, whole_bytes)
    return top_table(columns, rows, top, width, "row", share=share).split("\n")
