"""Real traces of all vendors against themselves."""

from __future__ import annotations

from tests.analysis.diff.test_same import (
    test_trace_of_a_file_against_itself_is_all_same,
)
from tests.real.traces import each_named

any_trace = each_named(
    "cpu_only_small",
    "cupti_counters",
    "h100_Qwen1.5-0.5B",
    "h100_transformer_step",
    "large_integer",
    "mi210_gpu_only",
    "mi250_minitoy",
    "mtia_inference",
    "nccl_collectives",
    "v100_train_diff_test",
    "xpu_fixture",
)
