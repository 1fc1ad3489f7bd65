"""One element of traceEvents, as a typed record: only the fields that the columns need.

msgspec skips everything else without building it, which is what makes loading fast.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fusetui.trace.read.times import exact_nanoseconds

Id = int | str | None


class Args(msgspec.Struct, gc=False):
    """The few args that links and labels need."""

    correlation: int = -1
    external_id: int = msgspec.field(default=-1, name="External id")
    external_id_2021: int = msgspec.field(default=-1, name="external id")
    name: Any = None
    labels: Any = None
    sort_index: Any = None


class Event(msgspec.Struct, gc=False):
    """An event with its times as numbers: exact for all but absolute times with a fraction."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Id = None
    tid: Id = None
    ts: int | float = 0
    dur: int | float = 0
    args: Args | None = None


class ExactEvent(msgspec.Struct, gc=False):
    """The same with its times as their text in the file, and the ids of pairs."""

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


NO_ARGS = Args()

PHASES_OF_PAIRS = frozenset("BEbeSF")
"""Slices written as two events: by thread (BE), by id (be), and the old way by id (SF)."""

PHASES_OF_SAMPLES = frozenset("CiI")
"""Values at one time: counters, and instants, which torch writes of its memory."""

decode_events = msgspec.json.Decoder(list[Event]).decode
decode_exact = msgspec.json.Decoder(list[ExactEvent]).decode
decode_one_exact = msgspec.json.Decoder(ExactEvent).decode


def times_of(event: ExactEvent) -> tuple[int, int]:
    """Start and duration in nanoseconds. Raises ValueError when they are no times."""
    return exact_nanoseconds(bytes(event.ts)), exact_nanoseconds(bytes(event.dur))


def coerce(element: object) -> ExactEvent:
    """A decoded element with fields of odd types -> an event; what cannot be used is left out.

    Raises ValueError when it is no event at all: not an object, or a time that is no number.
    """
    if not isinstance(element, dict):
        raise ValueError("not an object")
    args = element.get("args")
    event = ExactEvent(
        ph=_text(element.get("ph")),
        cat=_text(element.get("cat")),
        name=_text(element.get("name")),
        pid=_identity(element.get("pid")),
        tid=_identity(element.get("tid")),
        ts=_time(element.get("ts", 0)),
        dur=_time(element.get("dur", 0)),
        args=_args(args) if isinstance(args, dict) else None,
        id=element.get("id"),
        id2=element.get("id2"),
        scope=element.get("scope"),
    )
    if element and not event.ph:  # some writers end the list with an empty object
        raise ValueError("no phase (ph)")
    return event


def _args(args: dict[str, Any]) -> Args:
    return Args(
        correlation=_integer(args.get("correlation")),
        external_id=_integer(args.get("External id", args.get("external id"))),
        name=_text(args["name"]) if "name" in args else None,
        labels=_text(args["labels"]) if "labels" in args else None,
        sort_index=args.get("sort_index"),
    )


def _text(value: object) -> str:
    if value is None:
        return ""
    return _whole(value if isinstance(value, str) else str(value))


def _whole(text: str) -> str:
    """Without lone surrogates, which no output takes."""
    return text.encode("utf-8", "replace").decode()


def _identity(value: object) -> Id:
    return value if value is None or isinstance(value, int) else _text(value)


def _integer(value: object) -> int:
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -(2**63) <= number < 2**63 else -1


def _time(value: object) -> msgspec.Raw:
    """A number or a number in quotes -> its text. Raises ValueError when it is neither."""
    text = str(0 if value is None else value)
    exact_nanoseconds(text)
    return msgspec.Raw(text.encode())
