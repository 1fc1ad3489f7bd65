"""Strings of JSON text are changed, whatever surrounds them, and nothing else."""

from __future__ import annotations

import json

import pytest

from fusetui.trace.scrub.events import Strings, Used, changed, parts, swap_strings


def upper(text: str) -> str:
    return text.upper() if text.startswith("/") else text


@pytest.mark.parametrize(
    "text",
    [
        '{"/a": "b", "c": "/d/e", "f": [1.50, "/a", true]}',
        '["a\\"/b", "/c\\"", "/d\\\\", "\\/e", "\\u002ff"]',
        '["", "/ü", "/\\u00fc", ",", ", "]',
    ],
)
def test_each_string_is_changed_as_it_is_when_decoded(text: str) -> None:
    def expected(value: object) -> object:
        if isinstance(value, dict):
            return {upper(key): expected(item) for key, item in value.items()}
        if isinstance(value, list):
            return [expected(item) for item in value]
        return upper(value) if isinstance(value, str) else value

    strings = Strings(upper)
    assert json.loads(changed(text.encode(), strings)) == expected(json.loads(text))


def test_swapping_differing_strings_equals_changing_one_by_one() -> None:
    text = b'{"/a": "/b", "c": ["/a", "a/a", "/a "], "/": 1}'
    final = Strings(upper)
    used = Used()
    used.add(7, set(parts(text)[1::2]))
    differing = used.differing(7, final)
    assert differing is not None
    assert swap_strings(text, differing) == changed(text, final)


@pytest.mark.parametrize("raw", [b",", b": ", b"1, 2", b"true"])
def test_text_that_may_stand_between_strings_is_not_swapped_bytewise(
    raw: bytes,
) -> None:
    assert swap_strings(b'["a", "b"]', [(raw, b"x")]) is None


def test_many_are_not_done_one_by_one() -> None:
    assert swap_strings(b"[]", [(b"/a", b"b")] * 100) is None


def test_a_string_is_looked_at_once() -> None:
    seen: list[str] = []
    strings = Strings(lambda text: seen.append(text) or text)  # type: ignore[func-returns-value]
    changed(b'["a", "b", "a"]', strings)
    changed(b'["b", "a"]', strings)
    assert seen == ["a", "b"]
