"""`and`, `or`, `not` and parentheses."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.analysis.questions.query_text import (
    MAX_ALTERNATIVES,
    WrongQueryError,
    parse_alternatives,
)

LETTERS = "abcd"


def ways(text: str) -> list[list[str]]:
    """What the terms are, `-` before those that must not hold."""
    found = parse_alternatives(text, lambda *_: True)
    return [[f"{'-' * term.excluded}{term.text}" for term in way] for way in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", [["a", "b"]]),
        ("a or b", [["a"], ["b"]]),
        ("a or b c", [["a"], ["b", "c"]]),
        ("(a or b) c", [["a", "c"], ["b", "c"]]),
        ("not a", [["-a"]]),
        ("not -a", [["a"]]),
        ("not (a or b)", [["-a", "-b"]]),
        ("-(a and b)", [["-a"], ["-b"]]),
        ("a OR b", [["a"], ["b"]]),
        ("(dur>50us)", [["dur>50us"]]),
        ("(op = aten::mm) or x", [["op=aten::mm"], ["x"]]),
        ("(/a|(b)/ or x)", [["/a|(b)/"], ["x"]]),
        ("", []),
    ],
)
def test_and_or_not_and_parentheses_become_alternatives(
    text: str, expected: list[list[str]]
) -> None:
    assert ways(text) == expected


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("or", ["or"]),
        ("a or", ["a", "or"]),
        ("not", ["not"]),
        ('a "or" b', ["a", '"or"', "b"]),
        ("a -or b", ["a", "-or", "b"]),
        ("void f(int)", ["void", "f(int)"]),
        ("(f(int))", ["f(int)"]),
        ("namespace)::f", ["namespace)::f"]),
        ("f(int", ["f(int"]),
        ('"(anonymous namespace)"', ['"(anonymous namespace)"']),
    ],
)
def test_quoted_text_is_searched_literally(text: str, terms: list[str]) -> None:
    """Names have parentheses too, and words that join nothing are looked for."""
    assert ways(text) == [terms]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("(a", "unclosed ("),
        ("()", "nothing between ( and )"),
        ("a or ()", "nothing between ( and )"),
        ("(" * 30 + "a" + ")" * 30, "at most 20 parentheses"),
        (" ".join(["(a or b)"] * 9), f"more than {MAX_ALTERNATIVES} alternatives"),
        ("a " * 251, "at most 500 characters"),
    ],
)
def test_wrong_query_text_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(WrongQueryError) as wrong:
        ways(text)
    assert sentence in str(wrong.value)


Said = tuple[str, str]
"""A query, and the same in Python."""


def joined(inner: st.SearchStrategy[Said]) -> st.SearchStrategy[Said]:
    two = st.tuples(inner, st.sampled_from(["and", "or"]), inner)
    return st.one_of(
        inner.map(lambda one: (f"not ({one[0]})", f"(not {one[1]})")),
        two.map(
            lambda s: (
                f"({s[0][0]}) {s[1]} ({s[2][0]})",
                f"({s[0][1]} {s[1]} {s[2][1]})",
            )
        ),
    )


@given(
    st.recursive(st.sampled_from(LETTERS).map(lambda a: (a, a)), joined, max_leaves=5)
)
def test_query_holds_where_the_same_python_expression_holds(said: Said) -> None:
    query, expression = said
    found = ways(query)
    for values in product((False, True), repeat=len(LETTERS)):
        known = dict(zip(LETTERS, values, strict=True))
        holds = any(
            all(known[t[-1]] != t.startswith("-") for t in way) for way in found
        )
        assert holds == eval(expression, {}, known)
