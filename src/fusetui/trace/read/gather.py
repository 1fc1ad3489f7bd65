"""The columns of one chunk from its decoded events, with its own string tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arrays import Flags, Int32s, Int64s
from fusetui.trace.model.categories import ROLES_ON_STREAMS, role
from fusetui.trace.model.events import EVERYWHERE, NOWHERE
from fusetui.trace.model.ids import Id
from fusetui.trace.model.raw import Label, Lane, SliceColumns, Thread
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

REACH_MARGIN_US = 2  # of Stretch.reach, for what floats round away
MAX_DEVICE = (1 << 31) - 1
BESIDE_TIME = PHASES_OF_PAIRS | {"M", "n", "T"}
"""Phases of events that hold for all times, or belong to a pair."""


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

    @classmethod
    def of(cls, table: Iterable[Any]) -> Self:
        """Start with the keys of a table, which are distinct: each has its index as
        number."""
        return cls((key, number) for number, key in enumerate(table))

    def __missing__(self, key: Any) -> int:
        """Give a new key the next number."""
        number = self[key] = len(self)
        return number

    def ids(self, keys: Iterable[Any], count: int = -1) -> Int32s:
        """The numbers of keys as an array; new keys get the next numbers. `count` is
        the number of keys, or -1 if it is not known."""
        return np.fromiter(map(self.__getitem__, keys), np.int32, count)


class Labels:
    """What events say of threads (ph M). A label that says what the last of its kind
    said of its thread is left out: some writers repeat them at each event."""

    def __init__(self) -> None:
        """Start without labels."""
        self.all: list[Label] = []
        self._last_values: dict[Thread, dict[str, Any]] = {}  # by thread and kind

    def add(self, events: Iterable[AnyEvent]) -> None:
        """Add the labels in these metadata events, in their order. A label that repeats
        what the last one said of the same thread is left out."""
        for event in events:
            kind = event.name
            value = _label_value(event.args or NO_ARGS)
            last_values = self._last_values.setdefault((event.pid, event.tid), {})
            is_repeated = kind in last_values and last_values[kind] == value
            if is_repeated:
                continue
            last_values[kind] = value
            self.all.append(
                Label(
                    kind=kind,
                    pid=plain_id(event.pid),
                    tid=plain_id(event.tid),
                    value=value,
                )
            )


def _label_value(args: Args) -> Any:
    """The value of a label: the first of its args name, labels and sort_index that it
    has."""
    if args.name is not None:
        return args.name
    if args.labels is not None:
        return args.labels
    return args.sort_index


class Gathering:
    """Makes the columns of a chunk from its events, piece by piece: what a piece was
    decoded to is still in the caches of the processor when its columns are made."""

    def __init__(self) -> None:
        """Start without events."""
        self.phases: Counter[str] = Counter()
        self._phase_table = Interner()
        self._names = Interner()
        self._categories = Interner()
        self._lanes = Interner()
        self._is_gpu_category: list[bool] = []
        self._parts: list[dict[str, NDArray[Any]]] = []
        self._labels = Labels()
        self._marks: list[Mark] = []
        self._reach = NOWHERE

    def add(
        self, events: Sequence[Any], text: bytes = b"", places: Int64s | None = None
    ) -> None:
        """Add decoded events with their text.

        `places` are their indices in the chunk, by default those after the last event.

        Raises InexactTimesError if exact times are needed, OverflowError if a time is
        out of range, ValueError if one is not a number. Then nothing was added.
        """
        if places is None:
            first = self.phases.total()
            places = np.arange(first, first + len(events))
        phases = self._phases_of(events)
        event_counts = np.bincount(phases).tolist()
        # without phases of the table that come after the last one that occurs here
        count_of_phase = dict(zip(self._phase_table, event_counts, strict=False))
        is_slice = phases == self._phase_table["X"]
        slices = list(compress(events, is_slice.tolist()))

        has_exact_times = len(events) > 0 and isinstance(events[0], ExactEvent)
        has_pairs = any(count_of_phase.get(phase) for phase in PHASES_OF_PAIRS)
        if has_pairs and not has_exact_times:
            raise InexactTimesError  # begins and ends are paired by their times
        marks: list[Mark] = []
        if has_exact_times:
            start = _parse_exact_times([event.ts for event in slices])
            dur = _parse_exact_times([event.dur for event in slices])
            marks = list(_marks(events, places))
        else:
            start, dur = _read_times(events, slices, is_slice, text)
        if len(slices) and int((start + dur).max()) > LIMIT_NS:
            raise OverflowError("a slice ends out of range")
        columns = self._columns_without_times(slices)
        columns.update(start=start, dur=dur, order=places[is_slice])
        self._parts.append(columns)
        self.phases.update(count_of_phase)
        self._marks += marks
        if len(slices) < len(events):
            others = list(compress(events, (~is_slice).tolist()))
            self._add_others(others, count_of_phase)

    def _columns_without_times(
        self, slices: Sequence[AnyEvent]
    ) -> dict[str, NDArray[Any]]:
        """The columns of slices other than their times, by name; shape [slices]."""
        count = len(slices)
        args = [event.args or NO_ARGS for event in slices]
        category = self._categories.ids([event.cat for event in slices], count)
        external_id = _clamp_integers([slice_args.external_id for slice_args in args])
        external_id_2021 = _clamp_integers(
            [slice_args.external_id_2021 for slice_args in args]
        )
        return {
            "name": self._names.ids([event.name for event in slices], count),
            "category": category,
            "thread": self._number_lanes(slices, args, category),
            "correlation": _clamp_integers(
                [slice_args.correlation for slice_args in args]
            ),
            # the larger one counts, as in scan.c; a negative one is none
            "external_id": np.maximum(np.maximum(external_id, external_id_2021), -1),
        }

    def columns(self) -> ChunkColumns:
        """The columns of all events that were added."""
        if not self._parts:
            self.add([])
        columns = {
            name: np.concatenate([part[name] for part in self._parts])
            for name in self._parts[0]
        }
        lanes = [
            (plain_id(pid), plain_id(tid), device) for pid, tid, device in self._lanes
        ]
        return ChunkColumns(
            phases=+self.phases,
            names=tuple(self._names),
            categories=tuple(self._categories),
            threads=tuple(lanes),
            labels=tuple(self._labels.all),
            marks=tuple(self._marks),
            reach=self._reach,
            **columns,
        )

    def _phases_of(self, events: Sequence[AnyEvent]) -> Int32s:
        """The number of the phase of each event. Instant events that torch writes as
        slices get the phase that they should have."""
        phases = self._phase_table.ids([event.ph for event in events], len(events))
        instants = [
            number
            for number, event in enumerate(events)
            if event.cat == INSTANT and event.ph == "X"
        ]
        phases[instants] = self._phase_table["i"]
        return phases

    def _number_lanes(
        self, slices: Sequence[AnyEvent], args: Sequence[Args], category: Int32s
    ) -> Int32s:
        """The number of the lane of each slice: process, thread and device.

        A GPU event has its device in its lane. Its lane is that of its own stream,
        wherever it was moved for display.
        """
        new_categories = list(self._categories)[len(self._is_gpu_category) :]
        for name in new_categories:
            self._is_gpu_category.append(role(name) in ROLES_ON_STREAMS)
        is_on_gpu = np.array(self._is_gpu_category, np.bool_)[category]
        lanes: list[Lane] = [(event.pid, event.tid, None) for event in slices]
        for row in np.flatnonzero(is_on_gpu).tolist():
            pid, tid, _ = lanes[row]
            args_of_row = args[row]
            if args_of_row.original_stream >= 0:
                tid = args_of_row.original_stream
            lanes[row] = (pid, tid, _parse_device(args_of_row.device))
        return self._lanes.ids(lanes, len(slices))

    def _add_others(
        self, others: Sequence[AnyEvent], counts: Mapping[str, int]
    ) -> None:
        """Add the labels and the range of times of events that are no slices. `counts`
        has the number of events by phase."""
        low, high = _reach(others, counts)
        low_so_far, high_so_far = self._reach
        self._reach = min(low, low_so_far), max(high, high_so_far)
        if counts.get("M"):
            self._labels.add(event for event in others if event.ph == "M")


def gather(events: Sequence[AnyEvent], places: Int64s | None = None) -> ChunkColumns:
    """The columns of decoded events. `places` are their indices in the chunk, by
    default 0, 1, and so on."""
    gathering = Gathering()
    gathering.add(events, places=places)
    return gathering.columns()


def _read_times(
    events: Sequence[Any], slices: Sequence[Any], is_slice: Flags, text: bytes
) -> tuple[Int64s, Int64s]:
    """The starts and durations in ns of the slices among events.

    Where a number is not exact, the digits are read from `text`. Raises what
    `nanoseconds` and `by_digits` raise.
    """

    def starts_by_digits() -> Int64s:
        # Other events have starts too, so that these are found in the text as well.
        starts = by_digits(text, b'"ts":', [event.ts for event in events])
        return starts[is_slice]

    durations = [event.dur for event in slices]
    start = nanoseconds([event.ts for event in slices], starts_by_digits)
    dur = nanoseconds(durations, lambda: by_digits(text, b'"dur":', durations))
    return start, dur


def _reach(events: Sequence[Any], counts: Mapping[str, int]) -> tuple[int, int]:
    """Times in ns before and after all of these events. EVERYWHERE if some are labels
    or parts of pairs, which matter for all times."""
    if any(map(counts.get, BESIDE_TIME)):
        return EVERYWHERE
    try:
        times = [event.ts for event in events]
        if isinstance(events[0], ExactEvent):
            times = [float(text) for text in times]
        # The shortest digits of a float are those that were written.
        first_ns = exact_nanoseconds(repr(min(times)))
        last_ns = exact_nanoseconds(repr(max(times)))
    except ValueError:
        return EVERYWHERE
    return reach(first_ns, last_ns)


def reach(first_ns: int, last_ns: int) -> tuple[int, int]:
    """Times (ns) safely before the first and after the last of some events, in whole
    microseconds, because floats tell apart no more of the largest times."""
    before_us = int(first_ns / 1000) - REACH_MARGIN_US
    after_us = int(last_ns / 1000) + REACH_MARGIN_US
    return before_us * 1000, after_us * 1000


def _parse_device(value: object) -> int | None:
    """The number of a device, which may be written as a text; None for anything else."""
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if type(number) is int and 0 <= number <= MAX_DEVICE:  # True is no device
        return number
    return None


def _marks(events: Sequence[Any], places: Int64s) -> Iterator[Mark]:
    """Yield the begin and end events of pairs among exact events. `places` are the
    indices of the events in the chunk."""
    for order, event in zip(places.tolist(), events, strict=True):
        if event.ph not in PHASES_OF_PAIRS:
            continue
        is_of_thread = event.ph in "BE"
        yield Mark(
            phase=event.ph,
            name=event.name,
            category=event.cat,
            thread=(plain_id(event.pid), plain_id(event.tid)),
            key="" if is_of_thread else f"{event.id} {event.id2} {event.scope}",
            time=exact_nanoseconds(bytes(event.ts)),
            order=order,
        )


def plain_id(value: Id) -> Id:
    """A pid or tid, with integers of more than 64 bits as text, because no output
    accepts them as numbers."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value


def _parse_exact_times(texts: Sequence[Any]) -> Int64s:
    """Times in ns, exact from their texts."""
    return np.array([exact_nanoseconds(bytes(text)) for text in texts], dtype=np.int64)


def _clamp_integers(values: list[int]) -> Int64s:
    """Integers as a column; -1 stands for those that do not fit into 64 bits."""
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        in_range = [value if -(2**63) <= value < 2**63 else -1 for value in values]
        return np.array(in_range, dtype=np.int64)
