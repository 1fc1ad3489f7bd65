"""Computes the position of each slice of a trace after a change.

The app shows this predicted trace in the timeline, beside the recorded one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.analysis.replay.apply import apply_changes
from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.changes import parse_change
from fusetui.analysis.replay.graph import Graph, Times
from fusetui.analysis.replay.replay import replay
from fusetui.analysis.replay.times import (
    compute_slice_times,
    find_step_ends,
    measure_step_bounds,
)
from fusetui.trace.layout.nesting import Nesting, arrange, nest_tracks
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int32s,
    Int64s,
    Rows,
    distinct,
    numbers_of_sized_groups,
    run_bounds,
)
from fusetui.trace.model.categories import CPU_LAYERS, Layer
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.ids import Id

KEPT_WHOLE = ("report", "keys", "names", "categories", "elements")
"""The fields of a recorded trace that a predicted trace shares with it."""
KEPT_OF_SLICES = ("name", "cat", "role", "correlation", "external_id", "order")
"""The columns that have the same value for a slice in both traces."""


class Predicted(msgspec.Struct, frozen=True, eq=False):
    """Where the slices of a trace would be with a change.

    A slice is left out if the change removes it, if it takes no time any more, or if it
    lies on no thread or stream that is replayed. Arrays have one entry per slice that
    is left, by track and time, unless noted. Times are ns of the file.
    """

    rows: Rows  # the row of each slice in the recorded trace
    tracks: tuple[Track, ...]
    start: Int64s
    dur: Int64s
    tree: Nesting
    # The bounds of steps (see measure_step_bounds), first as recorded and then as
    # replayed: of shape [2, steps + 1], or [2, 0] without steps.
    bounds: Int64s

    def find_predicted_rows(self, trace: Trace) -> Int32s:
        """Map each slice of the recorded trace to its row in the predicted one.

        Args:
            trace: The recorded trace.

        Returns:
            One entry per recorded row, NO_ROW if it is left out; and a last entry,
            also NO_ROW, which the row -1 ("none") finds.
        """
        predicted_row = np.full(len(trace) + 1, NO_ROW, dtype=np.int32)
        predicted_row[self.rows] = np.arange(len(self.rows))
        return predicted_row

    def make_trace(self, trace: Trace) -> Trace:
        """Make the predicted trace: the recorded one with the predicted times of its
        slices.

        Its rows are the slices that are left, sorted by track and time.

        Args:
            trace: The recorded trace.
        """
        shared = {field: getattr(trace, field) for field in KEPT_WHOLE}
        columns_of_slices = {}
        for column in KEPT_OF_SLICES:
            columns_of_slices[column] = getattr(trace, column)[self.rows]

        predicted_row = self.find_predicted_rows(trace)
        slices_of_track = np.array([len(track) for track in self.tracks], np.intp)
        return Trace(
            tracks=self.tracks,
            start=self.start,
            dur=self.dur,
            track=numbers_of_sized_groups(slices_of_track).astype(np.int32),
            launch=predicted_row[trace.launch[self.rows]],
            op=predicted_row[trace.op[self.rows]],
            **asdict(self.tree),
            **shared,
            **columns_of_slices,
        )

    def measure_step_shift_ns(self, time: int, until: int) -> int:
        """Return how much earlier than recorded a step begins in the predicted trace.

        The app shifts the predicted timeline by this, so that the step in view begins
        where the recorded one does. It is the first step that begins between two times,
        or if none does, the step in which `time` lies.

        Args:
            time: The first time, in ns of the file, in the recorded trace.
            until: The second time; a step that begins at this time does not count.

        Returns:
            ns; 0 if `time` lies before all steps, or the trace has none.
        """
        recorded, replayed = self.bounds
        next_step = int(np.searchsorted(recorded, time))
        begins_in_time = next_step < len(recorded) and recorded[next_step] < until
        step = next_step if begins_in_time else next_step - 1
        is_before_all_steps = step < 0
        if is_before_all_steps:
            return 0
        return int(recorded[step] - replayed[step])


def predict_slices(trace: Trace, changes: Sequence[str]) -> Predicted:
    """Compute where the slices of a trace would be with some changes.

    E.g. with `kernel:gemm x0.5`, these kernels are half as long, and what waited for
    them starts earlier. Slices that a change removes are left out.

    Args:
        trace: The trace.
        changes: The changes, as a user writes them.

    Raises:
        WrongChangeError: For a text that is no change, or changes nothing.
    """
    graph = build_graph(trace)
    parsed = [parse_change(text) for text in changes]
    changed_graph, _ = apply_changes(trace, graph, parsed)
    times = replay(changed_graph)

    slice_times = compute_slice_times(trace, changed_graph, times)
    start = slice_times.start
    end = slice_times.end
    is_kept = _mark_kept_slices(trace, changed_graph, start, end)
    laid_out = _lay_out_slices(trace, np.flatnonzero(is_kept), start, end)
    rows = laid_out.rows
    track_edges = np.array([0, *(track.end_row for track in laid_out.tracks)])
    return Predicted(
        rows=rows,
        tracks=laid_out.tracks,
        start=start[rows],
        dur=end[rows] - start[rows],
        tree=nest_tracks(track_edges, start[rows], end[rows]),
        bounds=_find_step_bounds(trace, graph, changed_graph, times),
    )


def _find_step_bounds(
    trace: Trace, graph: Graph, changed_graph: Graph, times: Times
) -> Int64s:
    """Find when steps end, as recorded and with the changes.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        changed_graph: The graph with the changes.
        times: The times of the nodes of `changed_graph` in the replay.

    Returns:
        ns of the file, of shape [2, steps + 1]: as recorded, then with the changes the
        begin of the first step and the end of each; [2, 0] in a trace without steps.
    """
    ends = find_step_ends(trace, graph)
    if not ends.has_steps:
        return np.empty((2, 0), dtype=np.int64)
    recorded = measure_step_bounds(graph, graph.recorded, ends)
    replayed = measure_step_bounds(changed_graph, times, ends)
    return np.stack([recorded, replayed]) + graph.origin_ns


def _mark_kept_slices(trace: Trace, graph: Graph, start: Int64s, end: Int64s) -> Flags:
    """Mark the slices of a trace that its predicted trace has, too.

    These are the slices of the threads and streams that are replayed, without those
    that a change removed, or that take no time any more. Slices that took no time in
    the recording either are kept.

    Args:
        trace: The recorded trace.
        graph: The changed graph.
        start: When each slice starts in the replay, in ns of the file.
        end: When each slice ends in the replay.

    Returns:
        A flag per slice of the recorded trace.
    """
    # Slices of threads are replayed by the track, and GPU work by the slice.
    threads = [lane.thread for lane in graph.lanes if not lane.is_stream]
    layer_of_track = [track.layer for track in trace.tracks]
    is_cpu_track = np.isin(layer_of_track, CPU_LAYERS)
    is_replayed_track = is_cpu_track & np.isin(trace.thread_of_track, threads)
    is_replayed: Flags = is_replayed_track[trace.track]
    rows_of_tasks = graph.row[graph.gpu_tasks]
    is_replayed[rows_of_tasks] = True

    stands_for_slice = graph.row != NO_ROW
    removed_rows = graph.row[graph.is_removed & stands_for_slice]
    is_left = np.ones(len(trace), dtype=np.bool_)
    is_left[removed_rows] = False

    takes_time = end > start
    took_no_time = trace.dur == 0
    is_kept: Flags = is_replayed & is_left & (takes_time | took_no_time)
    return is_kept


class _LaidOut(NamedTuple):
    """Slices of a predicted trace by track and time, and their tracks."""

    rows: Rows  # rows of the recorded trace
    tracks: tuple[Track, ...]


def _lay_out_slices(trace: Trace, rows: Rows, start: Int64s, end: Int64s) -> _LaidOut:
    """Sort the slices of a predicted trace by track and time, and make their tracks.

    Slices of a thread nest as they did, because its time passes for all of them alike,
    so they keep their tracks. Slices of a stream may overlap where they did not, so
    they are distributed over new tracks.

    Args:
        trace: The recorded trace.
        rows: The slices that are left.
        start: When each slice of the trace starts in the replay, in ns of the file.
        end: When each slice of the trace ends in the replay.
    """
    if not len(rows):
        return _LaidOut(rows=rows, tracks=())

    # Sort by track (those of a stream are one) and start; of equal starts the longer
    # slice first, so that parents precede children. The last key counts first.
    first_track_of_track = _find_first_tracks(trace)
    first_track = first_track_of_track[trace.track[rows]]
    longer_first = start[rows] - end[rows]
    order = np.lexsort((rows, longer_first, start[rows], first_track))
    sorted_rows = rows[order]
    sorted_first_track = first_track[order]

    # Divide the slices of each thread's track, and of each stream, into new tracks.
    ordered: list[Rows] = []
    tracks: list[Track] = []
    slices_so_far = 0
    for begin, stop in pairwise(run_bounds(sorted_first_track).tolist()):
        rows_of_lane = sorted_rows[begin:stop]
        track = trace.tracks[int(sorted_first_track[begin])]
        subrow_of_slice = _assign_subrows(track, start[rows_of_lane], end[rows_of_lane])
        for subrow in distinct(subrow_of_slice).tolist():
            rows_of_track = rows_of_lane[subrow_of_slice == subrow]
            first_row = slices_so_far
            slices_so_far += len(rows_of_track)
            ordered.append(rows_of_track)
            new_track = replace(
                track, subrow=subrow, first_row=first_row, end_row=slices_so_far
            )
            tracks.append(new_track)
    return _LaidOut(rows=np.concatenate(ordered), tracks=tuple(tracks))


def _assign_subrows(track: Track, start: Int64s, end: Int64s) -> NDArray[np.integer]:
    """Assign each slice of a stream, or of a track of a thread, the subrow on which it
    is drawn.

    A stream gets as many subrows as slices overlap. On a thread slices nest, and all
    keep the subrow of their track.

    Args:
        track: The track of the thread, or the first one of the stream, as recorded.
        start: The start of each slice, ascending.
        end: The end of each slice.
    """
    if track.layer is not Layer.STREAM:
        return np.full(len(start), track.subrow)
    no_calls = np.zeros(len(start), dtype=np.bool_)
    return arrange(start, end, call=no_calls, flat=True)


def _find_first_tracks(trace: Trace) -> Rows:
    """Find for each track the first track of the same stream.

    Overlapping slices of a stream were distributed over several tracks. A track of a
    thread stands for itself.

    Returns:
        The index of a track for each track.
    """
    first_track_of_stream: dict[tuple[Id, Id], int] = {}
    first_tracks = []
    for index, track in enumerate(trace.tracks):
        first_track = index
        if track.layer is Layer.STREAM:
            stream = (track.pid, track.tid)
            first_track = first_track_of_stream.setdefault(stream, index)
        first_tracks.append(first_track)
    return np.array(first_tracks, dtype=np.intp)
