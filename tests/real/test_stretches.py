"""Idle time of real traces of several kinds, in any window."""

from __future__ import annotations

from tests.analysis.why.test_stretches import (
    test_idle_intervals_of_traces_equal_their_account,
)
from tests.real.traces import each_named

any_trace = each_named(
    "h100_owlv2", "nccl_collectives", "mi300_vllm_decode_graph", "b200_vllm_eager"
)
