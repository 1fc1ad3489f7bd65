"""Documents about small real traces, and about real pairs, meet their schema."""

from __future__ import annotations

import pytest
from tests.cli.conftest import fusetui
from tests.docs.test_schemas import (
    Run,
    pair_meets_its_schema,
    test_documents_of_traces_meet_their_schema,
)
from tests.real.traces import each_of, listed, real

any_trace = each_of(listed(below_bytes=1 << 17))
PAIRS = (
    ("pair_attention_unfused_h100", "pair_attention_fused_mi300"),
    ("pair_moe_unfused_mi300", "pair_moe_fused_h100"),
)


@pytest.mark.parametrize("command", ["diff", "why"])
@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_documents_of_real_pairs_meet_their_schema(
    fusetui: Run, pair: tuple[str, str], command: str
) -> None:
    pair_meets_its_schema(fusetui, command, *map(real, pair))
