"""Memory snapshots in the state: opening them, and what a person does on their page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.chain import is_gpu
from fusetui.text.figures import plural, size
from fusetui.text.printable import printable
from fusetui.tui.layout.frame import divided
from fusetui.tui.layout.memory import (
    MEMORY,
    Cells,
    MemoryShown,
    MemorySide,
    MemoryView,
    cells,
    first_view,
    positions,
)
from fusetui.tui.layout.view import MIN_SPAN_NS
from fusetui.tui.state.moving import viewed
from fusetui.tui.state.replays import WHOLE
from fusetui.tui.state.state import ListState, Outcome, Reading, ReadMemory, Refuse, State, told

if TYPE_CHECKING:
    from fusetui.analysis.memory.moments import Moments

NO_SNAPSHOT = "no memory snapshot is open: fusetui open TRACE --memory SNAPSHOT opens one"
READING = "the memory events of the trace are being read"
READ = "the memory events are read"
NO_SEGMENTS = "a trace does not tell which segments there were: a snapshot does"


class Window(NamedTuple):
    """[begin, end) as positions less `zero`; `is_shared`: it is that of the timeline."""

    zero: int
    begin: int
    end: int
    is_shared: bool


def read(state: State, paths: Sequence[str], alone: bool) -> Outcome:
    """Opens snapshots; `alone`: no trace is read before them."""
    reading = Reading(paths[0], is_whole=True) if alone else state.reading
    return replace(state, reading=reading), ReadMemory(tuple(paths), alone)


def arrived(state: State, sides: tuple[MemorySide, ...]) -> State:
    """They were read."""
    shown = MemoryShown(sides, tuple(map(first_view, sides)))
    now = replace(state, memory=shown).with_list(MEMORY, ListState())
    if state.sides or (state.reading and not state.reading.is_whole):
        return now
    return replace(now, page=MEMORY, reading=None)


def is_there(state: State) -> bool:
    """Whether a snapshot is open, or memory events of an open trace are."""
    if state.memory is None or state.memory.trace is None:
        return state.memory is not None
    return any(side.trace is state.memory.trace for side in state.sides)


def ask(state: State) -> Outcome | None:
    """Has the memory events of the active trace read, unless they or a snapshot are there."""
    shown = state.memory
    if shown is not None and (shown.trace is None or shown.trace is state.side.trace):
        return None
    if state.side.trace.report.prefix:
        return told(state, WHOLE)
    path = state.paths[state.active] if state.active < len(state.paths) else ""
    return told(state, READING), ReadMemory((path,), False, state.side.trace, state.page)


def of_trace(state: State, asked: ReadMemory, found: tuple[Moments, ...] | str) -> State:
    """They were read, or there are none; their page comes to the front where it was asked for."""
    if not state.sides or state.side.trace is not asked.trace:
        return state
    if isinstance(found, str):
        return told(state, printable(found))
    side = MemorySide(asked.paths[0], state.side.label, found, asked.trace)
    shown = MemoryShown((side,), (first_view(side, 0),), by=next(iter(found[0].holders)))
    now = replace(state, memory=shown).with_list(MEMORY, ListState())
    if state.page != asked.page or state.overlay or state.prompt:
        return told(now, READ, "memory memory")
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


def with_active(state: State, index: int) -> State:
    """Another side has the keys."""
    return replace(state, memory=replace(memory_of(state), active=index))


def here(state: State) -> tuple[Moments, MemoryView]:
    """The device and the view that the keys act on."""
    shown = memory_of(state)
    return shown.moments(shown.active), shown.view


def window(state: State, index: int) -> Window:
    """What of a side is in sight."""
    shown = memory_of(state)
    places, view = positions(shown.moments(index)), shown.views[index]
    zero = int(places[0]) if len(places) else 0
    if not why_apart(state, index):
        return Window(origin_of(state), state.view.begin, state.view.end, True)
    return Window(zero, view.begin, view.end, False)


def origin_of(state: State) -> int:
    """The origin of the active trace, in ns since 1970."""
    return state.side.trace.epoch_ns + state.side.origin


def why_apart(state: State, index: int = 0) -> str:
    """Why a snapshot and the active trace share no axis of time; "" if they do."""
    times = memory_of(state).moments(index).times
    if not state.sides:
        return "no trace is open"
    if (own := memory_of(state).sides[index].trace) is not None:
        return "" if own is state.side.trace else "it is of the other trace"
    if not len(times):
        return "the events of the snapshot have no times"
    if not state.side.trace.epoch_ns:
        return "the trace does not say when its clock began"
    begin, end = (origin_of(state) + time for time in (state.side.begin, state.side.end))
    if int(times[-1]) < begin or int(times[0]) > end:
        return "the snapshot was recorded at another time than the trace"
    return ""


def allocated_text(state: State, row: int) -> str:
    """What was allocated on the device that is shown while a CPU slice ran, to the microsecond of
    the events of a snapshot; "" where they do not reach."""
    if state.memory is None or why_apart(state) or is_gpu(state.side.trace, row):
        return ""
    moments, trace = memory_of(state).moments(0), state.side.trace
    start = int(trace.start[row]) + trace.epoch_ns
    unit = 1 if moments.is_of_trace else 1000
    begin, end = start // unit * unit, start + int(trace.dur[row])
    if begin < int(moments.times[0]) or end > int(moments.times[-1]):
        return ""
    number, wanted, kept = moments.allocated_in(*np.searchsorted(moments.times, [begin, end + 1]))
    said = f"{plural(number, 'allocation')} meanwhile"
    where = f"({printable(moments.title)}, any thread)"
    return f"{said} {where}: {size(wanted)}, {size(kept)} left" if number else f"{said} {where}"


def drawn(state: State, index: int) -> Cells:
    """The cells of a side on this screen."""
    found, width = window(state, index), divided(state.size.width, state.size.height).width
    begin, end = found.zero + found.begin, found.zero + found.end
    return cells(memory_of(state).moments(index), begin, end, width)


def turned(state: State, **fields: Any) -> State:
    """Other fields of what is open; the cursor of the list on its first row."""
    now = replace(state, memory=replace(memory_of(state), **fields), hint="")
    return now.with_list(MEMORY, ListState())


def with_view(state: State, **fields: Any) -> State:
    """Other fields of the active view; the rows stay open."""
    shown = memory_of(state)
    view = replace(shown.view, **fields)
    views = (*shown.views[: shown.active], view, *shown.views[shown.active + 1 :])
    return replace(state, memory=replace(shown, views=views), hint="")


def at_event(state: State, event: int) -> State:
    """The cursor on an event, which is brought into sight."""
    moments, _ = here(state)
    last = len(moments.history.events) - 1
    event = max(min(moments.history.peak_index, 0), min(event, last))
    now, (zero, begin, end, _) = with_view(state, at=event), window(state, memory_of(state).active)
    place, half = place_of(moments, event) - zero, (end - begin) // 2
    return now if begin <= place < end else _windowed(now, place - half, place - half + end - begin)


def place_of(moments: Moments, event: int) -> int:
    """The position of a moment; that of the first event for the time before it."""
    places = positions(moments)
    return int(places[max(0, min(event, len(places) - 1))]) if len(places) else 0


def zoom(state: State, part: int, of: int) -> State:
    """About the cursor."""
    (moments, view), found = here(state), window(state, memory_of(state).active)
    place = place_of(moments, view.at) - found.zero
    span = max(MIN_SPAN_NS if len(moments.times) else 2, (found.end - found.begin) * part // of)
    before = min(max(place - found.begin, 0), found.end - found.begin)
    begin = found.begin + before - before * span // (found.end - found.begin)
    return _windowed(state, begin, begin + span)


def pan(state: State, percent: int) -> State:
    """By a part of the window; the cursor stays in sight."""
    found = window(state, memory_of(state).active)
    by = (found.end - found.begin) * percent // 100
    return _windowed(state, found.begin + by, found.end + by)


def whole(state: State) -> State:
    """All of the recording; beside a trace, all of both."""
    (moments, _), found = here(state), window(state, memory_of(state).active)
    places = positions(moments)
    begin, end = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 1)
    begin, end = begin - found.zero, end - found.zero
    if found.is_shared:
        begin, end = min(begin, state.side.begin), max(end, state.side.end)
    return _windowed(state, begin, end)


def _windowed(state: State, begin: int, end: int) -> State:
    """Another window, no larger than all and within it; the cursor on an event in sight."""
    found, places = window(state, memory_of(state).active), positions(here(state)[0])
    if len(places):
        least, most = int(places[0]) - found.zero, int(places[-1]) + 1 - found.zero
        if found.is_shared:
            least, most = min(least, state.side.begin), max(most, state.side.end)
        span = min(end - begin, most - least)
        begin = max(least, min(begin, most - span))
        end = begin + span
    if found.is_shared:
        return in_sight(viewed(state, replace(state.view, begin=begin, end=end)))
    return in_sight(with_view(state, begin=begin, end=end))


def in_sight(state: State) -> State:
    """The cursor on an event of the window, if there is any."""
    (moments, view), (zero, begin, end, _) = here(state), window(state, memory_of(state).active)
    first, last = np.searchsorted(positions(moments), [zero + begin, zero + end]).tolist()
    if first == last or (view.at < 0 and not first):
        return state
    return with_view(state, at=min(max(view.at, first), last - 1))


def step(state: State, by: int) -> State:
    """To the next event, or the one before."""
    return at_event(state, here(state)[1].at + by)


def beside(state: State, by: int) -> State:
    """To the next cell in which something happened: where most was allocated in it."""
    shown, (_, view) = memory_of(state), here(state)
    events = drawn(state, shown.active).events
    later = events[events > view.at] if by > 0 else events[events < view.at]
    if not len(later):
        return pan(state, 10 * by)
    return with_view(state, at=int(later.min() if by > 0 else later.max()))


def highest(state: State) -> State:
    """To the moment in sight at which most is allocated."""
    shown = memory_of(state)
    found = drawn(state, shown.active)
    if not found.inside.any():
        return told(state, "nothing was recorded in this window")
    return with_view(state, at=int(found.events[found.amounts.sum(axis=0).argmax()]))


def next_by(state: State, by: int) -> State:
    """By code, by module, by category; of a trace by op, by annotation."""
    bys = [*here(state)[0].holders]
    return turned(state, by=bys[(bys.index(memory_of(state).by) + by) % len(bys)])


def turn_map(state: State) -> State:
    """Who holds it, or where it lies."""
    if here(state)[0].is_of_trace:
        return told(state, NO_SEGMENTS)
    return turned(state, is_map=not memory_of(state).is_map)


def next_device(state: State) -> State:
    """The next device, of the other snapshot once all were shown."""
    shown = memory_of(state)
    if len(shown.sides) == 1 and len(shown.sides[0].moments) == 1:
        return told(state, "there is only one device: nothing else to go to")
    device = shown.view.device + 1
    if device < len(shown.sides[shown.active].moments):
        view = first_view(shown.sides[shown.active], device)
        views = (*shown.views[: shown.active], view, *shown.views[shown.active + 1 :])
        return turned(state, views=views)
    active = (shown.active + 1) % len(shown.sides)
    view = shown.views[active]
    if len(shown.sides[active].moments) > 1:
        view = first_view(shown.sides[active], 0)
    return turned(
        state, active=active, views=(*shown.views[:active], view, *shown.views[active + 1 :])
    )
