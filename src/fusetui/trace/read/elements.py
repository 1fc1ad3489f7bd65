"""Elements of traceEvents, parsed on demand: one by its index, or some args of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import orjson
from msgspec.structs import replace

from fusetui.trace.model.arrays import Floats, Int64s
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import (
    BETWEEN,
    NO_ARGS_OF_STRETCH,
    Events,
    Keeper,
    Numbered,
    Sample,
    Stretch,
    Text,
    numbered,
)
from fusetui.trace.read.autograd import NO_NUMBERS, NUMBER, THREAD, numbers_of
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.document_text import Joint, list_text
from fusetui.trace.read.events import decode_raw
from fusetui.trace.read.repair import loads
from fusetui.trace.read.samples import TOTALED, samples
from fusetui.trace.read.scanned import scanned_args

MAX_KEPT_ELEMENTS = 256
MAX_KEPT_BYTES = 1 << 16  # of one element
MAX_KEPT_STRETCHES = 4  # whose elements are kept, split
DEEPEST = 64  # levels of args
TOO_DEEP = "too deeply nested to show"
T = TypeVar("T")


class Elements:
    """Finds elements by splitting their stretch again, which takes about 5 ms for 4
    MB. See Events."""

    keeper: Keeper | None = None

    def __init__(
        self, text: Text, stretches: Sequence[Stretch], own: Events | None = None
    ) -> None:
        """`own` are the events of the file itself, where these are joined with
        others."""
        self.text = text
        self.stretches = tuple(stretches)
        self.own: Events = own or self
        self._kept: dict[str, msgspec.Struct] = {}
        # The index in traceEvents of the first element of each stretch, and how many
        # elements there are.
        self._firsts = np.cumsum([0, *(s.events for s in stretches)])
        self._split_stretch = lru_cache(maxsize=MAX_KEPT_STRETCHES)(
            lambda number: decode_raw(list_text(text, stretches[number]))
        )
        self._texts_by_order: dict[int, bytes] = {}

    def element(self, order: int) -> dict[str, Any]:
        """The event at this index as a dict; {} if it cannot be read any more.

        Raises IndexError if there is no such index.
        """
        if not 0 <= order < int(self._firsts[-1]):
            raise IndexError(order)
        try:
            element = loads(self._text_at(order))
        except RecursionError:
            return {"args": {"args": TOO_DEEP}}
        except (OSError, ValueError, IndexError, TraceError, msgspec.MsgspecError):
            return {}
        return _plain(element) if isinstance(element, dict) else {}

    def recall(self, name: str, kind: type[T]) -> T | None:
        record = self._kept.get(name)
        if isinstance(record, kind):
            return record
        return None if self.keeper is None else self.keeper.recall(name, kind)

    def keep(self, name: str, found: msgspec.Struct) -> None:
        """Nothing is kept if the text is not available: part of it may be missing in
        `found`."""
        if not self.text.at_hand or self.text.problem():
            return
        self._kept[name] = found
        if self.keeper is not None:
            self.keeper.keep(name, found)

    def samples(self, number: int) -> Iterable[tuple[Sample, int]]:
        return samples(self.text, self.stretches[number])

    def args(
        self, number: int, places: Sequence[int], names: tuple[str, ...]
    ) -> Numbered:
        """The args of the elements at these places of a stretch, as `Events.args`."""
        stretch_args = args_in(self.text, self.stretches[number], places, names)
        if stretch_args is not None:
            return stretch_args.args
        first = int(self._firsts[number])
        texts = []
        for place in places:
            args = self.element(first + place).get("args")
            values = args if isinstance(args, dict) else {}
            texts_of_values = [_json(values.get(name)) for name in names]
            texts.append(BETWEEN.join(texts_of_values))
        return numbered(texts, len(names))

    def warm(self) -> None:
        """Makes the text available, which may take a second per GB, to speed up later
        calls."""
        places = {0}
        if self.stretches:
            places.add(self.stretches[-1].start)
        with suppress(OSError, TraceError):
            for place in places:
                self.text.part(place, place)

    def _text_at(self, order: int) -> bytes:
        """The text of an element. The last ones are kept. Raises IndexError, and what
        decode_raw and list_text do."""
        kept = self._texts_by_order.get(order)  # another thread may empty it
        if kept is not None:
            return kept
        number = int(np.searchsorted(self._firsts, order, side="right")) - 1
        element = order - int(self._firsts[number])
        places = self.stretches[number].places
        if places is None:
            text = bytes(self._split_stretch(number)[element])
        else:
            _, begin, end = places[places[:, 0] == element][0].tolist()
            text = bytes(self.text.part(begin, end))
        if len(self._texts_by_order) >= MAX_KEPT_ELEMENTS:
            self._texts_by_order.clear()
        if len(text) <= MAX_KEPT_BYTES:
            self._texts_by_order[order] = text
        return text


def combined(first: Events, second: Events) -> Elements:
    """The elements of two documents.

    Indices of the second document count on from the number of events of the first. Its
    counters are not those of this trace: none of its stretches has samples. What is
    worked out of both is kept in memory alone: what is kept beside a trace belongs to
    that file.
    """
    shift = max((stretch.end for stretch in first.stretches), default=0)
    stretches = list(first.stretches)
    for stretch in second.stretches:
        places = stretch.places
        if places is not None:
            places = places + np.array([0, shift, shift])
        stretches.append(
            replace(
                stretch,
                start=stretch.start + shift,
                end=stretch.end + shift,
                places=places,
                samples=0,
            )
        )
    text = Joint(first=first.text, second=second.text, shift=shift)
    return Elements(text, stretches, own=first.own)


class StretchArgs(NamedTuple):
    """What `args_in` gives of one stretch."""

    args: Numbered  # of the places, see Events.args
    sequence: Int64s = NO_NUMBERS  # see numbers_of
    totals: Floats | None = None  # what totals_in gives, where it costs nothing


def args_in(
    text: Text,
    stretch: Stretch,
    places: Sequence[int],
    names: tuple[str, ...],
    sequences: bool = False,
) -> StretchArgs | None:
    """Some args of some elements; with `sequences`, also the place, sequence number and
    thread of each element that has one (see autograd.py).

    None if the stretch does not decode as a list of ordinary events.
    """
    if stretch.places is not None:
        return None
    totals = TOTALED if stretch.samples else ()
    if not (places or sequences or totals):
        return StretchArgs(args=NO_ARGS_OF_STRETCH)
    try:
        scanned = scanned_args(text, stretch, places, names, sequences, totals)
        if scanned is not None:
            args, sequence, total_values = scanned
            return StretchArgs(args=args, sequence=sequence, totals=total_values)
        return _args_by_python(list_text(text, stretch), places, names, sequences)
    except (OSError, TraceError, *UNDECODABLE):
        return None


def _args_by_python(
    listed: bytearray, places: Sequence[int], names: tuple[str, ...], sequences: bool
) -> StretchArgs:
    """As `args_in`, of a list. Raises one of UNDECODABLE."""
    # Searching the text is faster than decoding it.
    has_sequences = sequences and NUMBER.encode() in listed
    has_names = bool(places) and any(name.encode() in listed for name in names)
    if not has_sequences and not has_names:
        blank = BETWEEN * (len(names) - 1)
        return StretchArgs(args=numbered([blank] * len(places), len(names)))
    decoder = _decoder(names)
    events = decoder.decode(listed)
    texts = []
    for place in places:
        args = events[place].args or decoder.no_args
        values = msgspec.structs.astuple(args)[: len(names)]
        texts.append(BETWEEN.join(values))
    return StretchArgs(
        args=numbered(texts, len(names)),
        sequence=numbers_of(enumerate(events) if has_sequences else ()),
    )


class _ArgsDecoder(NamedTuple):
    """Extracts some args of events."""

    decode: Callable[[bytearray], list[Any]]  # of a list of events
    no_args: msgspec.Struct  # what an event without args has


@cache
def _decoder(names: tuple[str, ...]) -> _ArgsDecoder:
    """A decoder that extracts only these args, as their texts, and the values of
    sequence numbers."""
    fields: list[tuple[str, Any, Any]] = []
    for number, name in enumerate(names):
        default = msgspec.field(default=msgspec.Raw(b""), name=name)
        fields.append((f"arg{number}", msgspec.Raw, default))
    fields.append(("number", Any, msgspec.field(default=None, name=NUMBER)))
    fields.append(("thread", Any, msgspec.field(default=None, name=THREAD)))
    args = msgspec.defstruct("SomeArgs", fields, gc=False)
    event = msgspec.defstruct("SomeEvent", [("args", args | None, None)], gc=False)
    decoder = msgspec.json.Decoder(list[event])  # type: ignore[valid-type]
    return _ArgsDecoder(decode=decoder.decode, no_args=args())


def _json(value: object) -> bytes:
    """A value that was decoded, as text again; b"" for none, and for numbers too large
    for orjson."""
    try:
        return b"" if value is None else orjson.dumps(value)
    except orjson.JSONEncodeError:
        return b""


def _plain(value: Any, levels: int = DEEPEST) -> Any:
    """Decimals as floats, for display and JSON; deeper levels are left out."""
    if not levels:
        return TOO_DEEP
    if isinstance(value, dict):
        return {key: _plain(inner, levels - 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner, levels - 1) for inner in value]
    return float(value) if isinstance(value, Decimal) else value
