"""Pairs of traces from other people's machines."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.analysis.diff.conftest import work
from tests.analysis.diff.test_pairs_of_traces import (
    Work,
    compared,
    op_kinds,
    sum_closes_and_every_piece_is_in_one_row,
)
from tests.real.traces import real

from fusetui.analysis.diff.model import Diff, RowKind


def real_pair(a: str, b: str) -> Diff:
    return compared(real(a), real(b))


def test_real_attention_in_three_kernels_and_in_one_is_fused(work: Work) -> None:
    names = "pair_attention_unfused_h100", "pair_attention_fused_mi300"
    (row,) = work(real_pair(*names))
    assert (row.kind, row.a_count, row.b_count) == (RowKind.FUSED, 3, 1)
    (row,) = work(real_pair(*names[::-1]))
    assert (row.kind, row.a_count, row.b_count) == (RowKind.SPLIT, 1, 3)


def test_real_experts_in_four_kernels_and_in_one_are_fused(work: Work) -> None:
    (row,) = work(real_pair("pair_moe_unfused_mi300", "pair_moe_fused_h100"))
    assert (row.kind, row.a_count, row.b_count) == (RowKind.FUSED, 4, 1)


def test_one_model_on_h100_and_mi300_is_paired_without_additions(work: Work) -> None:
    found = real_pair("h100_bert-small", "mi300_bert-small")
    kinds = Counter(row.kind for row in work(found))
    assert not kinds.keys() & {
        RowKind.ADDED,
        RowKind.REMOVED,
        RowKind.FUSED,
        RowKind.SPLIT,
    }
    assert op_kinds(work(found), "aten::addmm") == {RowKind.REPLACED}
    assert found.notes[0].startswith("devices differ: NVIDIA H100")


def test_two_training_runs_take_that_much_more_time() -> None:
    sums = real_pair("a100_train_diff_control", "v100_train_diff_test").accounting
    assert sums.step_ns == 37_856_000


PAIRS = (
    ("a100_train_diff_control", "v100_train_diff_test"),
    ("b300_deepseek_r1_decode", "mi300_deepseek_r1_decode"),
    ("h100_Qwen1.5-0.5B", "mi300_Qwen1.5-0.5B"),
    ("h100_bert-small", "mi300_bert-small"),
    ("pair_attention_fused_mi300", "pair_attention_unfused_h100"),
    ("pair_moe_unfused_mi300", "pair_moe_fused_h100"),
)


@pytest.mark.parametrize("turned", [False, True], ids=["", "turned round"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_the_sum_closes_and_every_piece_is_in_one_row(
    pair: tuple[str, str], turned: bool, work: Work
) -> None:
    found = real_pair(*(pair[::-1] if turned else pair))
    sum_closes_and_every_piece_is_in_one_row(found, work)
