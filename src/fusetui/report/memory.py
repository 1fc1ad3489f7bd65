"""What `memory` prints of snapshots: text, documents, and rows of tables."""

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
    held_by,
)
from fusetui.analysis.memory.findings import MemoryFinding
from fusetui.analysis.memory.of_trace import TracedMemory
from fusetui.analysis.memory.oom import OutOfMemory
from fusetui.report import printed
from fusetui.report.memory_words import (
    MORE,
    finding_text,
    oom_text,
    remedy,
    short_place,
)
from fusetui.text.figures import count, duration, percent, signed_size, size
from fusetui.text.printable import printable
from fusetui.text.tables import READ, Column, first_of, folded

MOMENTS = {"peak": "At the peak", "end": "At the end", "oom": "Out of memory"}
PINNED = 3


class FindingDocument(MemoryFinding, frozen=True, kw_only=True):
    """A claim with its figures, in words, and what to try."""

    text: str
    try_: str = msgspec.field(name="try")


class OomDocument(OutOfMemory, frozen=True, kw_only=True):
    """An event `oom`, in words."""

    text: str


class DeviceMemoryDocument(DeviceMemory, frozen=True, kw_only=True):
    """One device."""

    ooms: tuple[OomDocument, ...]
    findings: tuple[FindingDocument, ...]


class MemoryDocument(MemoryAnswer, frozen=True):
    """What `memory --json` prints of one snapshot."""

    devices: tuple[DeviceMemoryDocument, ...]


class TracedMemoryDocument(msgspec.Struct, frozen=True):
    """What it prints of a trace with memory events."""

    file: str
    at: str
    devices: tuple[TracedMemory, ...]


class NoSnapshot(msgspec.Struct, frozen=True):
    """A file that is no snapshot."""

    file: str
    reason: str


class MemoryRanksDocument(msgspec.Struct, frozen=True):
    """What it prints of a folder."""

    ranks: tuple[MemoryRank, ...]
    left_out: tuple[NoSnapshot, ...]


def memory_document(found: MemoryAnswer) -> MemoryDocument:
    """The answer with its sentences."""

    def told(device: DeviceMemory) -> DeviceMemoryDocument:
        ooms = tuple(
            printed(one, OomDocument, text=oom_text(one)) for one in device.ooms
        )
        findings = tuple(
            printed(one, FindingDocument, text=finding_text(one), try_=remedy(one))
            for one in device.findings
        )
        return printed(device, DeviceMemoryDocument, ooms=ooms, findings=findings)

    return printed(found, MemoryDocument, devices=tuple(map(told, found.devices)))


def memory_text(found: MemoryAnswer, by: By, top: int, width: int) -> str:
    """The figures of each device, who holds what lives at the moment, and what stands
    out."""
    lines = [printable(found.file)]
    for device in found.devices:
        lines += ["", f"device {device.device}"] if len(found.devices) > 1 else []
        lines += folded(_peak(device), width)
        for oom in device.ooms:
            lines += ["", *folded(oom_text(oom), width), *_pinned(oom, width)]
        lines += ["", *folded(_moment(found.at, device), width)]
        lines += _table(device, "category", 0, width)
        if by != "category":
            lines += ["", *_table(device, by, top, width)]
        lines += ["", *folded(_waste(device), width)]
        lines += [""] if device.findings else []
        for number, one in enumerate(device.findings, 1):
            lines += folded(
                f"{number}. {finding_text(one)} Try: {remedy(one)}.", width, "   "
            )
    return "\n".join(
        lines if found.devices else [*lines, "It holds no memory of any device."]
    )


def traced_text(found: TracedMemoryDocument, top: int, width: int) -> str:
    """The same of each device that the memory events of a trace name."""
    lines = [printable(found.file)]
    processes = len({one.process for one in found.devices})
    for one in found.devices:
        process = f" of process {printable(str(one.process))}" if processes > 1 else ""
        recorded = (
            "" if one.kind != "CPU" else ": what was allocated while torch recorded"
        )
        lines += [
            "",
            f"{_device_name(one)}{process}{recorded}",
            *folded(_peak(one), width),
        ]
        lines += [
            "",
            *folded(_moment(found.at, one), width),
            *_table(one, "op", top, width),
        ]
    is_of_gpu = any(one.kind == "GPU" for one in found.devices)
    return "\n".join([*lines, "", *folded(MORE, width)] if is_of_gpu else lines)


def versus_text(found: MemoryChange, top: int, width: int) -> str:
    """What holds more or less in B."""
    lines = [f"A: {printable(found.a)}", f"B: {printable(found.b)}"]
    columns = (
        Column("A", cell=lambda row: size(row.a_bytes)),
        Column("B", cell=lambda row: size(row.b_bytes)),
        Column("B - A", cell=lambda row: signed_size(row.difference_bytes)),
        Column(found.by, left=True, cell=lambda row: short_place(row.holder)),
    )
    for one in found.devices:
        when = MOMENTS.get(found.at, "Then")
        sides = f"{size(one.a_bytes)} in A, {size(one.b_bytes)} in B"
        change = signed_size(one.difference_bytes)
        lines += ["", f"{when}, device {one.device}: {sides}, {change}"]
        lines.append(first_of(columns, one.rows, top, width, "row"))
    return "\n".join(lines)


def ranks_text(found: Sequence[MemoryRank], top: int, width: int) -> str:
    """A row for each device of each file, the odd one first."""
    columns = (
        Column("peak", cell=lambda row: size(row.peak_allocated_bytes)),
        Column("from median", cell=lambda row: signed_size(row.from_median_bytes)),
        Column("reserved", cell=lambda row: size(row.peak_reserved_bytes)),
        Column("mostly", left=True, cell=lambda row: short_place(row.category or "")),
        Column("of it", spare=2, cell=lambda row: size(row.category_bytes)),
        Column(
            "out of memory",
            spare=1,
            cell=lambda row: count(row.ooms) if row.ooms else "",
        ),
        Column("device", spare=3, cell=lambda row: str(row.device)),
        Column("file", left=True, cell=lambda row: printable(basename(row.file))),
    )
    return first_of(columns, found, top, width, "row")


def rows_of(device: Totals, by: By | Literal["op"]) -> Iterator[dict[str, Any]]:
    """The rows of a table: who holds what lives at the moment asked for."""
    name, whole = _device_name(device), device.at_allocated_bytes
    for holder, one in held_by(device, by).items():
        figures = {"share": one.bytes / whole if whole else None, "blocks": one.blocks}
        yield {"device": name, "holder": holder, "bytes": one.bytes, **figures}


def _device_name(device: Totals) -> str:
    if not isinstance(device, TracedMemory):
        return str(device.device)
    return f"{device.kind} {device.device}" if device.device >= 0 else device.kind


def _peak(device: Totals) -> str:
    when = _when(device, device.peak_index, device.peak_time_us)
    most = end = ""
    if device.peak_reserved_bytes:  # the CPU's allocator has none
        most = f", and at most {size(device.peak_reserved_bytes)} reserved"
        end = f", with {size(device.reserved_end_bytes)} reserved"
    return (
        f"Peak: {size(device.peak_allocated_bytes)} allocated{when}{most}. At the start "
        f"{size(device.allocated_start_bytes)} allocated, at the end "
        f"{size(device.allocated_end_bytes)}{end}.{_contradiction(device)}"
    )


def _when(device: Totals, event: int, time_us: int | None) -> str:
    """` at 1.2 s (event 12,345)`, counted from the first event."""
    if event < 0:
        return " before the first event" if device.events else ""
    if time_us is None or device.start_time_us is None:
        return f" after event {count(event)}"
    return f" at {duration(1000 * (time_us - device.start_time_us))} (event {count(event)})"


UNRECORDED = {
    "free_requested": "an allocation counts until it is free",
    "free_completed": "what a stream still used counts as free",
    "segment_alloc": "what was reserved before is not exact",
    "segment_free": "what was reserved before is not exact",
}
"""What follows for the figures where events of this action alone were not recorded."""


def _contradiction(device: Totals) -> str:
    """What torch was told not to record (`skip_actions`), and what follows; else
    whether the file contradicts itself."""
    difference = device.difference_end_bytes
    if isinstance(device, DeviceMemory) and (actions := device.unrecorded):
        if "alloc" in actions or {"free_requested", "free_completed"} <= {*actions}:
            follows = ["what is told of moments before the end is not exact"]
        else:
            follows = list(dict.fromkeys(UNRECORDED[one] for one in actions))
        return f" {_unrecorded(actions).capitalize()}: {' and '.join(follows)}."
    if not difference:
        return ""
    more = "more" if difference > 0 else "less"
    held = (
        "its blocks hold"
        if isinstance(device, DeviceMemory)
        else "the last of them says"
    )
    return (
        f" The file contradicts itself: its events leave {size(abs(difference))} {more} than "
        f"{held}."
    )


def _unrecorded(actions: Sequence[str]) -> str:
    return f"events {' and '.join(actions)} were not recorded"


def _moment(at: str, device: Totals) -> str:
    during = f" ({printable(device.annotation)})" if device.annotation else ""
    running = (
        f", running {short_place(device.place)}{during}" if device.place else during
    )
    when = "" if at == "peak" else _when(device, device.at_index, device.at_time_us)
    held = f"{size(device.at_allocated_bytes)} allocated"
    return f"{MOMENTS.get(at, 'Then')}{when}{running}: {held}, by"


def _pinned(oom: OutOfMemory, width: int) -> list[str]:
    """The segments with most of what is inactive, and what keeps them."""
    if oom.reason != "fragmented":
        return []
    lines: list[str] = []
    for one in oom.pinned[:PINNED]:
        kept = ", ".join(map(short_place, one.holders))
        where = f"the segment of {size(one.total_size)} at {one.address:#x}"
        text = f"{size(one.inactive_bytes)} of {where}, kept by {kept}"
        lines += wrap(
            text, min(width, READ), initial_indent="  ", subsequent_indent="    "
        )
    more = oom.pinned_count - len(oom.pinned[:PINNED])
    return [*lines, f"  and {count(more)} more"] if more else lines


def _waste(device: DeviceMemory) -> str:
    there = device.waste
    used = f"Of {size(there.reserved_bytes)} reserved then, {size(there.active_bytes)} are in use"
    if (
        there.rounding_bytes is None
        or there.split_bytes is None
        or there.cached_bytes is None
    ):
        why = "blocks and segments contradict each other"
        why = _unrecorded(device.unrecorded) if device.unrecorded else why
        return f"{used}; the rest is not told, as {why}."
    least, most = ("", "") if there.is_exact else ("at least ", "at most ")
    return (
        f"{used}, {least}{size(there.rounding_bytes)} rounding, {most}{size(there.split_bytes)} "
        f"more in segments that hold something, and {size(there.cached_bytes)} in segments that "
        "hold nothing."
    )


def _table(device: Totals, by: By | Literal["op"], top: int, width: int) -> list[str]:
    rows = list(rows_of(device, by))
    whole = device.at_allocated_bytes
    columns = (
        Column("bytes", cell=lambda row: size(row["bytes"])),
        Column("share", cell=lambda row: percent(row["bytes"], whole)),
        Column(
            "blocks",
            spare=1,
            cell=lambda row: count(row["blocks"]) if row["blocks"] else "",
        ),
        Column(by, left=True, cell=lambda row: short_place(row["holder"])),
    )
    rest = sum(row["bytes"] for row in rows[top:]) if top else 0
    return first_of(columns, rows, top, width, "row", share=percent(rest, whole)).split(
        "\n"
    )
