"""What `memory` prints of snapshots: text, documents, and rows of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import basename
from textwrap import wrap
from typing import Any, Literal

import msgspec

from fusetui.analysis.memory.answer import DeviceMemory, MemoryAnswer, Totals
from fusetui.analysis.memory.findings import Finding
from fusetui.analysis.memory.of_trace import TracedMemory
from fusetui.analysis.memory.oom import OutOfMemory
from fusetui.analysis.memory.versus import By, MemoryChange, MemoryRank, held_by
from fusetui.report.memory_words import MORE, finding_text, oom_text, remedy, short_place
from fusetui.text.figures import count, duration, percent, signed_size, size
from fusetui.text.printable import printable
from fusetui.text.tables import TOP_ALL, Column, left_out, table_of

MOMENTS = {"peak": "At the peak", "end": "At the end", "oom": "Out of memory"}
WIDEST = 96
PINNED = 3


class FindingDocument(Finding, frozen=True, kw_only=True):
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


class MemoryDocument(msgspec.Struct, frozen=True):
    """What `memory --json` prints of one snapshot."""

    file: str
    at: str
    devices: tuple[DeviceMemoryDocument, ...]


class TracedMemoryDocument(msgspec.Struct, frozen=True):
    """What it prints of a trace with memory events."""

    file: str
    at: str
    devices: tuple[TracedMemory, ...]


class LeftOut(msgspec.Struct, frozen=True):
    """A file that is no snapshot."""

    file: str
    reason: str


class MemoryRanksDocument(msgspec.Struct, frozen=True):
    """What it prints of a folder."""

    ranks: tuple[MemoryRank, ...]
    left_out: tuple[LeftOut, ...]


def memory_document(found: MemoryAnswer) -> MemoryDocument:
    """The answer with its sentences."""
    return MemoryDocument(found.file, found.at, tuple(map(_device_document, found.devices)))


def _device_document(device: DeviceMemory) -> DeviceMemoryDocument:
    own = {name: getattr(device, name) for name in device.__struct_fields__}
    ooms = (OomDocument(**msgspec.structs.asdict(o), text=oom_text(o)) for o in device.ooms)
    claims = (
        FindingDocument(**msgspec.structs.asdict(f), text=finding_text(f), try_=remedy(f))
        for f in device.findings
    )
    return DeviceMemoryDocument(**own | {"ooms": tuple(ooms), "findings": tuple(claims)})


def memory_text(found: MemoryAnswer, by: By, top: int, width: int) -> str:
    """The figures of each device, who holds what lives at the moment, and what stands out."""
    folded, lines = min(width, WIDEST), [printable(found.file)]
    for device in found.devices:
        lines += ["", f"device {device.device}"] if len(found.devices) > 1 else []
        lines += wrap(_peak(device), folded)
        for oom in device.ooms:
            lines += ["", *wrap(oom_text(oom), folded), *_pinned(oom, folded)]
        lines += ["", *wrap(_moment(found.at, device), folded)]
        lines += _table(device, "category", 0, width)
        if by != "category":
            lines += ["", *_table(device, by, top, width)]
        lines += ["", *wrap(_waste(device), folded)]
        lines += [""] if device.findings else []
        for number, one in enumerate(device.findings, 1):
            text = f"{number}. {finding_text(one)} Try: {remedy(one)}."
            lines += wrap(text, folded, subsequent_indent="   ")
    return "\n".join(lines if found.devices else [*lines, "It holds no memory of any device."])


def traced_text(found: TracedMemoryDocument, top: int, width: int) -> str:
    """The same of each device that the memory events of a trace name."""
    folded, lines = min(width, WIDEST), [printable(found.file)]
    several = len({one.process for one in found.devices}) > 1
    for one in found.devices:
        process = f" of process {printable(str(one.process))}" if several else ""
        recorded = "" if one.kind != "CPU" else ": what was allocated while torch recorded"
        lines += ["", f"{_device_name(one)}{process}{recorded}", *wrap(_peak(one), folded)]
        lines += ["", *wrap(_moment(found.at, one), folded), *_table(one, "op", top, width)]
    is_of_gpu = any(one.kind == "GPU" for one in found.devices)
    return "\n".join([*lines, "", *wrap(MORE, folded)] if is_of_gpu else lines)


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
        shown = one.rows[:top] if top else one.rows
        when = MOMENTS.get(found.at, "Then")
        sides = f"{size(one.a_bytes)} in A, {size(one.b_bytes)} in B"
        change = signed_size(one.difference_bytes)
        lines += ["", f"{when}, device {one.device}: {sides}, {change}"]
        lines += table_of(columns, shown, width).split("\n")
        lines += left_out(len(one.rows) - len(shown), "row", TOP_ALL)
    return "\n".join(lines)


def ranks_text(found: Sequence[MemoryRank], top: int, width: int) -> str:
    """A row for each device of each file, the odd one first."""
    columns = (
        Column("peak", cell=lambda row: size(row.peak_allocated_bytes)),
        Column("from median", cell=lambda row: signed_size(row.from_median_bytes)),
        Column("reserved", cell=lambda row: size(row.peak_reserved_bytes)),
        Column("mostly", left=True, cell=lambda row: short_place(row.category or "")),
        Column("of it", spare=2, cell=lambda row: size(row.category_bytes)),
        Column("out of memory", spare=1, cell=lambda row: count(row.ooms) if row.ooms else ""),
        Column("device", spare=3, cell=lambda row: str(row.device)),
        Column("file", left=True, cell=lambda row: printable(basename(row.file))),
    )
    shown = found[:top] if top else found
    more = left_out(len(found) - len(shown), "row", TOP_ALL)
    return "\n".join([table_of(columns, shown, width), *more])


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
    most, end = size(device.peak_reserved_bytes), size(device.reserved_end_bytes)
    reserved = (f", and at most {most} reserved", f", with {end} reserved")
    reserved = reserved if device.peak_reserved_bytes else ("", "")  # the CPU's allocator has none
    return (
        f"Peak: {size(device.peak_allocated_bytes)} allocated{when}{reserved[0]}. At the start "
        f"{size(device.allocated_start_bytes)} allocated, at the end "
        f"{size(device.allocated_end_bytes)}{reserved[1]}."
    ) + _contradiction(device)


def _when(device: Totals, event: int, time_us: int | None) -> str:
    """` at 1.2 s (event 12,345)`, counted from the first event."""
    if event < 0:
        return " before the first event" if device.events else ""
    if time_us is None or device.start_time_us is None:
        return f" after event {count(event)}"
    return f" at {duration(1000 * (time_us - device.start_time_us))} (event {count(event)})"


def _contradiction(device: Totals) -> str:
    difference = device.difference_end_bytes
    if not difference:
        return ""
    more = "more" if difference > 0 else "less"
    held = "its blocks hold" if isinstance(device, DeviceMemory) else "the last of them says"
    return (
        f" The file contradicts itself: its events leave {size(abs(difference))} {more} than "
        f"{held}."
    )


def _moment(at: str, device: Totals) -> str:
    during = f" ({printable(device.annotation)})" if device.annotation else ""
    running = f", running {short_place(device.place)}{during}" if device.place else during
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
        lines += wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    more = oom.pinned_count - len(oom.pinned[:PINNED])
    return [*lines, f"  and {count(more)} more"] if more else lines


def _waste(device: DeviceMemory) -> str:
    there = device.waste
    used = f"Of {size(there.reserved_bytes)} reserved then, {size(there.active_bytes)} are in use"
    if there.rounding_bytes is None or there.split_bytes is None or there.cached_bytes is None:
        return f"{used}; the rest is not told, as blocks and segments contradict each other."
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
        Column("blocks", spare=1, cell=lambda row: count(row["blocks"]) if row["blocks"] else ""),
        Column(by, left=True, cell=lambda row: short_place(row["holder"])),
    )
    shown = rows[:top] if top else rows
    rest = sum(row["bytes"] for row in rows[len(shown) :])
    more = left_out(len(rows) - len(shown), "row", TOP_ALL, percent(rest, whole))
    return [*table_of(columns, shown, width).split("\n"), *more]
