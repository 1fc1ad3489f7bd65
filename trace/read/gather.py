"""The columns of one chunk from its decoded events, with string tables of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Int32s, Int64s, Rows
from fusetui.trace.model.categories import GPU_ROLES, role
from fusetui.trace.model.events import EVERYWHERE, NOWHERE
from fusetui.trace.model.ids import Id
from fusetui.trace.model.raw import Label, Lane, Thread
from fusetui.trace.read.events import NO_ARGS, PHASES_OF_PAIRS, AnyEvent, Args, ExactEvent
from fusetui.trace.read.times import check_ends, exact_nanoseconds, nanoseconds

EXACT = 2.0**52  # microseconds below it are told apart as floats
BESIDE_TIME = PHASES_OF_PAIRS | {"M", "n", "T"}


class Mark(msgspec.Struct, frozen=True):
    """The begin or the end of a slice that is written as two events."""

    phase: str
    name: str
    category: str
    thread: Thread
    key: str  # the id that both have, "" for slices of a thread
    time: int  # ns
    order: int  # index of the event


class ChunkColumns(msgspec.Struct, frozen=True, eq=False):
    """The slices (ph X) of one chunk; every array has shape [slices]."""

    phases: Counter[str]
    names: list[str]
    categories: list[str]
    threads: list[Lane]
    labels: list[Label]
    start: Int64s
    dur: Int64s
    name: Int32s  # into names
    category: Int32s  # into categories
    thread: Int32s  # into threads
    correlation: Int64s
    external_id: Int64s
    order: Int64s  # index of the event in the chunk
    marks: tuple[Mark, ...] = ()  # only for exact events
    reach: tuple[int, int] = EVERYWHERE  # of what is no slice; see Stretch


class Interner(dict[Any, int]):
    """Assigns consecutive small integers to distinct keys."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number

    def ids(self, keys: Iterable[Any], count: int = -1) -> Int32s:
        """The number of each key; `count` is the number of keys, if known."""
        return np.fromiter(map(self.__getitem__, keys), np.int32, count)


def gather(events: Sequence[AnyEvent], places: Int64s | None = None) -> ChunkColumns:
    """The columns of events with these indices in the chunk (default: consecutive).

    Raises InexactTimes if times must be parsed from their text, OverflowError if one is out of
    range, and ValueError if one is not a number (see times.py).
    """
    exact = bool(events) and isinstance(events[0], ExactEvent)
    phases = [event.ph for event in events]
    is_slice = list(map("X".__eq__, phases))
    slices = list(compress(events, is_slice))
    count = len(slices)
    args = [event.args or NO_ARGS for event in slices]
    start, dur = _times([e.ts for e in slices]), _times([e.dur for e in slices])
    check_ends(start, dur)
    order = np.flatnonzero(np.array(is_slice, dtype=np.bool_))
    names, categories = Interner(), Interner()
    category = categories.ids(map(attrgetter("cat"), slices), count)
    on_gpu = np.array([role(c) in GPU_ROLES for c in categories], np.bool_)[category]
    threads, thread = _lanes(slices, args, np.flatnonzero(on_gpu))
    return ChunkColumns(
        phases=Counter(phases),
        labels=[_label(event) for event in compress(events, map("M".__eq__, phases))],
        start=start,
        dur=dur,
        name=names.ids(map(attrgetter("name"), slices), count),
        category=category,
        thread=thread,
        correlation=_integers([a.correlation for a in args]),
        external_id=np.maximum(
            _integers([a.external_id for a in args]), _integers([a.external_id_2021 for a in args])
        ),
        order=order if places is None else places[order],
        names=list(names),
        categories=list(categories),
        threads=threads,
        marks=tuple(_marks(events, places)) if exact else (),
        reach=_reach(list(compress(events, map("X".__ne__, phases)))),
    )


def _reach(events: Sequence[AnyEvent]) -> tuple[int, int]:
    """Times (ns) before and after all of these events, in whole microseconds; EVERYWHERE also for
    labels and pairs."""
    if not events:
        return NOWHERE
    if not BESIDE_TIME.isdisjoint(event.ph for event in events):
        return EVERYWHERE
    try:
        times = [float(event.ts) for event in events]
    except ValueError:
        return EVERYWHERE
    low, high = min(times), max(times)
    if not (low > -EXACT and high < EXACT):
        return EVERYWHERE
    return (int(low) - 2) * 1000, (int(high) + 2) * 1000


def _lanes(
    slices: Sequence[AnyEvent], args: Sequence[Args], on_gpu: Rows
) -> tuple[list[Lane], Int32s]:
    """The lanes of the slices, and which of them each slice is on."""
    threads = Interner()
    thread = threads.ids(map(attrgetter("pid", "tid"), slices), len(slices))
    lanes = Interner({(*key, None): number for key, number in threads.items()})
    rows = on_gpu.tolist()
    keys = ((slices[n].pid, slices[n].tid, _device(args[n].device)) for n in rows)
    thread[on_gpu] = lanes.ids(keys, len(rows))
    return [(_identity(pid), _identity(tid), device) for pid, tid, device in lanes], thread


def _device(value: object) -> int | None:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 31:
        return None
    return number


def _marks(events: Sequence[Any], places: Int64s | None) -> Iterator[Mark]:
    numbers = range(len(events)) if places is None else places.tolist()
    for order, event in zip(numbers, events, strict=True):
        if event.ph in PHASES_OF_PAIRS:
            yield Mark(
                event.ph,
                event.name,
                event.cat,
                (_identity(event.pid), _identity(event.tid)),
                "" if event.ph in "BE" else f"{event.id} {event.id2} {event.scope}",
                exact_nanoseconds(bytes(event.ts)),
                order,
            )


def _label(event: AnyEvent) -> Label:
    args = event.args or NO_ARGS
    value = next((v for v in (args.name, args.labels, args.sort_index) if v is not None), None)
    return Label(event.name, _identity(event.pid), _identity(event.tid), value)


def _identity(value: Id) -> Id:
    """Integers of more than 64 bits as text: no output accepts them as numbers."""
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _times(values: list[Any]) -> Int64s:
    if values and not isinstance(values[0], int | float):
        return np.array([exact_nanoseconds(bytes(text)) for text in values], dtype=np.int64)
    return nanoseconds(values)


def _integers(values: list[int]) -> Int64s:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array([v if -(2**63) <= v < 2**63 else -1 for v in values], dtype=np.int64)
