"""The events of a file behind its columns: their args and samples, read on demand."""

from __future__ import annotations

import json  # which reads integers beyond 64 bits
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int32s, Int64s, distinct, prefix_sums
from fusetui.trace.model.ids import Id

T = TypeVar("T")

EVERYWHERE = (-(2**63), 2**63 - 1)
NOWHERE = (2**63 - 1, -(2**63))
"""Values of Stretch.reach."""
BETWEEN = b"\0"
"""Separates the texts of args; it cannot occur in JSON text."""

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
        """Whether every part is available without delay."""

    def problem(self) -> str:
        """Why no part is available any more, as one sentence; "" if they are."""

    def part(self, start: int, end: int) -> Any:
        """The bytes [start, end) of the text. Raises TraceError or OSError."""


class Keeper(Protocol):
    """Keeps what was worked out from a document, so that it need not be read again."""

    def recall(self, name: str, kind: type[T]) -> T | None:
        """The record that was kept under this name; None if there is none."""

    def keep(self, name: str, found: msgspec.Struct) -> None:
        """Keep a record of columns and msgpack values under a name, if there is a place
        for it."""


class Events(Keeper, Protocol):
    """The events of one document, and what was worked out from them before."""

    keeper: Keeper | None
    """Where what is worked out from them is kept, beside this process."""

    @property
    def own(self) -> Events:
        """The events of the trace itself, without those of captures that it was joined
        with."""

    @property
    def text(self) -> Text: ...

    @property
    def stretches(self) -> tuple[Stretch, ...]: ...

    def warm(self) -> None:
        """Make the text available for fast access, which may take a second per GB."""

    def element(self, order: int) -> dict[str, Any]:
        """The event at this index of traceEvents; {} if it cannot be read any more.

        Raises IndexError if there is no such index.
        """

    def samples(self, number: int) -> Iterable[tuple[Sample, int]]:
        """The samples of the stretch with this number in file order, each with its time
        in ns."""

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
        """The distinct sets of args: the JSON texts of the requested args in their
        order, b"" for a missing one."""
        return tuple(tuple(text.split(BETWEEN)) for text in self.texts)


def arguments(
    events: Events, orders: Int64s, names: tuple[str, ...], keep_as: str = ""
) -> Arguments:
    """Read some args of many events from the file.

    Takes as long as decoding the parts of the file that contain the events, at about
    500 MB/s.

    Args:
        events: The events of the file.
        orders: The index in traceEvents of each event to read.
        names: Which args: ("Input Dims", "Input type").
        keep_as: A name for this question, under which the answer is kept beside the
            trace, so that the same question takes no time again.

    Returns:
        The args in the order of `orders`. An event that cannot be read any more has
        none.
    """
    if not keep_as:
        return _read_arguments(events, orders, names)
    asked = digest(orders, names)
    kept = events.recall(keep_as, Arguments)
    if kept is not None and kept.asked == asked:
        return kept
    read = msgspec.structs.replace(_read_arguments(events, orders, names), asked=asked)
    events.keep(keep_as, read)
    return read


def _read_arguments(
    events: Events, orders: Int64s, names: tuple[str, ...]
) -> Arguments:
    """Read some args of many events from the file, stretch by stretch.

    The arguments and the result are those of `arguments`. Stretches without any of the
    events are not read.
    """
    wanted = Wanted(events, orders, names)

    def args_of_stretch(number: int) -> Numbered:
        places = wanted.places(number)
        return events.args(number, places, names) if places else NO_ARGS_OF_STRETCH

    return wanted.together(map(args_of_stretch, range(len(events.stretches))))


def digest(orders: Int64s, names: tuple[str, ...]) -> bytes:
    """Return a hash of 16 bytes that tells whether a question to `arguments` is the
    same as an earlier one."""
    from hashlib import blake2b  # not needed by most commands

    question = "\0".join(names).encode() + orders.tobytes()
    return blake2b(question, digest_size=16).digest()


NO_ARGS_OF_STRETCH: Numbered = np.empty(0, dtype=np.int32), ()
"""Of a stretch of which no args are asked for."""


def numbered(texts: Iterable[bytes], names: int) -> Numbered:
    r"""Number the distinct args of some events.

    >>> numbered([b"1\0", b"\0", b"2\0", b"1\0"], names=2)
    (array([ 0, -1,  1,  0], dtype=int32), (b'1\x00', b'2\x00'))

    Args:
        texts: The texts of the args of each event, joined by BETWEEN; a missing arg is
            empty.
        names: How many args were asked for.

    Returns:
        The number of each event's args, -1 for an event that has none of them; and the
        distinct texts by these numbers.
    """
    without_args = BETWEEN * (names - 1)
    number_of_text: dict[bytes, int] = {without_args: -1}
    numbers = []
    for text in texts:
        new_number = len(number_of_text) - 1
        numbers.append(number_of_text.setdefault(text, new_number))
    _, *distinct_texts = number_of_text
    return np.array(numbers, dtype=np.int32), tuple(distinct_texts)


def first_elements(stretches: Iterable[Stretch]) -> Int64s:
    """Return the index in traceEvents of the first element of each stretch.

    At the end stands the number of all elements: stretches of 100, 80 and 90 elements
    give [0, 100, 180, 270].
    """
    counts = [stretch.events for stretch in stretches]
    return prefix_sums(np.array(counts, dtype=np.int64))


class Wanted:
    """Some events of which some args are to be read, divided by the stretches of the
    file that hold them."""

    def __init__(self, events: Events, orders: Int64s, names: tuple[str, ...]) -> None:
        """Sort the events by their place in the file.

        Args:
            events: The events of the file.
            orders: The index in traceEvents of each wanted event, in any order.
            names: The names of the args.
        """
        self.names = names
        self.firsts = first_elements(events.stretches)
        self._by_order = np.argsort(orders, kind="stable")
        self._ascending = orders[self._by_order]
        self._bounds = np.searchsorted(self._ascending, self.firsts)

    def places(self, stretch: int) -> list[int]:
        """Return the wanted elements of a stretch, counted from its first one.

        If the stretch begins with element 100, the orders 107 and 103 give [3, 7].

        Args:
            stretch: The number of the stretch.
        """
        of_stretch = slice(self._bounds[stretch], self._bounds[stretch + 1])
        orders = self._ascending[of_stretch]
        places: list[int] = (orders - self.firsts[stretch]).tolist()
        return places

    def together(self, parts: Iterable[Numbered]) -> Arguments:
        """Combine the args of the wanted elements of all stretches.

        Args:
            parts: For each stretch, in order, the args of its `places`.

        Returns:
            The args in the order in which events were asked for.
        """
        number_of_event = np.full(len(self._ascending), -1, dtype=np.int32)
        number_of_text: dict[bytes, int] = {}
        for stretch, (number_in_stretch, texts) in enumerate(parts):
            numbers = []
            for text in texts:
                new_number = len(number_of_text)
                numbers.append(number_of_text.setdefault(text, new_number))
            numbers.append(-1)  # which -1, for events without the args, finds
            first = self._bounds[stretch]
            end = self._bounds[stretch + 1]
            events = self._by_order[first:end]
            number = np.array(numbers, dtype=np.int32)
            number_of_event[events] = number[number_in_stretch]
        return Arguments(number=number_of_event, texts=tuple(number_of_text))


def arguments_of(
    events: Events, asked: Sequence[ArgsQuestion], keep_as: str = ""
) -> tuple[Arguments, ...]:
    """Answer several questions to `arguments` by one pass over the file.

    Args:
        events: The events of the file.
        asked: The questions: which events, and which args of them. At least one.
        keep_as: As for `arguments`.

    Returns:
        The answer to each question.
    """
    return parted(arguments(events, *joined(asked), keep_as), asked)


def parted(every: Arguments, asked: Sequence[ArgsQuestion]) -> tuple[Arguments, ...]:
    """Take the answers to several questions apart.

    Args:
        every: The answer to the question that `joined` made of them.
        asked: The questions.

    Returns:
        The answer to each question.
    """
    if len(asked) == 1:
        return (every,)
    _, all_names = joined(asked)
    answers = []
    first = 0
    for orders, names in asked:
        end = first + len(orders)
        indices = [all_names.index(name) for name in names]
        answers.append(_only(every, slice(first, end), indices))
        first = end
    return tuple(answers)


def joined(asked: Sequence[ArgsQuestion]) -> ArgsQuestion:
    """Make one question to `arguments` of several.

    The questions ([3, 5], ("a", "b")) and ([9], ("b", "c")) become
    ([3, 5, 9], ("a", "b", "c")).
    """
    all_orders = np.concatenate([orders for orders, _ in asked])
    all_names: dict[str, None] = {}  # an ordered set
    for _, names in asked:
        all_names |= dict.fromkeys(names)
    return all_orders, tuple(all_names)


def _only(every: Arguments, which: slice, indices: Sequence[int]) -> Arguments:
    """Return the args of some of the events, and only some of these args.

    Args:
        every: The args of all events.
        which: The events, by their place in `every`.
        indices: The args, by their place in each entry of `every.distinct`.
    """
    number = every.number[which]
    used = distinct(number)
    used = used[used >= 0]
    texts_of_used = []
    for number_used in used.tolist():
        texts = every.distinct[number_used]
        texts_of_used.append(BETWEEN.join(texts[index] for index in indices))
    numbers, texts_left = numbered(texts_of_used, len(indices))
    new_number = np.full(len(every.texts) + 1, -1, dtype=np.int32)  # -1 stays -1
    new_number[used] = numbers
    return Arguments(number=new_number[number], texts=texts_left)


def parsed(text: bytes) -> Any:
    """Return the value of one arg by its JSON text: b"[2, 3]" gives [2, 3]; None for
    b"", a missing arg, and for what is no JSON."""
    if not text:
        return None
    # json reads integers beyond 64 bits, which msgspec does not
    for decode in (msgspec.json.decode, json.loads):
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            return decode(text)
    return None
