"""Causes of idle time in real traces with stacks."""

from __future__ import annotations

from tests.analysis.why.test_causes import (
    test_causes_of_idle_time_add_up_to_the_account,
)
from tests.real.traces import each_named

any_trace = each_named("h100_bert-small", "mi300_ddp_resnet18")
