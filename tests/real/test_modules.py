"""Modules and functions of real traces with stacks, counted slowly."""

from __future__ import annotations

from tests.real.traces import each_named
from tests.trace.program.test_functions import (
    test_function_times_of_traces_equal_a_slow_count,
)
from tests.trace.program.test_modules import (
    test_module_times_of_traces_equal_a_slow_count,
)

any_trace = each_named(
    "h100_bert-small", "h100_transformer_step", "mi300_normalization_layers"
)
