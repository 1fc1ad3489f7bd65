"""The values of args as text: the same as JSON, and bounded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.hostile import WORST, obeyed

from fusetui.tui.drawing.details import MAX_DEPTH, MAX_VALUE_CHARS, format_value


class Counted(list[Any]):
    """Counts how many of its items are looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.looked_at += 1
            yield item


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        1,
        1.5,
        None,
        True,
        [],
        {},
        [[8192, 768], []],
        {"a": {"b": [1, "x"]}, "c": "y"},
        nested(MAX_DEPTH),
    ],
)
def test_value_text_is_that_of_json(value: object) -> None:
    assert format_value(value, "...") == json.dumps(value)


def test_a_text_is_shown_as_it_is() -> None:
    assert format_value("[8, 1, 1]", "...") == "[8, 1, 1]"


@pytest.mark.parametrize("value", [WORST, [WORST], {WORST: WORST}])
def test_no_value_is_obeyed(value: object) -> None:
    assert obeyed(format_value(value, "..."), "") == set()


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 600, 100_000])
def test_deeply_nested_values_are_cut(depth: int) -> None:
    assert (
        format_value(nested(depth), "...") == "[" * MAX_DEPTH + "..." + "]" * MAX_DEPTH
    )


def test_long_lists_and_texts_are_cut() -> None:
    items = Counted(range(100_000))
    text = format_value({"items": items}, "...")
    assert len(text) == MAX_VALUE_CHARS
    assert text.startswith('{"items": [0, 1, 2')
    assert text.endswith("...")
    assert items.looked_at < MAX_VALUE_CHARS


@pytest.mark.parametrize("value", ["x" * 10**7, ["x" * 10**7], {"x" * 10**7: 1}])
def test_long_value_text_is_cut_at_its_bound(value: object) -> None:
    text = format_value(value, "...")
    assert (len(text), text[-4:]) == (MAX_VALUE_CHARS, "x...")
