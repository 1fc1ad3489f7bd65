"""Many cases in one test."""

from __future__ import annotations

import pytest
from tests.cases import Cases


def try_three(tried: list[int]) -> None:
    """The cases 0 and 2 of three fail."""
    with Cases() as cases:
        for number in range(3):
            with cases.case(number):
                tried.append(number)
                assert number == 1


def test_all_cases_are_tried_and_all_failures_are_raised_together() -> None:
    tried: list[int] = []
    with pytest.raises(ExceptionGroup, match="2 of 3 cases failed") as raised:
        try_three(tried)
    assert tried == [0, 1, 2]
    notes = [failure.__notes__ for failure in raised.value.exceptions]
    assert notes == [["case: 0"], ["case: 2"]]


def test_a_loop_without_cases_fails() -> None:
    with pytest.raises(AssertionError, match="no case was tried"), Cases():
        pass
