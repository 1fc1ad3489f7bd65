"""What a reader gives: the slices of a file in file order, before tracks, nesting and links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from fusetui.trace.model.arrays import Int32s, Int64s
from fusetui.trace.model.events import Events
from fusetui.trace.model.ids import Id
from fusetui.trace.model.report import Report

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

    report: Report  # what only the launches tell is not in it yet
    elements: Events
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
    report = raw.report
    if report.format == "json":
        return {}
    about = report.format, report.cut_ends, report.remarks[:16]
    origin = ConvertedFrom(*about)  # type: ignore[arg-type]
    return {CONVERTED_FROM: msgspec.to_builtins(origin)}
