"""Calls the compiled scanner (scan.c), if it is available. What it does not accept is
left to Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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
    """The columns of elements with commas between them; None if Python has to look at
    them."""
    if scan is None:
        return None
    events = scan.events(text, _is_on_gpu)
    if events is None:
        return None
    try:
        names = _decoded_strings(events["names"])
        categories = _decoded_strings(events["categories"])
        threads = _lanes(events)
        labels = _labels(events)
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
        reach=_reach(events["phases"], events["first_ns"], events["last_ns"]),
    )


def scanned_args(
    text: Text,
    stretch: Stretch,
    places: Sequence[int],
    names: tuple[str, ...],
    sequences: bool,
    totals: tuple[str, ...],
) -> tuple[Numbered, Int64s, Floats | None] | None:
    """What `args_in` gives, with the args `totals` of memory events; None if Python has
    to look at the text."""
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
    number, distinct, sequence_rows, total_values = answers
    args = _int32s(number), tuple(distinct)
    sequence = _int64s(sequence_rows).reshape(-1, 3)
    if not totals:
        return args, sequence, None
    floats = np.frombuffer(memoryview(total_values), np.float64)
    return args, sequence, floats.reshape(-1, len(totals))


def _int64s(column: Column) -> Int64s:
    return np.frombuffer(memoryview(column), np.int64)


def _int32s(column: Column) -> Int32s:
    return np.frombuffer(memoryview(column), np.int32)


def _is_on_gpu(category: bytes) -> bool:
    return role(category.decode("utf-8", "replace")) in ROLES_ON_STREAMS


def _json_list(items: Sequence[bytes]) -> bytes:
    """A list from the JSON of its items."""
    return b"[%b]" % b",".join(items)


def _decoded_strings(contents: Sequence[bytes]) -> tuple[str, ...]:
    """Strings from what stands between their quotes."""
    return tuple(decode_strings(_json_list([b'"%b"' % text for text in contents])))


def _lanes(events: ScannedEvents) -> tuple[Lane, ...]:
    """The ids of the process and the thread of each lane, and its device, for which the
    scanner has -1 where the events name none."""
    ids = [plain_id(each) for each in decode_ids(_json_list(events["ids"]))]
    return tuple(
        (ids[process], ids[thread], None if device < 0 else device)
        for process, thread, device in events["lanes"]
    )


def _labels(events: ScannedEvents) -> tuple[Label, ...]:
    """What the labels say of threads.

    If no two distinct labels are about the same thing, their order does not matter;
    else all are gone through, as a later one counts.
    """
    distinct = decode_events(_json_list(events["distinct_labels"]))
    subjects = {(event.pid, event.tid, event.name) for event in distinct}
    labels = Labels()
    if len(subjects) == len(distinct):
        labels.add(distinct)
    else:
        in_order = _int32s(events["labels_in_order"]).tolist()
        labels.add(distinct[number] for number in in_order)
    return tuple(labels.all)


def _reach(phases: Mapping[str, int], first_ns: int, last_ns: int) -> tuple[int, int]:
    """Stretch.reach, from the times of the events that are no slices."""
    if BESIDE_TIME & phases.keys():
        return EVERYWHERE
    if first_ns > last_ns:
        return NOWHERE
    return reach(first_ns, last_ns)
