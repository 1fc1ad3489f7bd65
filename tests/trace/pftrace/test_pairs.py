"""Which end belongs to which begin."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tests import pftraces
from tests.pftraces import BEGIN, END, OP, OTHER, THREAD, Slice, at

from fusetui.trace.pftrace.index import pair_begins
from fusetui.trace.pftrace.scan import TracePiece, scan


def scanned(*packets: bytes) -> TracePiece:
    return scan(b"".join(packets))


def times(piece: TracePiece, cut: bool = False) -> list[tuple[int, int | None]]:
    end, _ = pair_begins(piece.begins, piece.ends, cut)
    ends = [
        int(piece.ends.time[n]) - pftraces.BASE if n >= 0 else None
        for n in end.tolist()
    ]
    return list(zip((piece.begins.time - pftraces.BASE).tolist(), ends, strict=True))


def mark(time: int, kind: int, track: int = THREAD) -> bytes:
    return at(time, (11, [(9, kind), (11, track)]))


def test_slices_that_overlap_partly() -> None:
    """Brackets would end the first one at 20, and the second one at 10."""
    group: list[Slice] = [(0, 10, THREAD, OP), (5, 20, THREAD, OP), (7, 7, OTHER, OP)]
    assert times(scanned(*pftraces.group(group))) == [(0, 10), (5, 20), (7, 7)]


def test_slices_on_both_sides_of_a_packet_of_another_kind_are_read() -> None:
    first: list[Slice] = [(5, 6, THREAD, OP), (0, 9, THREAD, OP)]
    second: list[Slice] = [(3, 4, THREAD, OP)]
    between = pftraces.stage(0, 5)
    found = times(scanned(*pftraces.group(first), between, *pftraces.group(second)))
    assert found == [(5, 6), (0, 9), (3, 4)]


@pytest.mark.parametrize("kept", range(7))
def test_a_file_that_was_cut(kept: int) -> None:
    group: list[Slice] = [(0, 10, THREAD, OP), (5, 20, THREAD, OP), (6, 7, THREAD, OP)]
    found = times(scanned(*pftraces.group(group)[:kept]), cut=True)
    ends = [10, 20, 7][: max(kept - 3, 0)]
    assert found == list(
        zip([0, 5, 6][:kept], [*ends, None, None, None][:kept], strict=False)
    )


def test_begin_and_end_marks_of_other_writers_nest_like_brackets() -> None:
    marks = [mark(0, BEGIN), mark(1, BEGIN), mark(3, END), mark(4, BEGIN), mark(6, END)]
    assert times(scanned(*marks, mark(9, END))) == [(0, 9), (1, 3), (4, 6)]


def test_ends_without_a_begin_and_begins_without_an_end() -> None:
    marks = [
        mark(0, END),
        mark(1, BEGIN),
        mark(2, BEGIN),
        mark(3, END),
        mark(0, BEGIN, OTHER),
    ]
    assert times(scanned(*marks)) == [(1, None), (2, 3), (0, None)]


def test_pftrace_pairs_equal_plain_stacks_at_random() -> None:
    for seed in range(300):
        rnd = Random(seed)
        marks = [
            (rnd.randrange(5), rnd.choice((BEGIN, END)), rnd.choice((THREAD, OTHER)))
            for _ in range(rnd.randrange(12))
        ]
        marks.append((9, END, 77))  # so that the runs do not match
        piece = scanned(*(mark(*each) for each in marks))
        end, by_runs = pair_begins(piece.begins, piece.ends, False)
        assert not by_runs
        assert end.tolist() == stacked(marks)


def stacked(marks: list[tuple[int, int, int]]) -> list[int]:
    numbers = {BEGIN: iter(range(99)), END: iter(range(99))}
    numbered = [(time, kind, track, next(numbers[kind])) for time, kind, track in marks]
    found = [-1] * sum(kind == BEGIN for _, kind, _ in marks)
    stacks: dict[int, list[int]] = {}
    for _, kind, track, number in sorted(numbered, key=lambda each: each[0]):
        stack = stacks.setdefault(track, [])
        if kind == BEGIN:
            stack.append(number)
        elif stack:
            found[stack.pop()] = number
    return found


def test_pftrace_without_marks_has_no_pairs() -> None:
    piece = scanned()
    assert times(piece) == []
    assert np.array_equal(piece.ends.at, [])
