"""The steps of a profile (ProfilerStep#N), and which GPU events each launched."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.categories import STEP_PREFIX, Role
from fusetui.trace.model.columns import Trace


class Step(msgspec.Struct, frozen=True, eq=False):
    """One step. GPU events belong to the step during which they were launched."""

    name: str
    row: int
    start_ns: int
    dur_ns: int
    gpu_rows: NDArray[np.intp]


def steps(trace: Trace) -> tuple[Step, ...]:
    """Steps in time order, from the thread that has most of them; () if there are none."""
    named = np.array([name.startswith(STEP_PREFIX) for name in trace.names] or [False])
    rows = trace.rows_of(Role.ANNOTATION)
    rows = rows[named[trace.name[rows]]]
    if not len(rows):
        return ()
    rows = main_thread(trace, rows)
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    launched, called = by_launch_time(trace)
    first = np.searchsorted(called, trace.start[rows], side="left")
    last = np.searchsorted(called, trace.end[rows], side="left")
    return tuple(
        Step(
            trace.name_of(row), int(row), int(trace.start[row]), int(trace.dur[row]), launched[a:b]
        )
        for row, a, b in zip(rows, first, last, strict=True)
    )


def by_launch_time(trace: Trace) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """The linked GPU rows in order of their launch calls, and the starts of those calls (ns)."""
    rows = trace.gpu_rows
    rows = rows[trace.launch[rows] >= 0]
    called = trace.start[trace.launch[rows]]
    order = np.lexsort((trace.start[rows], called))
    return rows[order], called[order]


def main_thread(trace: Trace, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows that lie on the thread with most of them (there is at least one row); sub-rows of a
    thread count as that thread."""
    thread = trace.thread_of_track[trace.track[rows]]
    counts = np.bincount(thread)[thread]
    same: NDArray[np.intp] = rows[thread == thread[int(np.argmax(counts))]]
    return same
