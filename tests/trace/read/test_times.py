"""Times are exact to the nanosecond, whatever their size and spelling."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.trace.read.times import InexactTimesError, exact_nanoseconds, nanoseconds

NEAR = 2**42


def test_integer_microseconds_are_exact_nanoseconds() -> None:
    assert nanoseconds([0, 7, 1712195495519689]).tolist() == [
        0,
        7000,
        1712195495519689000,
    ]


def test_decimal_microseconds_are_exact_nanoseconds() -> None:
    assert nanoseconds([0.001, 7.68, 123.045, -0.5]).tolist() == [1, 7680, 123045, -500]


def test_no_times_give_an_empty_array() -> None:
    assert nanoseconds([]).shape == (0,)


@pytest.mark.parametrize("ns", [NEAR * 1000 - 1, NEAR * 1000 - 999, (NEAR - 1) * 1000])
def test_floats_below_the_limit_are_exact(ns: int) -> None:
    assert nanoseconds([float(Decimal(ns) / 1000)]).tolist() == [ns]


@pytest.mark.parametrize("value", [float(NEAR), 1712195495519689.047])
def test_floats_beyond_the_limit_need_their_text(value: float) -> None:
    with pytest.raises(InexactTimesError):
        nanoseconds([1.5, value])


@pytest.mark.parametrize(
    "value", [0.0005, 1.0015, 499999999999.9975, 1e9 + 0.0004999999]
)
def test_floats_between_two_nanoseconds_need_their_text(value: float) -> None:
    """Whether they are rounded up or down, only their text can tell."""
    with pytest.raises(InexactTimesError):
        nanoseconds([value])


@pytest.mark.parametrize(
    "values", [[2**62], [float("nan")], [1.0, float("inf")], [2**70]]
)
def test_times_beyond_64_bits_are_refused(values: list[float]) -> None:
    with pytest.raises(OverflowError):
        nanoseconds(values)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        (b"1712195495519689.047", 1712195495519689047),  # 19 digits
        (b"123.045", 123045),
        (b"7.68", 7680),
        (b"7.", 7000),
        (b"12.0", 12000),
        (b"5", 5000),
        (b'"5.25"', 5250),
        (b"1e3", 1000000),
        (b"-0.001", -1),
        ("0.0005", 0),  # half a nanosecond goes to even
        ("0.0015", 2),
    ],
)
def test_text_of_a_time_is_exact_nanoseconds(text: bytes | str, ns: int) -> None:
    assert exact_nanoseconds(text) == ns


@pytest.mark.parametrize("text", ["", "abc", "NaN", "Infinity", "1e40", "--1", b"\xff"])
def test_text_that_is_no_time_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match="not a"):
        exact_nanoseconds(text)


@given(st.lists(st.integers(-NEAR * 1000 + 1000, NEAR * 1000 - 1000)))
def test_floats_are_exact(times: list[int]) -> None:
    assert nanoseconds([float(Decimal(ns) / 1000) for ns in times]).tolist() == times


@given(st.integers(-NEAR * 10**6, NEAR * 10**6))
def test_floats_of_picoseconds_are_rounded_as_their_text_is(ps: int) -> None:
    text = f"{Decimal(ps) / 10**6:f}"
    with suppress(InexactTimesError):
        assert nanoseconds([float(text)]).tolist() == [exact_nanoseconds(text)]


@given(st.integers(-(2**61), 2**61))
def test_text_is_exact(ns: int) -> None:
    assert exact_nanoseconds(str(Decimal(ns) / 1000)) == ns
