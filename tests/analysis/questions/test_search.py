"""Search by part of the name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.search import collect_name_texts, search

Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mm", ["aten::mm", "GEMM(a, b)", "aten::addmm"]),
        ("MM", ["GEMM(a, b)"]),
        ("gemm(", ["GEMM(a, b)"]),
        (".*", []),
        ("", []),
    ],
)
def test_search_finds_parts_of_names_in_any_case(
    trace_of: Make, event: Make, text: str, expected: list[str]
) -> None:
    names = ["aten::addmm", "GEMM(a, b)", "aten::mm"]
    trace = trace_of(
        [event(name, ts) for name, ts in zip(names, (9, 5, 1), strict=True)]
    )
    rows = search(trace, collect_name_texts(trace), parse(text))
    assert [trace.name_of(int(row)) for row in rows] == expected


def test_find_in_nothing(trace_of: Make) -> None:
    trace = trace_of([])
    assert len(search(trace, collect_name_texts(trace), parse("x"))) == 0
