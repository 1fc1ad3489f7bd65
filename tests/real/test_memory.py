"""Memory of real traces and snapshots, replayed in plain Python."""

from __future__ import annotations

import pytest
from tests.analysis.memory.test_history import (
    answers,
    test_histories_of_snapshots_equal_a_plain_replay,
    test_own_code_of_snapshots_equals_a_plain_count,
)
from tests.analysis.memory.test_of_trace import (
    test_peak_is_held_by_ops_and_annotations,
    test_totals_of_memory_events_equal_a_plain_replay,
)
from tests.real.traces import SNAPSHOTS, each_named, each_of, existing, listed

any_snapshot = each_of(listed(SNAPSHOTS, "*.pickle"))
any_trace = each_named(
    "h100_transformer_step", "h100_bert-small", "mi300_normalization_layers"
)


@pytest.mark.parametrize("name", ["gpt_fullstep_ctx128", "gpt_fullstep_ctx256"])
def test_adamw_in_fp32_holds_twice_the_gradients(name: str) -> None:
    path = existing(SNAPSHOTS / f"{name}.pickle")
    found = {one.category: one.bytes for one in answers(path)[0].categories}
    assert found["optimizer_state"] == 2 * found["gradients"] == 27_254_476_800
