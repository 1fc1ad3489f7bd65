"""What the next key may show is read while nobody presses one."""

from __future__ import annotations

from queue import SimpleQueue

from fusetui.trace import Trace
from fusetui.tui.args_prefetch import Ahead, likely
from fusetui.tui.layout.moves import next_line, next_slice, select_first
from fusetui.tui.layout.view import Side, View

SECONDS = 30  # a hang ends there


def test_the_neighbors_of_a_slice_are_likely(side: Side, view: View) -> None:
    chosen = next_slice(side, select_first(side, view), 1)
    found = list(likely(side, chosen))
    beside = [step(side, chosen, by).selected for step in (next_slice, next_line) for by in (1, -1)]
    assert set(found) == {*beside} - {chosen.selected}
    assert len(set(found)) == len(found) > 1


def test_their_args_are_read_aside(side: Side, view: View) -> None:
    read: SimpleQueue[int] = SimpleQueue()

    def note(trace: Trace, row: int) -> None:
        read.put(row)

    chosen = select_first(side, view)
    Ahead(note).look(side, chosen)
    assert [read.get(timeout=SECONDS) for _ in likely(side, chosen)] == [*likely(side, chosen)]
