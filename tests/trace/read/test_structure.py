"""The elements of a list are found by its brackets, whatever they hold."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fusetui.trace.read.structure import INSIDE, split

TRICKY = st.sampled_from(["", '"', "\\", '\\"', "[{", "},{", "],", 'a\\\\"b'])
values = st.recursive(
    st.one_of(st.none(), st.integers(), TRICKY),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(TRICKY, inner)),
    max_leaves=12,
)


def elements(text: bytes) -> list[bytes]:
    found = split(text)
    return [text[a:b].strip() for a, b in zip(found.begins, found.ends, strict=True)]


def test_split_finds_elements_whatever_strings_hold() -> None:
    text = b' {"a": [1, "],"]} , 3, "x\\"" ]} behind'
    assert elements(text) == [b'{"a": [1, "],"]}', b"3", b'"x\\""']
    assert text[split(text).close :] == b"]} behind"


def test_an_object_follows_without_a_comma() -> None:
    assert elements(b'{"a":1}{"b":2} {"c":3},') == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_brace_too_many_ends_the_list_unclosed() -> None:
    found = split(b'{"a":1}}, {"b":2}]')
    assert (found.begins.tolist(), found.ends.tolist(), found.close) == ([0], [7], -1)


def test_an_object_that_is_not_closed_is_no_element() -> None:
    assert elements(b'{"a":1}, {"b": [') == [b'{"a":1}']


@given(st.lists(values, max_size=8))
def test_split_finds_every_element_of_any_list(expected: list[Any]) -> None:
    text = json.dumps(expected).encode()[1:]
    assert [json.loads(element) for element in elements(text) if element] == expected
    assert split(text).close == len(text) - 1


@given(st.lists(values, max_size=4), st.integers(1, 9))
def test_split_in_pieces_finds_the_same_ends(expected: list[Any], size: int) -> None:
    text = json.dumps(expected).encode()[1:]
    state, ends = INSIDE, []
    for at in range(0, len(text), size):
        part = split(text[at : at + size], state)
        ends += [at + end for end in part.ends.tolist()]
        state = part.state
    assert ends == split(text).ends.tolist()
