"""From a kernel to the call that launched it and the ops around that, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.links import enclosing_rows
from fusetui.trace.model.categories import CPU_LAYERS, GPU_ROLES, Layer, Role
from fusetui.trace.model.columns import Trace, Track


def is_gpu(trace: Trace, row: int) -> bool:
    """Whether this row is a kernel, a memcpy or a memset."""
    return int(trace.role[row]) in GPU_ROLES


def ancestors(trace: Trace, row: int) -> list[int]:
    """The slices around a row on its own track, innermost first."""
    found: list[int] = []
    over = int(trace.parent[row])
    while over >= 0:
        found.append(over)
        over = int(trace.parent[over])
    return found


def host_of(trace: Trace, row: int) -> int:
    """Where a GPU row comes from: its launch call, else its op, else -1. For an
    annotation on a stream it is the CPU annotation with the same External id."""
    if trace.role[row] == Role.GPU_ANNOTATION:
        rows = trace.rows_of(Role.ANNOTATION)
        same = trace.external_id[rows] == trace.external_id[row]
        rows = rows[
            same & (trace.name[rows] == trace.name[row]) & (trace.external_id[rows] > 0)
        ]
        return int(rows[0]) if len(rows) else -1
    launch = int(trace.launch[row])
    return launch if launch >= 0 else int(trace.op[row])


def launch_chain(trace: Trace, row: int) -> list[int]:
    """For a GPU row: launch call, ops around it, then the annotations around those,
    innermost first. For a CPU row: what is around it, likewise. [] for a kernel whose
    launch was not recorded."""
    host = host_of(trace, row) if is_gpu(trace, row) else int(trace.parent[row])
    if host < 0 and is_gpu(trace, row):
        return []
    inner = [host, *ancestors(trace, host)] if host >= 0 else []
    return inner + around(trace, inner[-1] if inner else row, Layer.ANNOTATIONS)


def around(trace: Trace, row: int, layer: Layer) -> list[int]:
    """Slices of another layer of the same thread that contain a row, innermost
    first."""
    own = trace.track_of(row)
    if own.layer not in CPU_LAYERS or own.layer is layer:
        return []
    for track in trace.tracks:
        if (track.layer, track.pid, track.tid, track.subrow) == (
            layer,
            own.pid,
            own.tid,
            0,
        ):
            start, end = trace.start[row : row + 1], trace.end[row : row + 1]
            over = int(
                enclosing_rows(track, trace.start, trace.end, trace.parent, start, end)[
                    0
                ]
            )
            return [over, *ancestors(trace, over)] if over >= 0 else []
    return []


def launched_under(trace: Trace, row: int) -> NDArray[np.intp]:
    """GPU rows launched by the calls under a CPU row, in time order. Under an op or a
    call: in its subtree. Under an annotation or a Python frame: on the same thread,
    while it lasted."""
    index = trace.launch_index
    found = np.sort(
        np.concatenate([index.rows[part] for part in _parts_under(trace, row)])
    )
    by_time: NDArray[np.intp] = found[np.argsort(trace.start[found], kind="stable")]
    return by_time


def launched_sums(trace: Trace, row: int) -> tuple[int, int, int]:
    """How many events `launched_under` finds, how many of them are kernels, and their
    time (ns); in log n, however many there are."""
    index, parts = trace.launch_index, _parts_under(trace, row)
    return (
        sum(part.stop - part.start for part in parts),
        sum(
            int(index.kernels[part.stop] - index.kernels[part.start]) for part in parts
        ),
        sum(int(index.ns[part.stop] - index.ns[part.start]) for part in parts),
    )


def _parts_under(trace: Trace, row: int) -> list[slice]:
    """Of the launch index; at least one, and they share no entry."""
    index = trace.launch_index
    if trace.track_of(row).layer is Layer.OPS:
        return [index.within(row, int(trace.end_row[row]))]
    number, times = trace.thread_of_track, [trace.start[row], trace.end[row]]
    own = np.flatnonzero(number == number[trace.track[row]]).tolist()
    tracks = [trace.tracks[track] for track in own]
    return [index.within(*rows_between(trace, track, times)) for track in tracks]


def rows_between(trace: Trace, track: Track, times: list[int]) -> tuple[int, int]:
    """The rows of a track that start in [begin, end)."""
    first, end = trace.start[track.rows].searchsorted(times).tolist()
    return track.first_row + first, track.first_row + end


def replayed(trace: Trace, row: int) -> NDArray[np.intp]:
    """GPU rows, in time order, that replay what was captured in a row of a capture."""
    gpu, call = trace.gpu_rows, trace.asked[trace.gpu_rows]
    if trace.annotated is not None:
        call = np.where(trace.annotated[gpu] >= 0, trace.annotated[gpu], call)
    inside = (trace.start[call] >= trace.start[row]) & (
        trace.start[call] < trace.end[row]
    )
    inside |= call == row
    thread = trace.thread_of_track
    found = gpu[
        (call >= 0) & inside & (thread[trace.track[call]] == thread[trace.track[row]])
    ]
    by_time: NDArray[np.intp] = found[np.argsort(trace.start[found], kind="stable")]
    return by_time


def launch_latency_ns(trace: Trace, row: int) -> int | None:
    """From the start of the launch call to the start of the GPU event; may be negative
    (clocks). None if the launch was not recorded."""
    launch = int(trace.launch[row])
    return int(trace.start[row] - trace.start[launch]) if launch >= 0 else None


def queue_delay_ns(trace: Trace, row: int) -> int | None:
    """How long a GPU event, once launched, waited for earlier work of its stream; else
    None. The part of the time from the end of the launch call to the start of the event
    during which an earlier event of the same stream was still running."""
    launch = int(trace.launch[row])
    if launch < 0:
        return None
    start, own, latest = int(trace.start[row]), trace.track_of(row), 0
    for track in trace.tracks:
        if (track.layer, track.pid, track.tid) == (own.layer, own.pid, own.tid):
            before = int(np.searchsorted(trace.start[track.rows], start))
            latest = max(
                latest, int(trace.end[track.first_row + before - 1]) if before else 0
            )
    return max(0, min(latest, start) - int(trace.end[launch]))
