"""Elements of traceEvents, parsed on demand: one by its index, or some args of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any, TypeVar

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

# how many elements are kept, and bytes of the longest of them
SEEN, SHORT = 256, 1 << 16
DEEPEST = 64  # levels of args
TOO_DEEP = "nested too deeply to be shown"
T = TypeVar("T")


class Elements:
    """Finds elements by splitting their stretch again, which takes about 5 ms for 4
    MB."""

    keeper: Keeper | None = None

    def __init__(
        self, text: Text, stretches: Sequence[Stretch], own: Events | None = None
    ) -> None:
        self.text = text
        self.stretches = tuple(stretches)
        self.own: Events = own or self
        self._kept: dict[str, msgspec.Struct] = {}
        self._firsts = np.cumsum([0, *(s.events for s in stretches)])
        self._texts = lru_cache(maxsize=4)(
            lambda n: decode_raw(list_text(text, stretches[n]))
        )
        self._seen: dict[int, bytes] = {}

    def element(self, order: int) -> dict[str, Any]:
        """The event at this index as a dict; {} if it cannot be read any more.

        Raises IndexError if there is no such index.
        """
        if not 0 <= order < int(self._firsts[-1]):
            raise IndexError(order)
        try:
            found = loads(self._text_at(order))
        except RecursionError:
            return {"args": {"args": TOO_DEEP}}
        except (OSError, ValueError, IndexError, TraceError, msgspec.MsgspecError):
            return {}
        return _plain(found) if isinstance(found, dict) else {}

    def recall(self, name: str, kind: type[T]) -> T | None:
        found = self._kept.get(name)
        if isinstance(found, kind):
            return found
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
        found = args_in(self.text, self.stretches[number], places, names)
        if found is not None:
            return found[0]
        each = (
            self.element(int(self._firsts[number]) + place).get("args")
            for place in places
        )
        known = (args if isinstance(args, dict) else {} for args in each)
        texts = (
            BETWEEN.join(_json(args.get(name)) for name in names) for args in known
        )
        return numbered(texts, len(names))

    def warm(self) -> None:
        """Makes the text available, which may take a second per GB, to speed up later
        calls."""
        with suppress(OSError, TraceError):
            for at in {0, *(stretch.start for stretch in self.stretches[-1:])}:
                self.text.part(at, at)

    def _text_at(self, order: int) -> bytes:
        """The last ones are kept. Raises IndexError, and what decode_raw and list_text
        do."""
        seen = self._seen.get(order)  # another thread may take it away
        if seen is not None:
            return seen
        number = int(np.searchsorted(self._firsts, order, side="right")) - 1
        element = order - int(self._firsts[number])
        places = self.stretches[number].places
        if places is None:
            found = bytes(self._texts(number)[element])
        else:
            _, begin, end = places[places[:, 0] == element][0].tolist()
            found = bytes(self.text.part(begin, end))
        if len(self._seen) >= SEEN:
            self._seen.clear()
        if len(found) <= SHORT:
            self._seen[order] = found
        return found


def combined(first: Events, second: Events) -> Elements:
    """Indices of the second document count on from the number of events of the first.
    Its counters are not those of this trace: none of its stretches has samples. What is
    worked out of both is kept in memory alone: what is kept beside a trace belongs to
    that file."""
    by = max((stretch.end for stretch in first.stretches), default=0)
    stretches = list(first.stretches)
    for own in second.stretches:
        places = None if own.places is None else own.places + np.array([0, by, by])
        more = {"start": own.start + by, "end": own.end + by}
        stretches.append(replace(own, places=places, samples=0, **more))
    return Elements(Joint(first.text, second.text, by), stretches, first.own)


def args_in(
    text: Text,
    stretch: Stretch,
    places: Sequence[int],
    names: tuple[str, ...],
    sequences: bool = False,
) -> tuple[Numbered, Int64s, Floats | None] | None:
    """Some args of some elements, see `Events.args`; with `sequences` the place,
    sequence number and thread of each element that has one (see autograd.py), shape
    [numbered, 3]; and what `totals_in` gives, where it costs nothing.

    None if the stretch does not decode as a list of ordinary events.
    """
    if stretch.places is not None:
        return None
    totals = TOTALED if stretch.samples else ()
    if not (places or sequences or totals):
        return NO_ARGS_OF_STRETCH, NO_NUMBERS, None
    try:
        if found := scanned_args(text, stretch, places, names, sequences, totals):
            return found
        listed = list_text(text, stretch)
        with_sequences = sequences and NUMBER.encode() in listed
        wanted = bool(places) and any(name.encode() in listed for name in names)
        if not (with_sequences or wanted):
            blank = [BETWEEN * (len(names) - 1)] * len(places)
            return numbered(blank, len(names)), NO_NUMBERS, None
        decode, nothing = _decoder(names)
        events = decode(listed)
    except (OSError, TraceError, *UNDECODABLE):
        return None
    each = (msgspec.structs.astuple(events[place].args or nothing) for place in places)
    texts = (BETWEEN.join(args[: len(names)]) for args in each)
    sequence = numbers_of(enumerate(events if with_sequences else ()))
    return numbered(texts, len(names)), sequence, None


@cache
def _decoder(
    names: tuple[str, ...],
) -> tuple[Callable[[bytearray], list[Any]], msgspec.Struct]:
    """A decoder for a list of events that extracts only these args, as their texts, and
    the values of sequence numbers; and what an event without args has."""
    fields = [
        *(
            (f"arg{n}", name, msgspec.Raw, msgspec.Raw(b""))
            for n, name in enumerate(names)
        ),
        ("number", NUMBER, Any, None),
        ("thread", THREAD, Any, None),
    ]
    own = [
        (f, kind, msgspec.field(default=blank, name=key))
        for f, key, kind, blank in fields
    ]
    args = msgspec.defstruct("SomeArgs", own, gc=False)
    event = msgspec.defstruct("SomeEvent", [("args", args | None, None)], gc=False)
    return msgspec.json.Decoder(list[event]).decode, args()  # type: ignore[valid-type]


def _json(value: object) -> bytes:
    """A value that was decoded, as text again; b"" for numbers too large for orjson."""
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
