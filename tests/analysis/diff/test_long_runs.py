"""Runs of many equal kernels, of which one side has more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fusetui.analysis.diff import sequences
from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.trace import Trace

Build = Callable[..., Trace]
Work = Callable[[Diff], list[Row]]

FILL = ("aten::fill_", "fill_kernel")
AROUND = [("aten::mm", "mm_kernel", 30.0)]


def run(count: int) -> list[tuple[str, str, float]]:
    """Equal kernels, each of which takes another time than those beside it."""
    return [(*FILL, 2.0 + (7 * n) % 11) for n in range(count)]


def changed(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.kind is not RowKind.SAME]


@pytest.mark.parametrize("gone", [0, 150, 299])
def test_one_of_300_equal_kernels_removed_or_added_is_one_row(
    build: Build, work: Work, gone: int
) -> None:
    fills = run(300)
    a = build([*AROUND, *fills, *AROUND])
    b = build([*AROUND, *fills[:gone], *fills[gone + 1 :], *AROUND])
    (row,) = changed(work(diff(a, b)))
    assert (row.kind, row.change_ns) == (RowKind.REMOVED, -round(1000 * fills[gone][2]))
    (back,) = changed(work(diff(b, a)))
    assert (back.kind, back.change_ns) == (RowKind.ADDED, -row.change_ns)


def test_a_run_that_would_take_too_long_is_compared_as_a_whole(
    build: Build, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "MAX_CLOSEST_CELLS", 500)
    fills = run(300)
    a = build([*AROUND, *fills, *AROUND])
    b = build([*AROUND, *fills[:100], *fills[250:], *AROUND])
    row = next(row for row in work(diff(a, b)) if row.together)
    assert (row.kind, row.a_count, row.b_count) == (RowKind.FASTER, 300, 150)
    assert row.change_ns == -round(1000 * sum(us for _, _, us in fills[100:250]))
    assert len(work(diff(a, b))) == 3


def test_closest_matches_each_value_to_the_nearest_in_order() -> None:
    assert sequences.choose_closest_partners([5, 9], [1, 5, 6, 9, 9]) == [1, 3]
    assert sequences.choose_closest_partners([], [3]) == []
    assert sequences.choose_closest_partners([3], [9]) == [0]
