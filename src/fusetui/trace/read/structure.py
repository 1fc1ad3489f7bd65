"""Where the elements of a JSON list end: brackets and commas outside strings, found
with numpy.

The text need not be valid, and nothing is decoded. In valid text every element is
found, whatever its content; in invalid text the places are guesses that the caller has
to check.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Int64s

Places = Int64s

QUOTE, BACKSLASH, COMMA, OPENING, CLOSING = 1, 2, 3, 4, 5
_NAMES = {b'"': QUOTE, b"\\": BACKSLASH, b",": COMMA, b"[{": OPENING, b"]}": CLOSING}
_KIND_OF = {byte: kind for bytes_, kind in _NAMES.items() for byte in bytes_}
KINDS = bytes(_KIND_OF.get(byte, 0) for byte in range(256))  # for bytes.translate
BLANKS = bytes(byte in b" \t\r\n" for byte in range(256))
STEPS = np.array([0, 0, 0, 0, 1, -1], dtype=np.int64)  # change of the depth, by kind


class Brackets(NamedTuple):
    """What is open between two bytes: brackets, a string, an escape in it."""

    depth: int = 0
    in_string: bool = False
    escaped: bool = False


INSIDE = Brackets()  # Between two elements of a list


class SplitElements(NamedTuple):
    """Element n is in the bytes [begins[n], ends[n]), with blanks around it; it may be
    blank."""

    begins: Places
    ends: Places
    close: int  # the position of the bracket that closes the list, or -1
    state: Brackets  # at the end of the text; meaningless if the list is closed


def split(text: bytes | memoryview, state: Brackets = INSIDE) -> SplitElements:
    """Splits a text that begins inside a list, at commas and where an object follows
    another.

    What follows the last such place is not an element yet. An unmatched closing brace
    splits as well, and nothing after it is looked at. With a `state` other than INSIDE
    the text continues what is open, and the first element is the rest of that.
    """
    if state.escaped and text:
        text = b" " + text[1:]
    kinds = np.frombuffer(bytes(text).translate(KINDS), dtype=np.uint8)
    places = np.flatnonzero(kinds)
    places, kinds, escaped = _without_escaped(places, kinds[places], len(text))
    quotes = kinds == QUOTE
    within = np.cumsum(quotes) + state.in_string
    in_string = bool(within[-1] & 1) if len(within) else state.in_string
    outside = ~quotes & (within & 1 == 0)
    places, kinds = places[outside], kinds[outside]
    depth = np.cumsum(STEPS[kinds]) + state.depth
    last = int(depth[-1]) if len(depth) else state.depth
    below = np.flatnonzero(depth < 0)
    until = int(below[0]) if len(below) else len(depth)
    places, kinds, depth = places[: until + 1], kinds[: until + 1], depth[: until + 1]
    commas = (kinds == COMMA) & (depth == 0)
    follows = np.zeros(len(kinds), dtype=np.bool_)
    follows[1:] = (kinds[1:] == OPENING) & (kinds[:-1] == CLOSING) & (depth[1:] == 1)
    bounds = commas | follows | (depth < 0)
    ends = places[bounds]
    begins = (
        np.concatenate(([0], ends[:-1] + ~follows[bounds][:-1])) if len(ends) else ends
    )
    closes = len(below) and text[int(places[until])] == ord("]")
    close = int(places[until]) if closes else -1
    escaped = (escaped or (state.escaped and not text)) and in_string
    return SplitElements(begins, ends, close, Brackets(last, in_string, escaped))


def first_bytes(text: bytes | memoryview, begins: Places, ends: Places) -> Places:
    """The position of the first non-blank byte of each element, or its end if all are
    blank."""
    bright = np.flatnonzero(
        np.frombuffer(bytes(text).translate(BLANKS), dtype=np.uint8) == 0
    )
    places: Places = np.minimum(
        np.append(bright, len(text))[np.searchsorted(bright, begins)], ends
    )
    return places


def _without_escaped(
    places: Places, kinds: NDArray[np.uint8], length: int
) -> tuple[Places, NDArray[np.uint8], bool]:
    """Without backslashes and what they escape; and whether the byte after the text is
    escaped.

    In a run of backslashes every second one is escaped, so an odd run escapes the byte
    after it.
    """
    backslash = kinds == BACKSLASH
    found = places[backslash]
    if not len(found):
        return places, kinds, False
    starts = np.flatnonzero(np.concatenate(([True], np.diff(found) > 1)))
    lengths = np.diff(np.append(starts, len(found)))
    after = (found[starts] + lengths)[lengths % 2 == 1]
    keep = ~backslash & ~np.isin(places, after)
    return places[keep], kinds[keep], bool(len(after) and after[-1] == length)
