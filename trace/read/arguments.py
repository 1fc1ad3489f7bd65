"""Some args of many slices at once: one pass over the stretches of the file that hold them.

An arg is kept as its text in the file, so that those of a million calls with the same shapes are
decoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from fusetui.trace.model.errors import TraceError
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.elements import Elements, list_text
from fusetui.trace.read.repair import loads

BETWEEN = b"\0"
"""Between the texts of two args: no JSON text holds it."""

Decoder = Callable[[bytearray], list[Any]]


class Arguments(msgspec.Struct, frozen=True, eq=False):
    """`number[n]` is the place in `distinct` of what the n-th slice has, -1 for none of the args.

    Each of `distinct` has the texts of the args that were asked for, in their order; b"" for one
    that is not there.
    """

    number: NDArray[np.int32]
    distinct: tuple[tuple[bytes, ...], ...]


def arguments(
    elements: Elements, orders: NDArray[np.int64], names: tuple[str, ...]
) -> Arguments:
    """The args of these names of the elements at `orders`, shape [n].

    What cannot be read (any more) has none. Takes about as long as decoding the stretches that
    hold the elements, some 500 MB/s.
    """
    firsts = np.cumsum([0, *(stretch.events for stretch in elements.stretches)])
    by_place = np.argsort(orders, kind="stable")
    ordered = orders[by_place]
    cuts = np.searchsorted(ordered, firsts)
    numbers: dict[bytes, int] = {BETWEEN * (len(names) - 1): -1}
    found = np.full(len(orders), -1, dtype=np.int32)
    for stretch in np.flatnonzero(np.diff(cuts)).tolist():
        rows = slice(cuts[stretch], cuts[stretch + 1])
        places = (ordered[rows] - firsts[stretch]).tolist()
        texts = _texts(elements, stretch, places, names) or _one_by_one(
            elements, ordered[rows].tolist(), names
        )
        found[by_place[rows]] = [numbers.setdefault(text, len(numbers) - 1) for text in texts]
    return Arguments(found, tuple(tuple(text.split(BETWEEN)) for text in list(numbers)[1:]))


def parsed(text: bytes) -> Any:
    """The value of one arg; None where it is not there or cannot be read."""
    try:
        return loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def _texts(
    elements: Elements, number: int, places: Sequence[int], names: tuple[str, ...]
) -> list[bytes]:
    """Of these elements of one stretch; [] where it does not decode as a list of usual events."""
    stretch = elements.stretches[number]
    if stretch.places is not None:
        return []
    try:
        text = list_text(elements.text, stretch)
        if not any(name.encode() in text for name in names):
            return [BETWEEN * (len(names) - 1)] * len(places)
        events = _decoder(names)(text)
    except (OSError, TraceError, *UNDECODABLE):
        return []
    nothing = type(events[0])().args if events else None
    found = (events[place].args or nothing for place in places)
    return [BETWEEN.join(msgspec.structs.astuple(args)) for args in found]


def _one_by_one(elements: Elements, orders: Sequence[int], names: tuple[str, ...]) -> list[bytes]:
    found = []
    for order in orders:
        args = elements.element(order).get("args")
        known = args if isinstance(args, dict) else {}
        found.append(BETWEEN.join(_text(known.get(name)) for name in names))
    return found


def _text(value: object) -> bytes:
    try:
        return b"" if value is None else orjson.dumps(value)
    except orjson.JSONEncodeError:  # a number beyond 64 bits
        return b""


@cache
def _decoder(names: tuple[str, ...]) -> Decoder:
    """Decodes a list of events, and of each only these args, as their texts."""
    fields = [
        (f"arg{n}", msgspec.Raw, msgspec.field(default=msgspec.Raw(b""), name=name))
        for n, name in enumerate(names)
    ]
    args = msgspec.defstruct("SomeArgs", fields, gc=False)
    event = msgspec.defstruct(
        "SomeEvent", [("args", args | None, msgspec.field(default_factory=args))], gc=False
    )
    return msgspec.json.Decoder(list[event]).decode  # type: ignore[valid-type]
