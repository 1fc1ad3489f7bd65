"""Memory snapshots in the state: opening them, and the actions on their page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.chain import is_gpu_event
from fusetui.text.figures import plural, size
from fusetui.text.printable import printable
from fusetui.tui.layout.frame import divide_timeline
from fusetui.tui.layout.memory import MEMORY, MemoryShown, MemorySide, MemoryView, cells
from fusetui.tui.layout.view import MIN_SPAN_NS, Interval
from fusetui.tui.state.moving import set_view
from fusetui.tui.state.state import Outcome, Reading, ReadMemory, Refuse, State, told

if TYPE_CHECKING:
    from fusetui.analysis.memory.moments import Moments
    from fusetui.trace.model.columns import Trace
    from fusetui.tui.layout.memory import MemoryCells

NO_SNAPSHOT = (
    "no memory snapshot is open: fusetui open TRACE --memory SNAPSHOT opens one"
)


class Window(NamedTuple):
    """[begin, end) as positions less `zero`; `is_shared`: it is that of the
    timeline."""

    zero: int
    begin: int
    end: int
    is_shared: bool


def read(state: State, paths: Sequence[str], alone: bool) -> Outcome:
    """Return the state and the effect that reads memory snapshots. `alone` says that no
    trace is read before them."""
    reading = Reading(paths[0], is_whole=True) if alone else state.reading
    return replace(state, reading=reading), ReadMemory(tuple(paths), alone)


def arrived(state: State, sides: tuple[MemorySide, ...]) -> State:
    """Return the state with memory snapshots that were read. Their page comes to the
    front where nothing else is open or being read."""
    views = tuple(side.first_view() for side in sides)
    opened_state = replace(state, memory=MemoryShown(sides, views)).with_list(MEMORY)
    is_reading_trace = state.reading is not None and not state.reading.is_whole
    if state.sides or is_reading_trace:
        return opened_state
    return replace(opened_state, page=MEMORY, reading=None)


def of_trace(
    state: State, asked: ReadMemory, found: tuple[Moments, ...] | str
) -> State:
    """Return the state with the memory events of a trace, or with the sentence why
    there are none.

    Their page comes to the front unless the user went elsewhere since. The state is
    unchanged if the trace is no longer the active one.
    """
    if not state.sides or state.side.trace is not asked.trace:
        return state
    if isinstance(found, str):
        return told(state, printable(found))
    side = MemorySide(asked.paths[0], state.side.label, found, asked.trace)
    first_holders = next(iter(found[0].holders))
    shown = MemoryShown((side,), (side.first_view(0),), by=first_holders)
    opened_state = replace(state, memory=shown).with_list(MEMORY)
    if state.page != asked.page or state.overlay or state.prompt:
        return told(opened_state, "the memory events are read", "memory memory")
    return move_cursor_into_window(replace(opened_state, page=MEMORY, hint=""))


def failed(state: State, sentence: str) -> Outcome:
    """Return the state after memory could not be read: a message, or the end of the app
    where nothing else is open."""
    if state.reading and state.reading.is_whole:
        return state, Refuse(sentence)
    return told(state, printable(sentence))


def memory_of(state: State) -> MemoryShown:
    """Return what the memory page shows. Only valid while there is any."""
    assert state.memory is not None
    return state.memory


class ActiveMemory(NamedTuple):
    """What the active side of the page shows."""

    moments: Moments
    view: MemoryView


def here(state: State) -> ActiveMemory:
    """Return the moments (states after each memory event) and the view of the active
    snapshot."""
    shown = memory_of(state)
    return ActiveMemory(shown.moments(shown.active), shown.view)


def window(state: State, index: int | None = None) -> Window:
    """Return the window over snapshot `index`, by default the active one.

    It is the window of the timeline where both have one time axis, else the snapshot's
    own.
    """
    shown = memory_of(state)
    index = shown.active if index is None else index
    if why_apart(state, index):
        view = shown.views[index]
        zero = shown.moments(index).find_position(0)
        return Window(zero, view.begin, view.end, is_shared=False)
    side = state.side
    zero = side.trace.epoch_ns + side.origin  # ns since 1970
    return Window(zero, state.view.begin, state.view.end, is_shared=True)


def why_apart(state: State, index: int = 0) -> str:
    """Return why a snapshot and the active trace have no common time axis, or "" if
    they have one."""
    shown = memory_of(state)
    of_trace = shown.sides[index].trace
    times = shown.moments(index).times
    if not state.sides:
        return "no trace is open"
    side = state.side
    if of_trace is not None:
        return "" if of_trace is side.trace else "it is of the other trace"
    if not len(times):
        return "the events of the snapshot have no times"
    if not side.trace.epoch_ns:
        return "the trace does not say when its clock began"
    zero = side.trace.epoch_ns + side.origin
    first_ns = int(times[0]) - zero
    last_ns = int(times[-1]) - zero
    if last_ns < side.begin or first_ns > side.end:
        return "the snapshot was recorded at another time than the trace"
    return ""


def describe_allocations(state: State, row: int) -> str:
    """Return what was allocated on the shown device while a CPU slice ran, by the
    events of a snapshot. It is "" where the events do not cover the slice."""
    if state.memory is None or why_apart(state):
        return ""
    trace = state.side.trace
    if is_gpu_event(trace, row):
        return ""
    moments = memory_of(state).moments(0)
    begin, end = _interval_of_row(trace, row, moments)
    times = moments.times
    are_events_complete = int(times[0]) <= begin and end <= int(times[-1])
    if not are_events_complete:
        return ""
    first_event = int(np.searchsorted(times, begin))
    stop_event = int(np.searchsorted(times, end, side="right"))
    number, allocated_bytes, left_bytes = moments.sum_allocated_between(
        first_event, stop_event
    )
    where = f"({printable(moments.title)}, any thread)"
    text = f"{plural(number, 'allocation')} meanwhile {where}"
    if number:
        text += f": {size(allocated_bytes)}, {size(left_bytes)} left"
    return text


def _interval_of_row(trace: Trace, row: int, moments: Moments) -> Interval:
    """When a slice ran, in ns since 1970; its begin rounded down to the precision of
    the events."""
    start = int(trace.start[row]) + trace.epoch_ns
    precision_ns = 1 if moments.is_of_trace else 1000
    begin = start // precision_ns * precision_ns
    return begin, start + int(trace.dur[row])


def drawn(state: State, index: int) -> MemoryCells:
    """Return what each cell of the curve of snapshot `index` shows."""
    over = window(state, index)
    width = divide_timeline(state.size.width, state.size.height).width
    moments = memory_of(state).moments(index)
    return cells(moments, over.zero + over.begin, over.zero + over.end, width)


def change_shown(state: State, **fields: Any) -> State:
    """Return the state with other fields of what the memory page shows, and the cursor
    of its list on the first row."""
    shown = replace(memory_of(state), **fields)
    return replace(state, memory=shown, hint="").with_list(MEMORY)


def change_view(state: State, **fields: Any) -> State:
    """Return the state with other fields of the active snapshot's view."""
    shown = memory_of(state)
    views = [*shown.views]
    views[shown.active] = replace(shown.view, **fields)
    return replace(state, memory=replace(shown, views=tuple(views)), hint="")


def step(state: State, by: int) -> State:
    """Move the cursor by `by` memory events, within the recording. If that event is
    outside the window, the window moves so that it is in the middle."""
    moments, view = here(state)
    # a peak before the first event (-1) can be returned to
    first_event = min(moments.history.peak_index, 0)
    last_event = len(moments.history.events) - 1
    event = max(first_event, min(view.at + by, last_event))
    stepped_state = change_view(state, at=event)
    shown_window = window(state)
    position = moments.find_position(event) - shown_window.zero
    if shown_window.begin <= position < shown_window.end:
        return stepped_state
    span = shown_window.end - shown_window.begin
    begin = position - span // 2
    return _move_window(stepped_state, begin, begin + span)


def zoom(state: State, part: int, of: int) -> State:
    """Return the state with a window `part / of` times as long. The moment under the
    cursor keeps its place on the screen."""
    moments, view = here(state)
    old_window = window(state)
    span = old_window.end - old_window.begin
    least_span = MIN_SPAN_NS if len(moments.times) else 2
    new_span = max(least_span, span * part // of)
    cursor = moments.find_position(view.at) - old_window.zero - old_window.begin
    cursor = max(0, min(cursor, span))
    new_cursor = cursor * new_span // span  # from the begin of the new window
    begin = old_window.begin + cursor - new_cursor
    return _move_window(state, begin, begin + new_span)


def pan(state: State, percent: int) -> State:
    """Move the window by a percentage of its length, to the left if negative."""
    old_window = window(state)
    shift = (old_window.end - old_window.begin) * percent // 100
    return _move_window(state, old_window.begin + shift, old_window.end + shift)


def whole(state: State) -> State:
    """Show the largest window: the whole recording, and the whole trace where both have
    one time axis."""
    largest = _largest_window(state)
    return _move_window(state, largest.begin, largest.end)


def _largest_window(state: State) -> Window:
    """Return the window over the whole recording, and over the whole trace where both
    have one time axis."""
    moments = here(state).moments
    shown_window = window(state)
    last_position = moments.find_position(len(moments.positions) - 1)
    begin = moments.find_position(0) - shown_window.zero
    end = last_position + 1 - shown_window.zero
    if shown_window.is_shared:
        begin = min(begin, state.side.begin)
        end = max(end, state.side.end)
    return shown_window._replace(begin=begin, end=end)


def _move_window(state: State, begin: int, end: int) -> State:
    """Return the state with the window [begin, end), moved and cut to lie within the
    largest one. The cursor goes to an event in sight."""
    if len(here(state).moments.positions):
        largest = _largest_window(state)
        span = min(end - begin, largest.end - largest.begin)
        begin = max(largest.begin, min(begin, largest.end - span))
        end = begin + span
    if window(state).is_shared:
        return move_cursor_into_window(
            set_view(state, replace(state.view, begin=begin, end=end))
        )
    return move_cursor_into_window(change_view(state, begin=begin, end=end))


def move_cursor_into_window(state: State) -> State:
    """Return the state with the cursor on the event in the window that is nearest to
    it. Without an event there, it stays."""
    moments, view = here(state)
    shown_window = window(state)
    borders = [
        shown_window.zero + shown_window.begin,
        shown_window.zero + shown_window.end,
    ]
    first_event, stop_event = np.searchsorted(moments.positions, borders).tolist()
    if first_event == stop_event:
        return state
    is_before_first_event = view.at < 0
    if is_before_first_event and first_event == 0:  # the window shows that moment too
        return state
    return change_view(state, at=min(max(view.at, first_event), stop_event - 1))


def beside(state: State, by: int) -> State:
    """Move the cursor to the nearest cell on the right (`by` 1) or left (-1) that shows
    another event. Where there is none, the window moves by a tenth."""
    at = here(state).view.at
    events = drawn(state, memory_of(state).active).events
    if by > 0:
        later = events[events > at]
        if len(later):
            return change_view(state, at=int(later.min()))
    else:
        earlier = events[events < at]
        if len(earlier):
            return change_view(state, at=int(earlier.max()))
    return pan(state, 10 * by)


def go_to_highest(state: State) -> State:
    """Move the cursor to the moment in the window at which most memory was allocated."""
    drawn_cells = drawn(state, memory_of(state).active)
    if not drawn_cells.inside.any():
        return told(state, "nothing was recorded in this window")
    total = drawn_cells.amounts.sum(axis=0)
    return change_view(state, at=int(drawn_cells.events[total.argmax()]))


def group_by_next_kind(state: State, by: int) -> State:
    """Group memory by the next kind of holder, such as code or module; -1 takes the one
    before."""
    kinds = [*here(state).moments.holders]
    index = kinds.index(memory_of(state).by) + by
    return change_shown(state, by=kinds[index % len(kinds)])


def toggle_map(state: State) -> State:
    """Show the segments of the allocator instead of the holders, or back. Memory events
    of a trace have no segments; a message says so."""
    if here(state).moments.is_of_trace:
        return told(state, "A trace has no segments; a snapshot does.")
    return change_shown(state, is_map=not memory_of(state).is_map)


def show_next_device(state: State) -> State:
    """Show the next device of the snapshot, or the first of the other snapshot once all
    were shown."""
    shown = memory_of(state)
    devices = sum(len(side.moments) for side in shown.sides)
    if devices == 1:
        return told(state, "there is only one device: nothing else to go to")
    active = shown.active
    device = shown.view.device + 1
    if device == len(shown.sides[active].moments):
        active = (active + 1) % len(shown.sides)
        device = 0
    views = [*shown.views]
    side = shown.sides[active]
    if len(side.moments) > 1:
        views[active] = side.first_view(device)
    return change_shown(state, active=active, views=tuple(views))
