"""Decoded events of one chunk -> its columns, with string tables of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.read.events import NO_ARGS, Event, ExactEvent, Id
from fusetui.trace.read.times import exact_nanoseconds, nanoseconds

AnyEvent = Event | ExactEvent
Thread = tuple[Id, Id]


@dataclass(frozen=True, slots=True)
class Label:
    """One metadata event (ph M): what a process or thread is called."""

    kind: str  # process_name, process_labels, thread_name, ...
    pid: Id
    tid: Id
    value: Any


@dataclass(frozen=True, eq=False)
class ChunkColumns:
    """The slices (ph X) of one chunk; every array has shape [slices]."""

    phases: Counter[str]
    names: list[str]
    categories: list[str]
    threads: list[Thread]
    labels: list[Label]
    start: NDArray[np.int64]
    dur: NDArray[np.int64]
    name: NDArray[np.int32]  # into names
    category: NDArray[np.int32]  # into categories
    thread: NDArray[np.int32]  # into threads
    correlation: NDArray[np.int64]
    external_id: NDArray[np.int64]
    order: NDArray[np.int64]  # the event's place in the chunk


class Interner(dict[Any, int]):
    """Gives each distinct key the next small number."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number

    def ids(self, keys: Iterable[Any]) -> NDArray[np.int32]:
        return np.fromiter(map(self.__getitem__, keys), dtype=np.int32)


def gather(events: Sequence[AnyEvent]) -> ChunkColumns:
    """Raises InexactTimes or OverflowError when times need their text (see times.py)."""
    phases = list(map(attrgetter("ph"), events))
    slices = [event for event in events if event.ph == "X"]
    args = [event.args or NO_ARGS for event in slices]
    names, categories, threads = Interner(), Interner(), Interner()
    return ChunkColumns(
        phases=Counter(phases),
        labels=[_label(event) for event in events if event.ph == "M"],
        start=_times([event.ts for event in slices]),
        dur=_times([event.dur for event in slices]),
        name=names.ids(map(attrgetter("name"), slices)),
        category=categories.ids(map(attrgetter("cat"), slices)),
        thread=threads.ids(map(attrgetter("pid", "tid"), slices)),
        correlation=_integers([a.correlation for a in args]),
        external_id=_integers([max(a.external_id, a.external_id_2021) for a in args]),
        order=np.flatnonzero(np.fromiter((ph == "X" for ph in phases), np.bool_, len(phases))),
        names=list(names),
        categories=list(categories),
        threads=[(_identity(pid), _identity(tid)) for pid, tid in threads],
    )


def _label(event: AnyEvent) -> Label:
    args = event.args or NO_ARGS
    value = next((v for v in (args.name, args.labels, args.sort_index) if v is not None), None)
    return Label(event.name, _identity(event.pid), _identity(event.tid), value)


def _identity(value: Id) -> Id:
    """Integers that do not fit into 64 bits as text: no output takes them as numbers."""
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _times(values: list[Any]) -> NDArray[np.int64]:
    if values and not isinstance(values[0], int | float):
        return np.array([exact_nanoseconds(bytes(text)) for text in values], dtype=np.int64)
    return nanoseconds(values)


def _integers(values: list[int]) -> NDArray[np.int64]:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array([v if -(2**63) <= v < 2**63 else -1 for v in values], dtype=np.int64)
