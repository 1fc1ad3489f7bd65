"""What a file says about autograd: the sequence numbers of ops, and the flows from forward to
backward. Read when somebody asks, from those stretches of the file that hold any.

Ops that autograd records have `Sequence number` and `Fwd thread id`, which is 0 on the way forward;
on the way back it is torch's own number of the thread that went forward, which is no tid, and the
sequence number is that of the op that made the node (torch/csrc/autograd/profiler_kineto.cpp). From
these numbers Kineto makes flows of the category fwdbwd, from 2022-10 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.errors import TraceError
from fusetui.trace.read.callbacks import Stop, never
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.elements import Elements, Stretch, list_text
from fusetui.trace.read.events import Id, decode_raw
from fusetui.trace.read.repair import loads
from fusetui.trace.read.times import exact_nanoseconds

NUMBER, THREAD, FLOW = "Sequence number", "Fwd thread id", "fwdbwd"
LARGEST = 2**63


class Numbers(msgspec.Struct, gc=False):
    """The args of an op that autograd records; the others have neither."""

    number: Any = msgspec.field(default=None, name=NUMBER)
    thread: Any = msgspec.field(default=None, name=THREAD)


class Numbered(msgspec.Struct, gc=False):
    """Any event; only its numbers are decoded."""

    args: Numbers | None = None


class Linked(msgspec.Struct, gc=False):
    """Any event with what a flow needs besides."""

    ph: Any = ""
    cat: Any = ""
    id: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"0")
    args: Numbers | None = None


class FlowEnd(NamedTuple):
    """One end of a flow: an event of phase s (forward) or f (backward)."""

    begins: bool
    key: tuple[str, str]  # process and id: ids of merged files repeat
    thread: tuple[Id, Id]
    time: int  # ns
    order: int  # place in traceEvents


class Autograd(msgspec.Struct, frozen=True, eq=False):
    """The numbered ops in order of the file, arrays of shape [ops], and the flows."""

    order: NDArray[np.int64]  # place in traceEvents
    number: NDArray[np.int64]
    thread: NDArray[np.int64]  # 0: forward; else torch's number of the thread that went forward
    flows: tuple[FlowEnd, ...]


decode_numbered = msgspec.json.Decoder(list[Numbered]).decode
decode_linked = msgspec.json.Decoder(list[Linked]).decode


def read_autograd(elements: Elements, stop: Stop = never) -> Autograd:
    """Reads the file again where it holds any of it; what cannot be read (any more) is left out.

    Ends early with what it has once `stop` says True.
    """
    numbers: list[tuple[int, Any, Any]] = []
    flows: list[FlowEnd] = []
    first = 0
    for stretch in elements.stretches:
        if stop():
            break
        for order, event in _events(elements, stretch, first, numbers):
            with suppress(ValueError):
                flows.append(_flow_end(event, order))
        first += stretch.events
    whole = [(order, _integer(number), _integer(thread)) for order, number, thread in numbers]
    columns = np.array(whole, dtype=np.int64).reshape(-1, 3)
    columns = columns[(columns >= 0).all(axis=1)].T
    return Autograd(columns[0], columns[1], columns[2], tuple(flows))


def _events(
    elements: Elements, stretch: Stretch, first: int, numbers: list[tuple[int, Any, Any]]
) -> list[tuple[int, Linked]]:
    """The flows of a stretch, with their places in traceEvents; adds what it tells of ops."""
    try:
        text = bytes(elements.text.part(stretch.start, stretch.end))
        has_flows = FLOW.encode() in text
        if not has_flows and NUMBER.encode() not in text:
            return []
        events = _decoded(elements, stretch, text, first, has_flows)
    except (OSError, TraceError):
        return []
    numbers += [
        (order, args.number, args.thread)
        for order, event in events
        if (args := event.args) is not None and args.number is not None
    ]
    return [(n, e) for n, e in events if isinstance(e, Linked) and e.cat == FLOW]


def _decoded(
    elements: Elements, stretch: Stretch, text: bytes, first: int, has_flows: bool
) -> list[tuple[int, Numbered | Linked]]:
    """All events of a stretch. Raises what reading its text raises."""
    if stretch.places is not None:
        places = stretch.places.tolist()
        cut = ((first + n, text[a - stretch.start : b - stretch.start]) for n, a, b in places)
        return list(_one_by_one(cut))
    listed = list_text(elements.text, stretch)
    try:
        return list(enumerate((decode_linked if has_flows else decode_numbered)(listed), first))
    except UNDECODABLE:
        return list(_one_by_one(enumerate(map(bytes, _divided(listed)), first)))


def _divided(text: bytearray) -> list[msgspec.Raw]:
    """The elements of a list; none when it cannot be divided."""
    try:
        return decode_raw(text)
    except UNDECODABLE:
        return []


def _one_by_one(texts: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Linked]]:
    """Each on its own, repaired where that is safe."""
    for order, text in texts:
        with suppress(*UNDECODABLE):
            event = loads(text)
            if isinstance(event, dict):
                yield order, _linked(event)


def _linked(event: dict[str, Any]) -> Linked:
    args = event.get("args")
    numbers = Numbers(args.get(NUMBER), args.get(THREAD)) if isinstance(args, dict) else None
    time = msgspec.Raw(str(event.get("ts", 0)).encode())
    fields = {name: event.get(name) for name in ("ph", "cat", "id", "pid", "tid")}
    return Linked(**fields, ts=time, args=numbers)


def _flow_end(event: Linked, order: int) -> FlowEnd:
    """Raises ValueError when it is no end of a flow, or has no time."""
    if event.ph not in ("s", "f"):
        raise ValueError(event.ph)
    time = exact_nanoseconds(bytes(event.ts))
    key = (str(event.pid), str(event.id))
    return FlowEnd(event.ph == "s", key, (event.pid, event.tid), time, order)


def _integer(value: object) -> int:
    """0 for what is missing; -1 for what is no number of 64 bits."""
    if value is None:
        return 0
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -LARGEST <= number < LARGEST else -1
