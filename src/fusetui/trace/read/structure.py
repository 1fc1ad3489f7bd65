"""Finds where the elements of a JSON list end: brackets and commas outside strings,
with numpy.

The text need not be valid, and nothing is decoded. In valid text every element is
found, whatever its content; in invalid text the places are guesses that the caller has
to check.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int64s, at

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


class _Marks(NamedTuple):
    """The bytes of a text that matter, in order; arrays of shape [marks]."""

    places: Places
    kinds: NDArray[np.uint8]

    def only(self, which: Flags) -> _Marks:
        """The marks whose flag is set."""
        return _Marks(places=self.places[which], kinds=self.kinds[which])

    def first(self, count: int) -> _Marks:
        """The first `count` marks."""
        return _Marks(places=self.places[:count], kinds=self.kinds[:count])


def split(text: bytes | memoryview, state: Brackets = INSIDE) -> SplitElements:
    """Find the elements of a JSON list in a text that begins inside the list.

    The text `{"a": [1, 2]}, {"b": 3}, {` has two elements: bytes 0 to 13 and 14 to 23.
    What follows the last comma is not an element yet. Where an object follows another
    one without a comma, it is an element too. After the bracket that closes the list,
    nothing is looked at.

    Args:
        text: Bytes of a document, which need not be valid JSON.
        state: What is open where the text begins; by default the list alone. With
            another state, the first element is the rest of what is open.
    """
    if state.escaped and text:
        text = b" " + text[1:]  # the first byte has no meaning
    marks, ends_escaped = _drop_escaped(_find_marks(text), len(text))
    marks, in_string = _drop_strings(marks, state.in_string)
    depth = np.cumsum(DEPTH_CHANGES[marks.kinds]) + state.depth
    last_depth = int(depth[-1]) if len(depth) else state.depth

    close = -1
    unmatched = np.flatnonzero(depth < 0)
    if len(unmatched):
        first_unmatched = int(unmatched[0])
        place = int(marks.places[first_unmatched])
        # an unmatched brace also ends the last element, but closes no list
        if text[place] == ord("]"):
            close = place
        marks = marks.first(first_unmatched + 1)
        depth = depth[: first_unmatched + 1]

    begins, ends = _bounds_of_elements(marks, depth)
    goes_on_escaped = ends_escaped or (state.escaped and not text)
    return SplitElements(
        begins=begins,
        ends=ends,
        close=close,
        state=Brackets(
            depth=last_depth, in_string=in_string, escaped=goes_on_escaped and in_string
        ),
    )


def _find_marks(text: bytes | memoryview) -> _Marks:
    """Find the quotes, backslashes, commas and brackets of a text."""
    kinds = np.frombuffer(bytes(text).translate(KINDS), dtype=np.uint8)
    places = np.flatnonzero(kinds)
    return _Marks(places=places, kinds=kinds[places])


def _drop_strings(marks: _Marks, in_string: bool) -> tuple[_Marks, bool]:
    """Leave out the marks in strings, and the quotes around strings.

    Of `[",", "]"]` the brackets at both ends and the comma in the middle are left.

    Args:
        marks: The marks of a text, without escaped ones.
        in_string: Whether the text begins inside a string.

    Returns:
        The marks outside strings, and whether the text ends inside a string.
    """
    is_quote = marks.kinds == QUOTE
    quotes_so_far = np.cumsum(is_quote) + in_string
    is_inside = quotes_so_far & 1 == 1  # after an odd number of quotes
    ends_in_string = bool(is_inside[-1]) if len(is_inside) else in_string
    return marks.only(~is_quote & ~is_inside), ends_in_string


def _bounds_of_elements(marks: _Marks, depth: Int64s) -> tuple[Places, Places]:
    """Find where the elements of the list begin and end.

    Args:
        marks: The commas and brackets outside strings.
        depth: How many brackets are open after each mark: 0 between two elements, -1
            after the bracket that closes the list.

    Returns:
        The first byte of each element, and the byte after each.
    """
    kinds = marks.kinds
    is_comma = (kinds == COMMA) & (depth == 0)
    # an object that follows another, without a comma
    follows = np.zeros(len(kinds), dtype=np.bool_)
    opens_after_close = (kinds[1:] == OPENING) & (kinds[:-1] == CLOSING)
    follows[1:] = opens_after_close & (depth[1:] == 1)
    is_end = is_comma | follows | (depth < 0)
    ends = marks.places[is_end]
    if not len(ends):
        return ends, ends
    # The next element begins behind the comma or brace, or with its own bracket.
    width = np.where(follows[is_end], 0, 1)
    next_begins = ends + width
    return np.concatenate(([0], next_begins[:-1])), ends


def first_bytes(text: bytes | memoryview, begins: Places, ends: Places) -> Places:
    """Find the first byte of each element that is not blank.

    In `  {},   ` the elements [0, 4) and [5, 8) give 2 and 8: the second has only
    blanks, so it is its end.

    Args:
        text: The text.
        begins: The first byte of each element.
        ends: The byte after each element.
    """
    is_blank = np.frombuffer(bytes(text).translate(BLANKS), dtype=np.uint8)
    filled = np.flatnonzero(is_blank == 0)
    next_filled = np.searchsorted(filled, begins)
    first_filled = at(filled, next_filled, missing=len(text))
    places: Places = np.minimum(first_filled, ends)
    return places


def _drop_escaped(marks: _Marks, length: int) -> tuple[_Marks, bool]:
    r"""Leave out backslashes and what they escape.

    Of two backslashes in a row the second is escaped by the first. So a run of one or
    three escapes the byte after it, a run of two does not: in `"\\\" \\"` only the
    first and the last quote are left.

    Args:
        marks: The marks of a text.
        length: How many bytes the text has.

    Returns:
        The other marks, and whether the byte after the text is escaped.
    """
    is_backslash = marks.kinds == BACKSLASH
    backslashes = marks.places[is_backslash]
    if not len(backslashes):
        return marks, False
    is_run_start = np.concatenate(([True], np.diff(backslashes) > 1))
    run_starts = np.flatnonzero(is_run_start)
    run_lengths = np.diff(np.append(run_starts, len(backslashes)))
    behind_runs = backslashes[run_starts] + run_lengths
    is_odd = run_lengths % 2 == 1
    escaped = behind_runs[is_odd]
    is_escaped = np.isin(marks.places, escaped)
    ends_escaped = bool(len(escaped) and escaped[-1] == length)
    return marks.only(~is_backslash & ~is_escaped), ends_escaped
