"""Nesting and sub-rows, compared with a slow reference that looks at every pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fusetui.trace.layout import nesting
from fusetui.trace.layout.nesting import arrange, nest, nest_tracks

Span = tuple[int, int]  # start, end

spans = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=14).map(
    lambda rows: sorted(
        ((s, s + d) for s, d in rows), key=lambda row: (row[0], -row[1])
    )
)


def columns(rows: list[Span]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    table = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def subrows(
    rows: list[Span], calls: list[bool] | None = None, flat: bool = False
) -> list[int]:
    call = np.array(calls if calls is not None else [False] * len(rows), dtype=np.bool_)
    return [int(place) for place in arrange(*columns(rows), call, flat)]


def contains(outer: Span, inner: Span) -> bool:
    """The rule of nesting.py; `outer` is the earlier row."""
    return outer[0] <= inner[0] and inner[1] <= outer[1] and inner[0] < outer[1]


def crosses(first: Span, second: Span) -> bool:
    """Whether two rows overlap without nesting; `first` is the earlier row."""
    return second[0] < first[1] and not contains(first, second)


def slow_parents(rows: list[Span]) -> list[int]:
    return [
        max((j for j in range(i) if contains(rows[j], rows[i])), default=-1)
        for i in range(len(rows))
    ]


def test_slices_nest_with_parent_depth_and_end_row() -> None:
    nesting = nest(*columns([(0, 10), (1, 4), (2, 3), (4, 9), (12, 15)]))
    assert nesting.parent.tolist() == [-1, 0, 1, 0, -1]
    assert nesting.depth.tolist() == [0, 1, 2, 1, 0]
    assert nesting.end_row.tolist() == [4, 3, 3, 4, 5]


def test_no_slices_nest_to_empty_columns() -> None:
    nesting = nest(*columns([]))
    assert len(nesting.parent) == len(nesting.depth) == len(nesting.end_row) == 0
    assert subrows([]) == []


def test_equal_times_nest() -> None:
    assert nest(*columns([(0, 5), (0, 5), (0, 5)])).parent.tolist() == [-1, 0, 1]


def test_slice_of_no_length_at_the_end_of_another_is_not_inside() -> None:
    rows = [(0, 5), (5, 5), (5, 5), (5, 8), (8, 8)]
    assert nest(*columns(sorted(rows, key=lambda r: (r[0], -r[1])))).parent.max() == 1


def test_calls_of_equal_times_are_neighbors() -> None:
    assert subrows([(0, 5), (0, 5)], [True, True]) == [0, 1]
    assert subrows([(0, 5), (0, 5)], [False, True]) == [0, 0]


def test_partial_overlap_opens_a_subrow() -> None:
    assert subrows([(0, 5), (3, 8), (8, 9)]) == [0, 1, 0]


def test_kernels_of_one_stream_do_not_nest() -> None:
    assert subrows([(0, 9), (2, 4), (9, 12)]) == [0, 0, 0]
    assert subrows([(0, 9), (2, 4), (9, 12)], flat=True) == [0, 1, 0]


@given(spans, st.booleans())
def test_subrows_nest_perfectly(rows: list[Span], flat: bool) -> None:
    placed = subrows(rows, flat=flat)
    for place in set(placed):
        here = [row for row, at in zip(rows, placed, strict=True) if at == place]
        pairs = [(a, b) for n, a in enumerate(here) for b in here[n + 1 :]]
        assert not any(crosses(a, b) for a, b in pairs)
        if flat:
            assert not any(contains(a, b) for a, b in pairs)


@given(spans)
def test_parents_equal_a_slow_search(rows: list[Span]) -> None:
    placed = subrows(rows)
    for place in set(placed):
        here = [row for row, at in zip(rows, placed, strict=True) if at == place]
        nesting, parents = nest(*columns(here)), slow_parents(here)
        assert nesting.parent.tolist() == parents
        for row, parent in enumerate(parents):
            assert nesting.depth[row] == (
                nesting.depth[parent] + 1 if parent >= 0 else 0
            )
        for row, end in enumerate(nesting.end_row.tolist()):
            inside = [
                n for n in range(len(here)) if row == n or row in chain(parents, n)
            ]
            assert inside == list(range(row, end))


@given(spans)
def test_slices_that_nest_stay_on_one_row(rows: list[Span]) -> None:
    if not any(crosses(a, b) for n, a in enumerate(rows) for b in rows[n + 1 :]):
        assert not any(subrows(rows))


compiled = pytest.mark.skipif(nesting.nested is None, reason="nothing was compiled")


@compiled
@given(spans, st.lists(st.booleans(), min_size=14, max_size=14), st.booleans())
def test_subrows_do_not_depend_on_what_is_compiled(
    rows: list[Span], calls: list[bool], flat: bool
) -> None:
    found = subrows(rows, calls[: len(rows)], flat)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "nested", None)
        assert subrows(rows, calls[: len(rows)], flat) == found


@compiled
@given(st.lists(spans, max_size=4))
def test_trees_do_not_depend_on_what_is_compiled(tracks: list[list[Span]]) -> None:
    kept = [
        [row for row, place in zip(rows, subrows(rows), strict=True) if not place]
        for rows in tracks
    ]
    bounds = np.cumsum([0, *map(len, kept)])
    start, end = columns([row for rows in kept for row in rows])
    found = nest_tracks(bounds, start, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "nested", None)
        slow = nest_tracks(bounds, start, end)
    for name in ("depth", "parent", "end_row"):
        assert getattr(found, name).tolist() == getattr(slow, name).tolist()


@compiled
@pytest.mark.parametrize("bounds", [[0, 1], [0, 3], [1, 2], [0, 2, 1, 2], []])
def test_bounds_that_are_none_are_refused(bounds: list[int]) -> None:
    times = np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match="columns of one length"):
        nest_tracks(np.array(bounds, dtype=np.int64), times, times)


def chain(parents: list[int], row: int) -> list[int]:
    found = []
    while parents[row] >= 0:
        row = parents[row]
        found.append(row)
    return found


def test_compiled_nesting_is_used() -> None:
    folder = Path(nesting.__file__).parent
    if not any(folder.glob("nested.*.so")) and not any(folder.glob("nested*.pyd")):
        pytest.skip("there is no compiled nesting")
    assert nesting.nested is not None
