"""The columns of one chunk from its decoded events, with string tables of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Int32s, Int64s
from fusetui.trace.model.categories import ROLES_ON_STREAMS, role
from fusetui.trace.model.events import EVERYWHERE, NOWHERE
from fusetui.trace.model.ids import Id
from fusetui.trace.model.raw import Label, SliceColumns, Thread
from fusetui.trace.read.events import (
    INSTANT,
    NO_ARGS,
    PHASES_OF_PAIRS,
    AnyEvent,
    Args,
    ExactEvent,
)
from fusetui.trace.read.times import (
    LIMIT_NS,
    InexactTimesError,
    by_digits,
    exact_nanoseconds,
    nanoseconds,
)

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


class ChunkColumns(SliceColumns, frozen=True, eq=False):
    """The slices (ph X) of one chunk; `order` counts from its first event."""

    phases: Counter[str]
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


class Labels:
    """What events say of threads (ph M). A label that says what the last of its kind
    said of its thread is left out: some writers repeat them at each event."""

    def __init__(self) -> None:
        self.all: list[Label] = []
        self._last: dict[Thread, dict[str, Any]] = {}

    def add(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            args = event.args or NO_ARGS
            value = args.name
            if value is None:
                value = args.sort_index if args.labels is None else args.labels
            named = self._last.setdefault((event.pid, event.tid), {})
            if event.name not in named or named[event.name] != value:
                named[event.name] = value
                pid, tid = plain_id(event.pid), plain_id(event.tid)
                self.all.append(Label(event.name, pid, tid, value))


class Gathering:
    """Makes the columns of a chunk from its events, piece by piece: what a piece was
    decoded to is still in the caches of the processor when its columns are made."""

    def __init__(self) -> None:
        self.phases: Counter[str] = Counter()
        self._kinds, self._names, self._categories, self._lanes = (
            Interner() for _ in range(4)
        )
        self._parts: list[dict[str, NDArray[Any]]] = []
        self._on_gpu: list[bool] = []  # by category
        self._labels = Labels()
        self._marks: list[Mark] = []
        self._reach = NOWHERE

    def add(
        self, events: Sequence[Any], text: bytes = b"", places: Int64s | None = None
    ) -> None:
        """Instances of AnyEvent, with these indices in the chunk (default: those after
        the last), and their text.

        Raises InexactTimesError if an ExactEvent is needed, OverflowError if a time is
        out of range, and ValueError if one is not a number (see times.py); then nothing
        was added."""
        count, first = len(events), self.phases.total()
        kinds = self._kinds.ids([event.ph for event in events], count)
        instants = [n for n, e in enumerate(events) if e.cat == INSTANT and e.ph == "X"]
        kinds[instants] = self._kinds["i"]
        counts = dict(zip(self._kinds, np.bincount(kinds).tolist(), strict=False))
        is_slice = kinds == self._kinds["X"]
        slices = [*compress(events, is_slice.tolist())]
        marks: list[Mark] = []
        numbers = np.arange(first, first + count) if places is None else places
        if events and isinstance(events[0], ExactEvent):
            start, dur = _exact([e.ts for e in slices]), _exact([e.dur for e in slices])
            marks = list(_marks(events, numbers))
        elif any(map(counts.get, PHASES_OF_PAIRS)):
            raise InexactTimesError
        else:
            start = nanoseconds(
                [e.ts for e in slices],
                lambda: by_digits(text, b'"ts":', [e.ts for e in events])[is_slice],
            )
            durations = [e.dur for e in slices]
            dur = nanoseconds(durations, lambda: by_digits(text, b'"dur":', durations))
        if len(slices) and int((start + dur).max()) > LIMIT_NS:
            raise OverflowError("a slice ends out of range")
        args = [event.args or NO_ARGS for event in slices]
        category = self._categories.ids([e.cat for e in slices], len(slices))
        self._parts.append(
            {
                "start": start,
                "dur": dur,
                "name": self._names.ids([e.name for e in slices], len(slices)),
                "category": category,
                "thread": self._threads(slices, args, category),
                "correlation": _integers([a.correlation for a in args]),
                "external_id": np.maximum(
                    _integers([a.external_id for a in args]),
                    _integers([a.external_id_2021 for a in args]),
                ),
                "order": numbers[is_slice],
            }
        )
        self.phases.update(counts)
        self._marks += marks
        if len(slices) < count:
            self._note(list(compress(events, (~is_slice).tolist())), counts)

    def columns(self) -> ChunkColumns:
        """Of all that was added."""
        if not self._parts:
            self.add([])
        parts = self._parts
        return ChunkColumns(
            phases=+self.phases,
            names=tuple(self._names),
            categories=tuple(self._categories),
            threads=tuple(
                (plain_id(pid), plain_id(tid), on) for pid, tid, on in self._lanes
            ),
            labels=tuple(self._labels.all),
            **{
                name: np.concatenate([part[name] for part in parts])
                for name in parts[0]
            },
            marks=tuple(self._marks),
            reach=self._reach,
        )

    def _threads(
        self, slices: Sequence[AnyEvent], args: Sequence[Args], category: Int32s
    ) -> Int32s:
        """The lane of each slice."""
        new = list(self._categories)[len(self._on_gpu) :]
        self._on_gpu += [role(name) in ROLES_ON_STREAMS for name in new]
        on_gpu = np.array(self._on_gpu, np.bool_)[category]
        devices: Iterable[int | None] = repeat(None)
        tids = [event.tid for event in slices]
        if on_gpu.any():
            for place in np.flatnonzero(on_gpu).tolist():
                if (stream := args[place].original_stream) >= 0:
                    tids[place] = stream
            said = zip([a.device for a in args], on_gpu.tolist(), strict=True)
            devices = [
                _device(d) if is_gpu and d is not None else None for d, is_gpu in said
            ]
        lanes = zip([event.pid for event in slices], tids, devices, strict=False)
        return self._lanes.ids(lanes, len(slices))

    def _note(self, others: Sequence[AnyEvent], counts: Mapping[str, int]) -> None:
        """The labels among events that are no slices, and their times."""
        low, high = _reach(others, counts)
        self._reach = min(low, self._reach[0]), max(high, self._reach[1])
        if counts.get("M"):
            self._labels.add(event for event in others if event.ph == "M")


def gather(events: Sequence[AnyEvent], places: Int64s | None = None) -> ChunkColumns:
    """The columns of events with these indices in the chunk; see `Gathering.add`."""
    gathered = Gathering()
    gathered.add(events, places=places)
    return gathered.columns()


def _reach(events: Sequence[Any], counts: Mapping[str, int]) -> tuple[int, int]:
    """Times (ns) before and after all of these events; EVERYWHERE also for labels and
    pairs."""
    if any(map(counts.get, BESIDE_TIME)):
        return EVERYWHERE
    try:
        times = [event.ts for event in events]
        if isinstance(events[0], ExactEvent):
            times = [float(text) for text in times]
        return reach(min(times), max(times))
    except ValueError:
        return EVERYWHERE


def reach(low: float, high: float) -> tuple[int, int]:
    """Times (ns) before and after both (microseconds)."""
    if not (low > -EXACT and high < EXACT):
        return EVERYWHERE
    return (int(low) - 2) * 1000, (int(high) + 2) * 1000


def _device(value: object) -> int | None:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    return number if type(number) is int and 0 <= number < 1 << 31 else None


def _marks(events: Sequence[Any], places: Int64s) -> Iterator[Mark]:
    for order, event in zip(places.tolist(), events, strict=True):
        if event.ph in PHASES_OF_PAIRS:
            yield Mark(
                event.ph,
                event.name,
                event.cat,
                (plain_id(event.pid), plain_id(event.tid)),
                "" if event.ph in "BE" else f"{event.id} {event.id2} {event.scope}",
                exact_nanoseconds(bytes(event.ts)),
                order,
            )


def plain_id(value: Id) -> Id:
    """Integers of more than 64 bits as text: no output accepts them as numbers."""
    return (
        str(value)
        if isinstance(value, int) and not -(2**63) <= value < 2**63
        else value
    )


def _exact(texts: Sequence[Any]) -> Int64s:
    return np.array([exact_nanoseconds(bytes(text)) for text in texts], dtype=np.int64)


def _integers(values: list[int]) -> Int64s:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array(
            [v if -(2**63) <= v < 2**63 else -1 for v in values], dtype=np.int64
        )
