"""One element of traceEvents by its index, parsed on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any, TypeVar

import msgspec
import numpy as np
import orjson

from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import BETWEEN, Keeper, Sample, Stretch, Text
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.document_text import list_text
from fusetui.trace.read.events import decode_raw
from fusetui.trace.read.repair import loads
from fusetui.trace.read.samples import samples

Decode = Callable[[bytearray], list[Any]]


def texts_of_args(
    text: Text, stretch: Stretch, places: Sequence[int], names: tuple[str, ...]
) -> list[bytes] | None:
    """See `Events.args`; None if the stretch does not decode as a list of ordinary events."""
    if stretch.places is not None:
        return None
    try:
        listed = list_text(text, stretch)
        if not any(name.encode() in listed for name in names):
            return [BETWEEN * (len(names) - 1)] * len(places)
        events = _decoder(names)(listed)
    except (OSError, TraceError, *UNDECODABLE):
        return None
    nothing = _args_type(names)()
    found = (events[place].args or nothing for place in places)
    return [BETWEEN.join(msgspec.structs.astuple(args)) for args in found]


@cache
def _decoder(names: tuple[str, ...]) -> Decode:
    """A decoder for a list of events that extracts only these args, as their texts."""
    args = ("args", _args_type(names) | None, None)
    event = msgspec.defstruct("SomeEvent", [args], gc=False)
    return msgspec.json.Decoder(list[event]).decode  # type: ignore[valid-type]


@cache
def _args_type(names: tuple[str, ...]) -> type[msgspec.Struct]:
    fields = [
        (f"arg{n}", msgspec.Raw, msgspec.field(default=msgspec.Raw(b""), name=name))
        for n, name in enumerate(names)
    ]
    return msgspec.defstruct("SomeArgs", fields, gc=False)


SEEN, SHORT = 256, 1 << 16  # how many elements are kept, and bytes of the longest of them
DEEPEST = 64  # levels of args
TOO_DEEP = "nested too deeply to be shown"
T = TypeVar("T")


class Elements:
    """Finds elements by splitting their stretch again, which takes about 5 ms for 4 MB."""

    def __init__(
        self, text: Text, stretches: Sequence[Stretch], keeper: Keeper | None = None
    ) -> None:
        self.text = text
        self.stretches = tuple(stretches)
        self._keeper = keeper
        self._kept: dict[str, msgspec.Struct] = {}
        self._firsts = np.cumsum([0, *(s.events for s in stretches)])
        self._texts = lru_cache(maxsize=4)(self._decode)
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

    @property
    def at_hand(self) -> bool:
        return self.text.at_hand

    def problem(self) -> str:
        return self.text.problem()

    def kept_by(self, keeper: Keeper) -> Elements:
        return Elements(self.text, self.stretches, keeper)

    def recall(self, name: str, kind: type[T]) -> T | None:
        found = self._kept.get(name)
        if isinstance(found, kind):
            return found
        return None if self._keeper is None else self._keeper.recall(name, kind)

    def keep(self, name: str, found: msgspec.Struct) -> None:
        """Nothing is kept if the text is not available: part of it may be missing in `found`."""
        if not self.at_hand or self.problem():
            return
        self._kept[name] = found
        if self._keeper is not None:
            self._keeper.keep(name, found)

    def samples(self, number: int) -> Iterable[tuple[Sample, int]]:
        return samples(self.text, self.stretches[number])

    def args(self, number: int, places: Sequence[int], names: tuple[str, ...]) -> list[bytes]:
        found = texts_of_args(self.text, self.stretches[number], places, names)
        if found is not None:
            return found
        first = int(self._firsts[number])
        each = (self.element(first + place).get("args") for place in places)
        known = (args if isinstance(args, dict) else {} for args in each)
        return [BETWEEN.join(_json(args.get(name)) for name in names) for args in known]

    def warm(self) -> None:
        """Makes the text available, which may take a second per GB, to speed up later calls."""
        with suppress(OSError, TraceError):
            self.text.part(0, 0)

    def _text_at(self, order: int) -> bytes:
        """The text of an element; those asked for last are kept. Raises what _text_of raises."""
        found = self._seen.get(order)
        if found is None:
            number = int(np.searchsorted(self._firsts, order, side="right")) - 1
            found = self._text_of(number, order - int(self._firsts[number]))
            if len(self._seen) >= SEEN:
                self._seen.clear()
            if len(found) <= SHORT:
                self._seen[order] = found
        return found

    def _text_of(self, number: int, element: int) -> bytes:
        """The text of an element of a stretch. Raises IndexError, and what _decode raises."""
        places = self.stretches[number].places
        if places is None:
            return bytes(self._texts(number)[element])
        at = int(np.searchsorted(places[:, 0], element))
        if at == len(places) or places[at, 0] != element:
            raise IndexError(element)
        return bytes(self.text.part(int(places[at, 1]), int(places[at, 2])))

    def _decode(self, number: int) -> Sequence[msgspec.Raw]:
        """The text of every element of a stretch, as views of one copy."""
        return decode_raw(list_text(self.text, self.stretches[number]))


def _json(value: object) -> bytes:
    """An element that was read in pieces, as text again; it may contain numbers too large for
    orjson."""
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
