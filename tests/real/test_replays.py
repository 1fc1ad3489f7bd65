"""Replays of the graphs of two real servers."""

from __future__ import annotations

import pytest
from tests.analysis.questions.test_launches import kernels_of_replays
from tests.real.traces import real


@pytest.mark.parametrize(
    ("name", "kernels"),
    [("mi300_sglang_decode_graph", 544), ("b300_deepseek_r1_decode", 356)],
)
def test_replays_of_real_graphs_have_their_known_kernels(
    name: str, kernels: int
) -> None:
    assert kernels_of_replays(real(name)) == [kernels]
