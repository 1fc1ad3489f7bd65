"""Figures and names as users read them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hostile import PAYLOADS, is_hidden, obeyed

from fusetui.text.figures import (
    change,
    common_unit,
    duration,
    microseconds,
    pace,
    percent,
    plural,
    quantity,
    signed_duration,
    signed_percent,
    size,
    tick,
    window,
)
from fusetui.text.printable import is_printable, json_lines, printable, printable_lines

Json = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
Number = int | Fraction


TIMES = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
SIZES = {"byte": 1, "bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
AMOUNTS = {"": 1, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
SHARES: dict[str, Number] = {"": 1, "%": Fraction(1, 100)}


def parsed(text: str, units: Mapping[str, Number]) -> Fraction:
    """The value that the user reads; `<` and `>` mean a little less and more."""
    number, _, unit = text.partition(" ")
    beside = {"<": -1, ">": 1}.get(number[0], 0) * Fraction(1, 10**6)
    return (Fraction(number.lstrip("<>").replace(",", "")) + beside) * units[unit]


def half_of_last_digit(text: str, units: Mapping[str, Number]) -> Fraction:
    number, _, unit = text.partition(" ")
    return Fraction(1, 2 * 10 ** len(number.partition(".")[2])) * units[unit]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1 us"),
        (41_234, "41.23 us"),
        (812_345, "812.3 us"),
        (999_600, "999.6 us"),
        (999_949, "999.9 us"),
        (999_950, "1 ms"),
        (999_999_999, "1 s"),
        (1_204_000_000, "1.204 s"),
        (86_400_000_000_000, "86400 s"),
        (2**62 + 1, "4611686018 s"),
        (-41_234, "-41.23 us"),
    ],
)
def test_duration_has_four_digits_and_a_fitting_unit(ns: int, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("write", "units"),
    [(duration, TIMES), (size, SIZES), (lambda n: quantity(float(n)), AMOUNTS)],
    ids=["duration", "size", "quantity"],
)
@given(
    values=st.tuples(st.integers(0, 2**53), st.integers(0, 2**53)),
    power=st.integers(0, 53),
)
def test_a_figure_says_four_digits_of_the_exact_one(
    write: Callable[[int], str],
    units: Mapping[str, Number],
    values: tuple[int, int],
    power: int,
) -> None:
    low, high = sorted(value >> power for value in values)
    text = write(low)
    assert "e" not in text.partition(" ")[0]
    assert abs(parsed(text, units) - low) <= half_of_last_digit(text, units)
    assert abs(parsed(text, units) - low) * 2000 <= low
    assert parsed(text, units) <= parsed(write(high), units)


@pytest.mark.parametrize(("write", "last"), [(duration, "s"), (size, "TB")])
@given(value=st.integers(0, 2**53), power=st.integers(0, 53))
def test_a_thousand_of_a_unit_is_one_of_the_next(
    write: Callable[[int], str], last: str, value: int, power: int
) -> None:
    number, unit = write(value >> power).split(" ")
    assert Fraction(number) < 1000 or unit == last


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12.5, "", "12.5"),
        (0, "", "0"),
        (0.00012345, "", "0.0001234"),
        (1204, "", "1204"),
        (1_204_000, "", "1.204 M"),
        (999_999.9, "B", "1 MB"),
        (-3e20, "", "-300 E"),
        (10**21, "B", "1e+21 B"),
        (3e-20, "", "3e-20"),
        (512, "B", "512 B"),
        (934_200_000, "B", "934.2 MB"),
    ],
)
def test_quantity_has_four_digits_and_its_unit(
    value: float, unit: str, text: str
) -> None:
    assert quantity(value, unit) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1 FLOP"),
        (999, "999 FLOP"),
        (1000, "1 kFLOP"),
        (999_600, "1 MFLOP"),
        (38_654_705_664, "38.7 GFLOP"),
        (2.04e14, "204 TFLOP"),
        (5.5e18, "5.5 EFLOP"),
    ],
)
def test_quantity_with_three_digits_rounds(number: float, text: str) -> None:
    assert quantity(number, "FLOP", 3) == text


@pytest.mark.parametrize(
    ("ns", "signed", "text"),
    [
        (1_437_260, False, "1,437.3"),
        (60_249, True, "+60.2"),
        (-50, True, "-0.1"),
        (0, True, "0.0"),
        (-20, True, "0.0"),
        (20, True, "0.0"),
        (-20, False, "0.0"),
    ],
)
def test_microseconds_are_written_with_one_decimal(
    ns: int, signed: bool, text: str
) -> None:
    assert microseconds(ns, signed) == text


@pytest.mark.parametrize(
    ("ns", "text"), [(41_234, "+41.23 us"), (-512, "-512 ns"), (0, "0 ns")]
)
def test_a_change_has_a_sign_unless_there_is_none(ns: int, text: str) -> None:
    assert signed_duration(ns) == text


@pytest.mark.parametrize(
    ("ns", "step", "text"),
    [
        (820_000, 20_000, "820 us"),
        (1_250_000_000, 10_000_000, "1.25 s"),
        (1_000_000, 1000, "1.000 ms"),
        (999_999_600, 1_000_000, "1.000 s"),
        (-1500, 500, "-1.5 us"),
        (0, 5, "0 ns"),
    ],
)
def test_tick_has_as_many_digits_as_its_step_needs(
    ns: int, step: int, text: str
) -> None:
    assert tick(ns, step) == text


@pytest.mark.parametrize(
    ("begin", "end", "text"),
    [
        (10_000_000_000, 10_003_000_000, "10000.00 ms to 10003.00 ms"),
        (5_000_000_000, 17_000_000_000, "5.0 s to 17.0 s"),
        (0, 0, "0 ns to 0 ns"),
    ],
)
def test_both_ends_of_a_window_are_told_apart(begin: int, end: int, text: str) -> None:
    assert window(begin, end) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (71, 100, "71 %"),
        (4, 1000, "0.4 %"),
        (999, 10_000, "10 %"),
        (994, 1000, "99 %"),
        (995, 1000, "99.5 %"),
        (999_999, 1_000_000, ">99.9 %"),
        (1, 1, "100 %"),
        (12, 10, "120 %"),
        (1_000_001, 1_000_000, ">100 %"),
        (0.22, 1, "22 %"),
        (1, 1_000_000, "<0.1 %"),
        (0, 5, "0 %"),
        (0, 0, ""),
    ],
)
def test_percent_rounds_and_shows_100_only_of_all(
    part: float, whole: int, text: str
) -> None:
    assert percent(part, whole) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0.015, "+1.5 %"),
        (-0.002, "-0.2 %"),
        (1e-6, "<+0.1 %"),
        (-1e-6, ">-0.1 %"),
        (0.0, "0 %"),
    ],
)
def test_signed_percent_has_a_sign_and_a_smallest_value(part: float, text: str) -> None:
    assert signed_percent(part, 1) == text


def test_fine_percent_has_one_decimal() -> None:
    shares = [(118, 1000), (5, 10), (9999, 10_000), (2, 2), (0, 2)]
    found = [percent(*share, fine=True) for share in shares]
    assert found == ["11.8 %", "50.0 %", ">99.9 %", "100 %", "0 %"]


@given(
    st.integers(1, 2**62),
    st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)),
    st.booleans(),
)
def test_a_share_is_close_and_100_percent_is_all(
    whole: int, parts: tuple[int, int], fine: bool
) -> None:
    low, high = sorted(part % (whole + 1) for part in parts)
    text = percent(low, whole, fine=fine)
    assert (text == "100 %") == (low == whole)
    assert (text == "0 %") == (low == 0)
    exact = Fraction(low, whole)
    if text[0] in "<>":
        assert exact < Fraction(1, 1000) or exact > Fraction(999, 1000)
    else:
        assert abs(parsed(text, SHARES) - exact) <= half_of_last_digit(text, SHARES)
    assert parsed(text, SHARES) <= parsed(percent(high, whole, fine=fine), SHARES)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (3058875, "3.059 MB"),
        (2 * 10**9, "2 GB"),
    ],
)
def test_size_has_four_digits_and_a_decimal_unit(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (1000, 882, "11.8 % less"),
        (10, 35, "250.0 % more"),
        (10**6, 10**6 + 1, "<0.1 % more"),
        (10**6, 1, ">99.9 % less"),
        (7, 0, "100 % less"),
        (7, 7, "as much"),
        (0, 7, "more"),
        (10, 99, "890.0 % more"),
        (10, 100, "10 times as much"),
        (10, 124, "12.4 times as much"),
        (20, 48_641, "2,432 times as much"),
    ],
)
def test_change_is_percent_more_or_less(before: int, after: int, text: str) -> None:
    assert change(before, after) == text


@pytest.mark.parametrize(
    ("columns", "texts"),
    [
        ([[566_759_477, 40_000], [73_271_143, 3_000]], ["566.759 ms", "0.003 ms"]),
        ([[9_000_000_000, 40_000], [3_000]], ["9,000,000 us", "3 us"]),
        # nothing smaller fits: it stays
        ([[99_000_000_000, 3], [4_000_000]], ["99,000.00 ms", "<0.01 ms"]),
    ],
)
def test_a_common_unit_hides_no_time_where_a_smaller_one_fits(
    columns: list[list[int]], texts: list[str]
) -> None:
    unit = common_unit(columns, 9)
    times = [time for column in columns for time in column]
    found = [f"{unit.text(time)} {unit.name}" for time in (max(times), min(times))]
    assert found == texts


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (1.0, 1.0, "as fast"),
        (1.0, 0.97, "3.0 % faster"),
        (20, 1, "95.0 % faster"),
        (1.0, 1.165, "16.5 % slower"),
        (10, 99, "890.0 % slower"),
        (10, 100, "10 times as long"),
        (10, 999, "99.9 times as long"),
        (10, 999.9, "100 times as long"),
        (20, 48_641, "2,432 times as long"),
        (1.0, 2432.05, "2,432 times as long"),
    ],
)
def test_from_ten_times_on_no_percentage_says_how_much_slower(
    before: float, after: float, text: str
) -> None:
    assert pace(before, after) == text


def test_plural_of_nouns_that_end_in_a_hiss() -> None:
    nouns = ("launch", "mismatch", "process", "box", "push")
    assert [plural(2, noun) for noun in nouns] == [
        "2 launches",
        "2 mismatches",
        "2 processes",
        "2 boxes",
        "2 pushes",
    ]
    assert plural(1, "graph launch") == "1 graph launch"


def test_plural_counts_nouns_with_thousands_separators() -> None:
    assert [plural(n, "kernel") for n in (0, 1, 4330)] == [
        "0 kernels",
        "1 kernel",
        "4,330 kernels",
    ]


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
def test_printable_escapes_what_a_terminal_interprets(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert is_printable(text) == (text == shown)


def test_no_hidden_character_is_printable() -> None:
    assert not [
        hex(n)
        for n in range(sys.maxunicode + 1)
        if is_hidden(chr(n)) and is_printable(chr(n))
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


def test_a_percentage_of_nothing_is_empty() -> None:
    assert [signed_percent(part, 0) for part in (-1, 0, 1)] == ["", "", ""]
