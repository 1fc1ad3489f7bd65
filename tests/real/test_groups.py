"""Groups of kernels and ops of real traces with shapes and stacks."""

from __future__ import annotations

from tests.analysis.questions.test_groups import (
    test_by_name_as_the_totals_have_it,
    test_kernel_groups_equal_groups_made_with_a_dict,
    test_op_groups_equal_groups_made_with_a_dict,
    trace,
)
from tests.real.traces import each_named

any_trace = each_named("h100_bert-small", "h100_transformer_step", "triton_2024")
