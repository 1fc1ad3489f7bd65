"""What `memory` prints of a snapshot: text, and rows of tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from fusetui.analysis.memory.answer import DeviceMemory, MemoryAnswer
from fusetui.text.figures import count, duration, percent, size
from fusetui.text.printable import printable
from fusetui.text.tables import TOP_ALL, Column, left_out, table_of

PLACE = re.compile(r"(?:.*/)?([^/]+/[^/]+\.py:\d+ .*)", re.DOTALL)  # the folder, the file, the line
MOMENTS = {"peak": "At the peak", "end": "At the end", "oom": "Out of memory"}
WIDEST = 96


def memory_text(found: MemoryAnswer, by: str, top: int, width: int) -> str:
    """The figures of each device, and who holds what lives at the moment asked for."""
    several = len(found.devices) > 1
    lines = [printable(found.file)]
    for device in found.devices:
        lines += ["", f"device {device.device}"] if several else []
        lines += wrap(_peak(device), min(width, WIDEST))
        lines += ["", *wrap(_moment(found.at, device), min(width, WIDEST))]
        lines += _table(device, "category", 0, width)
        if by != "category":
            lines += ["", *_table(device, by, top, width)]
    return "\n".join(lines if found.devices else [*lines, "It holds no memory of any device."])


def rows_of(device: DeviceMemory, by: str) -> Iterator[dict[str, Any]]:
    """The rows of a table: who holds what lives at the moment asked for."""
    held = {"code": device.by_code, "module": device.by_module}.get(by)
    named = (
        [(one.category, one) for one in device.categories]
        if held is None
        else [(one.place, one) for one in held]
    )
    for name, one in named:
        share = one.bytes / device.at_allocated_bytes if device.at_allocated_bytes else None
        figures = {"bytes": one.bytes, "share": share, "blocks": one.blocks}
        yield {"device": str(device.device), "holder": name, **figures}


def short_place(place: str) -> str:
    """`/home/a/model/layers.py:12 forward` -> `model/layers.py:12 forward`."""
    found = PLACE.fullmatch(place)
    return printable(found[1] if found else place.replace("_", " "))


def _peak(device: DeviceMemory) -> str:
    when = _when(device, device.peak_index, device.peak_time_us)
    return (
        f"Peak: {size(device.peak_allocated_bytes)} allocated{when}, and at most "
        f"{size(device.peak_reserved_bytes)} reserved. At the start "
        f"{size(device.allocated_start_bytes)} allocated, at the end "
        f"{size(device.allocated_end_bytes)}, with {size(device.reserved_end_bytes)} reserved."
    ) + _contradiction(device.difference_end_bytes)


def _when(device: DeviceMemory, event: int, time_us: int | None) -> str:
    """` at 1.2 s (event 12,345)`, counted from the first event."""
    if event < 0:
        return " before the first event" if device.events else ""
    if time_us is None or device.start_time_us is None:
        return f" after event {count(event)}"
    return f" at {duration(1000 * (time_us - device.start_time_us))} (event {count(event)})"


def _contradiction(difference: int) -> str:
    if not difference:
        return ""
    more = "more" if difference > 0 else "less"
    return (
        f" The file contradicts itself: its events leave {size(abs(difference))} {more} than its "
        "blocks hold."
    )


def _moment(at: str, device: DeviceMemory) -> str:
    during = f" ({printable(device.annotation)})" if device.annotation else ""
    running = f", running {short_place(device.place)}{during}" if device.place else during
    when = "" if at == "peak" else _when(device, device.at_index, device.at_time_us)
    held = f"{size(device.at_allocated_bytes)} allocated"
    return f"{MOMENTS.get(at, 'Then')}{when}{running}: {held}, by"


def _table(device: DeviceMemory, by: str, top: int, width: int) -> list[str]:
    rows = list(rows_of(device, by))
    whole = device.at_allocated_bytes
    name = {"code": "code", "module": "module"}.get(by, "category")
    columns = (
        Column("bytes", cell=lambda row: size(row["bytes"])),
        Column("share", cell=lambda row: percent(row["bytes"], whole)),
        Column("blocks", spare=1, cell=lambda row: count(row["blocks"])),
        Column(name, left=True, cell=lambda row: short_place(row["holder"])),
    )
    shown = rows[:top] if top else rows
    rest = sum(row["bytes"] for row in rows[len(shown) :])
    more = left_out(len(rows) - len(shown), "row", TOP_ALL, percent(rest, whole))
    return [*table_of(columns, shown, width).split("\n"), *more]
