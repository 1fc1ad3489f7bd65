from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.tui.layout.frame import choose_tick_step, make_ticks


@pytest.mark.parametrize(
    ("window", "labels"),
    [
        ((0, 1_000_000), ["0 ns", "200 us", "400 us", "600 us", "800 us"]),
        ((820_000, 900_000), ["820 us", "840 us", "860 us", "880 us"]),
        (
            (1_200_000_000, 1_200_040_000),
            ["1200.00 ms", "1200.01 ms", "1200.02 ms", "1200.03 ms"],
        ),
    ],
)
def test_ruler_ticks_are_at_round_times(
    window: tuple[int, int], labels: list[str]
) -> None:
    assert [label for _, label in make_ticks(*window, 66)] == labels


@given(st.integers(20, 10**13), st.integers(1, 60))
def test_a_step_is_round_and_never_makes_too_many_ticks(span: int, most: int) -> None:
    step = choose_tick_step(span, most)
    assert str(step).rstrip("0") in ("1", "2", "5")
    assert span <= step * most
