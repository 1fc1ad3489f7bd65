"""The result of a reader: the slices of a file in file order, before tracks, nesting
and links.

Copies and fills whose names say no more than `Memcpy` get the name that Kineto would
give them: the CUPTI monitor of torch 2.14 writes directions and kinds of memory into
args only.
"""

from __future__ import annotations

from collections.abc import Mapping
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
MAX_REMARKS = 16
Sentence = Annotated[str, msgspec.Meta(max_length=500)]


class ConvertedFrom(msgspec.Struct, frozen=True):
    """What a converted trace has to say of the file that it was made from."""

    format: Literal["", "nsys", "pftrace"] = ""
    cut_ends: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] = 0
    remarks: Annotated[tuple[Sentence, ...], msgspec.Meta(max_length=MAX_REMARKS)] = ()


def converted_from(keys: Mapping[str, Any]) -> ConvertedFrom:
    """Return what the top-level keys of a trace say about the file that it was
    converted from; a ConvertedFrom without content if they say nothing valid."""
    try:
        return msgspec.convert(keys.get(CONVERTED_FROM, {}), ConvertedFrom)
    except msgspec.ValidationError:
        return ConvertedFrom()


def origin_of(raw: Raw) -> dict[str, Any]:
    """Return the top-level key that a trace gets when it is converted to JSON.

    For an export of Nsight Systems it is {"converted_from": {"format": "nsys", ...}};
    {} for JSON, whose keys have it already if it was converted before.
    """
    report = raw.report
    if report.format == "json":
        return {}
    origin = ConvertedFrom(
        format=report.format,  # type: ignore[arg-type]
        cut_ends=report.cut_ends,
        remarks=report.remarks[:MAX_REMARKS],
    )
    return {CONVERTED_FROM: msgspec.to_builtins(origin)}


BARE_NAMES = ("Memcpy", "Memset")
"""Names of copies and fills that say neither direction nor memory."""
MEMORY_ARGS = ("copy kind", "src kind", "dst kind", "memory kind")
MAX_KIND_CHARS = 20  # of the name of a kind of memory
MEMORY_KINDS = {
    1: "Pageable",
    2: "Pinned",
    3: "Device",
    4: "Array",
    5: "Managed",
}
"""Source: CUpti_ActivityMemoryKind in cupti_activity.h."""


def with_directions(raw: Raw) -> Raw:
    """Give copies and fills the names that Kineto would give them.

    `Memcpy` becomes `Memcpy HtoD (Pinned -> Device)`, and `Memset` becomes `Memset
    (Device)`, where the args of the event say that. All else stays. Reads the args of
    these events from the file.
    """
    bare = [number for number, name in enumerate(raw.names) if name in BARE_NAMES]
    if raw.copies_named or not bare:
        return raw
    rows = np.flatnonzero(np.isin(raw.name, bare))
    if not len(rows):
        return raw
    args = arguments(raw.elements, raw.order[rows], MEMORY_ARGS)

    # A table of full names: a line for each bare name, a column for each distinct set
    # of args. The number -1 of events without the args finds the last column.
    number_of_name = {name: number for number, name in enumerate(raw.names)}
    name_table = np.empty((len(bare), len(args.distinct) + 1), dtype=np.int32)
    name_table[:, -1] = bare
    for table_row, number in enumerate(bare):
        for column, texts in enumerate(args.distinct):
            full_name = _name_copy_or_fill(raw.names[number], texts)
            new_number = len(number_of_name)
            name_table[table_row, column] = number_of_name.setdefault(
                full_name, new_number
            )

    line_of_row = np.searchsorted(bare, raw.name[rows])
    name = raw.name.copy()
    name[rows] = name_table[line_of_row, args.number]
    return replace(raw, name=name, names=tuple(number_of_name))


def _name_copy_or_fill(bare_name: str, texts: tuple[bytes, ...]) -> str:
    """Return the name of a copy or a fill with what its args say.

    `Memcpy` with (b'"HtoD"', b'"pinned"', b'"device"', b"") is `Memcpy HtoD (Pinned ->
    Device)`; `Memset` with (b"", b"", b"", b"3") is `Memset (Device)`.

    Args:
        bare_name: One of BARE_NAMES.
        texts: The JSON texts of MEMORY_ARGS; b"" for those that are missing.
    """
    direction, source, target, memory = map(parsed, texts)
    if bare_name == "Memset":
        is_known = type(memory) is int and memory in MEMORY_KINDS
        return f"{bare_name} ({MEMORY_KINDS[memory]})" if is_known else bare_name
    if not _is_direction(direction):
        return bare_name
    if not _is_memory_kind(source) or not _is_memory_kind(target):
        return f"{bare_name} {direction}"
    kinds = f"{source.capitalize()} -> {target.capitalize()}"
    return f"{bare_name} {direction} ({kinds})"


def _is_memory_kind(value: object) -> bool:
    """Whether a value is a text short enough to be the name of a kind of memory."""
    return isinstance(value, str) and 0 < len(value) <= MAX_KIND_CHARS


def _is_direction(value: object) -> bool:
    """Whether a value is the direction of a copy, such as `HtoD`."""
    return isinstance(value, str) and len(value) == 4 and value[1:3] == "to"
