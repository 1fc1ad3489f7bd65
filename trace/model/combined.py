"""The events of two documents as those of one: those of the second follow those of the first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from fusetui.trace.model.events import Events, Keeper, Sample, Stretch, Text

T = TypeVar("T")


class Combined:
    """Indices of the second document count on from the number of events of the first."""

    def __init__(self, first: Events, second: Events) -> None:
        self.first, self.second = first, second
        self._size = sum(stretch.events for stretch in first.stretches)
        self.stretches: tuple[Stretch, ...] = (*first.stretches, *second.stretches)

    @property
    def text(self) -> Text:
        """The first document: questions about a whole file are about this one."""
        return self.first.text

    @property
    def at_hand(self) -> bool:
        return self.first.at_hand and self.second.at_hand

    def problem(self) -> str:
        return self.first.problem() or self.second.problem()

    def warm(self) -> None:
        self.first.warm()
        self.second.warm()

    def kept_by(self, keeper: Keeper) -> Events:
        return Combined(self.first.kept_by(keeper), self.second)

    def recall(self, name: str, kind: type[T]) -> T | None:
        """Nothing: what is kept beside a trace belongs to that file alone."""

    def keep(self, name: str, found: msgspec.Struct) -> None:
        """Nothing is kept."""

    def element(self, order: int) -> dict[str, Any]:
        if order < self._size:
            return self.first.element(order)
        return self.second.element(order - self._size)

    def samples(self, number: int) -> Iterable[tuple[Sample, int]]:
        """Only the first document has counters of this trace."""
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
