"""Steps of real traces: those of the profiler, those of an optimizer, and none."""

from __future__ import annotations

import pytest
from tests.analysis.test_steps import every_answer_uses_the_same_steps
from tests.real.traces import real


@pytest.mark.parametrize(
    ("name", "count", "by"),
    [
        ("rtx2080ti_linear", 40, "up to the end of Optimizer.step#SGD.step"),
        ("mi300_ddp_resnet18", 5, "up to the end of Optimizer.step#SGD.step"),
        ("v100_resnet50_2021", 6, "ProfilerStep"),
        ("mi300_normalization_layers", 0, ""),
        ("mtia_inference", 0, ""),
    ],
)
def test_every_answer_about_a_real_trace_uses_the_same_steps(
    name: str, count: int, by: str
) -> None:
    every_answer_uses_the_same_steps(real(name), count, by)
