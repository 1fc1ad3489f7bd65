"""The diff of the two sides as a page shows it: its lines, and the work of one line in both
windows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from fusetui.trace.diff.lines import PINNED, Line, by_effect, closing, lines
from fusetui.trace.diff.model import Diff
from fusetui.tui.layout.lanes import key_lanes
from fusetui.tui.layout.moves import select
from fusetui.tui.layout.view import Side, View, first_view

Pair = tuple[Sequence[int], Sequence[int]]
"""Rows of A and of B."""


class Found(msgspec.Struct, frozen=True, eq=False):
    """What the comparison of two traces found, and the lines that say it; those `pinned` close the
    sum and are always in sight."""

    diff: Diff
    lines: tuple[Line, ...]
    pinned: tuple[Line, ...]


def told(diff: Diff) -> Found:
    """The rows, the largest change first, then what else the sum has; the end of it pinned."""
    last = closing(diff)
    others = (line for line in last if line.kind not in PINNED)
    pinned = tuple(line for line in last if line.kind in PINNED)
    return Found(diff, (*by_effect(lines(diff)), *others), pinned)


class Comparison(msgspec.Struct, frozen=True, eq=False):
    """`sides` have the lanes that a comparison needs, and `views` the windows of the page."""

    sides: tuple[Side, ...]
    views: tuple[View, ...]
    marked: tuple[frozenset[int], ...]
    found: Found | None = None  # None: still being computed

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.found.lines if self.found else ()

    def windowed(self, views: Sequence[View]) -> Comparison:
        """The windows of the session; the selections are kept."""
        now = tuple(
            replace(mine, begin=view.begin, end=view.end)
            for mine, view in zip(self.views, views, strict=True)
        )
        return replace(self, views=now)

    def filled(self, diff: Diff) -> Comparison:
        """The diff is there."""
        return replace(self, found=told(diff)).at(0)

    def at(self, index: int) -> Comparison:
        """Marks the work of one line; both windows move together to keep the first row in sight."""
        if not self.lines:
            return self
        drawn = [
            [row for row in rows if int(side.trace.track[row]) in side.lane_of_track]
            for side, rows in zip(self.sides, pair_of(self.lines[index]), strict=True)
        ]
        views = [
            select(side, view, rows[0] if rows else -1)
            for side, view, rows in zip(self.sides, self.views, drawn, strict=True)
        ]
        first = 0 if drawn[0] else 1
        shift = views[first].begin - self.views[first].begin
        moved = tuple(
            replace(view, begin=before.begin + shift, end=before.end + shift)
            for view, before in zip(views, self.views, strict=True)
        )
        return replace(self, views=moved, marked=tuple(map(frozenset, drawn)))


def comparing(sides: Sequence[Side], views: Sequence[View]) -> Comparison:
    """Both sides with the lanes that matter; the diff is not known yet."""
    own = tuple(
        Side(side.trace, key_lanes(side.lanes), side.origin, side.label, made=side.made)
        for side in sides
    )
    shown = tuple(first_view(s, v.begin, v.end) for s, v in zip(own, views, strict=True))
    return Comparison(own, shown, tuple(frozenset[int]() for _ in own))


def pair_of(line: Line) -> Pair:
    """The rows of both traces that a line stands for."""
    return (
        [row for found in line.rows for row in found.a_rows],
        [row for found in line.rows for row in found.b_rows],
    )


def names_of(line: Line) -> Sequence[str]:
    """The names of A, then of B; the text of the line if there are none."""
    a = [name for found in line.rows for name in found.a]
    return [*a, *(name for found in line.rows for name in found.b)] or [line.what]
