"""The mouse over a timeline: clicks, the wheel, and ranges of time that are dragged."""

from __future__ import annotations

from msgspec.structs import replace

from fusetui.tui.drawing.timeline import TimelinePicture
from fusetui.tui.layout.arrangement import Arrangement
from fusetui.tui.layout.division import Division, divided, within
from fusetui.tui.layout.frame import row_at
from fusetui.tui.layout.moves import deselect, gap_of_time, go, pan, select, zoom_at
from fusetui.tui.layout.places import places
from fusetui.tui.layout.view import HIDDEN, View
from fusetui.tui.pages.page import Drag, Turn
from fusetui.tui.state.marks import ENDED
from fusetui.tui.state.moving import looked_at
from fusetui.tui.state.session import Range
from fusetui.tui.state.state import State, told


def clicked(picture: TimelinePicture, width: int, height: int, x: int, y: int) -> View | None:
    """The view after a click: a click on a slice selects it, one on the minimap goes to its
    time."""
    division = divided(width, height)
    side, view = picture.side, picture.view
    column, index = x - division.gutter, y - division.axis + picture.top
    if 0 <= index < len(picture.places) and picture.places[index].depth == HIDDEN:
        return replace(view, arranged=Arrangement(pinned=view.arranged.pinned))
    if not 0 <= column < division.width:  # on the labels, or on a screen that was wider
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


def turned(state: State, index: int, turn: Turn, division: Division) -> State:
    """Over the lanes the wheel zooms about the time beneath it, with Shift it moves the window;
    over their labels it scrolls them."""
    side, view = state.sides[index], state.session.views[index]
    if turn.x < division.gutter and not turn.shifted:
        return scrolled(state, index, turn.lines, division.lanes)
    if turn.shifted:
        window = pan(side, view, 10 if turn.lines > 0 else -10)
    else:
        factor = (4, 3) if turn.lines > 0 else (3, 4)
        window = zoom_at(side, view, division.time(view, turn.x), *factor)
    return looked_at(state, index, window)


def chose(state: State, index: int, drag: Drag, division: Division) -> State:
    """From where the button went down to where it is is a range of time; its figures are worked
    out when the button is let go."""
    side, view = state.sides[index], state.session.views[index]
    if drag.x < division.gutter:
        return state
    begin, end = sorted((drag.x, drag.to))
    times = (division.time(view, begin), division.time(view, end + 1))
    found = Range(index, times[0] + side.origin, times[1] + side.origin, drag.ended)
    state = looked_at(state, index, deselect(side, view))
    now = replace(state, session=replace(state.session, time_range=found))
    return told(now, *ENDED) if drag.ended else now


def scrolled(state: State, index: int, lines: int, room: int) -> State:
    """Scrolls the lanes of one side by lines; negative is up."""
    shown = places(state.sides[index], state.session.views[index])
    tops = list(state.tops)
    tops[index] = within(shown, tops[index] + lines, room)
    return replace(state, tops=tuple(tops))
