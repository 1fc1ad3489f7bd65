"""How many GPU events were launched and had not finished, over time, on each device.

An event is in the queue from the start of its launch call (or its own start, if that is earlier:
clocks differ) to its end. A replay of a CUDA graph adds all of its events at once. Events whose
launch call was not recorded are not counted.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.counters import Counter
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import device_label

Int64s = NDArray[np.int64]
GROUP = "launch queue"


class QueueLength(msgspec.Struct, frozen=True):
    """How long one queue was, from its first launch to its last end."""

    label: str
    most: int
    mean: float  # over time
    empty_ns: int  # while nothing was launched or running
    span_ns: int


def length_of(queue: Counter) -> QueueLength:
    """The figures of one of `queues`."""
    lasted = np.diff(queue.time)
    value = queue.value[:-1]
    span = int(lasted.sum())
    return QueueLength(
        label=queue.label,
        most=int(queue.value.max()),
        mean=float((lasted * value).sum()) / span if span else 0.0,
        empty_ns=int(lasted[value == 0].sum()),
        span_ns=span,
    )


def queues(trace: Trace) -> tuple[Counter, ...]:
    """The length of the queue of each device with linked events, in lane order."""
    rows = trace.gpu_rows[trace.launch[trace.gpu_rows] >= 0]
    device = trace.process_of_track[trace.track[rows]]
    return tuple(_queue(trace, rows[device == number]) for number in np.unique(device).tolist())


def _queue(trace: Trace, rows: NDArray[np.intp]) -> Counter:
    begin = np.minimum(trace.start[trace.launch[rows]], trace.start[rows])
    time, value = _running(begin, trace.end[rows])
    pid = trace.track_of(int(rows[0])).pid
    return Counter(GROUP, f"{device_label(pid)} queue", "", time, value)


def _running(begin: Int64s, end: Int64s) -> tuple[Int64s, NDArray[np.float64]]:
    """The times at which something begins or ends, and how many have begun and not ended then."""
    time, at = np.unique(np.concatenate([begin, end]), return_inverse=True)
    change = np.bincount(at[: len(begin)], minlength=len(time)).astype(np.int64)
    change -= np.bincount(at[len(begin) :], minlength=len(time))
    value = np.cumsum(change)
    new = np.concatenate(([True], np.diff(value) != 0))
    return time[new], value[new].astype(np.float64)
