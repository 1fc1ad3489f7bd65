"""Marks that the user sets: a letter for a window of one side and what was selected in it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from fusetui.tui.layout.view import Side, View


class Bookmark(msgspec.Struct, frozen=True):
    """Times are ns of the file, so that a mark stays valid when the sides are realigned."""

    side: int
    begin: int
    end: int
    row: int  # -1: nothing was selected
    note: str = ""  # printable; what a person wrote about it


Bookmarks = Mapping[str, Bookmark]


def bookmark(index: int, side: Side, view: View, note: str = "") -> Bookmark:
    """A mark of what a view of a side shows now."""
    return Bookmark(index, view.begin + side.origin, view.end + side.origin, view.selected, note)


def recalled(mark: Bookmark, side: Side, view: View) -> View:
    """The view with the window and the selection of a mark; its folds are kept."""
    begin, end = mark.begin - side.origin, mark.end - side.origin
    return replace(view, begin=begin, end=end, selected=mark.row)


def swapped(marks: Bookmarks) -> Bookmarks:
    """Swaps the marks of A and B."""
    return {letter: replace(mark, side=1 - mark.side) for letter, mark in marks.items()}
