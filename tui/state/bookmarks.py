"""Marks that a person sets: a letter for a window of one side and what was selected in it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from fusetui.tui.layout.view import Side, View


class Bookmark(msgspec.Struct, frozen=True):
    """Times are ns of the file, so that it holds when the sides are aligned anew."""

    side: int
    begin: int
    end: int
    row: int  # -1: nothing was selected


Bookmarks = Mapping[str, Bookmark]


def bookmark(index: int, side: Side, view: View) -> Bookmark:
    """What a view of a side shows now."""
    return Bookmark(index, view.begin + side.origin, view.end + side.origin, view.selected)


def recalled(mark: Bookmark, side: Side, view: View) -> View:
    """The view with the window and the selection of a mark; its folds stay."""
    begin, end = mark.begin - side.origin, mark.end - side.origin
    return replace(view, begin=begin, end=end, selected=mark.row)


def swapped(marks: Bookmarks) -> Bookmarks:
    """The marks of A are those of B, and the other way round."""
    return {letter: replace(mark, side=1 - mark.side) for letter, mark in marks.items()}
