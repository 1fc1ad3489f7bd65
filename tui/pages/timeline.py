"""The timeline page: one timeline per side, and the details of the selected slice."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fusetui.tui.drawing.answer_lines import BETWEEN, HEAD, answer_lines, column_width, columns
from fusetui.tui.drawing.details import details, details_height
from fusetui.tui.drawing.gap_lines import gap_lines
from fusetui.tui.drawing.glyphs import glyphs_for
from fusetui.tui.drawing.picture import TextPicture, ruled
from fusetui.tui.drawing.range_lines import range_lines
from fusetui.tui.drawing.said import Said
from fusetui.tui.drawing.timeline import TimelinePicture
from fusetui.tui.layout.arrangement import Arrangement
from fusetui.tui.layout.division import divided, first_top, lanes_in, top_for, within
from fusetui.tui.layout.frame import row_at
from fusetui.tui.layout.moves import gap_of_time, go, select
from fusetui.tui.layout.view import HIDDEN, View, places, same_line
from fusetui.tui.pages.page import Page, Pane
from fusetui.tui.state.action import Run, action, on_timeline
from fusetui.tui.state.copying import slice_text
from fusetui.tui.state.gaps import at_gap, place_of_gap
from fusetui.tui.state.moving import SECTION, looked_at
from fusetui.tui.state.screen import body
from fusetui.tui.state.state import TIMELINE, Size, State

WIDEST, MOST_LINES = 4000, 50  # of what is copied
NOTHING = "nothing selected: j or k selects a slice, w and s zoom, a and d move, ? shows all keys"


def lanes_height(size: Size, sides: int) -> int:
    """How many lines of a page there are for the lanes of each side."""
    each = (size.height - details_height(size.height)) // max(1, sides)
    return lanes_in(each)


def clicked(picture: TimelinePicture, width: int, height: int, x: int, y: int) -> View | None:
    """The view after a click: on a slice it is selected, on the minimap its time is gone to."""
    division = divided(width, height)
    side, view = picture.side, picture.view
    column, index = x - division.gutter, y - division.axis + picture.top
    if 0 <= index < len(picture.places) and picture.places[index].depth == HIDDEN:
        return replace(view, arranged=Arrangement(pinned=view.arranged.pinned))
    if not 0 <= column < division.width:  # on the labels, or of a screen that was wider
        return None
    if y < division.axis:
        return go(side, view, side.begin + (side.end - side.begin) * column // division.width)
    if index >= len(picture.places) or y >= division.axis + division.lanes:
        return None
    lane = picture.places[index].idle_of
    if lane is not None:
        time = view.begin + view.span * (2 * column + 1) // (2 * division.width)
        gap = gap_of_time(side, lane.key[1], time)
        return replace(view, selected=-1, gap=gap)
    return select(side, view, row_at(side, view, picture.places[index], division.width, column))


class TimelinePage(Page):
    """Lanes of CPU threads and GPU streams over one axis of time."""

    name = TIMELINE
    title = "Timeline"
    key = "1"
    help = "lanes of CPU threads and GPU streams"
    hints = (
        "? keys",
        "w/s zoom",
        "a/d pan",
        "j/k line",
        ",/. slice",
        "]/[ launch-kernel",
        "/ search",
        "2 tree",
        "3 kernels",
        "4 diff",
        "5 why",
        "6 modules",
        "e gap",
        "v range",
        "y copy",
        "m/' mark",
        ": command",
        "q quit",
    )

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        below = details_height(size.height)
        sides = len(state.sides)
        heights = _shares(size.height - below, sides)
        panes = [_timeline(state, n, size.width, heights[n]) for n in range(sides)]
        return (*panes, Pane(below, _details(state), _row_pointed))

    def scroll(self, before: State, state: State, size: Size) -> State:
        """The lanes follow the selection, but not a person who only scrolls."""
        state = _refitted(before, state, size)
        tops = list(state.tops)
        same_screen = (before.page, before.size) == (state.page, state.size)
        for n, side in enumerate(state.sides):
            view, room = state.session.views[n], _room(state, size, n)
            known = same_screen and n < len(before.sides) and before.sides[n].trace is side.trace
            if not known:
                tops[n] = first_top(side, view, places(side, view), tops[n], room)
            elif before.session.views[n] != view:
                tops[n] = top_for(side, view, places(side, view), tops[n], room)
        now = tuple(tops)
        return state if now == state.tops else replace(state, tops=now)

    def follow(self, before: State, state: State) -> State:
        """The first line of each side stays the first."""
        tops = list(state.tops)
        for n, (old, new) in enumerate(zip(before.sides, state.sides, strict=True)):
            shown = places(old, before.session.views[n])
            if tops[n] < len(shown):
                now = places(new, state.session.views[n])
                tops[n] = same_line(old, shown[tops[n]], new, now)
        return replace(state, tops=tuple(tops))

    def copied(self, state: State) -> str:
        """The selected slice of the active side: name, start, duration."""
        row, gap = state.view.selected, state.view.gap
        if gap:
            glyphs = glyphs_for(state.ascii_only)
            lines = gap_lines(state.side, gap, WIDEST, MOST_LINES, glyphs)
            return "\n".join(line.text for line in lines)
        return slice_text(state.side, row) if row >= 0 else ""


def _shares(lines: int, sides: int) -> list[int]:
    """So many lines divided among the sides; the last ones get what is left over."""
    return [lines * (n + 1) // sides - lines * n // sides for n in range(sides)]


def _room(state: State, size: Size, index: int) -> int:
    height = _shares(size.height - details_height(size.height), len(state.sides))[index]
    return lanes_in(height)


def _refitted(before: State, state: State, size: Size) -> State:
    """Other folds on a screen of another size, and once there are more lanes or counters, as long
    as a person has folded nothing."""
    session, fits = state.session, list(state.fits)
    for n, view in enumerate(session.views):
        same = before.size == state.size and _lines(before, n) == _lines(state, n)
        if not same and n < len(fits) and view.folds == fits[n]:
            session = session.refitted(n, lanes_height(size, len(state.sides)))
            fits[n] = session.views[n].folds
    now = tuple(fits)
    return state if now == state.fits else replace(state, session=session, fits=now)


def _lines(state: State, index: int) -> tuple[int, int]:
    """How many lanes and lines of counters one side has."""
    if index >= len(state.sides):
        return 0, 0
    return len(state.sides[index].lanes), len(state.sides[index].counter_places)


def _timeline(state: State, index: int, width: int, height: int) -> Pane:
    session = state.session
    picture = TimelinePicture(
        session.sides[index],
        session.views[index],
        glyphs_for(state.ascii_only, state.colorless),
        state.tops[index],
        session.marked[index],
        session.interval(index),
    )

    def pointed(state: State, x: int, y: int) -> State:
        view = clicked(picture, width, height, x, y)
        return replace(state, active=index) if view is None else looked_at(state, index, view)

    def wheeled(state: State, lines: int) -> State:
        return scrolled(state, index, lines, lanes_in(height))

    return Pane(height, picture, pointed, wheeled)


def scrolled(state: State, index: int, lines: int, room: int) -> State:
    """The lanes of one side scrolled by lines; negative is up."""
    shown = places(state.sides[index], state.session.views[index])
    tops = list(state.tops)
    tops[index] = within(shown, tops[index] + lines, room)
    return replace(state, tops=tuple(tops))


def _details(state: State) -> TextPicture:
    """The figures of the range of the active side, else the details of its selected slice."""
    side, row = state.side, state.view.selected
    glyphs = glyphs_for(state.ascii_only)
    found = state.session.time_range
    if found and found.ended and found.side == state.active:
        in_range = found

        def of_range(width: int, height: int) -> list[Said]:
            return range_lines(side, in_range, width, height, glyphs)

        return ruled((side, found), "", glyphs.rule, of_range)
    gap = state.view.gap
    if gap:
        return ruled(
            (side, gap),
            "",
            glyphs.rule,
            lambda width, height: gap_lines(side, gap, width, height, glyphs),
        )
    if row < 0 and (answer := side.insight.answer):
        known = answer
        return ruled(
            (side, known),
            NOTHING,
            glyphs.rule,
            lambda width, height: answer_lines(side, known, width, height, glyphs),
        )
    if row < 0:
        return ruled(NOTHING, "", glyphs.rule, lambda width, height: [Said(NOTHING)])

    def of_slice(width: int, height: int) -> list[Said]:
        return details(side.trace, row, width, height, glyphs, side.insight.origins)

    return ruled((side, row, state.unpacked), "", glyphs.rule, of_slice)


def _row_pointed(state: State, x: int, y: int) -> State:
    """A click on a row of the answer leads to the gap, or to the page of its list."""
    answer, found = state.side.insight.answer, state.session.time_range
    if answer is None or found or state.view.selected >= 0 or state.view.gap:
        return state
    lists = columns(state.side, answer, state.size.width)
    cells = column_width(state.size.width, len(lists)) + BETWEEN
    row = y - HEAD - 1
    if not lists or row < 0:
        return replace(state, page="why") if y == 1 else state
    title, rows = lists[min(x // cells, len(lists) - 1)]
    if row >= len(rows):
        return state
    if title.startswith("longest"):
        gap = answer.why.gaps[row]
        at = place_of_gap(state.side, gap)
        return at_gap(state, at) if at else state
    return replace(state, page="kernels" if title.startswith("by") else "modules")


def _paged(pages: int) -> Run:
    """The lanes of the active side scrolled by screens of lanes."""

    def run(state: State) -> State:
        room = _room(state, body(state), state.active)
        return scrolled(state, state.active, pages * max(1, room - 2), room)

    return run


SCROLLING = (
    action(
        "page-down",
        "Page of lanes down",
        "pagedown",
        "scroll the lanes",
        _paged(1),
        SECTION,
        on_timeline,
    ),
    action(
        "page-up",
        "Page of lanes up",
        "pageup",
        "scroll the lanes",
        _paged(-1),
        SECTION,
        on_timeline,
    ),
)
