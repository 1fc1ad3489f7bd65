"""Sentences on lines of a width."""

from __future__ import annotations

import pytest

from fusetui.tui.layout.text_layout import wrap_sentence


@pytest.mark.parametrize(
    "text", ["B takes 2.8 % less time", "it waits for 2.8 ms there"]
)
def test_a_figure_and_its_unit_stay_together(text: str) -> None:
    for width in range(8, 30):
        lines = wrap_sentence(text, width)
        assert " ".join(lines) == text
        assert not any(line.endswith("2.8") for line in lines)
