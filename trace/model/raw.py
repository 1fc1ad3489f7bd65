"""What a reader gives: the slices of a file in file order, before tracks, nesting and links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from fusetui.trace.model.arrays import Int32s, Int64s
from fusetui.trace.model.events import Events
from fusetui.trace.model.ids import Id
from fusetui.trace.model.report import Prefix, Skipped

Thread = tuple[Id, Id]
Lane = tuple[Id, Id, int | None]
"""pid, tid and, of a GPU event, the number of its device (`args.device`), if it says so."""


class Label(msgspec.Struct, frozen=True):
    """One metadata event (ph M): the name of a process or thread."""

    kind: str  # process_name, process_labels, thread_name, ...
    pid: Id
    tid: Id
    value: Any


class Raw(msgspec.Struct, frozen=True, eq=False):
    """Arrays have shape [slices]."""

    path: str
    bytes: int  # of the file as stored
    cut: str | None  # how a compressed file ended too early
    elements: Events
    phases: Counter[str]
    names: tuple[str, ...]
    categories: tuple[str, ...]
    threads: tuple[Lane, ...]
    labels: tuple[Label, ...]
    start: Int64s  # ns
    dur: Int64s  # ns, never negative
    name: Int32s
    category: Int32s
    thread: Int32s
    correlation: Int64s
    external_id: Int64s
    order: Int64s  # index in traceEvents
    keys: dict[str, Any]  # the other top-level keys
    events: int
    unreadable: int  # elements
    skipped: tuple[Skipped, ...]  # the first ones
    complete: bool
    too_damaged: int  # the byte at which reading stopped because of damage, or -1
    prefix: Prefix | None  # what was read, if it was not read to its end
    negative: int  # durations below zero, shown as zero
    unfinished: int  # begin events (ph B, b, S) without an end
    unmatched: int  # end events without a begin
    changed: bool = False  # the file changed while it was read
    format: str = "json"  # see formats.py
    left_out: dict[str, int] = {}  # see Report
    remarks: tuple[str, ...] = ()
    cut_ends: int = 0  # see Report
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
    """The key that a converted trace gets; none for JSON, whose keys have it already."""
    if raw.format == "json":
        return {}
    origin = ConvertedFrom(raw.format, raw.cut_ends, raw.remarks[:16])  # type: ignore[arg-type]
    return {CONVERTED_FROM: msgspec.to_builtins(origin)}
