"""Several snapshots: two row by row, or the ranks of a job beside each other."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low
from typing import Literal

import msgspec
from msgspec.structs import replace

from fusetui.analysis.memory.answer import DeviceMemory, MemoryAnswer, Totals
from fusetui.analysis.memory.categories import Category, Share
from fusetui.analysis.memory.holders import Holder

By = Literal["code", "module", "category"]


class Change(msgspec.Struct, frozen=True):
    """What one place, or one category, holds in each; `difference_bytes` is that of B less A's."""

    holder: str
    a_bytes: int
    b_bytes: int
    difference_bytes: int


class DeviceChange(msgspec.Struct, frozen=True):
    """One device; a device that only one of them has holds nothing in the other. The differences
    of the rows add up to that of the device."""

    device: int
    a_bytes: int
    b_bytes: int
    difference_bytes: int
    rows: tuple[Change, ...]


class MemoryChange(msgspec.Struct, frozen=True):
    """B beside A, each at its moment `at`."""

    a: str
    b: str
    at: str
    by: By
    devices: tuple[DeviceChange, ...]


class MemoryRank(msgspec.Struct, frozen=True):
    """One device of one of several snapshots; `from_median_bytes`: its peak less the median."""

    file: str
    device: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    allocated_end_bytes: int
    category: Category | None  # the largest at the peak
    category_bytes: int
    ooms: int
    from_median_bytes: int


def held_by(device: Totals, by: By | Literal["op"]) -> dict[str, Share | Holder]:
    """What each holder holds."""
    key, held = ("category", "categories") if by == "category" else ("place", f"by_{by}")
    return {getattr(one, key): one for one in getattr(device, held)}


def versus(a: MemoryAnswer, b: MemoryAnswer, by: By) -> MemoryChange:
    """Rows of the same holder are compared, the largest difference first."""
    sides = [{one.device: one for one in answer.devices} for answer in (a, b)]
    devices = sorted({*sides[0], *sides[1]})
    changes = (_changed(one, sides[0].get(one), sides[1].get(one), by) for one in devices)
    return MemoryChange(a.file, b.file, a.at, by, tuple(changes))


def _changed(number: int, a: DeviceMemory | None, b: DeviceMemory | None, by: By) -> DeviceChange:
    sides = [held_by(one, by) if one else {} for one in (a, b)]
    rows = []
    for name in {**sides[0], **sides[1]}:
        before, after = (side[name].bytes if name in side else 0 for side in sides)
        rows.append(Change(name, before, after, after - before))
    rows.sort(key=lambda one: (-abs(one.difference_bytes), -one.b_bytes, one.holder))
    whole = [one.at_allocated_bytes if one else 0 for one in (a, b)]
    return DeviceChange(number, whole[0], whole[1], whole[1] - whole[0], tuple(rows))


def ranked(answers: Iterable[MemoryAnswer]) -> tuple[MemoryRank, ...]:
    """The one whose peak is farthest from the median first. Only figures are kept of each."""
    found = [_rank(answer.file, one) for answer in answers for one in answer.devices]
    middle = median_low([one.peak_allocated_bytes for one in found]) if found else 0
    placed = (replace(one, from_median_bytes=one.peak_allocated_bytes - middle) for one in found)
    odd = sorted(placed, key=lambda one: (-abs(one.from_median_bytes), one.file, one.device))
    return tuple(odd)


def _rank(file: str, one: DeviceMemory) -> MemoryRank:
    largest = one.categories[0] if one.categories else None
    category, size = (largest.category, largest.bytes) if largest else (None, 0)
    return MemoryRank(
        file,
        one.device,
        one.peak_allocated_bytes,
        one.peak_reserved_bytes,
        one.allocated_end_bytes,
        category,
        size,
        one.ooms_count,
        0,
    )
