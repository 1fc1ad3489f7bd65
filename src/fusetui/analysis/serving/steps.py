"""The steps of a server: the outermost annotations that say what was asked, on the thread that has
most of them, and what the annotations inside them add."""

from __future__ import annotations

import re

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.serving.requests import Asked, asked_by, merged
from fusetui.trace.layout.steps import main_thread
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

Rows = NDArray[np.intp]
Int64s = NDArray[np.int64]
_STEPS = re.compile(PATTERN)


class Steps(msgspec.Struct, frozen=True, eq=False):
    """Steps in time order; times in ns of the file, shape [steps]."""

    rows: Rows
    start: Int64s
    end: Int64s
    asked: tuple[Asked | None, ...]  # None: the annotation has a form that is not known

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, times: Int64s) -> Rows:
        """The step during which each time lies, -1 for none."""
        found = np.searchsorted(self.start, times, side="right") - 1
        inside = (found >= 0) & (times < np.append(self.end, 0)[found])
        return np.where(inside, found, -1)


def server_steps(trace: Trace) -> Steps:
    """The steps of the server; none if no annotation has the name of one."""
    rows = trace.rows_of(Role.ANNOTATION)
    named = np.array([_STEPS.search(name) is not None for name in trace.names] or [False])
    rows = rows[named[trace.name[rows]]]
    if not len(rows):
        empty = np.zeros(0, dtype=np.int64)
        return Steps(np.zeros(0, dtype=np.intp), empty, empty, ())
    rows = main_thread(trace, rows)
    rows = rows[np.lexsort((-trace.dur[rows], trace.start[rows]))]
    latest = np.maximum.accumulate(trace.end[rows])
    outer = np.concatenate(([True], trace.start[rows[1:]] >= latest[:-1]))
    number = np.cumsum(outer) - 1
    asked: list[Asked | None] = [None] * int(outer.sum())
    for row, step in zip(rows.tolist(), number.tolist(), strict=True):
        inner = asked_by(trace.name_of(row))
        before = asked[step]
        asked[step] = merged(before, inner) if before and inner else before or inner
    own = rows[outer]
    return Steps(own, trace.start[own], trace.end[own], tuple(asked))
