"""Every word of the legend finds, in the search, in `--where` and in `whatif`, what the
legend shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.corpus.fixtures import any_of

from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.search import collect_name_texts, search
from fusetui.analysis.replay.changes import Scaled, parse_change
from fusetui.tables.sources import trace_table
from fusetui.trace import open_trace
from fusetui.tui.layout.kinds import KINDS, compute_kind_shares, number_kinds

any_trace = any_of("training", "job/rank0", "lesson-mlp-compiled", "graphs")
OLD_FIELD_FINDS = ("pointwise", "fused", "comm", "other")


def test_words_of_the_legend_are_searched(any_trace: Path) -> None:
    trace = open_trace(str(any_trace))
    kinds = number_kinds(trace)
    slices = trace_table("slices", trace)
    assert compute_kind_shares(trace)
    for share in compute_kind_shares(trace):
        word = share.kind.removeprefix("gpu-")
        shown = np.flatnonzero(kinds == KINDS.index(share.kind))
        fields = ("kind", "family") if word in OLD_FIELD_FINDS else ("kind",)
        for field in fields:
            query = f"{field}:{word}"
            searched = search(trace, collect_name_texts(trace), parse(query))
            assert np.isin(shown, searched).all(), query
            in_table = slices.where(query)["row"]
            assert np.isin(shown, in_table).all(), query
            if field == "kind":  # `family` finds CPU ops of the same name, too
                assert sorted(in_table.tolist()) == sorted(searched.tolist()), query


@pytest.mark.parametrize("what", ["kind", "library", "family"])
def test_changes_take_kinds_and_libraries(what: str) -> None:
    change = parse_change(f"{what}:pointwise x0.5")
    assert isinstance(change, Scaled)
    assert change.what == what
