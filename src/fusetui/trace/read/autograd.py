"""What a file says about autograd: the sequence numbers of ops, and the flows from
forward to backward. Read on demand, from those stretches of the file that contain any.

Ops that autograd records have `Sequence number` and `Fwd thread id`. In the forward
pass the latter is 0. In the backward pass it is torch's own number of the forward
thread, which is not a tid, and the sequence number is that of the op that created the
node (torch/csrc/autograd/profiler_kineto.cpp). From these numbers Kineto creates flows
of the category fwdbwd, since 2022-10.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
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

NUMBER, THREAD, FLOW = "Sequence number", "Fwd thread id", "fwdbwd"
NO_ID = (list, dict)
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
    """Reads the relevant parts of the file again, leaving out what cannot be read any
    more.

    Ends early with what was found once `stop` returns True.
    """
    parts = [numbers_in(events, *place) for place in _places(events, stop)]
    return autograd_of(events, parts, stop)


def numbers_of(part: Iterable[tuple[int, Any]]) -> Int64s:
    """The order, sequence number and thread of the Numbered that have one, shape
    [numbered, 3]."""
    numbers = [
        (
            order,
            integer(args.number),
            0 if args.thread is None else integer(args.thread),
        )
        for order, event in part
        if (args := event.args) is not None and args.number is not None
    ]
    columns = np.array(numbers, dtype=np.int64).reshape(-1, 3)
    return columns[(columns >= 0).all(axis=1)]


def numbers_in(events: Events, stretch: Stretch, first: int) -> Int64s:
    """`numbers_of` one stretch, whose first element has the index `first`."""
    found = decoded(events.text, stretch, decode_numbered, _numbered, NUMBER.encode())
    return numbers_of((first + number, event) for number, event in found)


def autograd_of(
    events: Events, parts: Sequence[Int64s], stop: Stop = never
) -> Autograd:
    """What `numbers_of` found in each stretch, with the flows if these are needed."""
    order, number, thread = np.concatenate([NO_NUMBERS, *parts]).T
    ran_backward = bool((thread > 0).any())
    return Autograd(
        order, number, thread, () if ran_backward else read_flows(events, stop)
    )


def read_flows(
    events: Events, stop: Stop = never, category: str = FLOW, least: int = 0
) -> tuple[FlowEnd, ...]:
    """The ends of the flows of a category, by default from forward to backward, read as
    in `read_autograd`. `least`: only flows whose ids are numbers, this one or
    larger."""
    found: list[FlowEnd] = []
    for stretch, first in _places(events, stop):
        for number, event in decoded(
            events.text, stretch, decode_flows, _flow, category.encode()
        ):
            if least and not (type(event.id) is int and event.id >= least):
                continue
            if isinstance(event.pid, NO_ID) or isinstance(event.tid, NO_ID):
                continue
            if event.cat == category and event.ph in ("s", "f"):
                with suppress(ValueError):
                    time = exact_nanoseconds(bytes(event.ts))
                    key, thread = (
                        (str(event.pid), str(event.id)),
                        (event.pid, event.tid),
                    )
                    found.append(
                        FlowEnd(event.ph == "s", key, thread, time, first + number)
                    )
    return tuple(found)


def _places(events: Events, stop: Stop) -> Iterator[tuple[Stretch, int]]:
    """Each stretch, with the index of its first element in traceEvents."""
    counts = (stretch.events for stretch in events.stretches)
    for stretch, first in zip(
        events.stretches, accumulate(counts, initial=0), strict=False
    ):
        if stop():
            return
        yield stretch, first


def _numbered(text: bytes) -> Numbered | None:
    """One event, repaired where that is safe."""
    event = loads(text)
    args = event.get("args") if isinstance(event, dict) else None
    return (
        Numbered(Numbers(args.get(NUMBER), args.get(THREAD)))
        if isinstance(args, dict)
        else None
    )


def _flow(text: bytes) -> Flow | None:
    if not isinstance(event := loads(text), dict):
        return None
    fields = {name: event.get(name) for name in ("ph", "cat", "id", "pid", "tid")}
    time = str(event.get("ts", 0)).encode(errors="replace")
    return Flow(**fields, ts=msgspec.Raw(time))
