"""The longest common subsequence: exact where small, ascending and large enough where
not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.analysis.diff import sequences

NUMBERS = st.lists(st.integers(0, 4), max_size=14)


def length(a: list[int], b: list[int]) -> int:
    """The textbook table."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
            )
    return table[-1][-1]


def is_common_subsequence(
    pairs: list[tuple[int, int]], a: list[int], b: list[int]
) -> bool:
    ascending = all(p[0] < q[0] and p[1] < q[1] for p, q in pairwise(pairs))
    return ascending and all(a[i] == b[j] for i, j in pairs)


@given(NUMBERS, NUMBERS)
def test_exact_finds_a_longest_one(a: list[int], b: list[int]) -> None:
    pairs = sequences.pair_longest_common(a, b)
    assert is_common_subsequence(pairs, a, b)
    assert len(pairs) == length(a, b)


@given(NUMBERS, NUMBERS)
def test_anchors_keep_it_a_common_subsequence(a: list[int], b: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequences, "MAX_CELLS", 4)
        patch.setattr(sequences, "MAX_CELLS_UNTRIMMED", 0)
        patch.setattr(sequences, "WINDOW_NUMBERS", 4)
        pairs = sequences.pair_equal_numbers(
            np.array(a, dtype=np.int64), np.array(b, dtype=np.int64)
        )
    assert is_common_subsequence(pairs, a, b)


def test_a_long_repetitive_sequence_is_matched_around_its_holes() -> None:
    a = np.tile(np.arange(50), 2000)
    b = np.delete(a, np.arange(7, len(a), 5003))
    assert len(sequences.pair_equal_numbers(a, b)) == len(b)


def test_holes_anywhere_in_a_long_repetitive_sequence_keep_it_in_step() -> None:
    a = np.tile(np.arange(7), 6000)
    kept = np.random.default_rng(0).random(len(a)) > 0.01
    assert len(sequences.pair_equal_numbers(a, a[kept])) >= 0.999 * kept.sum()


def test_5000_items_of_one_side_alone_do_not_put_windows_out_of_step() -> None:
    a = np.tile(np.arange(7), 6000)
    b = np.concatenate([a[:20_000], np.full(5000, 99), a[20_000:]])
    b = np.delete(b, [3, 40_000])
    assert len(sequences.pair_equal_numbers(a, b)) >= len(a) - 2


def test_sequences_without_common_elements_match_nothing() -> None:
    assert sequences.pair_equal_numbers(np.arange(5), np.arange(5, 9)) == []
