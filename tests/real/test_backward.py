"""Real trainings, whose ops have numbers and flows."""

from __future__ import annotations

from tests.real.traces import each_named
from tests.trace.program.test_backward import test_numbers_and_flows_agree

any_trace = each_named(
    "mi250_minitoy", "mi300_ddp_resnet18", "mi300_normalization_layers"
)
