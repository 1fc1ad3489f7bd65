"""Memory snapshots in the state: opening them, and the actions on their page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.chain import is_gpu
from fusetui.text.figures import plural, size
from fusetui.text.printable import printable
from fusetui.tui.layout.frame import divided
from fusetui.tui.layout.memory import MEMORY, MemoryShown, MemorySide, MemoryView, cells
from fusetui.tui.layout.view import MIN_SPAN_NS, Interval
from fusetui.tui.state.moving import viewed
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
    """Opens snapshots; `alone`: no trace is read before them."""
    reading = Reading(paths[0], is_whole=True) if alone else state.reading
    return replace(state, reading=reading), ReadMemory(tuple(paths), alone)


def arrived(state: State, sides: tuple[MemorySide, ...]) -> State:
    """The state with snapshots that were read; their page comes to the front where
    nothing else is open or being read."""
    views = tuple(side.first_view() for side in sides)
    now = replace(state, memory=MemoryShown(sides, views)).with_list(MEMORY)
    is_reading_trace = state.reading is not None and not state.reading.is_whole
    if state.sides or is_reading_trace:
        return now
    return replace(now, page=MEMORY, reading=None)


def of_trace(
    state: State, asked: ReadMemory, found: tuple[Moments, ...] | str
) -> State:
    """The state with the memory events of a trace, or with the sentence why there are
    none. Their page comes to the front unless the user went to another page since they
    were asked for. The state as it was, if the trace is no longer the active one."""
    if not state.sides or state.side.trace is not asked.trace:
        return state
    if isinstance(found, str):
        return told(state, printable(found))
    side = MemorySide(asked.paths[0], state.side.label, found, asked.trace)
    first_holders = next(iter(found[0].holders))
    shown = MemoryShown((side,), (side.first_view(0),), by=first_holders)
    now = replace(state, memory=shown).with_list(MEMORY)
    if state.page != asked.page or state.overlay or state.prompt:
        return told(now, "the memory events are read", "memory memory")
    return in_sight(replace(now, page=MEMORY, hint=""))


def failed(state: State, sentence: str) -> Outcome:
    """They cannot be read; a trace that is open stays open."""
    if state.reading and state.reading.is_whole:
        return state, Refuse(sentence)
    return told(state, printable(sentence))


def memory_of(state: State) -> MemoryShown:
    """What is open. Only for where the page is in front."""
    assert state.memory is not None
    return state.memory


class ActiveMemory(NamedTuple):
    """What the active side of the page shows."""

    moments: Moments
    view: MemoryView


def here(state: State) -> ActiveMemory:
    """The moments and the view of the active snapshot."""
    shown = memory_of(state)
    return ActiveMemory(shown.moments(shown.active), shown.view)


def window(state: State, index: int | None = None) -> Window:
    """The window over a snapshot, by default the active one: that of the timeline where
    both have one axis of time, else its own."""
    shown = memory_of(state)
    index = shown.active if index is None else index
    if why_apart(state, index):
        view = shown.views[index]
        zero = shown.moments(index).position(0)
        return Window(zero, view.begin, view.end, is_shared=False)
    side = state.side
    zero = side.trace.epoch_ns + side.origin  # ns since 1970
    return Window(zero, state.view.begin, state.view.end, is_shared=True)


def why_apart(state: State, index: int = 0) -> str:
    """Why a snapshot and the active trace share no axis of time; "" if they do."""
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
    first = int(times[0]) - zero
    last = int(times[-1]) - zero
    if last < side.begin or first > side.end:
        return "the snapshot was recorded at another time than the trace"
    return ""


def allocated_text(state: State, row: int) -> str:
    """What was allocated on the device that is shown while a CPU slice ran, to the
    microsecond of the events of a snapshot; "" where they do not reach."""
    if state.memory is None or why_apart(state) or is_gpu(state.side.trace, row):
        return ""
    moments = memory_of(state).moments(0)
    interval = _interval_of_row(state.side.trace, row, moments)
    first_time = int(moments.times[0])
    last_time = int(moments.times[-1])
    if interval[0] < first_time or interval[1] > last_time:
        return ""
    first_event, stop_event = np.searchsorted(
        moments.times, [interval[0], interval[1] + 1]
    )
    number, allocated, left = moments.allocated_in(first_event, stop_event)
    where = f"({printable(moments.title)}, any thread)"
    text = f"{plural(number, 'allocation')} meanwhile {where}"
    if number:
        text += f": {size(allocated)}, {size(left)} left"
    return text


def _interval_of_row(trace: Trace, row: int, moments: Moments) -> Interval:
    """When a slice ran, in ns since 1970; its begin rounded down to the precision of
    the events."""
    start = int(trace.start[row]) + trace.epoch_ns
    precision_ns = 1 if moments.is_of_trace else 1000
    begin = start // precision_ns * precision_ns
    return begin, start + int(trace.dur[row])


def drawn(state: State, index: int) -> MemoryCells:
    """What the cells of the area of one snapshot show."""
    over = window(state, index)
    width = divided(state.size.width, state.size.height).width
    moments = memory_of(state).moments(index)
    return cells(moments, over.zero + over.begin, over.zero + over.end, width)


def turned(state: State, **fields: Any) -> State:
    """Other fields of what is open; the cursor of the list on its first row."""
    shown = replace(memory_of(state), **fields)
    return replace(state, memory=shown, hint="").with_list(MEMORY)


def with_view(state: State, **fields: Any) -> State:
    """Other fields of the view of the active snapshot."""
    shown = memory_of(state)
    views = [*shown.views]
    views[shown.active] = replace(shown.view, **fields)
    return replace(state, memory=replace(shown, views=tuple(views)), hint="")


def step(state: State, by: int) -> State:
    """The cursor `by` events later, as far as there are any. If that event is not in the
    window, the window moves so that it is in the middle."""
    moments, view = here(state)
    # a peak before the first event (-1) can be returned to
    first = min(moments.history.peak_index, 0)
    last = len(moments.history.events) - 1
    event = max(first, min(view.at + by, last))
    now = with_view(state, at=event)
    over = window(state)
    position = moments.position(event) - over.zero
    if over.begin <= position < over.end:
        return now
    span = over.end - over.begin
    begin = position - span // 2
    return _windowed(now, begin, begin + span)


def zoom(state: State, part: int, of: int) -> State:
    """The window `part / of` times as long. The moment under the cursor stays where it
    is on the screen."""
    moments, view = here(state)
    over = window(state)
    span = over.end - over.begin
    least_span = MIN_SPAN_NS if len(moments.times) else 2
    new_span = max(least_span, span * part // of)
    cursor = moments.position(view.at) - over.zero - over.begin
    cursor = max(0, min(cursor, span))
    new_cursor = cursor * new_span // span  # from the begin of the new window
    begin = over.begin + cursor - new_cursor
    return _windowed(state, begin, begin + new_span)


def pan(state: State, percent: int) -> State:
    """The window moved by this percentage of its length, to the left if negative."""
    over = window(state)
    by = (over.end - over.begin) * percent // 100
    return _windowed(state, over.begin + by, over.end + by)


def whole(state: State) -> State:
    """The largest window."""
    largest = _largest_window(state)
    return _windowed(state, largest.begin, largest.end)


def _largest_window(state: State) -> Window:
    """A window over the whole recording, and over the whole trace where both have one
    axis of time."""
    moments = here(state).moments
    over = window(state)
    last = moments.position(len(moments.positions) - 1)
    begin = moments.position(0) - over.zero
    end = last + 1 - over.zero
    if over.is_shared:
        begin = min(begin, state.side.begin)
        end = max(end, state.side.end)
    return over._replace(begin=begin, end=end)


def _windowed(state: State, begin: int, end: int) -> State:
    """Another window, no longer than the largest one and within it; the cursor on an
    event in sight."""
    if len(here(state).moments.positions):
        largest = _largest_window(state)
        span = min(end - begin, largest.end - largest.begin)
        begin = max(largest.begin, min(begin, largest.end - span))
        end = begin + span
    if window(state).is_shared:
        return in_sight(viewed(state, replace(state.view, begin=begin, end=end)))
    return in_sight(with_view(state, begin=begin, end=end))


def in_sight(state: State) -> State:
    """The cursor on the event of the window that is nearest to it, if there is any."""
    moments, view = here(state)
    over = window(state)
    borders = [over.zero + over.begin, over.zero + over.end]
    first, stop = np.searchsorted(moments.positions, borders).tolist()
    if first == stop:
        return state
    is_before_first_event = view.at < 0
    if is_before_first_event and first == 0:  # the window shows that moment too
        return state
    return with_view(state, at=min(max(view.at, first), stop - 1))


def beside(state: State, by: int) -> State:
    """The cursor on the moment of the nearest cell to the right (`by` 1) or left (-1)
    that shows another one. Where there is none, the window moves by a tenth."""
    at = here(state).view.at
    events = drawn(state, memory_of(state).active).events
    if by > 0:
        later = events[events > at]
        if len(later):
            return with_view(state, at=int(later.min()))
    else:
        earlier = events[events < at]
        if len(earlier):
            return with_view(state, at=int(earlier.max()))
    return pan(state, 10 * by)


def highest(state: State) -> State:
    """The cursor on the moment in the window at which most was allocated."""
    in_cells = drawn(state, memory_of(state).active)
    if not in_cells.inside.any():
        return told(state, "nothing was recorded in this window")
    total = in_cells.amounts.sum(axis=0)
    return with_view(state, at=int(in_cells.events[total.argmax()]))


def next_by(state: State, by: int) -> State:
    """Grouped by the next kind of holder, or for -1 by the one before."""
    kinds = [*here(state).moments.holders]
    index = kinds.index(memory_of(state).by) + by
    return turned(state, by=kinds[index % len(kinds)])


def turn_map(state: State) -> State:
    """The segments instead of the holders, and back."""
    if here(state).moments.is_of_trace:
        return told(state, "A trace has no segments; a snapshot does.")
    return turned(state, is_map=not memory_of(state).is_map)


def next_device(state: State) -> State:
    """The next device, of the other snapshot once all were shown."""
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
    return turned(state, active=active, views=tuple(views))
