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

from fusetui.trace.model.arrays import Floats, Int64s, last_at_or_before
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
    first_elements,
    numbered,
)
from fusetui.trace.read.autograd import NO_NUMBERS, NUMBER, THREAD, numbers_of
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.document_text import Joint, list_text
from fusetui.trace.read.events import decode_raw
from fusetui.trace.read.repair import loads
from fusetui.trace.read.samples import TOTALED, samples
from fusetui.trace.read.scanned import scan_args

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
        """Prepare to find elements; reads nothing yet.

        Args:
            text: The document.
            stretches: The parts of it that hold the elements, in order.
            own: The events of the file itself, if these were joined with those of
                another file.
        """
        self.text = text
        self.stretches = tuple(stretches)
        self.own: Events = own or self
        self._kept: dict[str, msgspec.Struct] = {}
        self._firsts = first_elements(stretches)
        self._split_stretch = lru_cache(maxsize=MAX_KEPT_STRETCHES)(
            lambda number: decode_raw(list_text(text, stretches[number]))
        )
        self._texts_by_order: dict[int, bytes] = {}

    def element(self, order: int) -> dict[str, Any]:
        """Return an event as a dict.

        It is {} if it cannot be read any more: the file is gone or has changed. Args
        that are nested too deeply for Python are replaced by a sentence.

        Args:
            order: Its index in traceEvents. Raises IndexError if there is none.
        """
        if not 0 <= order < int(self._firsts[-1]):
            raise IndexError(order)
        try:
            element = loads(self._text_at(order))
        except RecursionError:
            return {"args": {"args": TOO_DEEP}}
        except (OSError, ValueError, IndexError, TraceError, msgspec.MsgspecError):
            return {}
        return _replace_decimals(element) if isinstance(element, dict) else {}

    def recall(self, name: str, kind: type[T]) -> T | None:
        """Return what was kept by this name: in this process, or else on disk by the
        keeper. None if nothing was, or if it is of another type."""
        record = self._kept.get(name)
        if isinstance(record, kind):
            return record
        return None if self.keeper is None else self.keeper.recall(name, kind)

    def keep(self, name: str, found: msgspec.Struct) -> None:
        """Keep a record that was worked out of the elements, for `recall`.

        Nothing is kept if the document is not available: the record may then lack what
        could not be read.
        """
        if not self.text.at_hand or self.text.problem():
            return
        self._kept[name] = found
        if self.keeper is not None:
            self.keeper.keep(name, found)

    def samples(self, number: int) -> Iterable[tuple[Sample, int]]:
        """The samples of counters and memory in the stretch with this number, each with
        its time in ns."""
        return samples(self.text, self.stretches[number])

    def args(
        self, number: int, places: Sequence[int], names: tuple[str, ...]
    ) -> Numbered:
        """Return some args of some elements of one stretch; see `Events.args`.

        If the stretch does not decode as a whole, each element is read by itself.

        Args:
            number: The number of the stretch.
            places: The elements, counted from the first of the stretch, ascending.
            names: The names of the args.
        """
        stretch_args = args_in(self.text, self.stretches[number], places, names)
        if stretch_args is not None:
            return stretch_args.args
        first = int(self._firsts[number])
        texts = []
        for place in places:
            args = self.element(first + place).get("args")
            values = args if isinstance(args, dict) else {}
            texts_of_values = [_encode_value(values.get(name)) for name in names]
            texts.append(BETWEEN.join(texts_of_values))
        return numbered(texts, len(names))

    def warm(self) -> None:
        """Make the document available, so that later calls are fast.

        A packed file is unpacked for this, which may take a second per GB. It reads the
        first and the last stretch, and thereby everything between.
        """
        places = {0}
        if self.stretches:
            places.add(self.stretches[-1].start)
        with suppress(OSError, TraceError):
            for place in places:
                self.text.part(place, place)

    def _text_at(self, order: int) -> bytes:
        """Return the text of an element.

        The last MAX_KEPT_ELEMENTS are kept, because details of a slice are asked for
        several times. Raises IndexError, and what decode_raw and list_text do.
        """
        kept = self._texts_by_order.get(order)  # another thread may empty it
        if kept is not None:
            return kept
        stretch = int(last_at_or_before(self._firsts, order))
        index_in_stretch = order - int(self._firsts[stretch])
        places = self.stretches[stretch].places
        if places is None:
            text = bytes(self._split_stretch(stretch)[index_in_stretch])
        else:  # rows of index, begin and end
            row = places[places[:, 0] == index_in_stretch][0]
            _, begin, end = row.tolist()
            text = bytes(self.text.part(begin, end))
        if len(self._texts_by_order) >= MAX_KEPT_ELEMENTS:
            self._texts_by_order.clear()
        if len(text) <= MAX_KEPT_BYTES:
            self._texts_by_order[order] = text
        return text


def combined(first: Events, second: Events) -> Elements:
    """Return the elements of two documents as those of one.

    If the first document has 1,000 events, event 5 of the second is number 1,005.
    Counters of the second document are left out: they are not of this trace. What is
    worked out of both is kept in memory only, since files on disk belong to one trace.

    Args:
        first: The events of the trace itself.
        second: Those of the capture that it is joined with.
    """
    shift = max((stretch.end for stretch in first.stretches), default=0)
    stretches = list(first.stretches)
    for stretch in second.stretches:
        places = stretch.places
        if places is not None:
            # the number of an event stays; its begin and end byte are shifted
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
    totals: Floats | None = None  # what read_totals gives, where it costs nothing


def args_in(
    text: Text,
    stretch: Stretch,
    places: Sequence[int],
    names: tuple[str, ...],
    sequences: bool = False,
) -> StretchArgs | None:
    """Read some args of some elements of a stretch, with C code where there is any.

    Args:
        text: The document.
        stretch: A part of it.
        places: The elements, counted from the first of the stretch, ascending.
        names: The names of the args.
        sequences: Whether to return the sequence numbers of all its ops too (see
            autograd.py).

    Returns:
        The args; None if the stretch does not decode as a list of ordinary events.
    """
    if stretch.places is not None:
        return None
    totals = TOTALED if stretch.samples else ()
    if not (places or sequences or totals):
        return StretchArgs(args=NO_ARGS_OF_STRETCH)
    try:
        scanned = scan_args(text, stretch, places, names, sequences, totals)
        if scanned is not None:
            return StretchArgs(
                args=scanned.args, sequence=scanned.sequence, totals=scanned.totals
            )
        return _decode_args(list_text(text, stretch), places, names, sequences)
    except (OSError, TraceError, *UNDECODABLE):
        return None


def _decode_args(
    listed: bytearray, places: Sequence[int], names: tuple[str, ...], sequences: bool
) -> StretchArgs:
    """Read some args of some elements of a list, without C code.

    Args:
        listed: The JSON text of the list. Raises one of UNDECODABLE if it is none.
        places: The elements by their index in the list.
        names: The names of the args.
        sequences: Whether to return the sequence numbers of all its ops too.
    """
    # Searching the text for the names is faster than decoding it.
    has_sequences = sequences and NUMBER.encode() in listed
    has_names = bool(places) and any(name.encode() in listed for name in names)
    if not has_sequences and not has_names:
        without_args = BETWEEN * (len(names) - 1)
        return StretchArgs(args=numbered([without_args] * len(places), len(names)))
    decoder = _make_decoder(names)
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
def _make_decoder(names: tuple[str, ...]) -> _ArgsDecoder:
    """Make a decoder of lists of events that skips everything but some args.

    Of the event {"name": "x", "args": {"a": [1, 2], "b": 3}} and the names ("a",) it
    makes a record whose first field is the text b"[1, 2]". The last two fields are the
    sequence number and the forward thread, as values.
    """
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


def _encode_value(value: object) -> bytes:
    """Return the JSON text of a value; b"" for None, and for integers that are too
    large for orjson."""
    try:
        return b"" if value is None else orjson.dumps(value)
    except orjson.JSONEncodeError:
        return b""


def _replace_decimals(value: Any, levels: int = DEEPEST) -> Any:
    """Return a decoded JSON value with floats in place of Decimals.

    What is nested more than `levels` deep is replaced by a sentence, so that displaying
    it cannot exhaust Python's stack.
    """
    if not levels:
        return TOO_DEEP
    if isinstance(value, dict):
        return {
            key: _replace_decimals(inner, levels - 1) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_replace_decimals(inner, levels - 1) for inner in value]
    return float(value) if isinstance(value, Decimal) else value
