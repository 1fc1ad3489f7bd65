"""Changes planted into real traces of two makers' GPUs."""

from __future__ import annotations

import pytest
from tests.analysis.diff.test_planted import (
    Editor,
    Plan,
    test_a_sync_put_in_is_the_only_change,
    test_an_op_taken_out_with_its_kernel_takes_out_what_it_calls,
    test_an_op_without_its_kernel_taken_out_is_dispatch,
    test_one_kernel_made_slower_is_the_only_change,
    test_one_kernel_taken_out_is_the_only_change,
    test_two_kernels_made_one_are_fused,
)
from tests.real.traces import real

PLANS = (
    Plan(
        "h100_bert-small",
        "aten::add",
        "aten::native_layer_norm",
        2,
        "triton_per_fused_add_native_layer_norm_0",
        "cudaDeviceSynchronize",
    ),
    Plan(
        "mi300_Qwen1.5-0.5B",
        "aten::pow",
        "aten::mean",
        3,
        "triton_red_fused_mean_pow_0",
        "hipDeviceSynchronize",
    ),
)


@pytest.fixture(params=PLANS, ids=lambda plan: plan.trace)
def editor(request: pytest.FixtureRequest) -> Editor:
    plan: Plan = request.param
    return Editor(plan, real(plan.trace))
