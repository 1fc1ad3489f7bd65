"""Autograd's data in a file: the sequence numbers of ops, and the flows from forward to
backward. Read on demand, from those stretches of the file that contain any.

Ops that autograd records have `Sequence number` and `Fwd thread id`. In the forward
pass the latter is 0. In the backward pass it is torch's own number of the forward
thread, which is not a tid, and the sequence number is that of the op that created the
node (torch/csrc/autograd/profiler_kineto.cpp). From these numbers Kineto creates flows
of the category fwdbwd, since 2022-10.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.events import Events, Stretch
from fusetui.trace.model.ids import Id
from fusetui.trace.model.report import Stop, never
from fusetui.trace.read.document_text import decoded
from fusetui.trace.read.events import integer
from fusetui.trace.read.repair import loads
from fusetui.trace.read.times import exact_nanoseconds

NUMBER = "Sequence number"
THREAD = "Fwd thread id"
FLOW = "fwdbwd"  # the category of flows from forward to backward
FLOW_PHASES = ("s", "f")  # of the begin and the end of a flow
NO_ID = (list, dict)  # types that ids do not have
NO_NUMBERS: Int64s = np.empty((0, 3), dtype=np.int64)


class Numbers(msgspec.Struct, gc=False):
    """The args of an op that autograd recorded; other ops have neither."""

    number: Any = msgspec.field(default=None, name=NUMBER)
    thread: Any = msgspec.field(default=None, name=THREAD)


class Numbered(msgspec.Struct, gc=False):
    """Any event; only its numbers are decoded."""

    args: Numbers | None = None


class Flow(msgspec.Struct, gc=False):
    """Any event, with the fields of a flow."""

    ph: Any = ""
    cat: Any = ""
    id: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"0")


class FlowEnd(NamedTuple):
    """One end of a flow: an event of phase s (forward) or f (backward)."""

    begins: bool
    key: tuple[str, str]  # process and id: merged files repeat ids
    thread: tuple[Id, Id]
    time: int  # ns
    order: int  # index in traceEvents


class Autograd(msgspec.Struct, frozen=True, eq=False):
    """The numbered ops in file order, arrays of shape [ops]; flows only if no op is
    known by its number to have run backward."""

    order: Int64s  # index in traceEvents
    number: Int64s
    thread: Int64s  # 0: forward; else torch's number of the forward thread
    flows: tuple[FlowEnd, ...] = ()


decode_numbered = msgspec.json.Decoder(list[Numbered]).decode
decode_flows = msgspec.json.Decoder(list[Flow]).decode


def read_autograd(events: Events, stop: Stop = never) -> Autograd:
    """Read the autograd numbers of all ops from the file again. What cannot be read any
    more is left out.

    Once `stop` returns True, the result is what was found by then.
    """
    parts = [
        numbers_in(events, stretch, first)
        for stretch, first in _stretches_with_first(events, stop)
    ]
    return autograd_of(events, parts, stop)


def numbers_of(part: Iterable[tuple[int, Any]]) -> Int64s:
    """Collect the sequence numbers of some events.

    The event number 12 with the args {"Sequence number": 5, "Fwd thread id": 1} gives
    the row [12, 5, 1].

    Args:
        part: The number of each event, and the event as a record with `args`.

    Returns:
        A table with a row for each event that has a valid sequence number, and three
        columns: the number of the event, its sequence number, its forward thread (0 if
        it has none).
    """
    rows = []
    for order, event in part:
        args = event.args
        if args is not None and args.number is not None:
            thread = 0 if args.thread is None else integer(args.thread)
            rows.append((order, integer(args.number), thread))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    is_valid = (columns >= 0).all(axis=1)
    return columns[is_valid]


def numbers_in(events: Events, stretch: Stretch, first: int) -> Int64s:
    """Read the sequence numbers of the events of a stretch; see `numbers_of`.

    Args:
        events: The events of the file.
        stretch: The stretch.
        first: The index in traceEvents of its first element.
    """
    elements = decoded(
        events.text, stretch, decode_numbered, _decode_numbered, word=NUMBER.encode()
    )
    return numbers_of((first + place, event) for place, event in elements)


def autograd_of(
    events: Events, parts: Sequence[Int64s], stop: Stop = never
) -> Autograd:
    """Combine the sequence numbers of all stretches; read flows if they are needed.

    They are needed if no number says that its op ran backward.

    Args:
        events: The events of the file.
        parts: What `numbers_of` returned for each stretch.
        stop: As for `read_autograd`.
    """
    order, number, thread = np.concatenate([NO_NUMBERS, *parts]).T
    ran_backward = bool((thread > 0).any())
    flows = () if ran_backward else read_flows(events, stop)
    return Autograd(order=order, number=number, thread=thread, flows=flows)


def read_flows(
    events: Events, stop: Stop = never, category: str = FLOW, least: int = 0
) -> tuple[FlowEnd, ...]:
    """Read the begins and the ends of the flows of one category from the file.

    Args:
        events: The events of the file. What cannot be read any more is left out.
        stop: Is asked between stretches. Once it returns True, the result is what was
            read by then.
        category: The category: by default flows from forward ops to backward ops.
        least: If not 0, only flows whose id is a number, and at least this.
    """
    ends: list[FlowEnd] = []
    for stretch, first in _stretches_with_first(events, stop):
        elements = decoded(
            events.text, stretch, decode_flows, _decode_flow, word=category.encode()
        )
        for place, event in elements:
            if event.cat != category or event.ph not in FLOW_PHASES:
                continue
            has_number = type(event.id) is int  # True is no id
            if least and not (has_number and event.id >= least):
                continue
            flow_end = _flow_end(event, order=first + place)
            if flow_end is not None:
                ends.append(flow_end)
    return tuple(ends)


def _flow_end(event: Flow, order: int) -> FlowEnd | None:
    """Return the end of a flow that an event is; None if its process or thread is no id,
    or its time is no number. `order` is its index in traceEvents."""
    if isinstance(event.pid, NO_ID) or isinstance(event.tid, NO_ID):
        return None
    try:
        time = exact_nanoseconds(bytes(event.ts))
    except ValueError:
        return None
    return FlowEnd(
        begins=event.ph == "s",
        key=(str(event.pid), str(event.id)),
        thread=(event.pid, event.tid),
        time=time,
        order=order,
    )


def _stretches_with_first(events: Events, stop: Stop) -> Iterator[tuple[Stretch, int]]:
    """Yield each stretch with the index in traceEvents of its first element, until
    `stop` returns True."""
    first = 0
    for stretch in events.stretches:
        if stop():
            return
        yield stretch, first
        first += stretch.events


def _decode_numbered(text: bytes) -> Numbered | None:
    """The sequence number and the forward thread in the text of one event, repaired
    where that is safe. None if it has no args."""
    event = loads(text)
    args = event.get("args") if isinstance(event, dict) else None
    if not isinstance(args, dict):
        return None
    return Numbered(args=Numbers(number=args.get(NUMBER), thread=args.get(THREAD)))


def _decode_flow(text: bytes) -> Flow | None:
    """The end of a flow in the text of one event, repaired where that is safe; None if
    it is not an object."""
    event = loads(text)
    if not isinstance(event, dict):
        return None
    time = str(event.get("ts", 0)).encode(errors="replace")
    return Flow(
        ph=event.get("ph"),
        cat=event.get("cat"),
        id=event.get("id"),
        pid=event.get("pid"),
        tid=event.get("tid"),
        ts=msgspec.Raw(time),
    )
