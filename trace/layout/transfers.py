"""Copies and fills whose names say no more than `Memcpy`: the name that Kineto would give them.

The CUPTI monitor of torch 2.14 writes directions and kinds of memory into args only.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from msgspec.structs import replace

from fusetui.trace.model.arguments import arguments, parsed
from fusetui.trace.model.raw import Raw

PLAIN = ("Memcpy", "Memset")
ARGS = ("copy kind", "src kind", "dst kind", "memory kind")
LONGEST = 20  # characters of the name of a kind of memory
MEMORY = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed"}
"""Source: CUpti_ActivityMemoryKind in cupti_activity.h."""


def with_directions(raw: Raw) -> Raw:
    """The same slices; `Memcpy` becomes `Memcpy HtoD (Pinned -> Device)` where args say that, and
    `Memset` becomes `Memset (Device)`."""
    plain = [number for number, name in enumerate(raw.names) if name in PLAIN]
    rows = np.flatnonzero(np.isin(raw.name, plain)) if plain else ()
    if raw.copies_named or not len(rows):
        return raw
    found = arguments(raw.elements, raw.order[rows], ARGS)
    numbers = {name: number for number, name in enumerate(raw.names)}
    full = np.repeat(np.array(plain, np.int32)[:, None], len(found.distinct) + 1, axis=1)
    for (place, number), (texts_at, texts) in product(enumerate(plain), enumerate(found.distinct)):
        known = _full(raw.names[number], texts)
        full[place, texts_at] = numbers.setdefault(known, len(numbers))
    renamed = raw.name.copy()
    renamed[rows] = full[np.searchsorted(plain, raw.name[rows]), found.number]
    return replace(raw, name=renamed, names=tuple(numbers))


def _full(name: str, texts: tuple[bytes, ...]) -> str:
    direction, source, target, kind = map(parsed, texts)
    if name == "Memset":
        return f"{name} ({MEMORY[kind]})" if type(kind) is int and kind in MEMORY else name
    if not isinstance(direction, str) or not (len(direction) == 4 and direction[1:3] == "to"):
        return name
    ends = [end for end in (source, target) if isinstance(end, str) and 0 < len(end) <= LONGEST]
    memory = f" ({ends[0].capitalize()} -> {ends[1].capitalize()})" if len(ends) == 2 else ""
    return f"{name} {direction}{memory}"
