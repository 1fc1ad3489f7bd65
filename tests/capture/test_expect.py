"""Guesses about the kernels of a step."""

from collections import Counter

import pytest

from fusetui.analysis.questions.computing import Tallies
from fusetui.capture.errors import CaptureError
from fusetui.capture.record import (
    Guess,
    compare_guess,
    format_guesses,
    guesses_by_variant,
    parse_guess,
)


def test_a_guess_is_counts_by_kind() -> None:
    assert parse_guess("kernels=5, gemm=3 pointwise=2") == {
        "kernels": 5,
        "gemm": 3,
        "pointwise": 2,
    }


@pytest.mark.parametrize("guess", ["mat", "mat=3", "=3"])
def test_wrong_guess_text_names_the_kinds(guess: str) -> None:
    with pytest.raises(
        CaptureError,
        match=r"not a valid expectation: write KIND=NUMBER.*attention, .*gemm",
    ):
        parse_guess(guess)


@pytest.mark.parametrize(
    "guess", ["gemm", "gemm=", "gemm=-1", "gemm=three", "gemm=1.5"]
)
def test_a_guess_is_a_whole_number(guess: str) -> None:
    with pytest.raises(
        CaptureError, match="not a valid expectation: use a whole number, as in gemm=3"
    ):
        parse_guess(guess)


def test_an_empty_guess_shows_one() -> None:
    with pytest.raises(CaptureError, match="--expect is empty"):
        parse_guess(" ")


def test_a_guess_can_be_for_one_variant() -> None:
    assert guesses_by_variant(
        ["gemm=3", "compiled: kernels=4"], ["eager", "compiled"]
    ) == {
        "eager": {"gemm": 3},
        "compiled": {"gemm": 3, "kernels": 4},
    }


def test_a_guess_for_an_unknown_variant_is_told() -> None:
    with pytest.raises(CaptureError, match="names 'fast'"):
        guesses_by_variant(["fast: gemm=3"], ["eager"])


def counted(*steps: Counter[str]) -> Tallies:
    return Tallies(tuple(f"ProfilerStep#{n}" for n in range(len(steps))), True, steps)


def test_every_step_is_compared() -> None:
    found = compare_guess(
        {"kernels": 2, "conv": 0}, counted(Counter(kernels=2), Counter(kernels=3))
    )
    assert found == (Guess("kernels", 2, (2, 3)), Guess("conv", 0, (0, 0)))
    assert [guess.right for guess in found] == [False, True]


def test_the_mean_of_unequal_steps_is_no_right_guess() -> None:
    (guess,) = compare_guess(
        {"kernels": 5}, counted(Counter(kernels=4), Counter(kernels=6))
    )
    assert not guess.right


def test_guesses_are_marked_right_or_wrong() -> None:
    lines = format_guesses(
        "eager", [Guess("gemm", 3, (3, 3)), Guess("kernels", 5, (5, 6))]
    )
    assert lines == [
        "= eager gemm: expected 3, found 3",
        "! eager kernels: expected 5, found 5, 6",
    ]
