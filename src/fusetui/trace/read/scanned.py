"""Calls the compiled scanner (scan.c), if it is available. What it does not accept is
left to Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Floats, Int32s, Int64s
from fusetui.trace.model.categories import ROLES_ON_STREAMS, role
from fusetui.trace.model.events import EVERYWHERE, NOWHERE, Numbered, Stretch, Text
from fusetui.trace.model.ids import Id
from fusetui.trace.model.raw import Label, Lane
from fusetui.trace.read.events import decode_events
from fusetui.trace.read.gather import BESIDE_TIME, ChunkColumns, Labels, plain_id, reach

try:
    from fusetui.trace.read import scan as scan  # tests ask whether there is one
except ImportError:  # it could not be compiled where this was installed
    scan = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from fusetui.trace.read.scan import Column, ScannedEvents

decode_strings = msgspec.json.Decoder(list[str]).decode
decode_ids = msgspec.json.Decoder(list[Id]).decode


def scanned(text: bytes | memoryview) -> ChunkColumns | None:
    """The columns of events, given as text with commas between them. None if there is
    no compiled scanner, or it refuses something that Python may still accept."""
    if scan is None:
        return None
    events = scan.events(text, _is_on_gpu)
    if events is None:
        return None
    try:
        names = _decode_strings(events["names"])
        categories = _decode_strings(events["categories"])
        threads = _decode_lanes(events)
        labels = _decode_labels(events)
    except (msgspec.MsgspecError, ValueError):  # a number or an escape it refuses
        return None
    return ChunkColumns(
        phases=Counter(events["phases"]),
        names=names,
        categories=categories,
        threads=threads,
        labels=labels,
        start=_int64s(events["start"]),
        dur=_int64s(events["dur"]),
        name=_int32s(events["name"]),
        category=_int32s(events["category"]),
        thread=_int32s(events["lane"]),
        correlation=_int64s(events["correlation"]),
        external_id=_int64s(events["external_id"]),
        order=_int64s(events["order"]),
        reach=_reach_of_others(events["phases"], events["first_ns"], events["last_ns"]),
    )


class ScannedArgs(NamedTuple):
    """Args of some events."""

    args: Numbered
    sequence: Int64s  # the sequence numbers of the events, as `args_in` gives them
    totals: Floats | None  # args of memory events; None if none were asked for


def scan_args(
    text: Text,
    stretch: Stretch,
    places: Sequence[int],
    names: tuple[str, ...],
    sequences: bool,
    totals: tuple[str, ...],
) -> ScannedArgs | None:
    """Read some args of some events, as `args_in` does. None if Python has to decode
    the text."""
    if scan is None or not names or len(names) + len(totals) > scan.MAX_ARG_NAMES:
        return None
    answers = scan.arguments(
        text.part(stretch.start, stretch.end),
        np.array(places, dtype=np.int64),
        tuple(name.encode() for name in (*names, *totals)),
        len(totals),
        sequences,
    )
    if answers is None:
        return None
    arg_numbers, distinct, sequence_rows, total_values = answers
    columns_of_totals = None
    if totals:
        floats = np.frombuffer(memoryview(total_values), np.float64)
        columns_of_totals = floats.reshape(-1, len(totals))
    return ScannedArgs(
        args=(_int32s(arg_numbers), tuple(distinct)),
        sequence=_int64s(sequence_rows).reshape(-1, 3),
        totals=columns_of_totals,
    )


def _int64s(column: Column) -> Int64s:
    """A column of the scanner as 64-bit integers, without a copy."""
    return np.frombuffer(memoryview(column), np.int64)


def _int32s(column: Column) -> Int32s:
    """A column of the scanner as 32-bit integers, without a copy."""
    return np.frombuffer(memoryview(column), np.int32)


def _is_on_gpu(category: bytes) -> bool:
    """Whether slices of this category are on streams of a GPU."""
    return role(category.decode("utf-8", "replace")) in ROLES_ON_STREAMS


def _join_as_json_list(items: Sequence[bytes]) -> bytes:
    """A JSON list, given the JSON of its items."""
    return b"[%b]" % b",".join(items)


def _decode_strings(contents: Sequence[bytes]) -> tuple[str, ...]:
    """The texts of JSON strings, given their contents between the quotes."""
    return tuple(
        decode_strings(_join_as_json_list([b'"%b"' % text for text in contents]))
    )


def _decode_lanes(events: ScannedEvents) -> tuple[Lane, ...]:
    """The lanes of the scanned events: the ids of process and thread, and the device.
    The scanner has -1 for a device that the events do not name; it becomes None."""
    ids = [
        plain_id(lane_id) for lane_id in decode_ids(_join_as_json_list(events["ids"]))
    ]
    return tuple(
        (ids[process], ids[thread], None if device < 0 else device)
        for process, thread, device in events["lanes"]
    )


def _decode_labels(events: ScannedEvents) -> tuple[Label, ...]:
    """The labels that name processes and threads.

    If no two distinct labels are about the same thread, their order does not matter.
    Otherwise all are gone through in order, because a later one counts.
    """
    distinct = decode_events(_join_as_json_list(events["distinct_labels"]))
    subjects = {(event.pid, event.tid, event.name) for event in distinct}
    labels = Labels()
    if len(subjects) == len(distinct):
        labels.add(distinct)
    else:
        in_order = _int32s(events["labels_in_order"]).tolist()
        labels.add(distinct[number] for number in in_order)
    return tuple(labels.all)


def _reach_of_others(
    phases: Mapping[str, int], first_ns: int, last_ns: int
) -> tuple[int, int]:
    """The times in ns before and after all scanned events that are no slices.
    EVERYWHERE if some events hold for all times, NOWHERE if there are none."""
    if BESIDE_TIME & phases.keys():
        return EVERYWHERE
    if first_ns > last_ns:
        return NOWHERE
    return reach(first_ns, last_ns)
