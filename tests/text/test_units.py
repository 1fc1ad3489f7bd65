"""The times of one column have one unit, and their decimals are aligned."""

from __future__ import annotations

import doctest

import pytest

from fusetui.text import figures
from fusetui.text.figures import unit_of


def test_the_longest_time_decides() -> None:
    unit = unit_of([1_211_400_000, 98_700_000, 0])
    assert unit.name == "s"
    assert [unit.text(ns) for ns in (1_211_400_000, 98_700_000, 0)] == [
        "1.211",
        "0.099",
        "0.000",
    ]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (512, "512 ns"),
        (41_250, "41.25 us"),
        (567_049_999, "567.0 ms"),
        (567_050_000, "567.1 ms"),
    ],
)
def test_four_digits_rounded_half_up(ns: int, text: str) -> None:
    unit = unit_of([ns])
    assert f"{unit.text(ns)} {unit.name}" == text


def test_a_time_is_never_rounded_to_nothing() -> None:
    assert unit_of([567_000_000]).text(12) == "<0.1"


def test_a_change_has_its_sign() -> None:
    assert unit_of([-2_000_000]).text(-1_500_000) == "-1.500"


def test_unit_of_no_times_writes_zero() -> None:
    assert unit_of([]).text(0) == "0"


def test_examples_in_docstrings_of_figures_hold() -> None:
    assert doctest.testmod(figures).failed == 0
