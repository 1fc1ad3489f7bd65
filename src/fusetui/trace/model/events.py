"""The events of a file behind its columns: their args and samples, read on demand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int32s, Int64s, distinct
from fusetui.trace.model.ids import Id

T = TypeVar("T")

EVERYWHERE = (-(2**63), 2**63 - 1)
NOWHERE = (2**63 - 1, -(2**63))
BETWEEN = b"\0"  # Separates the texts of args; it cannot occur in JSON text

ArgsQuestion = tuple[Int64s, tuple[str, ...]]
"""Of which events (indices in traceEvents) which args are asked for."""
Numbered = tuple[Int32s, tuple[bytes, ...]]
"""Of each wanted event of a stretch the index of its args in the texts, -1 for none;
and these, distinct, each the texts of the args, joined by BETWEEN."""


class Stretch(msgspec.Struct, frozen=True, eq=False):
    """The bytes [start, end) of a document, which contain `events` elements of
    traceEvents."""

    start: int
    end: int
    events: int
    samples: int = 0  # how many of them may hold values: counters and instant events
    places: Int64s | None = None
    """If the bytes do not decode as one list: number, start and end byte of each
    event."""
    reach: tuple[int, int] = EVERYWHERE
    """Times (ns) before and after all elements that are no slices; EVERYWHERE if that
    is unknown, they hold for all times, or there are pairs; NOWHERE if there are
    none."""


class Sample(NamedTuple):
    """An event that holds values: a counter, or one of torch's [memory]."""

    is_memory: bool
    name: str
    pid: Id
    tid: Id
    id: str
    ts: bytes  # the number as written
    args: dict[str, Any]


class Text(Protocol):
    """A document that was read."""

    @property
    def at_hand(self) -> bool:
        """Whether any part is available without delay."""

    def problem(self) -> str:
        """Why no part is available any more, in one sentence; "" if it is."""

    def part(self, start: int, end: int) -> Any:
        """The bytes [start, end). Raises TraceError or OSError."""


class Keeper(Protocol):
    """Keeps what was worked out from a document, so that it need not be read again."""

    def recall(self, name: str, kind: type[T]) -> T | None:
        """What was kept by this name; None if nothing was."""

    def keep(self, name: str, found: msgspec.Struct) -> None:
        """Keeps a record of columns and of what msgpack can hold, if there is a place
        for it."""


class Events(Keeper, Protocol):
    """The events of one document, and what was worked out from them before."""

    keeper: Keeper | None
    """Where what is worked out from them is kept, beside this process."""

    @property
    def own(self) -> Events:
        """Those of the trace itself, without those of captures that it was joined
        with."""

    @property
    def text(self) -> Text: ...

    @property
    def stretches(self) -> tuple[Stretch, ...]: ...

    def warm(self) -> None:
        """Makes the text available, which may take a second per GB."""

    def element(self, order: int) -> dict[str, Any]:
        """The event at this index of traceEvents; {} if it cannot be read any more.

        Raises IndexError if there is no such index.
        """

    def samples(self, number: int) -> Iterable[tuple[Sample, int]]:
        """The samples of stretch `number` in file order, each with its time in ns."""

    def args(
        self, number: int, places: Sequence[int], names: tuple[str, ...]
    ) -> Numbered:
        """The args with these names of some elements of stretch `number`.

        `places` count from the first element of the stretch and ascend.
        """


class Arguments(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Some args of many slices at once. Each distinct value is kept once, as its text
    in the file: so the args of a million calls with the same shapes are decoded only
    once.

    `number[n]` is the index in `distinct` of the args of slice n, -1 if it has none of
    them.
    """

    number: Int32s
    texts: tuple[bytes, ...]  # each of `distinct`, joined by BETWEEN
    asked: bytes = b""  # a hash of the names and the orders, of what is kept

    @cached_property
    def distinct(self) -> tuple[tuple[bytes, ...], ...]:
        """Each has the texts of the requested args in their order, b"" for a missing
        one."""
        return tuple(tuple(text.split(BETWEEN)) for text in self.texts)


def arguments(
    events: Events, orders: Int64s, names: tuple[str, ...], keep_as: str = ""
) -> Arguments:
    """The args with these names of the events at `orders` (indices in traceEvents),
    shape [n].

    An event that cannot be read any more has none. Takes as long as decoding the
    stretches of the file that contain the events, at about 500 MB/s; with `keep_as`, a
    name for this question, only the first time.
    """
    asked = digest(orders, names) if keep_as else b""
    found = events.recall(keep_as, Arguments) if keep_as else None
    if found is None or found.asked != asked:
        wanted = Wanted(events, orders, names)
        each = map(wanted.places, range(len(events.stretches)))
        parts = (
            events.args(n, places, names) if places else NOTHING
            for n, places in enumerate(each)
        )
        found = wanted.together(parts, asked)
        if keep_as:
            events.keep(keep_as, found)
    return found


def digest(orders: Int64s, names: tuple[str, ...]) -> bytes:
    """Equal for equal questions only."""
    from hashlib import blake2b  # not needed by most commands

    return blake2b(
        "\0".join(names).encode() + orders.tobytes(), digest_size=16
    ).digest()


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

    def together(self, parts: Iterable[Numbered], asked: bytes = b"") -> Arguments:
        """From all stretches, in order."""
        number = np.full(len(self._ordered), -1, dtype=np.int32)
        numbers: dict[bytes, int] = {}
        for stretch, (own, texts) in enumerate(parts):
            common = [numbers.setdefault(text, len(numbers)) for text in texts]
            rows = self._by_place[self._cuts[stretch] : self._cuts[stretch + 1]]
            number[rows] = np.array([*common, -1], dtype=np.int32)[own]
        return Arguments(number, tuple(numbers), asked)


def arguments_of(
    events: Events, asked: Sequence[ArgsQuestion], keep_as: str = ""
) -> tuple[Arguments, ...]:
    """Several such questions, answered by one pass over the file."""
    return parted(arguments(events, *joined(asked), keep_as), asked)


def parted(every: Arguments, asked: Sequence[ArgsQuestion]) -> tuple[Arguments, ...]:
    """The answer to each of the questions that were `joined`."""
    if len(asked) == 1:
        return (every,)
    _, names = joined(asked)
    bounds = np.cumsum([0, *(len(orders) for orders, _ in asked)]).tolist()
    each = zip(asked, pairwise(bounds), strict=True)
    return tuple(
        _only(every, slice(*rows), map(names.index, some)) for (_, some), rows in each
    )


def joined(asked: Sequence[ArgsQuestion]) -> ArgsQuestion:
    """Several questions as one: all orders, and all names."""
    names = tuple(dict.fromkeys(name for _, some in asked for name in some))
    return np.concatenate([orders for orders, _ in asked]), names


def _only(every: Arguments, which: slice, args: Iterable[int]) -> Arguments:
    """Some slices, and some of the args by their places in each of `distinct`."""
    places, asked = list(args), distinct(every.number[which])
    asked = asked[asked >= 0]
    each = (
        BETWEEN.join(every.distinct[n][place] for place in places)
        for n in asked.tolist()
    )
    table = np.full(len(every.texts) + 1, -1, dtype=np.int32)
    table[asked], texts = numbered(each, len(places))
    return Arguments(table[every.number[which]], texts)


def parsed(text: bytes) -> Any:
    """The value of one arg; None if it is missing or cannot be read."""
    # the latter an integer beyond 64 bits
    for decode in (msgspec.json.decode, json.loads):
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            return decode(text) if text else None
    return None
