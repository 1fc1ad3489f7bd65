"""The timeline page: one timeline per side, and the details of the selected slice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fusetui.text.figures import plural
from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.ids import Id
from fusetui.tui.drawing.canvas import Drag, Turn
from fusetui.tui.drawing.details import describe_path_position, details_height
from fusetui.tui.drawing.picture import Said, TextPicture, make_ruled_picture
from fusetui.tui.drawing.range_lines import (
    describe_gap,
    describe_gap_with_legend,
    describe_range,
)
from fusetui.tui.drawing.schemes import Glyphs, choose_glyphs
from fusetui.tui.drawing.timeline import TimelinePicture
from fusetui.tui.layout.answer import explain_missing_result
from fusetui.tui.layout.frame import (
    Division,
    count_lane_lines,
    divide_timeline,
    find_row_at,
    limit_top,
    scroll_to_main_stream,
    scroll_to_selection,
)
from fusetui.tui.layout.lanes import Arrangement
from fusetui.tui.layout.moves import find_gap_at, go, pan, select, zoom_at
from fusetui.tui.layout.places import find_same_line, places
from fusetui.tui.layout.view import HIDDEN, Place, Side, View, make_first_views
from fusetui.tui.pages.answer import format_awaited_title, is_inside, make_answer_pane
from fusetui.tui.pages.page import (
    Page,
    Pane,
    format_slice,
    make_page_table,
    make_slice_details,
)
from fusetui.tui.state.action import action, format_hints, on_timeline, with_keys
from fusetui.tui.state.comparison import Second
from fusetui.tui.state.memory import describe_allocations
from fusetui.tui.state.moving import ENDED, SECTION, set_side_view
from fusetui.tui.state.screen import page_size
from fusetui.tui.state.session import Range
from fusetui.tui.state.state import TIMELINE, Details, Overlay, Size, State, told

if TYPE_CHECKING:
    from fusetui.tables.public import Table

NO_MARKS = "there is no mark to save: {mark} and a letter sets one"


def view_after_click(
    picture: TimelinePicture, width: int, height: int, x: int, y: int
) -> View | None:
    """Return the view after a click at cell (x, y) of a timeline, or None if the click
    does nothing.

    A click on a slice selects it, on idle time the gap there, on the minimap it goes to
    that time. On the line that counts hidden lanes, it shows all lanes in their first
    order; pinned ones stay.
    """
    side = picture.side
    view = picture.view
    division = divide_timeline(width, height)
    clicked_line = _find_line_at(picture, y, division)
    if clicked_line is not None and clicked_line.depth == HIDDEN:
        return replace(view, arranged=Arrangement(pinned=view.arranged.pinned))
    column = x - division.gutter
    is_on_time_axis = 0 <= column < division.width
    if not is_on_time_axis:  # on the labels, or on a screen that was wider
        return None
    is_on_minimap = y < division.axis
    if is_on_minimap:
        whole_ns = side.end - side.begin
        return go(side, view, side.begin + whole_ns * column // division.width)
    if clicked_line is None:
        return None
    if clicked_line.idle_of is not None:
        return _select_gap_at(side, view, clicked_line.idle_of.pid, column, division)
    clicked_row = find_row_at(side, view, clicked_line, division.width, column)
    return select(side, view, clicked_row)


def _find_line_at(picture: TimelinePicture, y: int, division: Division) -> Place | None:
    """Return the line of a lane that is drawn at line `y` of a timeline. None means
    that `y` is below the last lane, or on what stands above and below the lanes."""
    is_on_legend = y >= division.axis + division.lanes
    index = picture.top + y - division.axis
    if is_on_legend or not 0 <= index < len(picture.places):
        return None
    return picture.places[index]


def _select_gap_at(
    side: Side, view: View, pid: Id, column: int, division: Division
) -> View:
    """Return the view with the gap selected that is at a cell of the time axis: a
    stretch of time in which device `pid` was idle. Without one there, nothing is
    selected."""
    halves_of_cells = 2 * column + 1
    # in whole ns: view.span * (column + 1/2) / width
    middle_of_cell = view.span * halves_of_cells // (2 * division.width)
    gap = find_gap_at(side, pid, view.begin + middle_of_cell)
    return replace(view, selected=-1, gap=gap)


def turn_wheel(state: State, index: int, turn: Turn, division: Division) -> State:
    """Return the state after a turn of the mouse wheel over one timeline.

    With Shift it pans by a tenth of the window. Over the lane labels it scrolls the
    lanes; elsewhere it zooms about the time under the mouse.
    """
    side = state.sides[index]
    view = state.session.views[index]
    is_down = turn.lines > 0
    if turn.shifted:
        percent_of_window = 10 if is_down else -10
        return set_side_view(state, index, pan(side, view, percent_of_window))
    is_over_labels = turn.x < division.gutter
    if is_over_labels:
        return scroll_lanes(state, index, turn.lines, division.lanes)
    time = division.time(view, turn.x)
    # down shows 4/3 of the time, up shows 3/4 of it, so that one undoes the other
    if is_down:
        zoomed = zoom_at(side, view, time, 4, 3)
    else:
        zoomed = zoom_at(side, view, time, 3, 4)
    return set_side_view(state, index, zoomed)


def drag_range(state: State, index: int, drag: Drag, division: Division) -> State:
    """Return the state while the mouse is dragged over a timeline: the dragged cells
    are the selected range of time. The range ends when the button is let go. Drags over
    the labels do nothing."""
    begins_on_labels = drag.x < division.gutter
    if begins_on_labels:
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
    # a range takes the place of a selected slice or gap
    unselected = set_side_view(state, index, replace(view, selected=-1, gap=None))
    session = replace(unselected.session, time_range=time_range)
    ranged_state = replace(unselected, session=session)
    return told(ranged_state, *ENDED) if drag.ended else ranged_state


def scroll_lanes(state: State, index: int, lines: int, room: int) -> State:
    """Return the state with the lanes of one side scrolled by `lines`, up where
    negative. `room` is how many lines of lanes are on the screen."""
    lane_lines = places(state.sides[index], state.session.views[index])
    first_line = limit_top(lane_lines, state.tops[index] + lines, room)
    first_lines = list(state.tops)
    first_lines[index] = first_line
    return replace(state, tops=tuple(first_lines))


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
    """Return how many lines each of `sides` timelines has for its lanes, on a page of
    this size."""
    lines = size.height - details_height(size.height)
    return count_lane_lines(lines // max(1, sides))


class TimelinePage(Page):
    """Lanes of CPU threads and GPU streams over one time axis."""

    name, title, key = TIMELINE, "Timeline", "1"
    short = "Time"
    copies = "line"
    help = "lanes of CPU threads and GPU streams"
    hints = (
        "help help; palette palette; zoom-in/zoom-out zoom; pan-left/pan-right pan; "
        "down/up line; previous/next slice; fold fold; details info; search search; "
        "to-kernel/to-launch launch-kernel; next-gap gap; range range; copy copy; "
        "mark/to-mark mark; command command; quit quit"
    )
    narrow_hints = (
        "help help; palette palette; zoom-in/zoom-out/pan-left/pan-right view; "
        "down/up line; details info; fold fold; search search; previous/next slice"
    )

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        """Return a pane for each timeline, also for a replay. Below them is a pane with
        details of the selection, or the summary of the trace."""
        below = details_height(size.height)
        heights = _divide_lines(size.height - below, state.timelines)
        panes = []
        for side, height in zip(state.shown, heights, strict=False):
            panes.append(_make_timeline_pane(state, side, size.width, height))
        if state.second:
            panes.append(_make_replay_pane(state, state.second, size, heights[-1]))
        panes.append(
            make_answer_pane(state, below) or Pane(below, _make_details(state))
        )
        return panes

    def scroll(self, before: State, state: State, size: Size) -> State:
        """Return the state with the lanes scrolled to the selection. They stay where
        they are if only the user scrolled."""
        state = _refit_folds(before, state, size)
        tops = tuple(
            _first_line_after(before, state, size, index)
            for index in range(len(state.sides))
        )
        tops += state.tops[len(tops) :]
        return state if tops == state.tops else replace(state, tops=tops)

    def follow(self, before: State, state: State) -> State:
        """Return the state after more of a trace was read, with the same lane as the
        first line of each side."""
        first_lines = list(state.tops)
        sides = zip(before.sides, state.sides, strict=True)
        for index, (old_side, new_side) in enumerate(sides):
            old_places = places(old_side, before.session.views[index])
            if first_lines[index] >= len(old_places):
                continue
            first_line = old_places[first_lines[index]]
            new_places = places(new_side, state.session.views[index])
            first_lines[index] = find_same_line(
                old_side, first_line, new_side, new_places
            )
        return replace(state, tops=tuple(first_lines))

    def described(self, state: State) -> Overlay | str:
        """Return the details of the selected range, gap or slice, or a sentence where
        nothing is selected."""
        selection = state.time_range or state.view.gap or state.view.selected
        if selection == -1:
            keys = format_hints(FIRST_HINTS[:1], state)
            return f"nothing is selected: {keys}"
        return Details(state.side, selection)

    def copied(self, state: State) -> str:
        """Return the selected slice as text, or the lines about the selected gap; ""
        for none."""
        view = state.view
        if view.gap:
            glyphs = choose_glyphs(state.ascii_only)
            lines = describe_gap(
                state.side, view.gap, MAX_COPIED_CELLS, MAX_COPIED_LINES, glyphs
            )
            return "\n".join(line.text for line in lines)
        if view.has_selection:
            return format_slice(state.side, view.selected)
        return ""

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """Return the marks that the user set as a table to save, sorted by their
        letters; None without marks."""
        letters = sorted(state.session.bookmarks)
        if not letters:
            return None
        if rows is not None:
            letters = [letters[row] for row in rows]
        return _make_marks_table(state, letters)

    def why_no_table(self, state: State) -> str:
        """Return a sentence that says there is no mark to save, and which key sets one."""
        return with_keys(NO_MARKS, state)

    def table_name(self, state: State) -> str:
        """Return what a saved table of this page is called: it lists marks."""
        return "marks"


def _make_marks_table(state: State, letters: Sequence[str]) -> Table:
    """Return the marks of these letters as a table to save: the note, the selected
    slice, the trace (1 or 2), and the window in ns after the trace begins."""
    notes = []
    slice_names = []
    trace_numbers = []
    starts_ns = []
    durations_ns = []
    for letter in letters:
        mark = state.session.bookmarks[letter]
        trace = state.sides[mark.side].trace
        selected_row = mark.selected_in(trace)
        has_selection = selected_row != NO_ROW
        notes.append(mark.note)
        slice_names.append(trace.name_of(selected_row) if has_selection else "")
        trace_numbers.append(mark.side + 1)
        starts_ns.append(mark.begin - trace.begin_ns)
        durations_ns.append(mark.end - mark.begin)
    return make_page_table(
        "marks",
        {"mark": letters, "note": notes, "slice": slice_names},
        trace=trace_numbers,
        start_ns=starts_ns,
        dur_ns=durations_ns,
    )


def _divide_lines(lines: int, sides: int) -> list[int]:
    """Return the height of each of `sides` timelines that share `lines` lines. They
    differ by one at most; the last ones get the remainder."""
    bounds = [lines * number // sides for number in range(sides + 1)]
    return [end - begin for begin, end in pairwise(bounds)]


def _lane_lines_of(state: State, size: Size, index: int) -> int:
    """Return how many lines of the page timeline `index` has for its lanes."""
    lines = size.height - details_height(size.height)
    return count_lane_lines(_divide_lines(lines, state.timelines)[index])


def _first_line_after(before: State, state: State, size: Size, index: int) -> int:
    """Return the first line of one side on the screen after a change from `before` to
    `state`.

    It stays unless the view changed: then it moves so that the selection is in sight.
    On another screen, or with other lanes, a side that nobody scrolled starts at its
    first line again.
    """
    side = state.sides[index]
    view = state.session.views[index]
    top = state.tops[index]
    has_other_lines = not _has_same_lines(before, state, index)
    starts_again = has_other_lines and _is_unscrolled(before, index)
    is_same_side = _is_same_screen(before, state) and _is_same_trace(
        before, state, index
    )
    if is_same_side and not starts_again and before.session.views[index] == view:
        return top
    lane_lines = places(side, view)
    room = _lane_lines_of(state, size, index)
    if starts_again:
        return scroll_to_main_stream(side, view, lane_lines, 0, room)
    if is_same_side:
        return scroll_to_selection(side, view, lane_lines, top, room)
    return scroll_to_main_stream(side, view, lane_lines, top, room)


def _is_same_screen(before: State, state: State) -> bool:
    """Return whether the page in front and the size of the screen are the same in both
    states."""
    return before.page == state.page and before.size == state.size


def _is_same_trace(before: State, state: State, index: int) -> bool:
    """Return whether side `index` shows the same trace in both states."""
    if index >= len(before.sides):
        return False
    return before.sides[index].trace is state.sides[index].trace


def _has_same_lines(before: State, state: State, index: int) -> bool:
    """Return whether side `index` has as many lanes and counters in both states, on a
    screen of the same size."""
    if not _is_same_screen(before, state):
        return False
    return _count_lanes(before, index) == _count_lanes(state, index)


def _is_unscrolled(state: State, index: int) -> bool:
    """Return whether side `index` shows its first lines, with nothing selected. It is
    false where the timeline is not in front."""
    if state.page != TIMELINE or index >= len(state.sides):
        return False
    side = state.sides[index]
    view = state.session.views[index]
    if view.has_selection or view.gap:
        return False
    lane_lines = _lane_lines_of(state, page_size(state), index)
    first_line = scroll_to_main_stream(side, view, places(side, view), 0, lane_lines)
    return state.tops[index] == first_line


def _refit_folds(before: State, state: State, size: Size) -> State:
    """Return the state with lanes folded to fit a screen of another size, or more
    lanes. A side whose lanes the user folded or unfolded is left as it is."""
    session = state.session
    fitted_folds = list(state.fits)
    is_same_screen = before.size == state.size and before.timelines == state.timelines
    for index, view in enumerate(session.views):
        if is_same_screen and _count_lanes(before, index) == _count_lanes(state, index):
            continue
        is_untouched = index < len(fitted_folds) and view.folds == fitted_folds[index]
        if is_untouched:
            session = session.refitted(index, lanes_height(size, state.timelines))
            fitted_folds[index] = session.views[index].folds
    if tuple(fitted_folds) == state.fits:
        return state
    return replace(state, session=session, fits=tuple(fitted_folds))


def _count_lanes(state: State, index: int) -> tuple[int, int] | None:
    """Return the number of lanes and of counter lines of a side; None where there is no
    such side."""
    if index >= len(state.sides):
        return None
    side = state.sides[index]
    return len(side.lanes), len(side.counter_places)


def _make_timeline_pane(state: State, index: int, width: int, height: int) -> Pane:
    """Return the pane with the timeline of side `index`, which handles clicks, the
    wheel and drags."""
    session = state.session
    side = session.sides[index]
    picture = TimelinePicture(
        side=side,
        view=session.views[index],
        glyphs=choose_glyphs(state.ascii_only, state.colorless),
        top=state.tops[index],
        marked=session.marked[index],
        chosen=session.interval(index),
        path=side.critical if state.on_path else None,
        letter=LETTERS[index] if len(state.sides) == 2 else "",
        is_active=index == state.active,
    )

    def on_click(state: State, x: int, y: int) -> State:
        view = view_after_click(picture, width, height, x, y)
        if view is None:  # such a click still makes this side the active one
            return replace(state, active=index)
        return set_side_view(state, index, view)

    def on_wheel(state: State, turn: Turn) -> State:
        return turn_wheel(state, index, turn, divide_timeline(width, height))

    def on_drag(state: State, drag: Drag) -> State:
        return drag_range(state, index, drag, divide_timeline(width, height))

    return Pane(height, picture, on_click, on_wheel, on_drag)


def _make_replay_pane(state: State, second: Second, size: Size, height: int) -> Pane:
    """Return the pane with the predicted timeline of a replay. It has the same lanes
    and window as the recorded side."""
    side, view = second.seen(state.side, state.view)
    room = _lane_lines_of(state, size, state.active)
    picture = TimelinePicture(
        side=side,
        view=view,
        glyphs=choose_glyphs(state.ascii_only, state.colorless),
        top=_first_replay_line(state, side, view, room),
    )
    return Pane(height, picture)


def _first_replay_line(state: State, side: Side, view: View, room: int) -> int:
    """Return the first line of a replay's timeline, chosen so that both timelines begin
    with the same lane."""
    recorded = state.side
    recorded_places = places(recorded, state.view)
    replayed_places = places(side, view)
    recorded_top = state.tops[state.active]
    replay_top = 0
    if recorded_top < len(recorded_places):
        replay_top = find_same_line(
            recorded, recorded_places[recorded_top], side, replayed_places
        )
    return limit_top(replayed_places, replay_top, room)


def _make_details(state: State) -> TextPicture:
    """Return a picture of the details below the timelines: of the selected range, gap
    or slice. Where nothing is selected it shows which keys to begin with."""
    side = state.side
    gap = state.view.gap
    glyphs = choose_glyphs(state.ascii_only)
    time_range = state.time_range
    if time_range:
        draw_range = partial(describe_range, side, time_range, glyphs=glyphs)
        identity = (side, time_range)
        return make_ruled_picture(identity, "range of time", glyphs.rule, draw_range)
    if gap:
        view = state.view
        draw_gap = partial(describe_gap_with_legend, side, view, gap, glyphs=glyphs)
        shown = (side, gap, view.begin, view.end)
        return make_ruled_picture(shown, "idle time", glyphs.rule, draw_gap)
    if state.view.has_selection:
        row = state.view.selected
        return make_slice_details(state, row, _format_slice_title(state, row))
    return _make_first_hints(state, glyphs)


def _make_first_hints(state: State, glyphs: Glyphs) -> TextPicture:
    """Return a picture with the keys to begin with, and what is still being computed.
    The keys are left out where the cursor is inside the summary, which has its own."""
    sentences = []
    if not is_inside(state):
        sentences.append(format_hints(FIRST_HINTS, state))
    sentences.append(explain_missing_result(state.side.trace, "where the time went"))
    shown = tuple(sentence for sentence in sentences if sentence)

    def draw_lines(width: int, height: int) -> list[Said]:
        return [Said(sentence) for sentence in shown]

    title = format_awaited_title(state)
    return make_ruled_picture((shown, title), title, glyphs.rule, draw_lines)


def _format_slice_title(state: State, row: int) -> str:
    """Return the title above the details of a slice.

    It says whether the slice is on the critical path, how long a replay predicts it to
    take, and what it allocated, each where known.
    """
    side = state.side
    parts = ["slice"]
    if state.on_path and side.critical is not None:
        parts.append(describe_path_position(side.critical, side.trace, row))
    if state.second:
        parts.append(state.second.figure(row))
    parts.append(describe_allocations(state, row))
    return "   ".join(part for part in parts if part)


def _scroll_by_pages(state: State, pages: int) -> State:
    """Scroll the lanes by so many screens, up where negative. Two lines of the previous
    screen stay in sight."""
    room = _lane_lines_of(state, page_size(state), state.active)
    lines_of_page = max(1, room - 2)
    return scroll_lanes(state, state.active, pages * lines_of_page, room)


def reset(state: State) -> State:
    """Return the state as when the traces were opened: window, folds and order of
    lanes, no selection, no marks, no range. Undo takes it back."""
    session = state.session
    first_views = _list_first_views(state)
    first_lines = _list_first_lines(state, first_views)
    mark_count = len(session.bookmarks)
    is_marked = mark_count or session.time_range or any(session.marked) or state.on_path
    is_moved = first_views != session.views or first_lines != state.tops
    if not is_moved and not is_marked:
        return told(state, "everything is as it was when opened")
    reset_state = replace(
        state, session=session.reset(first_views), tops=first_lines, on_path=False
    )
    sentence = "as when it was opened"
    if mark_count:
        sentence += f", without {plural(mark_count, 'mark')}"
    return told(reset_state, sentence, "undo undo")


def _list_first_views(state: State) -> tuple[View, ...]:
    """Return the view of each side as when its trace was opened, with its lanes folded
    to fit the screen."""
    views = []
    for view, folds in zip(make_first_views(state.sides), state.fits, strict=True):
        views.append(replace(view, folds=folds))
    return tuple(views)


def _list_first_lines(state: State, views: Sequence[View]) -> tuple[int, ...]:
    """Return the line at the top of each timeline as when its trace was opened."""
    first_lines = list(state.tops)
    for index, (side, view) in enumerate(zip(state.sides, views, strict=True)):
        # where only one of two sides is shown, both have the height of that timeline
        timeline = min(index, state.timelines - 1)
        room = _lane_lines_of(state, page_size(state), timeline)
        first_lines[index] = scroll_to_main_stream(
            side, view, places(side, view), 0, room
        )
    return tuple(first_lines)


_scroll = partial(action, help="scroll the lanes", section=SECTION, where=on_timeline)
SCROLLING = (
    _scroll(
        name="page-down",
        title="Page of lanes down",
        written="pagedown",
        run=partial(_scroll_by_pages, pages=1),
    ),
    _scroll(
        name="page-up",
        title="Page of lanes up",
        written="pageup",
        run=partial(_scroll_by_pages, pages=-1),
    ),
)
RESET = action(
    name="reset",
    title="Reset",
    written="I",
    help="folds, lanes, zoom, selection and marks as they were when opened; u undoes it",
    run=reset,
    section=SECTION,
    where=on_timeline,
)
