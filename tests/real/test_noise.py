"""The halves of real recordings."""

from __future__ import annotations

import pytest
from tests.analysis.diff.test_noise import changed, halves, slower_piece_is_told
from tests.real.traces import real


@pytest.mark.parametrize(
    "name", ["a100_train_diff_control", "v100_train_diff_test", "v100_resnet50_2021"]
)
def test_the_halves_of_one_recording_have_no_faster_or_slower_row(name: str) -> None:
    assert changed(*halves(real(name))) == []


def test_a_convolution_made_a_third_slower_in_one_half_is_told() -> None:
    slower_piece_is_told(real("v100_resnet50_2021"))
