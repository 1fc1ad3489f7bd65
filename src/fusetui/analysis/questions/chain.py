"""Finds the launch call of a kernel and the ops around it, and the kernels of an op."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.layout.links import enclosing_rows
from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.categories import CPU_LAYERS, GPU_ROLES, Layer, Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.ids import Id


def is_gpu_event(trace: Trace, row: int) -> bool:
    """Return whether a row of the trace is a kernel, a memcpy or a memset."""
    return int(trace.role[row]) in GPU_ROLES


def list_ancestors(trace: Trace, row: int) -> list[int]:
    """Return the slices that contain a slice on its own track, innermost first. Returns
    [] for an outermost slice."""
    rows: list[int] = []
    parent = int(trace.parent[row])
    while parent != NO_ROW:
        rows.append(parent)
        parent = int(trace.parent[parent])
    return rows


def find_issuer(trace: Trace, row: int) -> int:
    """Return the row of the call that launched a GPU event.

    If that was not recorded, it is the op around the launch, or else NO_ROW (-1). An
    annotation on a stream comes from the CPU annotation with the same External id and
    name.
    """
    if trace.role[row] == Role.GPU_ANNOTATION:
        annotations = trace.rows_of(Role.ANNOTATION)
        external_id = trace.external_id[annotations]
        has_same_id = (external_id > 0) & (external_id == trace.external_id[row])
        has_same_name = trace.name[annotations] == trace.name[row]
        matching_annotations = annotations[has_same_id & has_same_name]
        return int(matching_annotations[0]) if len(matching_annotations) else NO_ROW

    launch = int(trace.launch[row])
    return int(trace.op[row]) if launch == NO_ROW else launch


def find_launch_chain(trace: Trace, row: int) -> list[int]:
    """Return everything on the CPU around the launch of a GPU event, innermost first.

    These are the launch call, the ops around it, and the annotations around those. For
    a CPU slice it is what is around the slice itself. Returns [] for a GPU event whose
    launch was not recorded.
    """
    if is_gpu_event(trace, row):
        issuer = find_issuer(trace, row)
        if issuer == NO_ROW:
            return []
        on_track = [issuer, *list_ancestors(trace, issuer)]
    else:
        on_track = list_ancestors(trace, row)
    outermost = on_track[-1] if on_track else row
    return on_track + find_slices_around(trace, outermost, Layer.ANNOTATIONS)


def find_slices_around(trace: Trace, row: int, layer: Layer) -> list[int]:
    """Return the slices of another layer of a thread that contain a slice.

    A *layer* is one kind of slices of a thread: its ops, its annotations or its Python
    frames.

    Args:
        trace: The trace.
        row: The slice, on a CPU thread.
        layer: The other layer.

    Returns:
        The slices, innermost first; [] for the layer of the slice itself and for
        GPU events.
    """
    own_track = trace.track_of(row)
    if own_track.layer not in CPU_LAYERS or own_track.layer is layer:
        return []
    track = _find_first_track(trace, layer, own_track.pid, own_track.tid)
    if track is None:
        return []
    start = trace.start[row : row + 1]
    end = trace.end[row : row + 1]
    (innermost,) = enclosing_rows(
        track, trace.start, trace.end, trace.parent, start, end
    ).tolist()
    if innermost == NO_ROW:
        return []
    return [innermost, *list_ancestors(trace, innermost)]


def _find_first_track(trace: Trace, layer: Layer, pid: Id, tid: Id) -> Track | None:
    """Find the first track of one layer of a thread; None if the thread has none."""
    for track in trace.tracks:
        is_of_thread = (track.pid, track.tid) == (pid, tid)
        if is_of_thread and track.layer is layer and track.subrow == 0:
            return track
    return None


def find_launched_gpu_rows(trace: Trace, row: int) -> NDArray[np.intp]:
    """Return the GPU rows that were launched under a CPU row, in time order.

    Under an op or a call these are the launches in its subtree. Under an annotation or
    a Python frame they are those on the same thread while it lasted.
    """
    launched_rows = trace.launch_index.rows
    parts = [launched_rows[part] for part in _find_index_parts(trace, row)]
    return _sort_by_start(trace, np.sort(np.concatenate(parts)))


def _sort_by_start(trace: Trace, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Sort rows of the trace by their starts; rows with equal starts keep their order."""
    sorted_rows: NDArray[np.intp] = rows[np.argsort(trace.start[rows], kind="stable")]
    return sorted_rows


class LaunchedWork(NamedTuple):
    """The GPU events that were launched under a CPU slice, added up."""

    events: int
    kernels: int  # how many of the events are kernels
    ns: int


def sum_launched_gpu_rows(trace: Trace, row: int) -> LaunchedWork:
    """Count and add up the GPU events that `find_launched_gpu_rows` finds.

    It uses running totals, so that it takes O(log n) however many events there are.
    """
    index = trace.launch_index
    events = 0
    kernels = 0
    ns = 0
    for part in _find_index_parts(trace, row):
        events += part.stop - part.start
        kernels += int(index.kernels[part.stop] - index.kernels[part.start])
        ns += int(index.ns[part.stop] - index.ns[part.start])
    return LaunchedWork(events=events, kernels=kernels, ns=ns)


def _find_index_parts(trace: Trace, row: int) -> list[slice]:
    """Return where the launches under a CPU slice are in the launch index.

    The launch index lists all launched GPU events by the row of their launch. There is
    at least one part, and parts share no entry.
    """
    index = trace.launch_index
    if trace.track_of(row).layer is Layer.OPS:
        return [index.within(row, int(trace.end_row[row]))]

    # An annotation or a Python frame is on another track than the launches.
    thread = trace.thread_of_track[trace.track[row]]
    parts = []
    for track in np.flatnonzero(trace.thread_of_track == thread).tolist():
        rows = find_rows_starting_between(
            trace,
            trace.tracks[track],
            begin_ns=int(trace.start[row]),
            end_ns=int(trace.end[row]),
        )
        parts.append(index.within(rows.start, rows.stop))
    return parts


def find_rows_starting_between(
    trace: Trace, track: Track, *, begin_ns: int, end_ns: int
) -> range:
    """Return the rows of a track that start in a window of time.

    E.g. range(12, 15) for the rows 12, 13 and 14; an empty range for none.

    Args:
        trace: The trace.
        track: The track.
        begin_ns: The begin of the window, in ns of the file. A row that starts then is
            in it.
        end_ns: Its end. A row that starts then is not in it.
    """
    starts = trace.start[track.rows]  # ascending
    first, end = starts.searchsorted([begin_ns, end_ns]).tolist()
    return range(track.first_row + first, track.first_row + end)


def find_replayed_gpu_rows(trace: Trace, row: int) -> NDArray[np.intp]:
    """Return the GPU events that replay what was captured during a slice of a capture.

    A graph is captured once and replayed many times. A replayed event counts if its
    captured call started during the slice, on the same thread. The events are in the
    order of time.
    """
    gpu_rows = trace.gpu_rows
    captured_call = trace.asked[gpu_rows]
    if trace.annotated is not None:
        annotation = trace.annotated[gpu_rows]
        has_annotation = annotation != NO_ROW
        captured_call = np.where(has_annotation, annotation, captured_call)

    call_start = trace.start[captured_call]
    is_during_slice = (trace.start[row] <= call_start) & (call_start < trace.end[row])
    is_slice_itself = captured_call == row
    thread_of_call = trace.thread_of_track[trace.track[captured_call]]
    is_same_thread = thread_of_call == trace.thread_of_track[trace.track[row]]
    is_replay = (
        (captured_call != NO_ROW) & is_same_thread & (is_during_slice | is_slice_itself)
    )
    return _sort_by_start(trace, gpu_rows[is_replay])


def measure_launch_latency_ns(trace: Trace, row: int) -> int | None:
    """Return the ns from the start of the launch call to the start of the GPU event.

    It may be negative, if clocks differ. Returns None if the launch was not recorded.
    """
    launch = int(trace.launch[row])
    if launch == NO_ROW:
        return None
    return int(trace.start[row] - trace.start[launch])


def measure_queue_delay_ns(trace: Trace, row: int) -> int | None:
    """Return how long a launched GPU event waited for earlier work of its stream.

    E.g. a call ends at 10 us, the kernel before ends at 25 us, and the kernel starts at
    26 us: it waited 15 us. It did not wait if the stream was idle when the call ended.

    Returns None if the launch was not recorded.
    """
    launch = int(trace.launch[row])
    if launch == NO_ROW:
        return None
    launch_end_ns = int(trace.end[launch])
    end_of_earlier_ns = _find_end_of_earlier_work(trace, row)
    stream_busy_until_ns = min(end_of_earlier_ns, int(trace.start[row]))
    return max(0, stream_busy_until_ns - launch_end_ns)


def _find_end_of_earlier_work(trace: Trace, row: int) -> int:
    """Return when the work ends that started before a GPU event on its stream.

    If some of it overlaps, the stream has several tracks, and the latest end counts.
    Returns 0 if there is no such work.
    """
    stream = trace.track_of(row)
    latest_end_ns = 0
    for track in trace.tracks:
        has_same_ids = (track.pid, track.tid) == (stream.pid, stream.tid)
        if not has_same_ids or track.layer is not stream.layer:
            continue
        starts = trace.start[track.rows]
        earlier_events = int(np.searchsorted(starts, int(trace.start[row])))
        if earlier_events:
            last_earlier = track.first_row + earlier_events - 1
            latest_end_ns = max(latest_end_ns, int(trace.end[last_earlier]))
    return latest_end_ns
