"""The timeline page: one timeline per side, and the details of the selected slice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fusetui.text.figures import plural
from fusetui.trace.model.ids import Id
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
from fusetui.tui.layout.view import HIDDEN, Side, View, first_views
from fusetui.tui.pages.answer import answer_pane, awaited_title, is_inside
from fusetui.tui.pages.page import Page, Pane, page_table, slice_details, slice_text
from fusetui.tui.state.action import action, hints_text, on_timeline, with_keys
from fusetui.tui.state.comparison import Second
from fusetui.tui.state.memory import allocated_text
from fusetui.tui.state.moving import ENDED, SECTION, looked_at
from fusetui.tui.state.screen import body
from fusetui.tui.state.session import Range
from fusetui.tui.state.state import TIMELINE, Details, Overlay, Size, State, told

if TYPE_CHECKING:
    from fusetui.tables.public import Table

NO_MARKS = "there is no mark to save: {mark} and a letter sets one"


def clicked(
    picture: TimelinePicture, width: int, height: int, x: int, y: int
) -> View | None:
    """The view after a click: on a slice it selects it, on idle time the gap there, on
    the minimap it goes to its time. On the line of what is hidden, its label included,
    it shows all lanes, as they are arranged at first but for those that are pinned.
    None for clicks on other labels, on the legend, and beside the timeline."""
    side = picture.side
    view = picture.view
    division = divided(width, height)
    index = y - division.axis + picture.top
    is_on_legend = y >= division.axis + division.lanes
    has_place = 0 <= index < len(picture.places) and not is_on_legend
    place = picture.places[index] if has_place else None
    if place is not None and place.depth == HIDDEN:
        return replace(view, arranged=Arrangement(pinned=view.arranged.pinned))
    column = x - division.gutter
    if not 0 <= column < division.width:  # on the labels, or on a screen that was wider
        return None
    if y < division.axis:
        whole = side.end - side.begin
        return go(side, view, side.begin + whole * column // division.width)
    if place is None:
        return None
    if place.idle_of is not None:
        return _gap_selected(side, view, place.idle_of.pid, column, division)
    return select(side, view, row_at(side, view, place, division.width, column))


def _gap_selected(
    side: Side, view: View, pid: Id, column: int, division: Division
) -> View:
    """The view with the gap of a device selected that is at a cell of the time axis, if
    that is known."""
    halves_of_cells = 2 * column + 1
    middle_of_cell = view.span * halves_of_cells // (2 * division.width)
    gap = gap_of_time(side, pid, view.begin + middle_of_cell)
    return replace(view, selected=-1, gap=gap)


def turned(state: State, index: int, turn: Turn, division: Division) -> State:
    """The state after a turn of the wheel. With Shift it moves the window; otherwise it
    scrolls the lanes over their labels, and zooms elsewhere, about the time beneath
    it."""
    side = state.sides[index]
    view = state.session.views[index]
    is_down = turn.lines > 0
    if turn.shifted:
        return looked_at(state, index, pan(side, view, 10 if is_down else -10))
    if turn.x < division.gutter:
        return scrolled(state, index, turn.lines, division.lanes)
    part, of = (4, 3) if is_down else (3, 4)
    time = division.time(view, turn.x)
    return looked_at(state, index, zoom_at(side, view, time, part, of))


def chose(state: State, index: int, drag: Drag, division: Division) -> State:
    """From where the button went down to where it is is a range, worked out when it is
    let go."""
    if drag.x < division.gutter:
        return state
    side = state.sides[index]
    view = state.session.views[index]
    first_cell, last_cell = sorted((drag.x, drag.to))
    time_range = Range(
        side=index,
        begin=division.time(view, first_cell) + side.origin,
        end=division.time(view, last_cell + 1) + side.origin,
        ended=drag.ended,
    )
    now = looked_at(state, index, replace(view, selected=-1, gap=None))
    now = replace(now, session=replace(now.session, time_range=time_range))
    return told(now, *ENDED) if drag.ended else now


def scrolled(state: State, index: int, lines: int, room: int) -> State:
    """Scrolls the lanes of one side by lines; negative is up."""
    shown = places(state.sides[index], state.session.views[index])
    top = within(shown, state.tops[index] + lines, room)
    tops = list(state.tops)
    tops[index] = top
    return replace(state, tops=tuple(tops))


LETTERS = ("A", "B")  # of two sides
MAX_COPIED_CELLS = 4000  # of a line about a gap
MAX_COPIED_LINES = 50
FIRST_HINTS = (
    "down/up select a slice",
    "zoom-in/zoom-out zoom",
    "pan-left/pan-right move",
    "help shows all keys",
)


def lanes_height(size: Size, sides: int) -> int:
    """How many lines of a page each side has for its lanes."""
    lines = size.height - details_height(size.height)
    return lanes_in(lines // max(1, sides))


class TimelinePage(Page):
    """Lanes of CPU threads and GPU streams over one time axis."""

    name, title, key = TIMELINE, "Timeline", "1"
    short = "Time"
    copies = "line"
    help = "lanes of CPU threads and GPU streams"
    hints = (
        "help keys; palette palette; zoom-in/zoom-out zoom; pan-left/pan-right pan; "
        "down/up line; previous/next slice; fold fold; details info; search search; "
        "to-kernel/to-launch launch-kernel; next-gap gap; range range; copy copy; "
        "mark/to-mark mark; command command; quit quit"
    )
    narrow_hints = (
        "help keys; palette palette; zoom-in/zoom-out/pan-left/pan-right view; "
        "down/up line; details info; fold fold; search search; previous/next slice"
    )

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        """A timeline of each side, that of a replay, and below them the details or the
        answer."""
        below = details_height(size.height)
        heights = _shares(size.height - below, state.timelines)
        panes = []
        for side, height in zip(state.shown, heights, strict=False):
            panes.append(_timeline(state, side, size.width, height))
        if state.second:
            panes.append(_replayed(state, state.second, size, heights[-1]))
        panes.append(answer_pane(state, below) or Pane(below, _details(state)))
        return panes

    def scroll(self, before: State, state: State, size: Size) -> State:
        """The lanes follow the selection, but stay when the user only scrolls."""
        state = _refitted(before, state, size)
        tops = tuple(
            _top_after(before, state, size, index) for index in range(len(state.sides))
        )
        tops += state.tops[len(tops) :]
        return state if tops == state.tops else replace(state, tops=tops)

    def follow(self, before: State, state: State) -> State:
        """Keeps the first line of each side."""
        tops = list(state.tops)
        sides = zip(before.sides, state.sides, strict=True)
        for index, (old_side, new_side) in enumerate(sides):
            old_places = places(old_side, before.session.views[index])
            if tops[index] >= len(old_places):
                continue
            first_line = old_places[tops[index]]
            new_places = places(new_side, state.session.views[index])
            tops[index] = same_line(old_side, first_line, new_side, new_places)
        return replace(state, tops=tuple(tops))

    def described(self, state: State) -> Overlay | str:
        """Everything about the range of time, the gap or the slice that is selected."""
        about = state.time_range or state.view.gap or state.view.selected
        if about == -1:
            keys = hints_text(FIRST_HINTS[:1], state)
            return f"nothing is selected: {keys}"
        return Details(state.side, about)

    def copied(self, state: State) -> str:
        """The lines about the selected gap, or the selected slice; "" for none."""
        gap = state.view.gap
        row = state.view.selected
        if gap:
            glyphs = glyphs_for(state.ascii_only)
            lines = gap_lines(
                state.side, gap, MAX_COPIED_CELLS, MAX_COPIED_LINES, glyphs
            )
            return "\n".join(line.text for line in lines)
        return slice_text(state.side, row) if row >= 0 else ""

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """The marks, by their letters."""
        letters = sorted(state.session.bookmarks)
        if not letters:
            return None
        if rows is not None:
            letters = [letters[row] for row in rows]
        return _marks_table(state, letters)

    def why_no_table(self, state: State) -> str:
        return with_keys(NO_MARKS, state)

    def table_name(self, state: State) -> str:
        return "marks"


def _marks_table(state: State, letters: Sequence[str]) -> Table:
    """The marks of these letters, with the slices that were selected there."""
    marks = [state.session.bookmarks[letter] for letter in letters]
    traces = [state.sides[mark.side].trace for mark in marks]
    names = []
    for mark, trace in zip(marks, traces, strict=True):
        row = mark.selected_in(trace)
        names.append(trace.name_of(row) if row >= 0 else "")
    return page_table(
        "marks",
        {"mark": letters, "note": [mark.note for mark in marks], "slice": names},
        trace=[mark.side + 1 for mark in marks],
        start_ns=[
            mark.begin - trace.begin_ns
            for mark, trace in zip(marks, traces, strict=True)
        ],
        dur_ns=[mark.end - mark.begin for mark in marks],
    )


def _shares(lines: int, sides: int) -> list[int]:
    """Divides this many lines among the sides; the last ones get the remainder."""
    ends = [lines * number // sides for number in range(sides + 1)]
    return [end - begin for begin, end in pairwise(ends)]


def _room(state: State, size: Size, index: int) -> int:
    """How many lines of the page one side has for its lanes."""
    lines = size.height - details_height(size.height)
    return lanes_in(_shares(lines, state.timelines)[index])


def _top_after(before: State, state: State, size: Size, index: int) -> int:
    """The first line of one side on the screen, after any change. It stays unless the
    view is another one. On another screen, or with other lanes, it is the line that is
    first when a side is opened, if nobody had scrolled."""
    side = state.sides[index]
    view = state.session.views[index]
    is_untouched = not _has_same_lines(before, state, index) and _is_at_first(
        before, index
    )
    is_known = _is_same_screen(before, state) and _is_same_trace(before, state, index)
    if is_known and not is_untouched and before.session.views[index] == view:
        return state.tops[index]
    top_of = first_top if is_untouched or not is_known else top_for
    top = 0 if is_untouched else state.tops[index]
    return top_of(side, view, places(side, view), top, _room(state, size, index))


def _is_same_screen(before: State, state: State) -> bool:
    """Whether the page and the size of the screen are the same."""
    return before.page == state.page and before.size == state.size


def _is_same_trace(before: State, state: State, index: int) -> bool:
    """Whether a side shows the same trace."""
    if index >= len(before.sides):
        return False
    return before.sides[index].trace is state.sides[index].trace


def _has_same_lines(before: State, state: State, index: int) -> bool:
    """Whether a side has as many lanes and counters on the same screen."""
    if not _is_same_screen(before, state):
        return False
    return _lane_count(before, index) == _lane_count(state, index)


def _is_at_first(state: State, index: int) -> bool:
    """Whether one side shows its first lines: nobody scrolled it or selected anything.
    False where the timeline does not show it."""
    if state.page != TIMELINE or index >= len(state.sides):
        return False
    side = state.sides[index]
    view = state.session.views[index]
    if view.selected >= 0 or view.gap:
        return False
    room = _room(state, body(state), index)
    first = first_top(side, view, places(side, view), 0, room)
    return state.tops[index] == first


def _refitted(before: State, state: State, size: Size) -> State:
    """Other folds on a screen of another size, or for more lanes, as long as nobody
    folded any."""
    session = state.session
    fits = list(state.fits)
    is_same_screen = before.size == state.size and before.timelines == state.timelines
    for index, view in enumerate(session.views):
        if is_same_screen and _lane_count(before, index) == _lane_count(state, index):
            continue
        is_untouched = index < len(fits) and view.folds == fits[index]
        if is_untouched:
            session = session.refitted(index, lanes_height(size, state.timelines))
            fits[index] = session.views[index].folds
    now = tuple(fits)
    return state if now == state.fits else replace(state, session=session, fits=now)


def _lane_count(state: State, index: int) -> tuple[int, int] | None:
    """How many lanes and lines of counters a side has; None where there is no such
    side."""
    if index >= len(state.sides):
        return None
    side = state.sides[index]
    return len(side.lanes), len(side.counter_places)


def _timeline(state: State, index: int, width: int, height: int) -> Pane:
    """The timeline of one side."""
    session = state.session
    side = session.sides[index]
    picture = TimelinePicture(
        side=side,
        view=session.views[index],
        glyphs=glyphs_for(state.ascii_only, state.colorless),
        top=state.tops[index],
        marked=session.marked[index],
        chosen=session.interval(index),
        path=side.critical if state.on_path else None,
        letter=LETTERS[index] if len(state.sides) == 2 else "",
        is_active=index == state.active,
    )

    def pointed(state: State, x: int, y: int) -> State:
        view = clicked(picture, width, height, x, y)
        if view is None:
            return replace(state, active=index)
        return looked_at(state, index, view)

    def wheeled(state: State, turn: Turn) -> State:
        return turned(state, index, turn, divided(width, height))

    def dragged(state: State, drag: Drag) -> State:
        return chose(state, index, drag, divided(width, height))

    return Pane(height, picture, pointed, wheeled, dragged)


def _replayed(state: State, second: Second, size: Size, height: int) -> Pane:
    """The timeline of a replay: the same lanes as those of the recorded side."""
    side, view = second.seen(state.side, state.view)
    picture = TimelinePicture(
        side=side,
        view=view,
        glyphs=glyphs_for(state.ascii_only, state.colorless),
        top=_replayed_top(state, side, view, _room(state, size, state.active)),
    )
    return Pane(height, picture)


def _replayed_top(state: State, side: Side, view: View, room: int) -> int:
    """The first line of a replay on the screen: the same as that of the recorded
    side."""
    recorded = state.side
    recorded_places = places(recorded, state.view)
    replayed_places = places(side, view)
    top = state.tops[state.active]
    first = 0
    if top < len(recorded_places):
        first = same_line(recorded, recorded_places[top], side, replayed_places)
    return within(replayed_places, first, room)


def _details(state: State) -> TextPicture:
    """The figures of the range of the active side, else the details of its selected
    gap or slice."""
    side = state.side
    view = state.view
    glyphs = glyphs_for(state.ascii_only)
    time_range = state.time_range
    if time_range:
        of_range = partial(range_lines, side, time_range, glyphs=glyphs)
        return ruled((side, time_range), "range of time", glyphs.rule, of_range)
    if view.gap:
        of_gap = partial(gap_lines, side, view.gap, glyphs=glyphs)
        return ruled((side, view.gap), "idle time", glyphs.rule, of_gap)
    if view.selected >= 0:
        return slice_details(state, view.selected, _slice_title(state, view.selected))
    computing = working(side.trace, "where the time went")
    first_keys = "" if is_inside(state) else hints_text(FIRST_HINTS, state)
    sentences = tuple(sentence for sentence in (first_keys, computing) if sentence)

    def lines(width: int, height: int) -> list[Said]:
        return [Said(sentence) for sentence in sentences]

    title = awaited_title(state)
    return ruled((sentences, title), title, glyphs.rule, lines)


def _slice_title(state: State, row: int) -> str:
    """What stands above the details of a slice: how it relates to the critical path,
    how long a replay predicts it to take, and what was allocated meanwhile, as far as
    these are known."""
    side = state.side
    parts = ["slice"]
    if state.on_path and side.critical is not None:
        parts.append(on_path_text(side.critical, side.trace, row))
    if state.second:
        parts.append(state.second.figure(row))
    parts.append(allocated_text(state, row))
    return "   ".join(part for part in parts if part)


def _paged(state: State, pages: int) -> State:
    """Scrolls the lanes by so many screens; two lines of the one before stay."""
    room = _room(state, body(state), state.active)
    return scrolled(state, state.active, pages * max(1, room - 2), room)


def reset(state: State) -> State:
    """Everything as when it was opened: the window, the folds and the order of lanes,
    nothing selected, no marks and no range. Undo takes it back."""
    views = []
    for view, folds in zip(first_views(state.sides), state.fits, strict=True):
        views.append(replace(view, folds=folds))
    tops = list(state.tops)
    for index, (side, view) in enumerate(zip(state.sides, views, strict=True)):
        room = _room(state, body(state), min(index, state.timelines - 1))
        tops[index] = first_top(side, view, places(side, view), 0, room)
    session = state.session
    marks = len(session.bookmarks)
    is_marked = marks or session.time_range or any(session.marked) or state.on_path
    is_moved = tuple(views) != session.views or tuple(tops) != state.tops
    if not is_moved and not is_marked:
        return told(state, "all is as when it was opened")
    now = replace(state, session=session.reset(tuple(views)), on_path=False)
    sentence = "as when it was opened"
    if marks:
        sentence += f", without {plural(marks, 'mark')}"
    return told(replace(now, tops=tuple(tops)), sentence, "undo undo")


_scroll = partial(action, help="scroll the lanes", section=SECTION, where=on_timeline)
SCROLLING = (
    _scroll(
        name="page-down",
        title="Page of lanes down",
        written="pagedown",
        run=partial(_paged, pages=1),
    ),
    _scroll(
        name="page-up",
        title="Page of lanes up",
        written="pageup",
        run=partial(_paged, pages=-1),
    ),
)
RESET = action(
    name="reset",
    title="Reset",
    written="I",
    help="folds, lanes, zoom, selection and marks, as when it was opened; u undoes it",
    run=reset,
    section=SECTION,
    where=on_timeline,
)
