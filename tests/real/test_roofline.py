"""The roofline of real traces of all vendors and years."""

from __future__ import annotations

from tests.gpu.roofline.test_whole_traces import (
    test_every_kernel_has_an_answer,
    test_no_kernel_of_a_trace_is_faster_than_its_peak,
    test_rates_are_plausible,
    trace,
    works,
)
from tests.real.traces import each_named

any_trace = each_named(
    "a100_switch_transformer",
    "a100_train_diff_control",
    "b200_vllm_eager",
    "h100_Qwen1.5-0.5B",
    "h100_bert-small",
    "h100_transformer_step",
    "mi300_Qwen1.5-0.5B",
    "mi300_ddp_resnet18",
    "mi300_torch_compile_triton",
    "mi300_vllm_decode_graph",
    "v100_absolute_ns",
    "v100_resnet50_2021",
    "v100_train_diff_test",
    "xpu_fixture",
)
