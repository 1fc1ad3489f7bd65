"""The work of many kernels of real traces, of which one has none."""

from __future__ import annotations

from tests.gpu.roofline.test_many import (
    test_work_of_many_kernels_is_that_of_each_alone,
)
from tests.real.traces import each_named

any_trace = each_named(
    "a100_switch_transformer",
    "h100_Qwen1.5-0.5B",
    "mi300_ddp_resnet18",
    "mi300_vllm_decode_graph",
    "v100_resnet50_2021",
    "cpu_only_small",
)
