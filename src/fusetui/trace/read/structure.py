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

# Kinds of bytes. All others are 0.
QUOTE, BACKSLASH, COMMA, OPENING, CLOSING = 1, 2, 3, 4, 5
_KIND_OF_BYTE = {
    ord('"'): QUOTE,
    ord("\\"): BACKSLASH,
    ord(","): COMMA,
    ord("["): OPENING,
    ord("{"): OPENING,
    ord("]"): CLOSING,
    ord("}"): CLOSING,
}
KINDS = bytes(_KIND_OF_BYTE.get(byte, 0) for byte in range(256))  # for bytes.translate
BLANKS = bytes(byte in b" \t\r\n" for byte in range(256))
DEPTH_CHANGES = np.array([0, 0, 0, 0, 1, -1], dtype=np.int64)  # by kind


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
        text = b" " + text[1:]  # the first byte has no meaning
    all_kinds = np.frombuffer(bytes(text).translate(KINDS), dtype=np.uint8)
    places = np.flatnonzero(all_kinds)
    places, kinds, ends_escaped = _without_escaped(places, all_kinds[places], len(text))

    is_quote = kinds == QUOTE
    quotes_so_far = np.cumsum(is_quote) + state.in_string
    is_outside = ~is_quote & (quotes_so_far & 1 == 0)
    in_string = state.in_string
    if len(quotes_so_far):
        in_string = bool(quotes_so_far[-1] & 1)
    places, kinds = places[is_outside], kinds[is_outside]

    depth = np.cumsum(DEPTH_CHANGES[kinds]) + state.depth
    last_depth = int(depth[-1]) if len(depth) else state.depth
    unmatched = np.flatnonzero(depth < 0)
    close = -1
    if len(unmatched):  # nothing after the first one is looked at
        kept = int(unmatched[0]) + 1
        places, kinds, depth = places[:kept], kinds[:kept], depth[:kept]
        place = int(places[-1])
        is_bracket = text[place] == ord("]")
        close = place if is_bracket else -1

    is_comma = (kinds == COMMA) & (depth == 0)
    follows = np.zeros(len(kinds), dtype=np.bool_)  # an object another, without a comma
    follows[1:] = (kinds[1:] == OPENING) & (kinds[:-1] == CLOSING) & (depth[1:] == 1)
    is_end = is_comma | follows | (depth < 0)
    ends = places[is_end]
    begins = ends
    if len(ends):
        # The next element begins behind the comma or brace, or with its own bracket.
        width = (~follows[is_end]).astype(np.int64)
        begins = np.concatenate(([0], (ends + width)[:-1]))
    escaped = (ends_escaped or (state.escaped and not text)) and in_string
    return SplitElements(
        begins=begins,
        ends=ends,
        close=close,
        state=Brackets(depth=last_depth, in_string=in_string, escaped=escaped),
    )


def first_bytes(text: bytes | memoryview, begins: Places, ends: Places) -> Places:
    """The position of the first non-blank byte of each element, or its end if all are
    blank."""
    is_blank = np.frombuffer(bytes(text).translate(BLANKS), dtype=np.uint8)
    filled = np.append(np.flatnonzero(is_blank == 0), len(text))
    next_filled = filled[np.searchsorted(filled[:-1], begins)]
    places: Places = np.minimum(next_filled, ends)
    return places


def _without_escaped(
    places: Places, kinds: NDArray[np.uint8], length: int
) -> tuple[Places, NDArray[np.uint8], bool]:
    """Without backslashes and what they escape; and whether the byte after the text is
    escaped.

    In a run of backslashes every second one is escaped, so an odd run escapes the byte
    after it.
    """
    is_backslash = kinds == BACKSLASH
    backslashes = places[is_backslash]
    if not len(backslashes):
        return places, kinds, False
    is_run_start = np.concatenate(([True], np.diff(backslashes) > 1))
    run_starts = np.flatnonzero(is_run_start)
    run_lengths = np.diff(np.append(run_starts, len(backslashes)))
    behind_runs = backslashes[run_starts] + run_lengths
    escaped = behind_runs[run_lengths % 2 == 1]
    keep = ~is_backslash & ~np.isin(places, escaped)
    ends_escaped = bool(len(escaped) and escaped[-1] == length)
    return places[keep], kinds[keep], ends_escaped
