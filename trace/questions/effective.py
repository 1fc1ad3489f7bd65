"""What each GPU event added to the time that its stream was busy.

Kernels of one stream may overlap (programmatic dependent launch: the next kernel starts early and
waits for the previous one), so that their durations contain waiting.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id


def effective(trace: Trace) -> NDArray[np.int64]:
    """Nanoseconds of each of `trace.gpu_rows`, shape [gpu_rows].

    The end less the start, or less the latest end of an event of the stream that started earlier,
    if that is later; never below 0. Of events that start together the longer comes first. The sum
    over a stream is the time that it was busy.
    """
    rows = trace.gpu_rows
    stream = streams(trace)[trace.track[rows]]
    order = np.lexsort((trace.order[rows], -trace.dur[rows], trace.start[rows], stream))
    start, end, stream = trace.start[rows][order], trace.end[rows][order], stream[order]
    found = np.empty(len(rows), dtype=np.int64)
    found[order] = np.maximum(end - np.maximum(start, _latest_before(stream, start, end)), 0)
    return found


def streams(trace: Trace) -> NDArray[np.int64]:
    """A number per track, the same for all sub-rows of one thread or stream."""
    numbers: dict[tuple[Id, Id], int] = {}
    found = [numbers.setdefault((t.pid, t.tid), len(numbers)) for t in trace.tracks]
    return np.array(found, dtype=np.int64)


def _latest_before(
    stream: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The latest end of the events before each one of its stream, else its start.

    Events are sorted by (stream, start). Ends are replaced by their ranks, and a stream's ranks
    are lifted above those of the streams before it, so that one running maximum does for all.
    """
    latest = start.copy()
    if len(end) < 2:
        return latest
    ends, rank = np.unique(end, return_inverse=True)
    lifted = np.maximum.accumulate(stream * len(ends) + rank)
    same = stream[1:] == stream[:-1]
    latest[1:][same] = ends[(lifted[:-1] - stream[:-1] * len(ends))[same]]
    return latest
