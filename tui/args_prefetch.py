"""Reads the args of slices that the next key may select, while nobody presses one: those of a
slice in another part of the file take longer than a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from threading import Thread

from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.moves import next_line, next_slice
from fusetui.tui.layout.view import Side, View

PAUSE = 0.03  # seconds without a key


def likely(side: Side, view: View) -> Iterator[int]:
    """Rows that one key selects from here, the nearest first; none twice."""
    known = {-1, view.selected}
    for step in (next_slice, next_line):
        for by in (1, -1):
            row = step(side, view, by).selected
            if row not in known:
                known.add(row)
                yield row


class Ahead:
    """A thread that begins with the first look and ends with the app."""

    def __init__(self, read: Callable[[Trace, int], object] = Trace.args_of) -> None:
        self._read = read
        self._asked: SimpleQueue[tuple[Side, View]] = SimpleQueue()
        self._is_started = False

    def look(self, side: Side, view: View) -> None:
        """From a selected slice; what was asked for before is given up."""
        if not self._is_started:
            self._is_started = True
            Thread(target=self._run, daemon=True).start()
        self._asked.put((side, view))

    def _run(self) -> None:
        while True:
            self._look(*self._last())

    def _last(self) -> tuple[Side, View]:
        """What is asked for last, after a pause."""
        found = self._asked.get()
        while True:
            try:
                found = self._asked.get(timeout=PAUSE)
            except Empty:
                return found

    def _look(self, side: Side, view: View) -> None:
        for row in likely(side, view):
            if not self._asked.empty() or not side.trace.elements.at_hand:
                return
            self._read(side.trace, row)
