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
from fusetui.tui.layout.memory import MEMORY, MemoryShown, MemorySide, MemoryView, cells
from fusetui.tui.layout.view import MIN_SPAN_NS
from fusetui.tui.state.moving import viewed
from fusetui.tui.state.state import Outcome, Reading, ReadMemory, Refuse, State, told

if TYPE_CHECKING:
    from fusetui.analysis.memory.moments import Moments
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
    shown = MemoryShown(sides, tuple(side.first_view() for side in sides))
    now = replace(state, memory=shown).with_list(MEMORY)
    if state.sides or (state.reading and not state.reading.is_whole):
        return now
    return replace(now, page=MEMORY, reading=None)


def of_trace(
    state: State, asked: ReadMemory, found: tuple[Moments, ...] | str
) -> State:
    """They were read, or there are none; their page comes to the front where it was
    asked for."""
    if not state.sides or state.side.trace is not asked.trace:
        return state
    if isinstance(found, str):
        return told(state, printable(found))
    side = MemorySide(asked.paths[0], state.side.label, found, asked.trace)
    shown = MemoryShown((side,), (side.first_view(0),), by=next(iter(found[0].holders)))
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


def here(state: State) -> tuple[Moments, MemoryView]:
    shown = memory_of(state)
    return shown.moments(shown.active), shown.view


def window(state: State, index: int | None = None) -> Window:
    """What of a side is in sight, by default of the active one."""
    shown = memory_of(state)
    index = shown.active if index is None else index
    if not why_apart(state, index):
        side, view = state.side, state.view  # ns since 1970
        return Window(side.trace.epoch_ns + side.origin, view.begin, view.end, True)
    own = shown.views[index]
    return Window(shown.moments(index).position(0), own.begin, own.end, False)


def why_apart(state: State, index: int = 0) -> str:
    """Why a snapshot and the active trace share no axis of time; "" if they do."""
    shown = memory_of(state)
    own, times = shown.sides[index].trace, shown.moments(index).times
    if not state.sides:
        return "no trace is open"
    if own is not None:
        return "" if own is state.side.trace else "it is of the other trace"
    if not len(times):
        return "the events of the snapshot have no times"
    if not state.side.trace.epoch_ns:
        return "the trace does not say when its clock began"
    zero = state.side.trace.epoch_ns + state.side.origin
    first, last = int(times[0]) - zero, int(times[-1]) - zero
    if last < state.side.begin or first > state.side.end:
        return "the snapshot was recorded at another time than the trace"
    return ""


def allocated_text(state: State, row: int) -> str:
    """What was allocated on the device that is shown while a CPU slice ran, to the
    microsecond of the events of a snapshot; "" where they do not reach."""
    if state.memory is None or why_apart(state) or is_gpu(state.side.trace, row):
        return ""
    moments, trace = memory_of(state).moments(0), state.side.trace
    start = int(trace.start[row]) + trace.epoch_ns
    unit = 1 if moments.is_of_trace else 1000
    begin, end = start // unit * unit, start + int(trace.dur[row])
    if begin < int(moments.times[0]) or end > int(moments.times[-1]):
        return ""
    number, wanted, kept = moments.allocated_in(
        *np.searchsorted(moments.times, [begin, end + 1])
    )
    said = f"{plural(number, 'allocation')} meanwhile"
    where = f"({printable(moments.title)}, any thread)"
    return (
        f"{said} {where}: {size(wanted)}, {size(kept)} left"
        if number
        else f"{said} {where}"
    )


def drawn(state: State, index: int) -> MemoryCells:
    found, width = (
        window(state, index),
        divided(state.size.width, state.size.height).width,
    )
    begin, end = found.zero + found.begin, found.zero + found.end
    return cells(memory_of(state).moments(index), begin, end, width)


def turned(state: State, **fields: Any) -> State:
    """Other fields of what is open; the cursor of the list on its first row."""
    return replace(
        state, memory=replace(memory_of(state), **fields), hint=""
    ).with_list(MEMORY)


def with_view(state: State, **fields: Any) -> State:
    shown = memory_of(state)
    views = [*shown.views]
    views[shown.active] = replace(shown.view, **fields)
    return replace(state, memory=replace(shown, views=tuple(views)), hint="")


def step(state: State, by: int) -> State:
    """The cursor so many events further, which is brought into sight."""
    (moments, view), (zero, begin, end, _) = here(state), window(state)
    last = len(moments.history.events) - 1
    event = max(min(moments.history.peak_index, 0), min(view.at + by, last))
    now, place = with_view(state, at=event), moments.position(event) - zero
    left = place - (end - begin) // 2
    return now if begin <= place < end else _windowed(now, left, left + end - begin)


def zoom(state: State, part: int, of: int) -> State:
    (moments, view), (zero, begin, end, _) = here(state), window(state)
    span = max(MIN_SPAN_NS if len(moments.times) else 2, (end - begin) * part // of)
    before = min(max(moments.position(view.at) - zero - begin, 0), end - begin)
    begin += before - before * span // (end - begin)
    return _windowed(state, begin, begin + span)


def pan(state: State, percent: int) -> State:
    _, begin, end, _ = window(state)
    by = (end - begin) * percent // 100
    return _windowed(state, begin + by, end + by)


def whole(state: State) -> State:
    return _windowed(state, *_most(state))


def _most(state: State) -> tuple[int, int]:
    """The largest window."""
    (moments, _), (zero, _, _, is_shared) = here(state), window(state)
    begin, last = (
        moments.position(0) - zero,
        moments.position(len(moments.positions) - 1) - zero,
    )
    if is_shared:
        return min(begin, state.side.begin), max(last + 1, state.side.end)
    return begin, last + 1


def _windowed(state: State, begin: int, end: int) -> State:
    """Another window, no larger than all and within it; the cursor on an event in
    sight."""
    if len(here(state)[0].positions):
        least, most = _most(state)
        span = min(end - begin, most - least)
        begin = max(least, min(begin, most - span))
        end = begin + span
    if window(state).is_shared:
        return in_sight(viewed(state, replace(state.view, begin=begin, end=end)))
    return in_sight(with_view(state, begin=begin, end=end))


def in_sight(state: State) -> State:
    """The cursor on an event of the window, if there is any."""
    (moments, view), (zero, begin, end, _) = here(state), window(state)
    first, last = np.searchsorted(
        moments.positions, [zero + begin, zero + end]
    ).tolist()
    if first == last or (view.at < 0 and not first):
        return state
    return with_view(state, at=min(max(view.at, first), last - 1))


def beside(state: State, by: int) -> State:
    """To the next cell in which something happened: where most was allocated in it."""
    at, events = here(state)[1].at, drawn(state, memory_of(state).active).events
    later = events[events > at] if by > 0 else events[events < at]
    if not len(later):
        return pan(state, 10 * by)
    return with_view(state, at=int(later.min() if by > 0 else later.max()))


def highest(state: State) -> State:
    found = drawn(state, memory_of(state).active)
    if not found.inside.any():
        return told(state, "nothing was recorded in this window")
    return with_view(state, at=int(found.events[found.amounts.sum(axis=0).argmax()]))


def next_by(state: State, by: int) -> State:
    bys = [*here(state)[0].holders]
    return turned(state, by=bys[(bys.index(memory_of(state).by) + by) % len(bys)])


def turn_map(state: State) -> State:
    if here(state)[0].is_of_trace:
        return told(state, "A trace has no segments; a snapshot does.")
    return turned(state, is_map=not memory_of(state).is_map)


def next_device(state: State) -> State:
    """The next device, of the other snapshot once all were shown."""
    shown = memory_of(state)
    if len(shown.sides) == 1 and len(shown.sides[0].moments) == 1:
        return told(state, "there is only one device: nothing else to go to")
    active, device = shown.active, shown.view.device + 1
    if device == len(shown.sides[active].moments):
        active, device = (active + 1) % len(shown.sides), 0
    views, side = [*shown.views], shown.sides[active]
    if len(side.moments) > 1:
        views[active] = side.first_view(device)
    return turned(state, active=active, views=tuple(views))
