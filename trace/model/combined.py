"""The events of two documents as those of one: those of the second follow those of the first.

Positions in the second document count on from the end of the last event of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.trace.model.events import Events, Keeper, Sample, Stretch, Text

T = TypeVar("T")


class Joint(msgspec.Struct, frozen=True, eq=False):
    """The texts of two documents; from `shift` on, positions are those of the second."""

    first: Text
    second: Text
    shift: int

    @property
    def at_hand(self) -> bool:
        return self.first.at_hand and self.second.at_hand

    def problem(self) -> str:
        return self.first.problem() or self.second.problem()

    def part(self, start: int, end: int) -> Any:
        if start < self.shift:
            return self.first.part(start, end)
        return self.second.part(start - self.shift, end - self.shift)


class Combined:
    """Indices of the second document count on from the number of events of the first. Its counters
    are not those of this trace: none of its stretches has samples."""

    def __init__(self, first: Events, second: Events) -> None:
        self.first, self.second = first, second
        self._size = sum(stretch.events for stretch in first.stretches)
        shift = max((stretch.end for stretch in first.stretches), default=0)
        self.text: Text = Joint(first.text, second.text, shift)
        shifted = (_shifted(stretch, shift) for stretch in second.stretches)
        self.stretches: tuple[Stretch, ...] = (*first.stretches, *shifted)
        self._kept: dict[str, msgspec.Struct] = {}

    @property
    def at_hand(self) -> bool:
        return self.text.at_hand

    def problem(self) -> str:
        return self.text.problem()

    def warm(self) -> None:
        self.first.warm()
        self.second.warm()

    def kept_by(self, keeper: Keeper) -> Events:
        return Combined(self.first.kept_by(keeper), self.second)

    def recall(self, name: str, kind: type[T]) -> T | None:
        found = self._kept.get(name)
        return found if isinstance(found, kind) else None

    def keep(self, name: str, found: msgspec.Struct) -> None:
        """In memory alone: what is kept beside a trace belongs to that file."""
        self._kept[name] = found

    def element(self, order: int) -> dict[str, Any]:
        if order < self._size:
            return self.first.element(order)
        return self.second.element(order - self._size)

    def samples(self, number: int) -> Iterable[tuple[Sample, int]]:
        return self.first.samples(number) if number < len(self.first.stretches) else ()

    def args(self, number: int, places: Sequence[int], names: tuple[str, ...]) -> list[bytes]:
        own = len(self.first.stretches)
        if number < own:
            return self.first.args(number, places, names)
        return self.second.args(number - own, places, names)


def own_events(events: Events) -> Events:
    """The events of the trace itself, without those of captures that it was joined with."""
    while isinstance(events, Combined):
        events = events.first
    return events


def _shifted(stretch: Stretch, by: int) -> Stretch:
    places = stretch.places
    if places is not None:
        places = places + np.array([0, by, by], dtype=np.int64)
    start, end = stretch.start + by, stretch.end + by
    return replace(stretch, start=start, end=end, places=places, samples=0)
