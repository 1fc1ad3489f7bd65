"""Some args of many slices at once. Each distinct value is kept once, as its text in the file.

So the args of a million calls with the same shapes are decoded only once.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.events import BETWEEN, Events


class Arguments(msgspec.Struct, frozen=True, eq=False):
    """`number[n]` is the index in `distinct` of the args of slice n, -1 if it has none of them.

    Each element of `distinct` has the texts of the requested args in their order, b"" for a missing
    one.
    """

    number: NDArray[np.int32]
    distinct: tuple[tuple[bytes, ...], ...]


def arguments(events: Events, orders: NDArray[np.int64], names: tuple[str, ...]) -> Arguments:
    """The args with these names of the events at `orders` (indices in traceEvents), shape [n].

    An event that cannot be read any more has none. Takes as long as decoding the stretches of the
    file that contain the events, at about 500 MB/s.
    """
    firsts = np.cumsum([0, *(stretch.events for stretch in events.stretches)])
    by_place = np.argsort(orders, kind="stable")
    ordered = orders[by_place]
    cuts = np.searchsorted(ordered, firsts)
    numbers: dict[bytes, int] = {BETWEEN * (len(names) - 1): -1}
    found = np.full(len(orders), -1, dtype=np.int32)
    for stretch in np.flatnonzero(np.diff(cuts)).tolist():
        rows = slice(cuts[stretch], cuts[stretch + 1])
        texts = events.args(stretch, (ordered[rows] - firsts[stretch]).tolist(), names)
        found[by_place[rows]] = [numbers.setdefault(text, len(numbers) - 1) for text in texts]
    return Arguments(found, tuple(tuple(text.split(BETWEEN)) for text in list(numbers)[1:]))


def parsed(text: bytes) -> Any:
    """The value of one arg; None if it is missing or cannot be read."""
    try:
        return msgspec.json.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(text)  # an integer beyond 64 bits
    except (ValueError, RecursionError):
        return None
