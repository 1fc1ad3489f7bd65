"""The picture of a timeline: minimap, ruler, the lanes of one side, and the lines of a
device below its lanes: why it was idle, the kinds of its kernels, counters; and the
legend of its colors."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fusetui.analysis.why.idle_time import IdleTime
from fusetui.analysis.why.model import IDLE
from fusetui.text.cutting import clip, word_clip
from fusetui.text.figures import percent, quantity
from fusetui.timeline.cells import SEVERAL, DepthRow, amounts, edges, seen_in
from fusetui.trace.layout.counters import Curve, values
from fusetui.tui.drawing.lane_lines import labeled, lane_line, where_line
from fusetui.tui.drawing.schemes import BAR, Glyphs, Styled
from fusetui.tui.layout.frame import Division, busy_of, cells_of, divided, thumb, ticks
from fusetui.tui.layout.kinds import KINDS, LETTERS, KindShare, shares
from fusetui.tui.layout.places import marks_selection, places
from fusetui.tui.layout.view import HIDDEN, Interval, Place, Side, View, gap_times

if TYPE_CHECKING:
    from fusetui.analysis.replay.marks import Marks


class TimelinePicture(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One side through a view; `top` is the first of its lines beneath the ruler."""

    side: Side
    view: View
    glyphs: Glyphs
    top: int = 0
    marked: frozenset[int] = frozenset()
    chosen: Interval | None = None
    path: Marks | None = None  # of what is marked as the critical path

    @cached_property
    def places(self) -> Sequence[Place]:
        return places(self.side, self.view)

    def key(self, y: int, width: int, height: int) -> Hashable:
        division, trace = divided(width, height), self.side.trace
        if y < division.axis:
            side, view = self.side, self.view
            window = view.begin, view.end, side.origin, side.begin, side.end
            return trace, window, y, division, self.chosen, self._count(division)
        if y >= division.axis + division.lanes:
            return trace, self.glyphs, width, "legend"
        index = y - division.axis + self.top
        if index >= len(self.places):
            return None, width
        place, bar = self.places[index], self._bar(y - division.axis, division)
        return trace, width, bar, self._place_key(place, division)

    def _place_key(self, place: Place, division: Division) -> Hashable:
        """What a line depends on, and nothing else: it is made again once this changes.
        Where the picture of a lane is the same in many windows, these have one key."""
        side, view = self.side, self.view
        window = view.begin, view.end, side.origin
        if place.idle_of is not None:
            return window, place.idle_of.key, place.label, view.gap, side.insight.idle
        if place.family is not None or place.curve is not None:
            return window, place.family, place.curve, place.label
        if place.line is None:
            return place.label, place.depth
        label = gutter_text(place, division.gutter, self.glyphs)
        if place.where:
            selected = view.selected if marks_selection(side, view, place) else -1
            return window, place.lane, label, selected, self.path
        selected = view.selected if place.holds(view.selected) else -1
        seen = seen_in(place.line, view.begin + side.origin, view.end + side.origin)
        shown = window if seen == SEVERAL else seen
        return (
            shown,
            place.lane,
            place.depth,
            place.around,
            label,
            selected,
            self.marked,
            self.path,
        )

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        division = divided(width, height)
        if y >= division.axis + division.lanes:
            return legend_line(
                shares(self.side.trace), self.glyphs, division.gutter, width
            )
        if y >= division.axis:
            return self._lane(y - division.axis, division)
        window = window_columns(self.side, self.view, division.width)
        # below the minimap
        text = " " * window.start + window_bar(len(window), self.glyphs)
        label, lit, look = "", range(0), "faint"
        if y == 0:
            busy, look, lit = busy_of(self.side.trace), "busy", window
            whole = self.side.begin + self.side.origin, self.side.end + self.side.origin
            label = busy.label
            text = self.glyphs.bars(
                busy.levels(*whole, division.width, self.glyphs.top)
            )
        elif y == division.axis - 1:
            label = self._count(division)
            text, lit = ruler(self.view, division.width, self.chosen, self.glyphs)
        bright = (text[lit.start : lit.stop], "window")
        parts = [(text[: lit.start], look), bright, (text[lit.stop :], look)]
        return labeled(label, parts, division.gutter)

    def _count(self, division: Division) -> str:
        return in_view(self.places, self.top, division.lanes)

    def _bar(self, y: int, division: Division) -> str:
        return (
            self.glyphs.thumb
            if y in thumb(self.places, self.top, division.lanes)
            else " "
        )

    def _lane(self, y: int, division: Division) -> Sequence[Styled]:
        index, bar = y + self.top, self._bar(y, division)
        if index >= len(self.places):
            return ()
        place, gutter, width = self.places[index], division.gutter, division.width
        side, view, glyphs = self.side, self.view, self.glyphs
        label, parts = place.label, list[Styled]()
        if place.depth == HIDDEN:
            return _across(
                clip(label, division.whole, glyphs.ellipsis), "faint", division, bar
            )
        if place.idle_of is not None:  # blank until it is known why the device was idle
            device = side.insight.device(place.idle_of.key[1])
            if side.insight.idle is not None and device >= 0:
                parts = idle_line(side, view, side.insight.idle[device], width, glyphs)
        elif place.family is not None:
            if len(label) >= gutter:  # without its share: no digit of it is cut
                label = label.rstrip(" %0123456789.<>")
            parts = [family_line(side, view, *place.family, width, glyphs)]
        elif place.curve is not None:
            label, parts = counter_line(
                side, view, label, place.curve, gutter, width, glyphs
            )
        elif place.line is None:
            return _across(label, "title", division, bar)
        else:
            label = gutter_text(place, gutter, glyphs)
            if place.where:
                parts = where_line(side, view, place, width, glyphs, self.path)
            else:
                parts = lane_line(
                    side, view, place, width, glyphs, self.marked, self.path
                )
        return labeled(label, parts, gutter, bar)


def in_view(shown: Sequence[Place], top: int, room: int) -> str:
    """`1-15 of 41`; "" when all lines are on the screen."""
    is_all = len(shown) <= room or room <= 0
    return "" if is_all else f"{top + 1}-{min(top + room, len(shown))} of {len(shown)}"


def window_columns(side: Side, view: View, width: int) -> range:
    """The cells of the minimap that the window covers, at least one."""
    whole = side.end - side.begin
    first = (max(view.begin, side.begin) - side.begin) * width // whole
    last = -(-(min(view.end, side.end) - side.begin) * width // whole)
    first = min(first, width - 1)
    return range(first, max(first + 1, min(last, width)))


def _across(text: str, token: str, division: Division, bar: str) -> list[Styled]:
    """A text over the whole width; the bar where it leaves room."""
    is_free = bar != " " and len(text) < division.gutter
    beside = bar.rjust(division.gutter - len(text)) if is_free else ""
    return [(text[: division.whole], token), (beside, "faint")]


def gutter_text(place: Place, gutter: int, glyphs: Glyphs) -> str:
    """The label of a line; the last line of a lane that hides some says how many."""
    if not place.more:
        return word_clip(place.label, gutter - 1, glyphs.ellipsis)
    more = f"{glyphs.folded}{place.more}"
    room = gutter - 2 - len(more)
    return f"{word_clip(place.label, room, glyphs.ellipsis).ljust(room)} {more}"


def ruler(
    view: View, width: int, chosen: Interval | None, glyphs: Glyphs
) -> tuple[str, range]:
    """Times at round positions, none cut off, over a bar `├───┤` where a range of time
    is selected, and the cells of that bar."""
    text = [" "] * width
    cells = cells_of(view, *chosen, width) if chosen else range(0)
    if chosen and cells:
        whole = (chosen[0] >= view.begin, chosen[1] <= view.end)
        text[cells.start : cells.stop] = window_bar(len(cells), glyphs, *whole)
    for column, label in ticks(view.begin, view.end, width):
        taken = range(column, column + len(label) + 1)
        if taken[-1] < width and not (
            cells and (cells[0] in taken or cells[-1] in taken)
        ):
            text[column : taken[-1]] = label
    return "".join(text), cells


def window_bar(
    width: int, glyphs: Glyphs, begins: bool = True, ends: bool = True
) -> str:
    """`├───┤`, without an end that is out of sight."""
    left, middle, right = glyphs.window
    if width == 1:
        return middle
    return (
        (left if begins else middle)
        + middle * (width - 2)
        + (right if ends else middle)
    )


UNITS = {"bytes": "B"}
# cells that the largest value may take in the gutter, including the space before it
ROOM = 10
NOWHERE = -1
BETWEEN = "  "  # two families of the legend
_quantity = lru_cache(maxsize=1024)(quantity)
"""Few values are the largest of any window, and to write one exactly takes long."""


def counter_line(
    side: Side,
    view: View,
    label: str,
    curve: Curve,
    gutter: int,
    width: int,
    glyphs: Glyphs,
) -> tuple[str, list[Styled]]:
    """What stands in the gutter and over `width` cells: the height of the values, of
    which the highest level is the largest of the whole trace; and the largest in sight,
    after the label if there is room."""
    found = values(
        curve, edges(view.begin + side.origin, view.end + side.origin, width)
    )
    text = levels(found, curve.largest, glyphs)
    largest = float(np.fmax.reduce(found))
    if math.isnan(largest):
        return label, [(text, "busy")]
    most = _quantity(largest, UNITS.get(curve.counter.unit, ""))
    room = gutter - 1 - len(label)
    if room >= ROOM:
        return f"{label}{most.rjust(room)}", [(text, "busy")]
    end = f" {most}"[-width:]
    return label, [(text[: width - len(end)], "busy"), (end, "plain")]


def levels(
    found: np.ndarray[tuple[int], np.dtype[np.float64]], most: float, glyphs: Glyphs
) -> str:
    """One character per value: a space where there is none, else at least the lowest
    level."""
    share = np.maximum(found, 0.0) / (most if most > 0 else 1.0)
    level = np.maximum(np.ceil(share * glyphs.top), 1.0)
    level[np.isnan(found)] = 0.0
    return glyphs.bars(level.astype(np.int8).tolist())


def family_line(
    side: Side, view: View, line: DepthRow, kind: int, width: int, glyphs: Glyphs
) -> Styled:
    """A bar in each cell, as high as the share of its time; the least height for any
    time."""
    borders = edges(view.begin + side.origin, view.end + side.origin, width)
    ns, size = amounts(line, borders, kind), np.maximum(np.diff(borders), 1)
    level = np.where(ns > 0, np.clip(ns * glyphs.top // size, 1, glyphs.top), 0)
    return glyphs.bars(level.tolist()), KINDS[kind].token + BAR


def idle_line(
    side: Side, view: View, found: IdleTime, width: int, glyphs: Glyphs
) -> list[Styled]:
    """The reason with the most time in each cell. A cell that is idle for at least half
    of its time is a block with the letter of the reason, or its name if there is room;
    any other cell has a bar as high as the idle share."""
    parts: list[Styled] = []
    for (reason, level, chosen), group in groupby(
        _idle_cells(side, view, found, width, glyphs)
    ):
        size = len(list(group))
        if reason == NOWHERE:
            parts.append((" " * size, "plain"))
            continue
        name = found.reasons[reason].name
        token = f"idle.{name}"
        if level:
            parts.append((glyphs.levels[level] * size, token + BAR))
        else:
            short, letter = IDLE[name].short, IDLE[name].letter
            text = letter * size if size < len(short) + 2 else f" {short}".ljust(size)
            parts.append((text, "selection" if chosen else token))
    return parts


def _idle_cells(
    side: Side, view: View, found: IdleTime, width: int, glyphs: Glyphs
) -> list[tuple[int, int, bool]]:
    """The reason (NOWHERE: none), the height of its bar (0: a block), and is it
    selected."""
    borders = edges(view.begin + side.origin, view.end + side.origin, width)
    ns = found.within(borders)
    if not len(ns):
        return [(NOWHERE, 0, False)] * width
    top, idle = glyphs.top, ns.sum(axis=0)
    size = np.maximum(np.diff(borders), 1)
    level = np.clip((idle * top + size - 1) // size, 1, top // 2)
    level[2 * idle >= size] = 0
    reason = np.where(idle > 0, ns.argmax(axis=0), NOWHERE).tolist()
    times = gap_times(side, view.gap) if view.gap else None
    chosen = range(0)
    if times and view.gap and side.insight.device(found.device) == view.gap.device:
        chosen = cells_of(view, *times, width)
    return [
        (*cell, x in chosen)
        for x, cell in enumerate(zip(reason, level.tolist(), strict=True))
    ]


def legend_line(
    found: Sequence[KindShare], glyphs: Glyphs, gutter: int, width: int
) -> list[Styled]:
    """What the colors of the GPU lanes mean, with their shares of the time, which add
    up."""
    marks = [LETTERS[one.kind] if glyphs.letters else glyphs.swatch for one in found]
    entries = [
        ((mark, one.kind.token + BAR), one.kind.removeprefix("gpu-"), one.ns)
        for mark, one in zip(marks, found, strict=True)
    ]
    label = f"{found[0].of} time" if found else ""
    return labeled(label, legend_parts(entries, width - gutter, fine=True), gutter)


def legend_parts(
    entries: Sequence[tuple[Styled, str, int]],
    room: int,
    lead: str = "",
    fine: bool = False,
) -> list[Styled]:
    """`■ gemm 45.2 %  ■ reduction 46.1 %  2 more 8.7 %`: as many as fit, and what is left."""
    amounts, parts = [amount for *_, amount in entries], list[Styled]()

    def share(first: int, end: int | None = None) -> str:
        return percent(sum(amounts[first:end]), sum(amounts), fine=fine)

    rests = [
        f"{BETWEEN}{len(amounts) - n} more {share(n)}" for n in range(len(amounts))
    ]
    for n, (mark, name, _) in enumerate(entries):
        between, text = BETWEEN if n else lead, f" {name} {share(n, n + 1)}"
        cells = len(between) + 1 + len(text)
        if cells + len("".join(rests[n + 1 : n + 2])) > room:
            rest = rests[n] if between else rests[n].strip()
            return [*parts, (rest[: max(0, room)], "faint")]
        parts += [(between, "faint"), mark, (text, "faint")]
        room -= cells
    return parts
