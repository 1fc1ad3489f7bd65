"""How long GPU events took of their stream if they overlap on it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.columns import Trace
from fusetui.trace.model.small_tracks import as_one

Int64s = NDArray[np.int64]


def effective_ns(trace: Trace) -> Int64s:
    """For each of `trace.gpu_rows`, its end minus the later of its start and the latest end of an
    event that started earlier on its stream, at least 0 (ns).

    With programmatic dependent launch a kernel starts before its predecessor has ended, and waits
    for it. The effective durations of a stream add up to its busy time, exactly: of events that
    start together, the longest comes first.
    """
    rows = trace.gpu_rows
    effective = trace.dur[rows]
    stream = trace.thread_of_track[trace.track[rows]]
    places = np.flatnonzero(_overlapping_streams(trace)[stream])
    if not len(places):
        return effective
    own, stream = rows[places], stream[places]
    order = np.lexsort((own, -trace.dur[own], trace.start[own], stream))
    places, own, stream = places[order], own[order], stream[order]
    begins = np.concatenate(([0], np.flatnonzero(np.diff(stream)) + 1, [len(own)]))
    first, last = as_one(begins, trace.start[own], trace.end[own])
    times = np.zeros(int(last.max()) + 1, dtype=np.int64)
    times[first], times[last] = trace.start[own], trace.end[own]
    before = np.concatenate(([0], np.maximum.accumulate(last)[:-1]))
    effective[places] = times[last] - times[np.minimum(np.maximum(first, before), last)]
    return effective


def _overlapping_streams(trace: Trace) -> NDArray[np.bool_]:
    """For each stream number, whether slices on it overlap, so that it has sub-rows."""
    found = np.zeros(len(trace.tracks) + 1, dtype=np.bool_)
    spilled = [track.subrow > 0 for track in trace.tracks]
    found[trace.thread_of_track[spilled]] = True
    return found
