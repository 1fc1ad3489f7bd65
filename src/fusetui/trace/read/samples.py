"""The events in a range that hold values: counters and torch's [memory], with their
times and totals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Floats
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import Sample, Stretch, Text, parsed
from fusetui.trace.model.ids import Id
from fusetui.trace.read.batch import event_in
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.document_text import decoded, list_text
from fusetui.trace.read.events import ExactEvent, phase_of
from fusetui.trace.read.repair import loads
from fusetui.trace.read.times import InexactTimesError, exact_nanoseconds, nanoseconds

MEMORY_NAME = "[memory]"
PLACE = ("Device Type", "Device Id")
"""The args that say where the memory of an event is."""


class SampleEvent(msgspec.Struct, gc=False):
    """Any event; only the few that hold values are decoded further."""

    ph: str = ""
    cat: Any = ""
    name: str = ""
    pid: Id = None
    tid: Id = None
    id: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"0")
    args: msgspec.Raw = msgspec.Raw(b"{}")


class MemoryArgs(msgspec.Struct, gc=False):
    """The args of a memory event."""

    kind: int | None = msgspec.field(default=None, name=PLACE[0])
    device: int | None = msgspec.field(default=None, name=PLACE[1])
    allocated: int | None = msgspec.field(default=None, name="Total Allocated")
    reserved: int | None = msgspec.field(default=None, name="Total Reserved")


TOTALED = MemoryArgs.__struct_encode_fields__
"""The names of the args in a row of `read_totals`."""


class TotaledEvent(msgspec.Struct, gc=False):
    """Any event, with the args of memory events."""

    ph: str = ""
    cat: Any = ""
    name: str = ""
    ts: int | float = 0
    args: MemoryArgs | None = None


decode_events = msgspec.json.Decoder(list[SampleEvent]).decode
decode_event = msgspec.json.Decoder(SampleEvent).decode
decode_totals = msgspec.json.Decoder(list[TotaledEvent]).decode
decode_numbers = msgspec.json.Decoder(list[int | float]).decode


def samples(text: Text, stretch: Stretch) -> Iterator[tuple[Sample, int]]:
    """The samples of a stretch in file order, each with its time in ns.

    Samples that cannot be read any more, or have no time, are left out.
    """

    def samples_in(listed: bytearray) -> list[Sample]:
        return [
            _make_sample(event) for event in decode_events(listed) if _is_sample(event)
        ]

    in_order = [
        sample for _, sample in decoded(text, stretch, samples_in, _decode_sample)
    ]
    try:
        numbers = decode_numbers(b"[%b]" % b",".join(sample.ts for sample in in_order))
        yield from zip(in_order, nanoseconds(numbers).tolist(), strict=True)
    except (InexactTimesError, *UNDECODABLE):
        for sample in in_order:
            with suppress(ValueError):
                yield sample, exact_nanoseconds(sample.ts)


def read_totals(text: Text, stretch: Stretch) -> Floats | None:
    """The totals of the memory events of a stretch, a row each: device type, device,
    allocated and reserved bytes.

    Missing values are nan. None if the stretch, a range of the file, does not decode in
    one call.
    """
    if stretch.places is not None:
        return None
    try:
        events = decode_totals(list_text(text, stretch))
    except (OSError, TraceError, *UNDECODABLE):
        return None
    no_args = MemoryArgs()
    rows = [
        msgspec.structs.astuple(event.args or no_args)
        for event in events
        if _is_memory(event)
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, len(TOTALED))


def _decode_sample(text: bytes) -> Sample | None:
    """A sample from the text of one event, repaired where that is safe. None if the
    event holds no values."""
    try:
        event = decode_event(text)
        return _make_sample(event) if _is_sample(event) else None
    except UNDECODABLE:
        repaired = event_in(text)
        if repaired is None or not _is_sample(repaired):
            return None
        return _sample_with_args(repaired, loads(text).get("args"))


def _make_sample(event: SampleEvent) -> Sample:
    """A sample from an event whose args are not decoded yet."""
    args = parsed(bytes(event.args))
    if args is None:  # a number in them is out of range
        args = loads(bytes(event.args))
    return _sample_with_args(event, args)


def _sample_with_args(event: SampleEvent | ExactEvent, args: object) -> Sample:
    """A sample from an event and its args, which count only if they are an object."""
    return Sample(
        is_memory=event.ph != "C",
        name=event.name,
        pid=event.pid,
        tid=event.tid,
        id="" if event.id is None else str(event.id),
        ts=bytes(event.ts),
        args=args if isinstance(args, dict) else {},
    )


def _is_sample(event: SampleEvent | ExactEvent) -> bool:
    """Whether an event holds values: it is a counter or a memory event."""
    return event.ph == "C" or _is_memory(event)


def _is_memory(event: SampleEvent | ExactEvent | TotaledEvent) -> bool:
    """Whether an event is one of torch about memory: an instant called [memory]."""
    return event.name == MEMORY_NAME and phase_of(event.ph, event.cat) in ("i", "I")
