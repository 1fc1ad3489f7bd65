"""Some args of many slices at once. Each distinct value is kept once, as its text in the file.

So the args of a million calls with the same shapes are decoded only once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int32s, Int64s, distinct
from fusetui.trace.model.events import BETWEEN, Events, Numbered


class Arguments(msgspec.Struct, frozen=True, eq=False):
    """`number[n]` is the index in `distinct` of the args of slice n, -1 if it has none of them.

    Each element of `distinct` has the texts of the requested args in their order, b"" for a missing
    one.
    """

    number: Int32s
    distinct: tuple[tuple[bytes, ...], ...]


class KeptArguments(msgspec.Struct, frozen=True, eq=False):
    """Arguments as they are kept, with what was asked for."""

    asked: bytes  # a hash of the names and the orders
    number: Int32s
    texts: tuple[bytes, ...]  # each of `distinct`, joined by BETWEEN


def arguments(
    events: Events, orders: Int64s, names: tuple[str, ...], keep_as: str = ""
) -> Arguments:
    """The args with these names of the events at `orders` (indices in traceEvents), shape [n].

    An event that cannot be read any more has none. Takes as long as decoding the stretches of the
    file that contain the events, at about 500 MB/s; with `keep_as`, a name for this question, only
    the first time.
    """
    asked = digest(orders, names) if keep_as else b""
    kept = events.recall(keep_as, KeptArguments) if keep_as else None
    if kept is None or kept.asked != asked:
        wanted = Wanted(events, orders, names)
        each = map(wanted.places, range(len(events.stretches)))
        parts = (
            events.args(n, places, names) if places else NOTHING for n, places in enumerate(each)
        )
        kept = wanted.together(parts, asked)
        if keep_as:
            events.keep(keep_as, kept)
    return Arguments(kept.number, tuple(tuple(text.split(BETWEEN)) for text in kept.texts))


def digest(orders: Int64s, names: tuple[str, ...]) -> bytes:
    """Equal for equal questions only."""
    from hashlib import blake2b  # not needed by most commands

    return blake2b("\0".join(names).encode() + orders.tobytes(), digest_size=16).digest()


NOTHING: Numbered = np.empty(0, dtype=np.int32), ()
"""Of a stretch of which no args are asked for."""


def numbered(texts: Iterable[bytes], names: int) -> Numbered:
    """From the texts of so many args of each event."""
    numbers: dict[bytes, int] = {BETWEEN * (names - 1): -1}
    number = [numbers.setdefault(text, len(numbers) - 1) for text in texts]
    return np.array(number, dtype=np.int32), tuple(numbers)[1:]


class Wanted:
    """The args with some names of some events, stretch by stretch."""

    def __init__(self, events: Events, orders: Int64s, names: tuple[str, ...]) -> None:
        """`orders`: the indices of the events in traceEvents."""
        self.names = names
        self.firsts = np.cumsum([0, *(stretch.events for stretch in events.stretches)])
        self._by_place = np.argsort(orders, kind="stable")
        self._ordered = orders[self._by_place]
        self._cuts = np.searchsorted(self._ordered, self.firsts)

    def places(self, stretch: int) -> list[int]:
        """The wanted elements of a stretch; they count from its first one."""
        rows = slice(self._cuts[stretch], self._cuts[stretch + 1])
        places: list[int] = (self._ordered[rows] - self.firsts[stretch]).tolist()
        return places

    def together(self, parts: Iterable[Numbered], asked: bytes) -> KeptArguments:
        """From all stretches, in order."""
        number = np.full(len(self._ordered), -1, dtype=np.int32)
        numbers: dict[bytes, int] = {}
        for stretch, (own, texts) in enumerate(parts):
            common = [numbers.setdefault(text, len(numbers)) for text in texts]
            rows = self._by_place[self._cuts[stretch] : self._cuts[stretch + 1]]
            number[rows] = np.array([*common, -1], dtype=np.int32)[own]
        return KeptArguments(asked, number, tuple(numbers))


def arguments_of(
    events: Events, asked: Sequence[tuple[Int64s, tuple[str, ...]]], keep_as: str = ""
) -> tuple[Arguments, ...]:
    """Several such questions, answered by one pass over the file."""
    together, names = joined(asked)
    every = arguments(events, together, names, keep_as)
    bounds = np.cumsum([0, *(len(orders) for orders, _ in asked)]).tolist()
    each = zip(asked, pairwise(bounds), strict=True)
    return tuple(_only(every, slice(*rows), map(names.index, some)) for (_, some), rows in each)


def joined(asked: Sequence[tuple[Int64s, tuple[str, ...]]]) -> tuple[Int64s, tuple[str, ...]]:
    """Several questions as one: all orders, and all names."""
    names = tuple(dict.fromkeys(name for _, some in asked for name in some))
    return np.concatenate([orders for orders, _ in asked]), names


def _only(every: Arguments, which: slice, args: Iterable[int]) -> Arguments:
    """Some slices, and some of the args by their places in each of `distinct`."""
    places = list(args)
    numbers: dict[tuple[bytes, ...], int] = {(b"",) * len(places): -1}
    asked = distinct(every.number[which])
    table = np.full(len(every.distinct) + 1, -1, dtype=np.int32)
    for number in asked[asked >= 0].tolist():
        texts = tuple(every.distinct[number][place] for place in places)
        table[number] = numbers.setdefault(texts, len(numbers) - 1)
    return Arguments(table[every.number[which]], tuple(numbers)[1:])


def parsed(text: bytes) -> Any:
    """The value of one arg; None if it is missing or cannot be read."""
    for decode in (msgspec.json.decode, json.loads):  # the latter an integer beyond 64 bits
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            return decode(text) if text else None
    return None
