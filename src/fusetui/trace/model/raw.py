"""What a reader gives: the slices of a file in file order, before tracks, nesting and
links.

Copies and fills whose names say no more than `Memcpy` get the name that Kineto would
give them: the CUPTI monitor of torch 2.14 writes directions and kinds of memory into
args only.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.trace.model.arrays import Int32s, Int64s
from fusetui.trace.model.events import Events, arguments, parsed
from fusetui.trace.model.ids import Id
from fusetui.trace.model.report import Report

Thread = tuple[Id, Id]
Lane = tuple[Id, Id, int | None]
"""pid, tid and, of a GPU event, the number of its device (`args.device`), if it says
so."""


class Label(msgspec.Struct, frozen=True):
    """One metadata event (ph M): the name of a process or thread."""

    kind: str  # process_name, process_labels, thread_name, ...
    pid: Id
    tid: Id
    value: Any


class SliceColumns(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Slices in file order; arrays have shape [slices]."""

    names: tuple[str, ...]
    categories: tuple[str, ...]
    threads: tuple[Lane, ...]
    labels: tuple[Label, ...]
    start: Int64s  # ns
    dur: Int64s  # ns
    name: Int32s  # into names
    category: Int32s  # into categories
    thread: Int32s  # into threads
    correlation: Int64s
    external_id: Int64s
    order: Int64s  # index in traceEvents


class Raw(SliceColumns, frozen=True, eq=False):
    """All slices of a file; no `dur` is negative."""

    report: Report  # what only the launches tell is not in it yet
    elements: Events
    keys: dict[str, Any]  # the other top-level keys
    copies_named: bool = False  # names of copies and fills say all that the file says


CONVERTED_FROM = "converted_from"
"""The top-level key of JSON that was converted from another format: an Origin."""
Sentence = Annotated[str, msgspec.Meta(max_length=500)]


class ConvertedFrom(msgspec.Struct, frozen=True):
    """What a converted trace has to say of the file that it was made from."""

    format: Literal["", "nsys", "pftrace"] = ""
    cut_ends: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] = 0
    remarks: Annotated[tuple[Sentence, ...], msgspec.Meta(max_length=16)] = ()


def converted_from(keys: Mapping[str, Any]) -> ConvertedFrom:
    """What the keys of a trace tell of its origin; nothing where they mean nothing."""
    try:
        return msgspec.convert(keys.get(CONVERTED_FROM, {}), ConvertedFrom)
    except msgspec.ValidationError:
        return ConvertedFrom()


def origin_of(raw: Raw) -> dict[str, Any]:
    """The key that a converted trace gets; none for JSON, whose keys have it
    already."""
    report = raw.report
    if report.format == "json":
        return {}
    about = report.format, report.cut_ends, report.remarks[:16]
    origin = ConvertedFrom(*about)  # type: ignore[arg-type]
    return {CONVERTED_FROM: msgspec.to_builtins(origin)}


PLAIN = ("Memcpy", "Memset")
ARGS = ("copy kind", "src kind", "dst kind", "memory kind")
LONGEST = 20  # characters of the name of a kind of memory
MEMORY = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed"}
"""Source: CUpti_ActivityMemoryKind in cupti_activity.h."""


def with_directions(raw: Raw) -> Raw:
    """The same slices; `Memcpy` becomes `Memcpy HtoD (Pinned -> Device)` where args say
    that, and `Memset` becomes `Memset (Device)`."""
    plain = [number for number, name in enumerate(raw.names) if name in PLAIN]
    rows = np.flatnonzero(np.isin(raw.name, plain)) if plain else ()
    if raw.copies_named or not len(rows):
        return raw
    found = arguments(raw.elements, raw.order[rows], ARGS)
    numbers = {name: number for number, name in enumerate(raw.names)}
    full = np.repeat(
        np.array(plain, np.int32)[:, None], len(found.distinct) + 1, axis=1
    )
    for (place, number), (texts_at, texts) in product(
        enumerate(plain), enumerate(found.distinct)
    ):
        full[place, texts_at] = numbers.setdefault(
            _full(raw.names[number], texts), len(numbers)
        )
    renamed = raw.name.copy()
    renamed[rows] = full[np.searchsorted(plain, raw.name[rows]), found.number]
    return replace(raw, name=renamed, names=tuple(numbers))


def _full(name: str, texts: tuple[bytes, ...]) -> str:
    direction, source, target, kind = map(parsed, texts)
    if name == "Memset":
        return (
            f"{name} ({MEMORY[kind]})" if type(kind) is int and kind in MEMORY else name
        )
    if not isinstance(direction, str) or not (
        len(direction) == 4 and direction[1:3] == "to"
    ):
        return name
    ends = [
        end
        for end in (source, target)
        if isinstance(end, str) and 0 < len(end) <= LONGEST
    ]
    memory = (
        f" ({ends[0].capitalize()} -> {ends[1].capitalize()})" if len(ends) == 2 else ""
    )
    return f"{name} {direction}{memory}"
