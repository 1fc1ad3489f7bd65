"""The timeline page: one timeline per side, and the details of the selected slice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from fusetui.tui.drawing.canvas import Drag, Turn
from fusetui.tui.drawing.details import details_height, on_path_text
from fusetui.tui.drawing.picture import Said, TextPicture, ruled
from fusetui.tui.drawing.range_lines import gap_lines, range_lines
from fusetui.tui.drawing.schemes import glyphs_for
from fusetui.tui.drawing.timeline import TimelinePicture
from fusetui.tui.layout.answer import working
from fusetui.tui.layout.frame import (
    Division,
    divided,
    first_top,
    lanes_in,
    row_at,
    top_for,
    within,
)
from fusetui.tui.layout.lanes import Arrangement
from fusetui.tui.layout.moves import gap_of_time, go, pan, select, zoom_at
from fusetui.tui.layout.places import places, same_line
from fusetui.tui.layout.view import HIDDEN, View
from fusetui.tui.pages.answer import answer_pane
from fusetui.tui.pages.page import Page, Pane, slice_details, slice_text
from fusetui.tui.state.action import action, hints_text, on_timeline
from fusetui.tui.state.comparison import Second
from fusetui.tui.state.memory import allocated_text
from fusetui.tui.state.moving import ENDED, SECTION, looked_at
from fusetui.tui.state.screen import body
from fusetui.tui.state.session import Range
from fusetui.tui.state.state import TIMELINE, Details, Overlay, Size, State, told


def clicked(
    picture: TimelinePicture, width: int, height: int, x: int, y: int
) -> View | None:
    """The view after a click: on a slice it selects it, on the minimap it goes to its
    time."""
    side, view, division = picture.side, picture.view, divided(width, height)
    column, index = x - division.gutter, y - division.axis + picture.top
    if 0 <= index < len(picture.places) and picture.places[index].depth == HIDDEN:
        return replace(view, arranged=Arrangement(pinned=view.arranged.pinned))
    if not 0 <= column < division.width:  # on the labels, or on a screen that was wider
        return None
    if y < division.axis:
        return go(
            side, view, side.begin + (side.end - side.begin) * column // division.width
        )
    if index >= len(picture.places) or y >= division.axis + division.lanes:
        return None
    if (lane := picture.places[index].idle_of) is not None:
        time = view.begin + view.span * (2 * column + 1) // (2 * division.width)
        return replace(view, selected=-1, gap=gap_of_time(side, lane.key[1], time))
    return select(
        side, view, row_at(side, view, picture.places[index], division.width, column)
    )


def turned(state: State, index: int, turn: Turn, division: Division) -> State:
    """Over the lanes the wheel zooms about the time beneath it, with Shift it moves the
    window; over their labels it scrolls them."""
    side, view, is_down = state.sides[index], state.session.views[index], turn.lines > 0
    if turn.shifted:
        return looked_at(state, index, pan(side, view, 10 if is_down else -10))
    if turn.x < division.gutter:
        return scrolled(state, index, turn.lines, division.lanes)
    time, factor = division.time(view, turn.x), (4, 3) if is_down else (3, 4)
    return looked_at(state, index, zoom_at(side, view, time, *factor))


def chose(state: State, index: int, drag: Drag, division: Division) -> State:
    """From where the button went down to where it is is a range, worked out when it is
    let go."""
    side, view = state.sides[index], state.session.views[index]
    if drag.x < division.gutter:
        return state
    begin, end = sorted((drag.x, drag.to))
    first, last = (division.time(view, at) + side.origin for at in (begin, end + 1))
    found = Range(index, first, last, drag.ended)
    state = looked_at(state, index, replace(view, selected=-1, gap=None))
    now = replace(state, session=replace(state.session, time_range=found))
    return told(now, *ENDED) if drag.ended else now


def scrolled(state: State, index: int, lines: int, room: int) -> State:
    """Scrolls the lanes of one side by lines; negative is up."""
    shown = places(state.sides[index], state.session.views[index])
    top = within(shown, state.tops[index] + lines, room)
    return replace(state, tops=(*state.tops[:index], top, *state.tops[index + 1 :]))


WIDEST, MOST_LINES = 4000, 50  # of what is copied
NOTHING = (
    "down/up select a slice",
    "zoom-in/zoom-out zoom",
    "pan-left/pan-right move",
    "help shows all keys",
)


def lanes_height(size: Size, sides: int) -> int:
    """How many lines of a page each side has for its lanes."""
    return lanes_in((size.height - details_height(size.height)) // max(1, sides))


class TimelinePage(Page):
    """Lanes of CPU threads and GPU streams over one time axis."""

    name, title, key = TIMELINE, "Timeline", "1"
    copies = "line"
    help = "lanes of CPU threads and GPU streams"
    hints = (
        "help keys; zoom-in/zoom-out zoom; pan-left/pan-right pan; down/up line; "
        "previous/next slice; to-kernel/to-launch launch-kernel; next-gap gap; search search; "
        "range range; copy copy; mark/to-mark mark; command command; quit quit"
    )

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        below = details_height(size.height)
        heights = _shares(size.height - below, state.timelines)
        drawn = zip(state.shown, heights, strict=False)
        panes = [_timeline(state, n, size.width, height) for n, height in drawn]
        if state.second:
            panes.append(_replayed(state, state.second, size, heights[-1]))
        return (*panes, answer_pane(state, below) or Pane(below, _details(state)))

    def scroll(self, before: State, state: State, size: Size) -> State:
        """The lanes follow the selection, but stay when the user only scrolls."""
        state = _refitted(before, state, size)
        tops = list(state.tops)
        same_screen = (before.page, before.size) == (state.page, state.size)
        for n, (side, view) in enumerate(
            zip(state.sides, state.session.views, strict=True)
        ):
            known = (
                same_screen
                and n < len(before.sides)
                and before.sides[n].trace is side.trace
            )
            same_lines = same_screen and _lines(before, n) == _lines(state, n)
            is_first = not same_lines and _is_at_first(before, n)
            if is_first or not known or before.session.views[n] != view:
                top_of = first_top if is_first or not known else top_for
                top, room = 0 if is_first else tops[n], _room(state, size, n)
                tops[n] = top_of(side, view, places(side, view), top, room)
        now = tuple(tops)
        return state if now == state.tops else replace(state, tops=now)

    def follow(self, before: State, state: State) -> State:
        """Keeps the first line of each side."""
        tops = list(state.tops)
        for n, (old, new) in enumerate(zip(before.sides, state.sides, strict=True)):
            shown = places(old, before.session.views[n])
            if tops[n] < len(shown):
                now = places(new, state.session.views[n])
                tops[n] = same_line(old, shown[tops[n]], new, now)
        return replace(state, tops=tuple(tops))

    def described(self, state: State) -> Overlay | str:
        about = state.time_range or state.view.gap or state.view.selected
        nothing = f"nothing is selected: {hints_text(NOTHING[:1], state)}"
        return nothing if about == -1 else Details(state.side, about)

    def copied(self, state: State) -> str:
        row, gap = state.view.selected, state.view.gap
        if gap:
            lines = gap_lines(
                state.side, gap, WIDEST, MOST_LINES, glyphs_for(state.ascii_only)
            )
            return "\n".join(line.text for line in lines)
        return slice_text(state.side, row) if row >= 0 else ""


def _shares(lines: int, sides: int) -> list[int]:
    """Divides this many lines among the sides; the last ones get the remainder."""
    return [lines * (n + 1) // sides - lines * n // sides for n in range(sides)]


def _room(state: State, size: Size, index: int) -> int:
    return lanes_in(
        _shares(size.height - details_height(size.height), state.timelines)[index]
    )


def _is_at_first(state: State, index: int) -> bool:
    """Did nobody scroll the lanes of one side, nor select anything."""
    is_shown = state.page == TIMELINE and index < len(state.sides)
    if not is_shown or (view := state.session.views[index]).selected >= 0 or view.gap:
        return False
    side = state.sides[index]
    first = first_top(
        side, view, places(side, view), 0, _room(state, body(state), index)
    )
    return state.tops[index] == first


def _refitted(before: State, state: State, size: Size) -> State:
    """Other folds on a screen of another size, or for more lanes, as long as nobody
    folded any."""
    session, fits = state.session, list(state.fits)
    for n, view in enumerate(session.views):
        same = (before.size, before.timelines) == (state.size, state.timelines)
        same = same and _lines(before, n) == _lines(state, n)
        if not same and n < len(fits) and view.folds == fits[n]:
            session = session.refitted(n, lanes_height(size, state.timelines))
            fits[n] = session.views[n].folds
    now = tuple(fits)
    return state if now == state.fits else replace(state, session=session, fits=now)


def _lines(state: State, index: int) -> list[tuple[int, int]]:
    return [
        (len(side.lanes), len(side.counter_places))
        for side in state.sides[index : index + 1]
    ]


def _timeline(state: State, index: int, width: int, height: int) -> Pane:
    session, glyphs = state.session, glyphs_for(state.ascii_only, state.colorless)
    side, view = session.sides[index], session.views[index]
    marked, chosen = session.marked[index], session.interval(index)
    path = side.critical if state.on_path else None
    picture = TimelinePicture(
        side, view, glyphs, state.tops[index], marked, chosen, path
    )

    def pointed(state: State, x: int, y: int) -> State:
        view = clicked(picture, width, height, x, y)
        return (
            replace(state, active=index)
            if view is None
            else looked_at(state, index, view)
        )

    def wheeled(state: State, turn: Turn) -> State:
        return turned(state, index, turn, divided(width, height))

    def dragged(state: State, drag: Drag) -> State:
        return chose(state, index, drag, divided(width, height))

    return Pane(height, picture, pointed, wheeled, dragged)


def _replayed(state: State, second: Second, size: Size, height: int) -> Pane:
    """Its lanes follow those of the side that it is of."""
    view, recorded, at = state.view, state.side, state.active
    side, own = second.seen(recorded, view)
    above, shown = places(recorded, view)[state.tops[at] :][:1], places(side, own)
    first = same_line(recorded, above[0], side, shown) if above else 0
    top = within(shown, first, _room(state, size, at))
    glyphs = glyphs_for(state.ascii_only, state.colorless)
    return Pane(height, TimelinePicture(side, own, glyphs, top))


def _details(state: State) -> TextPicture:
    """The figures of the range of the active side, else the details of its selected
    slice."""
    side, row, gap = state.side, state.view.selected, state.view.gap
    glyphs = glyphs_for(state.ascii_only)
    if found := state.time_range:
        of_range = partial(range_lines, side, found, glyphs=glyphs)
        return ruled((side, found), "range of time", glyphs.rule, of_range)
    if gap:
        of_gap = partial(gap_lines, side, gap, glyphs=glyphs)
        return ruled((side, gap), "idle time", glyphs.rule, of_gap)
    if row >= 0:
        path = side.critical if state.on_path else None
        on = on_path_text(path, side.trace, row) if path is not None else ""
        second = state.second.figure(row) if state.second else ""
        told = ["slice", on, second, allocated_text(state, row)]
        return slice_details(state, row, "   ".join(filter(None, told)))
    said = (
        hints_text(NOTHING, state),
        working(side.trace, "where the time went"),
    )
    return ruled(said, "nothing selected", glyphs.rule, lambda *_: [*map(Said, said)])


def _paged(state: State, pages: int) -> State:
    room = _room(state, body(state), state.active)
    return scrolled(state, state.active, pages * max(1, room - 2), room)


_scroll = partial(action, help="scroll the lanes", section=SECTION, where=on_timeline)
SCROLLING = (
    _scroll(
        "page-down", "Page of lanes down", "pagedown", run=partial(_paged, pages=1)
    ),
    _scroll("page-up", "Page of lanes up", "pageup", run=partial(_paged, pages=-1)),
)
