"""Real graphs whose nodes have annotations, in both forms."""

from __future__ import annotations

import pytest
from tests.analysis.graphs.test_annotations import (
    by_hand,
    test_graphs_have_the_modules_of_their_annotations,
    times_by_layer,
)
from tests.real.traces import PFTRACES, each_of, existing

NAMES = (
    "b300_decode_graph_full",
    "b300_decode_graph_lanes",
    "mi300_vllm_decode_graph_full",
)
any_trace = each_of([PFTRACES / f"{name}.json.gz" for name in NAMES])


@pytest.mark.parametrize("name", NAMES)
def test_pftrace_has_the_modules_of_its_annotations(name: str) -> None:
    """The same modules; its durations are cut."""
    times = times_by_layer(existing(PFTRACES / f"{name}.pftrace.gz"))
    assert {*times} == {*by_hand(PFTRACES / f"{name}.json.gz")}
