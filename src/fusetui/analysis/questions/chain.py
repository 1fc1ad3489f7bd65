"""Finds the launch call of a kernel and the ops around it, and the kernels of an op."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.links import enclosing_rows
from fusetui.trace.model.categories import CPU_LAYERS, GPU_ROLES, Layer, Role
from fusetui.trace.model.columns import Trace, Track


def is_gpu(trace: Trace, row: int) -> bool:
    """Return whether a row is a kernel, a memcpy or a memset."""
    return int(trace.role[row]) in GPU_ROLES


def ancestors(trace: Trace, row: int) -> list[int]:
    """Return the slices around a row on its own track, innermost first."""
    rows: list[int] = []
    parent = int(trace.parent[row])
    while parent >= 0:
        rows.append(parent)
        parent = int(trace.parent[parent])
    return rows


def issuer_of(trace: Trace, row: int) -> int:
    """Return where a GPU row comes from: its launch call, or else its op, or else -1.

    An annotation on a stream comes from the CPU annotation with the same External id.
    """
    if trace.role[row] == Role.GPU_ANNOTATION:
        annotations = trace.rows_of(Role.ANNOTATION)
        external_id = trace.external_id[annotations]
        has_same_id = (external_id > 0) & (external_id == trace.external_id[row])
        has_same_name = trace.name[annotations] == trace.name[row]
        same = annotations[has_same_id & has_same_name]
        return int(same[0]) if len(same) else -1

    launch = int(trace.launch[row])
    return launch if launch >= 0 else int(trace.op[row])


def launch_chain(trace: Trace, row: int) -> list[int]:
    """Return everything on the CPU around the launch of a GPU row, innermost first.

    These are the launch call, the ops around it, and the annotations around those. For
    a CPU row it is what is around the row itself. A kernel whose launch was not
    recorded has none.
    """
    issuer = issuer_of(trace, row) if is_gpu(trace, row) else int(trace.parent[row])
    if issuer < 0 and is_gpu(trace, row):
        return []
    on_track = [issuer, *ancestors(trace, issuer)] if issuer >= 0 else []
    outermost = on_track[-1] if on_track else row
    return on_track + around(trace, outermost, Layer.ANNOTATIONS)


def around(trace: Trace, row: int, layer: Layer) -> list[int]:
    """Return the slices of another layer of a thread that contain a row.

    Args:
        trace: The trace.
        row: The row, on a CPU thread.
        layer: The other layer.

    Returns:
        The slices, innermost first.
    """
    track_of_row = trace.track_of(row)
    if track_of_row.layer not in CPU_LAYERS or track_of_row.layer is layer:
        return []
    wanted = (layer, track_of_row.pid, track_of_row.tid, 0)
    for track in trace.tracks:
        if (track.layer, track.pid, track.tid, track.subrow) != wanted:
            continue
        start = trace.start[row : row + 1]
        end = trace.end[row : row + 1]
        (innermost,) = enclosing_rows(
            track, trace.start, trace.end, trace.parent, start, end
        ).tolist()
        if innermost < 0:
            return []
        return [innermost, *ancestors(trace, innermost)]
    return []


def launched_under(trace: Trace, row: int) -> NDArray[np.intp]:
    """Return the GPU rows that were launched under a CPU row, in time order.

    Under an op or a call these are the launches in its subtree. Under an annotation or
    a Python frame they are those on the same thread while it lasted.
    """
    index = trace.launch_index
    parts = [index.rows[part] for part in _parts_under(trace, row)]
    return _by_start(trace, np.sort(np.concatenate(parts)))


def _by_start(trace: Trace, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Sort rows by start."""
    by_start: NDArray[np.intp] = rows[np.argsort(trace.start[rows], kind="stable")]
    return by_start


def launched_sums(trace: Trace, row: int) -> tuple[int, int, int]:
    """Add up the GPU rows that were launched under a CPU row, in O(log n).

    Returns:
        How many events `launched_under` finds, how many of them are kernels, and their
        time in ns.
    """
    index = trace.launch_index
    events = 0
    kernels = 0
    ns = 0
    for part in _parts_under(trace, row):
        events += part.stop - part.start
        kernels += int(index.kernels[part.stop] - index.kernels[part.start])
        ns += int(index.ns[part.stop] - index.ns[part.start])
    return events, kernels, ns


def _parts_under(trace: Trace, row: int) -> list[slice]:
    """Return the parts of the launch index that were launched under a CPU row.

    There is at least one part, and parts share no entry.
    """
    index = trace.launch_index
    if trace.track_of(row).layer is Layer.OPS:
        return [index.within(row, int(trace.end_row[row]))]

    thread = trace.thread_of_track
    times = [trace.start[row], trace.end[row]]
    parts = []
    for track in np.flatnonzero(thread == thread[trace.track[row]]).tolist():
        first, end = rows_between(trace, trace.tracks[track], times)
        parts.append(index.within(first, end))
    return parts


def rows_between(trace: Trace, track: Track, times: list[int]) -> tuple[int, int]:
    """Return the rows of a track that start in a window, as [first, end).

    Args:
        trace: The trace.
        track: The track.
        times: The begin and the end of the window, in ns.
    """
    first, end = trace.start[track.rows].searchsorted(times).tolist()
    return track.first_row + first, track.first_row + end


def replayed(trace: Trace, row: int) -> NDArray[np.intp]:
    """Return the GPU rows that replay what was captured within a row of a capture.

    They are in time order.
    """
    gpu_rows = trace.gpu_rows
    call = trace.asked[gpu_rows]
    if trace.annotated is not None:
        annotation = trace.annotated[gpu_rows]
        call = np.where(annotation >= 0, annotation, call)

    starts_inside = (trace.start[call] >= trace.start[row]) & (
        trace.start[call] < trace.end[row]
    )
    thread = trace.thread_of_track
    is_same_thread = thread[trace.track[call]] == thread[trace.track[row]]
    is_replay = (call >= 0) & is_same_thread & (starts_inside | (call == row))
    return _by_start(trace, gpu_rows[is_replay])


def launch_latency_ns(trace: Trace, row: int) -> int | None:
    """Return the ns from the start of the launch call to the start of the GPU event.

    It may be negative, if clocks differ. Returns None if the launch was not recorded.
    """
    launch = int(trace.launch[row])
    return int(trace.start[row] - trace.start[launch]) if launch >= 0 else None


def queue_delay_ns(trace: Trace, row: int) -> int | None:
    """Return how long a launched GPU event waited for earlier work of its stream.

    It is the part of the time from the end of the launch call to the start of the event
    in which an earlier event of the same stream was still running.

    Returns None if the launch was not recorded.
    """
    launch = int(trace.launch[row])
    if launch < 0:
        return None

    start_ns = int(trace.start[row])
    stream = trace.track_of(row)
    stream_key = (stream.layer, stream.pid, stream.tid)
    latest_end_ns = 0
    for track in trace.tracks:
        if (track.layer, track.pid, track.tid) != stream_key:
            continue
        earlier = int(np.searchsorted(trace.start[track.rows], start_ns))
        if earlier:
            last_earlier = track.first_row + earlier - 1
            latest_end_ns = max(latest_end_ns, int(trace.end[last_earlier]))
    return max(0, min(latest_end_ns, start_ns) - int(trace.end[launch]))
