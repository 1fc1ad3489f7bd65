"""One element of traceEvents as a typed record with only the fields that the columns
need.

msgspec skips everything else without building it, which is what makes loading fast.
"""

from __future__ import annotations

import json  # which writes whatever a trace holds as a key or value
from decimal import Decimal
from typing import Any

import msgspec

from fusetui.trace.model.ids import Id
from fusetui.trace.read.times import LIMIT_NS, exact_nanoseconds


class Args(msgspec.Struct, gc=False):
    """The few args that links and labels need."""

    correlation: int = -1
    external_id: int = msgspec.field(default=-1, name="External id")
    external_id_2021: int = msgspec.field(default=-1, name="external id")
    name: Any = None
    labels: Any = None
    sort_index: Any = None
    device: Any = None
    original_stream: int = -1  # of a GPU event that was moved to a lane for display


class Event(msgspec.Struct, gc=False):
    """An event with its times as numbers: exact except for absolute times with a
    fraction."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: int | float = 0
    dur: int | float = 0
    args: Args | None = None


class ExactEvent(msgspec.Struct, gc=False):
    """An event with its times as their text in the file, and the ids of pairs."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: msgspec.Raw = msgspec.Raw(b"0")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    args: Args | None = None
    id: Any = None
    id2: Any = None
    scope: Any = None


class LooseEvent(msgspec.Struct, gc=False):
    """An event whose fields may be of any type."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"0")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    args: msgspec.Raw = msgspec.Raw(b"null")
    id: Any = None
    id2: Any = None
    scope: Any = None


class LooseArgs(msgspec.Struct, gc=False):
    """Args whose values may be of any type."""

    correlation: Any = None
    external_id: Any = msgspec.field(default=None, name="External id")
    external_id_2021: Any = msgspec.field(default=None, name="external id")
    name: Any = None
    labels: Any = None
    sort_index: Any = None
    device: Any = None
    original_stream: Any = None


AnyEvent = Event | ExactEvent

NO_ARGS = Args()

PHASES_OF_PAIRS = frozenset("BEbeSF")
"""Phases of slices written as two events: by thread (BE), by id (be, of old SF)."""

PHASES_OF_SAMPLES = frozenset("CiI")
"""Phases of values at one time: counters, and instant events, which torch uses for
memory."""

INSTANT = "cpu_instant_event"
"""The category of instant events of a CPU. torch's Python exporter writes them as
slices (ph X)."""

decode_events = msgspec.json.Decoder(list[Event]).decode
decode_exact = msgspec.json.Decoder(list[ExactEvent]).decode
decode_loose = msgspec.json.Decoder(list[LooseEvent]).decode
decode_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode
decode_args = msgspec.json.Decoder(LooseArgs).decode


def phase_of(phase: str, category: object) -> str:
    """Return the phase that an event should have.

    torch's Python exporter writes instant events ("i") as slices ("X") with the
    category INSTANT. All others have the phase that they say.
    """
    return "i" if phase == "X" and category == INSTANT else phase


def make_event(event: LooseEvent) -> ExactEvent:
    """Make an event of ordinary types of one whose fields have any types.

    A numeric name becomes a text, a duration of null becomes 0, an arg that is no
    number is left out. Raises ValueError if that makes no event: it has no phase, or it
    is a slice whose time is no number or out of range.
    """
    phase = _as_text(event.ph)
    if not phase:
        raise ValueError("no phase (ph)")
    event_record = ExactEvent(
        ph=phase,
        cat=_as_text(event.cat),
        name=_as_text(event.name),
        pid=_as_id(event.pid),
        tid=_as_id(event.tid),
        ts=event.ts,
        dur=NO_TIME if bytes(event.dur) == b"null" else event.dur,
        args=_decode_args(bytes(event.args)),
        id=event.id,
        id2=event.id2,
        scope=event.scope,
    )
    phase = phase_of(phase, event_record.cat)
    is_slice = phase == "X"
    if is_slice or phase in PHASES_OF_PAIRS:
        start = exact_nanoseconds(bytes(event_record.ts))  # raises what is no time
        if is_slice:
            end = start + exact_nanoseconds(bytes(event_record.dur))
            if end > LIMIT_NS:
                raise ValueError("it ends out of range")
    return event_record


def make_loose_event(element: dict[str, Any]) -> LooseEvent:
    """Make a record of an event that Python decoded, because msgspec refuses some of
    its numbers (1e999, or integers beyond 64 bits)."""
    fields = {
        key: element[key] for key in LooseEvent.__struct_fields__ if key in element
    }
    for key in fields.keys() & {"ts", "dur", "args"}:
        fields[key] = msgspec.Raw(json.dumps(fields[key], default=str).encode())
    return LooseEvent(**fields)


NO_TIME = msgspec.Raw(b"0")
MAX_NUMBER_DIGITS = 20
"""A number with more digits does not fit into 64 bits."""


def _decode_args(text: bytes) -> Args | None:
    """Decode the args of an event; None if they are no JSON object.

    A field that has not the type it should have gets its default: of
    {"correlation": "x", "External id": 5} the correlation is -1, the id 5.
    """
    if not text.startswith(b"{"):
        return None
    utf8 = text if text.isascii() else text.decode("utf-8", "replace").encode()
    try:
        args = decode_args(utf8)
    except (msgspec.MsgspecError, RecursionError):  # a number out of range
        return None
    return Args(
        correlation=integer(args.correlation),
        external_id=max(integer(args.external_id), integer(args.external_id_2021), -1),
        name=None if args.name is None else _as_text(args.name),
        labels=None if args.labels is None else _as_text(args.labels),
        sort_index=args.sort_index,
        device=args.device,
        original_stream=integer(args.original_stream),
    )


def _as_text(value: object) -> str:
    """Return a value as text: "" for None, "7" for 7. Lone surrogates, which cannot be
    encoded, become "?"."""
    text = "" if value is None else str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _as_id(value: object) -> Id:
    """Return a pid or tid: integers and None as they are, all else as text."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return _as_text(value)


def integer(value: object) -> int:
    """Return a value as an integer: 7 for 7, "7" and 7.9; -1 for what is none, and for
    what does not fit into 64 bits."""
    if isinstance(value, Decimal) and value.adjusted() > MAX_NUMBER_DIGITS:
        return -1  # of 1e1000000 an int would take a million digits
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -(2**63) <= number < 2**63 else -1
