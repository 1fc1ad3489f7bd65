"""When Python's collector of cycles runs, and when not."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fusetui.own_memory import without_collector
from fusetui.trace import open_trace

EVENT = '{"ph":"X","name":"op %d","ts":"%d","dur":1,"pid":1,"tid":1}'
"""Its time is in quotes, so that Python decodes it."""

Generations = list[int]


@pytest.fixture
def collections() -> Iterator[Generations]:
    """The generation of each collection since the test began."""
    generations: Generations = []

    def note(phase: str, information: dict[str, int]) -> None:
        if phase == "start":
            generations.append(information["generation"])

    before = gc.get_threshold()
    gc.set_threshold(100)
    gc.callbacks.append(note)
    yield generations
    gc.callbacks.remove(note)
    gc.set_threshold(*before)


def test_objects_made_without_the_collector_are_not_looked_at(
    collections: Generations,
) -> None:
    with without_collector():
        collections.clear()
        objects = [[number] for number in range(1000)]
        assert len(objects) == 1000
        assert collections == []


def test_the_number_of_collections_does_not_grow_with_the_trace(
    collections: Generations, write: Callable[[str], Path]
) -> None:
    def collections_while_opening(events: int) -> int:
        written = ",".join(EVENT % (number, number) for number in range(events))
        path = str(write(f"[{written}]"))
        collections.clear()
        open_trace(path)
        return len(collections)

    collections_while_opening(10)  # imports what is needed
    assert collections_while_opening(5000) < collections_while_opening(10) + 30
