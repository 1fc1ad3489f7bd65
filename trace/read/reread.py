"""Some args of some events, and the sequence numbers of all, in one pass over the document.

Decoding a list takes about as long for ten args as for one, so what several answers need is decoded
together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arguments import KeptArguments, digest
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import BETWEEN, Events
from fusetui.trace.read.autograd import (
    NO_NUMBERS,
    NUMBER,
    THREAD,
    Autograd,
    autograd_of,
    numbers_in,
    numbers_of,
)
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.document_text import list_text

Int64s = NDArray[np.int64]


class StretchArgs(NamedTuple):
    """What was found in one stretch."""

    number: NDArray[np.int32]  # of each wanted event: the index of its args in `texts`, -1 for none
    texts: tuple[bytes, ...]  # distinct; each the texts of the args, joined by BETWEEN
    numbered: Int64s  # see numbers_of


class Reread:
    """The parts may be read in any order, and in several processes."""

    def __init__(
        self, events: Events, orders: Int64s, names: tuple[str, ...], numbered: bool = True
    ) -> None:
        """`orders` are the indices in traceEvents of the events whose args with these `names` are
        wanted. Without `numbered`, sequence numbers are not looked for."""
        self.stretches = len(events.stretches)
        self._events = events
        self._names = names
        self._numbered = numbered
        self._asked = digest(orders, names)
        self._firsts = np.cumsum([0, *(stretch.events for stretch in events.stretches)])
        self._by_place = np.argsort(orders, kind="stable")
        self._ordered = orders[self._by_place]
        self._cuts = np.searchsorted(self._ordered, self._firsts)

    def part(self, stretch: int) -> StretchArgs:
        """Reads one stretch; blank for what cannot be read any more."""
        first = int(self._firsts[stretch])
        own = self._ordered[self._cuts[stretch] : self._cuts[stretch + 1]]
        places = (own - first).tolist()
        found = self._at_once(stretch, first, places)
        if found is not None:
            return found
        texts = self._events.args(stretch, places, self._names) if places else []
        numbers = numbers_in(self._events, stretch, first) if self._numbered else NO_NUMBERS
        return _args_of(texts, self._names, numbers)

    def args(self, parts: Sequence[StretchArgs]) -> KeptArguments:
        """From the parts of all stretches, in order."""
        number = np.full(len(self._ordered), -1, dtype=np.int32)
        numbers: dict[bytes, int] = {}
        for stretch, part in enumerate(parts):
            common = [numbers.setdefault(text, len(numbers)) for text in part.texts]
            rows = self._by_place[self._cuts[stretch] : self._cuts[stretch + 1]]
            number[rows] = np.array([*common, -1], dtype=np.int32)[part.number]
        return KeptArguments(self._asked, number, tuple(numbers))

    def autograd(self, parts: Sequence[StretchArgs]) -> Autograd:
        """From the parts of all stretches, in order; the flows, if needed, are read now."""
        return autograd_of(self._events, [part.numbered for part in parts])

    def _at_once(self, stretch: int, first: int, places: Sequence[int]) -> StretchArgs | None:
        """None if the stretch does not decode as a list of ordinary events."""
        own = self._events.stretches[stretch]
        if own.places is not None:
            return None
        try:
            listed = list_text(self._events.text, own)
            numbered = self._numbered and NUMBER.encode() in listed
            if not (numbered or places):
                return _args_of([], self._names, NO_NUMBERS)
            events = _decoder(self._names)(listed)
        except (OSError, TraceError, *UNDECODABLE):
            return None
        nothing = _args_type(self._names)()
        wanted = (events[place].args or nothing for place in places)
        texts = [BETWEEN.join(msgspec.structs.astuple(args)[2:]) for args in wanted]
        numbers = numbers_of(enumerate(events, first)) if numbered else NO_NUMBERS
        return _args_of(texts, self._names, numbers)


def _args_of(texts: Sequence[bytes], names: tuple[str, ...], numbered: Int64s) -> StretchArgs:
    numbers: dict[bytes, int] = {BETWEEN * (len(names) - 1): -1}
    found = [numbers.setdefault(text, len(numbers) - 1) for text in texts]
    return StretchArgs(np.array(found, dtype=np.int32), tuple(numbers)[1:], numbered)


@cache
def _decoder(names: tuple[str, ...]) -> Callable[[bytearray], list[Any]]:
    """A decoder for a list of events that extracts the sequence numbers, and these args as their
    texts."""
    event = msgspec.defstruct("Event", [("args", _args_type(names) | None, None)], gc=False)
    return msgspec.json.Decoder(list[event]).decode  # type: ignore[valid-type]


@cache
def _args_type(names: tuple[str, ...]) -> type[msgspec.Struct]:
    numbered = [
        ("number", Any, msgspec.field(default=None, name=NUMBER)),
        ("thread", Any, msgspec.field(default=None, name=THREAD)),
    ]
    wanted = [
        (f"arg{n}", msgspec.Raw, msgspec.field(default=msgspec.Raw(b""), name=name))
        for n, name in enumerate(names)
    ]
    return msgspec.defstruct("Args", [*numbered, *wanted], gc=False)
