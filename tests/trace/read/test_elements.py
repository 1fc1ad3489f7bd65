"""Args are looked up in the file on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.trace.read.held import Held

from fusetui.trace.model.events import Stretch
from fusetui.trace.read.elements import Elements

Make = Callable[..., Any]


def test_elements_are_found_by_their_place_across_stretches() -> None:
    data = b'[{"a": 1}, {"b": 2.50},\n{"c": "x"} ]'
    elements = Elements(Held(data), [Stretch(1, 23, 2), Stretch(24, len(data) - 1, 1)])
    assert [elements.element(n) for n in range(3)] == [{"a": 1}, {"b": 2.5}, {"c": "x"}]


def test_elements_with_recorded_places_are_found_between_junk() -> None:
    data = b'[{"a": 1} junk {"b": nan}]'
    places = np.array([[0, 1, 9], [2, 15, 25]])
    elements = Elements(Held(data), [Stretch(1, 25, 3, places=places)])
    assert [elements.element(n) for n in range(3)] == [{"a": 1}, {}, {"b": "nan"}]


def test_huge_exponents_become_infinity_or_zero() -> None:
    huge, tiny = "-1.5e" + "9" * 30, "1.5e-" + "9" * 30
    data = f'[{{"a": {huge}, "b": {tiny}, "c": 1.5}}]'.encode()
    found = Elements(Held(data), [Stretch(1, len(data) - 1, 1)]).element(0)
    assert found == {"a": float("-inf"), "b": 0.0, "c": 1.5}


@pytest.mark.parametrize("place", [-1, 1, 99])
def test_element_without_a_place_is_an_index_error(place: int) -> None:
    with pytest.raises(IndexError):
        Elements(Held(b"[{}]"), [Stretch(1, 3, 1)]).element(place)


def test_args_of_a_slice_are_those_in_the_file(trace_of: Make, event: Make) -> None:
    args = {
        "Input Dims": [[2, 3], []],
        "big": 2**63 + 1,
        "text": 'a "quoted" \u202e name',
    }
    metadata = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}
    trace = trace_of(
        [metadata, event("late", 5, args=args), event("early", 1, args=[1])]
    )
    assert [trace.name_of(row) for row in range(2)] == ["early", "late"]
    assert trace.args_of(0) == {}
    assert trace.args_of(1) == args


def test_elements_asked_for_lately_are_not_read_again() -> None:
    reads: list[int] = []

    class Counted(Held):
        def part(self, start: int, end: int) -> bytes:
            reads.append(start)
            return super().part(start, end)

    data = b"[" + b",".join(b'{"a": %d}' % n for n in range(6)) + b"]"
    stretches = [Stretch(1 + 9 * n, 9 + 9 * n, 1) for n in range(6)]
    elements = Elements(Counted(data), stretches)
    assert [elements.element(n)["a"] for n in [*range(6)] * 2] == [*range(6)] * 2
    assert len(reads) == 6
