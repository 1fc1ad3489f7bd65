"""The diff as a page shows it: its lines, and the work of one line in both windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace

from fusetui.analysis.diff.model import Diff
from fusetui.report.diff_lines import PINNED, DiffLine, by_effect, closing, regions
from fusetui.text.figures import microseconds
from fusetui.tui.layout.lanes import key_lanes
from fusetui.tui.layout.moves import select
from fusetui.tui.layout.view import Side, View, first_view

Pair = tuple[Sequence[int], Sequence[int]]  # rows of A and of B


class DiffLines(msgspec.Struct, frozen=True, eq=False):
    """What the comparison of two traces found, and the lines that say it; those `pinned` close the
    sum and are always in sight: each, or where there is little room, the few `closing`."""

    diff: Diff
    lines: tuple[DiffLine, ...]
    pinned: tuple[DiffLine, ...]
    closing: tuple[DiffLine, ...]
    inner: Mapping[int, tuple[DiffLine, ...]]
    """Of lines that can be opened, by their place in `lines`."""


def lines_of(diff: Diff) -> DiffLines:
    """The rows, the largest change first; what else the sum has is pinned.

    A compiled part of the program with many rows is one line, which can be opened.
    """
    compiled, rest = regions(diff)
    last = closing(diff)
    listed = tuple(by_effect([*rest, *(region.line for region in compiled)]))
    inner = {
        listed.index(region.line): tuple(
            replace(line, what=f"  {line.what}") for line in by_effect(region.inner)
        )
        for region in compiled
    }
    return DiffLines(diff, listed, tuple(last), tuple(_joined(last)), inner)


def _joined(last: Sequence[DiffLine]) -> Iterator[DiffLine]:
    """The lines that close the sum, as one those that say how work crosses borders."""
    others = [line for line in last if line.kind not in PINNED]
    for line in last:
        if line.kind in PINNED or len(others) == 1:
            yield line
        elif line is others[0]:
            parts = (f"{one.kind} {microseconds(one.change_ns, signed=True)}" for one in others)
            change = sum(one.change_ns for one in others)
            yield DiffLine("", "borders", None, None, change, "   ".join(parts))


class Comparison(msgspec.Struct, frozen=True, eq=False, dict=True):
    """`sides` have the lanes that a comparison needs, and `views` the windows of the page."""

    sides: tuple[Side, ...]
    views: tuple[View, ...]
    marked: tuple[frozenset[int], ...]
    found: DiffLines | None = None  # None: still being computed
    opened: frozenset[int] = frozenset()  # lines of `found` whose inner lines are shown

    @cached_property
    def lines(self) -> tuple[DiffLine, ...]:
        """Those that are shown."""
        return tuple(line for line, _ in self._shown)

    @cached_property
    def _shown(self) -> list[tuple[DiffLine, int]]:
        """Lines, and the place in `found` of each, or of the line that it is inside of."""
        found = self.found
        if found is None:
            return []
        return [
            (line, n)
            for n, outer in enumerate(found.lines)
            for line in (outer, *(found.inner[n] if n in self.opened else ()))
        ]

    def turned(self, index: int) -> tuple[Comparison, int]:
        """The line here opened, or closed, and where it is; an inner line closes the outer one."""
        if self.found is None or index >= len(self._shown):
            return self, index
        place = self._shown[index][1]
        if place not in self.found.inner:
            return self, index
        now = replace(self, opened=self.opened ^ {place})
        return now, [n for _, n in now._shown].index(place)

    def windowed(self, views: Sequence[View]) -> Comparison:
        """The windows of the session; the selections are kept."""
        pairs = zip(self.views, views, strict=True)
        now = tuple(replace(mine, begin=view.begin, end=view.end) for mine, view in pairs)
        return replace(self, views=now)

    def at(self, index: int) -> Comparison:
        """Marks the work of one line; both windows move together to keep the first row in sight."""
        if not self.lines:
            return self
        drawn = [
            [row for row in rows if side.lane_of(row) >= 0]
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
    own = tuple(replace(side, lanes=key_lanes(side.lanes), counters=()) for side in sides)
    shown = tuple(first_view(s, v.begin, v.end) for s, v in zip(own, views, strict=True))
    return Comparison(own, shown, tuple(frozenset[int]() for _ in own))


def pair_of(line: DiffLine) -> Pair:
    """The rows of both traces that a line stands for."""
    b = [row for found in line.rows for row in found.b_rows]
    return [row for found in line.rows for row in found.a_rows], b
