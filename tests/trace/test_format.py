"""Figures and names as people read them."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hostile import PAYLOADS, is_hidden, obeyed

from fusetui.trace.format import (
    clip,
    duration,
    is_printable,
    json_lines,
    percent,
    plural,
    printable,
    printable_lines,
    quantity,
)

Json = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1 us"),
        (41_234, "41.23 us"),
        (812_345, "812.3 us"),
        (1_204_000_000, "1.204 s"),
        (86_400_000_000_000, "86400 s"),
        (-41_234, "-41.23 us"),
    ],
)
def test_duration(ns: int, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12.5, "", "12.5"),
        (0, "", "0"),
        (0.00012345, "", "0.000123"),
        (1204, "", "1204"),
        (1_204_000, "", "1.204 M"),
        (-3e20, "", "-3e+20"),
        (512, "B", "512 B"),
        (934_200_000, "B", "934.2 MB"),
    ],
)
def test_quantity(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"), [(71, 100, "71 %"), (4, 1000, "0.4 %"), (0, 0, ""), (1, 1, "100 %")]
)
def test_percent(part: int, whole: int, text: str) -> None:
    assert percent(part, whole) == text


def test_plural() -> None:
    assert [plural(n, "kernel") for n in (0, 1, 4330)] == ["0 kernels", "1 kernel", "4,330 kernels"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("aten::mm [x] <y>", "aten::mm [x] <y>"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\u202eabc", r"\u202eabc"),
        ("\ud800", r"\ud800"),
        ("日本", "日本"),
        ("a\x9b31m", r"a\x9b31m"),
        ("a\x7fb", r"a\x7fb"),
        ("a\u200bb", r"a\u200bb"),
        ("a\ufe0fb", r"a\ufe0fb"),
        ("a\U000e0100b", r"a\U000e0100b"),
        ("Prüfung ⅔ é", "Prüfung ⅔ é"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert is_printable(text) == (text == shown)


def test_no_hidden_character_is_printable() -> None:
    assert not [
        hex(n) for n in range(sys.maxunicode + 1) if is_hidden(chr(n)) and is_printable(chr(n))
    ]


@pytest.mark.parametrize("text", PAYLOADS.values(), ids=PAYLOADS)
def test_the_ends_of_lines_stay(text: str) -> None:
    lines = printable_lines(f"one {text}\ntwo {text}")
    assert obeyed(lines) == set()
    assert printable(text.replace("\n", "")) in lines.replace("\n", "")


@settings(max_examples=40)
@given(Json)
def test_json_stays_the_same_document(document: object) -> None:
    text = json_lines(json.dumps(document, indent=2, ensure_ascii=False))
    assert json.loads(text) == document
    assert obeyed(text) == set()


def test_clip() -> None:
    assert clip("abcdef", 6) == "abcdef"
    assert clip("abcdef", 4) == "abc…"
    assert clip("abcdef", 4, "...") == "a..."
