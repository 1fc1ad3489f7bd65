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
    """The phase of an event, as it is meant."""
    return "i" if phase == "X" and category == INSTANT else phase


def coerced(event: LooseEvent) -> ExactEvent:
    """The event behind fields of unusual types; unusable fields are left out.

    Raises ValueError if it is not an event: without a phase, or a slice with a time
    that is not a number within the range. A duration of null is 0.
    """
    phase = _text(event.ph)
    if not phase:
        raise ValueError("no phase (ph)")
    found = ExactEvent(
        ph=phase,
        cat=_text(event.cat),
        name=_text(event.name),
        pid=_identity(event.pid),
        tid=_identity(event.tid),
        ts=event.ts,
        dur=NO_TIME if bytes(event.dur) == b"null" else event.dur,
        args=_args(bytes(event.args)),
        id=event.id,
        id2=event.id2,
        scope=event.scope,
    )
    phase = phase_of(phase, found.cat)
    if phase == "X" or phase in PHASES_OF_PAIRS:
        start = exact_nanoseconds(bytes(found.ts))
        if phase == "X" and start + exact_nanoseconds(bytes(found.dur)) > LIMIT_NS:
            raise ValueError("it ends out of range")
    return found


def loose(element: dict[str, Any]) -> LooseEvent:
    """An element decoded by Python, whose numbers msgspec does not accept."""
    fields = {
        key: element[key] for key in LooseEvent.__struct_fields__ if key in element
    }
    for key in fields.keys() & {"ts", "dur", "args"}:
        fields[key] = msgspec.Raw(json.dumps(fields[key], default=str).encode())
    return LooseEvent(**fields)


NO_TIME = msgspec.Raw(b"0")
LONGEST = 20  # digits of a number worth looking at


def _args(text: bytes) -> Args | None:
    """The args of an event by their text, with what has an unusual type left out; None
    if they are no object."""
    if not text.startswith(b"{"):
        return None
    try:
        args = decode_args(
            text if text.isascii() else text.decode("utf-8", "replace").encode()
        )
    except (msgspec.MsgspecError, RecursionError):  # a number out of range
        return None
    return Args(
        correlation=integer(args.correlation),
        external_id=max(integer(args.external_id), integer(args.external_id_2021), -1),
        name=None if args.name is None else _text(args.name),
        labels=None if args.labels is None else _text(args.labels),
        sort_index=args.sort_index,
        device=args.device,
        original_stream=integer(args.original_stream),
    )


def _text(value: object) -> str:
    """Without lone surrogates, which cannot be encoded."""
    text = "" if value is None else str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _identity(value: object) -> Id:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return _text(value)


def integer(value: object) -> int:
    """-1 for what is not a 64-bit integer."""
    if isinstance(value, Decimal) and value.adjusted() > LONGEST:
        return -1  # of 1e1000000 an int would take a million digits
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -(2**63) <= number < 2**63 else -1
