"""Where each slice would be with a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.analysis.replay.apply import changed
from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.changes import parse_change
from fusetui.analysis.replay.graph import Graph, Node, Times
from fusetui.analysis.replay.replay import replay
from fusetui.analysis.replay.times import bounds_of, slices_of, step_ends
from fusetui.trace.layout.nesting import Nesting, arrange, nest_tracks
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows, distinct
from fusetui.trace.model.categories import CPU_LAYERS, Layer
from fusetui.trace.model.columns import Trace, Track

KEPT_WHOLE = ("report", "keys", "names", "categories", "elements")
"""Of a trace, what a predicted one shares."""
KEPT_OF_SLICES = ("name", "cat", "role", "correlation", "external_id", "order")
"""Columns of a trace that a change leaves alone."""


class Predicted(msgspec.Struct, frozen=True, eq=False):
    """Where slices would be; arrays have the shape [slices that are left]. Left out is
    what takes no time any more, and what is on no thread or stream that was
    replayed."""

    rows: Rows  # of the recorded trace
    tracks: tuple[Track, ...]
    start: Int64s
    dur: Int64s
    tree: Nesting
    # of steps, see bounds_of: as recorded, and replayed, ns of the file;
    # [2, steps + 1], or nothing
    bounds: Int64s

    def place_in(self, trace: Trace) -> Int32s:
        """Of each recorded slice, and of none: the row that it has here, -1 for
        none."""
        place = np.full(len(trace) + 1, -1, dtype=np.int32)
        place[self.rows] = np.arange(len(self.rows))
        return place

    def trace_of(self, trace: Trace) -> Trace:
        """The recorded trace with its slices where they would be."""
        place = self.place_in(trace)
        slices_of_track = [len(track) for track in self.tracks]
        track_numbers = np.arange(len(self.tracks), dtype=np.int32)
        shared = {field: getattr(trace, field) for field in KEPT_WHOLE}
        of_slices = {}
        for column in KEPT_OF_SLICES:
            of_slices[column] = getattr(trace, column)[self.rows]
        return Trace(
            tracks=self.tracks,
            start=self.start,
            dur=self.dur,
            track=np.repeat(track_numbers, slices_of_track),
            launch=place[trace.launch[self.rows]],
            op=place[trace.op[self.rows]],
            **asdict(self.tree),
            **shared,
            **of_slices,
        )

    def earlier_at(self, time: int, until: int) -> int:
        """How much earlier than recorded (ns) the step begins that begins first in
        [time, until), or else the one that `time` is in; times of the recorded
        trace."""
        recorded, replayed = self.bounds
        step = int(np.searchsorted(recorded, time))
        if step == len(recorded) or recorded[step] >= until:
            step -= 1
        return int(recorded[step] - replayed[step]) if step >= 0 else 0


def predicted(trace: Trace, changes: Sequence[str]) -> Predicted:
    """The trace with some changes. Raises WrongChangeError."""
    graph = graph_of(trace)
    parsed = [parse_change(text) for text in changes]
    changed_graph, _ = changed(trace, graph, parsed)
    times = replay(changed_graph)
    start, end = slices_of(trace, changed_graph, times)
    is_left = _is_left(trace, changed_graph, start, end)
    laid_out = _laid_out(trace, np.flatnonzero(is_left), start, end)
    rows = laid_out.rows
    track_edges = np.array([0, *(track.end_row for track in laid_out.tracks)])
    return Predicted(
        rows=rows,
        tracks=laid_out.tracks,
        start=start[rows],
        dur=end[rows] - start[rows],
        tree=nest_tracks(track_edges, start[rows], end[rows]),
        bounds=_bounds(trace, graph, changed_graph, times),
    )


def _bounds(trace: Trace, graph: Graph, changed_graph: Graph, times: Times) -> Int64s:
    """See Predicted.bounds. `times`: those of the changed graph."""
    ends = step_ends(trace, graph)
    if not len(ends.edges):
        return np.empty((2, 0), dtype=np.int64)
    recorded = bounds_of(graph, graph.recorded, ends)
    replayed = bounds_of(changed_graph, times, ends)
    return np.stack([recorded, replayed]) + graph.origin_ns


def _is_left(trace: Trace, graph: Graph, start: Int64s, end: Int64s) -> Flags:
    """Which slices are left with a change: those of threads and streams that were
    replayed, unless they were taken out or take no time any more. `graph`: the changed
    one; `start`, `end`: where its slices would be. Shape [slices]."""
    threads = [chain.thread for chain in graph.chains if not chain.is_stream]
    is_on_cpu = np.isin([track.layer for track in trace.tracks], CPU_LAYERS)
    is_replayed = is_on_cpu & np.isin(trace.thread_of_track, threads)
    is_left: Flags = is_replayed[trace.track]
    items = graph.nodes(Node.ITEM)
    is_left[graph.row[items]] = True
    has_row = graph.row >= 0
    is_left[graph.row[graph.gone & has_row]] = False
    takes_time = end > start
    had_no_time = trace.dur == 0
    is_left &= takes_time | had_no_time
    return is_left


class _LaidOut(NamedTuple):
    """Slices by track and time."""

    rows: Rows  # of the recorded trace
    tracks: tuple[Track, ...]


def _laid_out(trace: Trace, rows: Rows, start: Int64s, end: Int64s) -> _LaidOut:
    """Rows by track and time, and their tracks. Slices of a thread nest as they did,
    because its time passes for all of them alike; those of a stream may overlap where
    they did not."""
    if not len(rows):
        return _LaidOut(rows=rows, tracks=())
    lane = _lane_of_track(trace)[trace.track[rows]]
    longest_first = start[rows] - end[rows]
    order = np.lexsort((rows, longest_first, start[rows], lane))
    lane_begins = np.flatnonzero(np.diff(lane[order])) + 1
    ordered: list[Rows] = []
    tracks: list[Track] = []
    laid_out = 0  # how many rows
    for rows_of_lane in np.split(rows[order], lane_begins):
        number_of_lane = int(lane[order[laid_out]])
        track = trace.tracks[number_of_lane]
        subrow = _subrows(track, start[rows_of_lane], end[rows_of_lane])
        for number in distinct(subrow).tolist():
            rows_of_track = rows_of_lane[subrow == number]
            first_row = laid_out
            laid_out += len(rows_of_track)
            ordered.append(rows_of_track)
            tracks.append(
                replace(track, subrow=number, first_row=first_row, end_row=laid_out)
            )
    return _LaidOut(rows=np.concatenate(ordered), tracks=tuple(tracks))


def _subrows(track: Track, start: Int64s, end: Int64s) -> NDArray[np.integer]:
    """The subrow of each slice of a lane, in order; of a stream so that none overlap on
    it, else that of its first track."""
    if track.layer is not Layer.STREAM:
        return np.full(len(start), track.subrow)
    is_call = np.zeros(len(start), dtype=np.bool_)
    return arrange(start, end, is_call, True)


def _lane_of_track(trace: Trace) -> Rows:
    """For each track the first of the tracks that are one lane with it: those of the
    same stream; of a thread each track is a lane of its own."""
    first_of: dict[object, int] = {}
    lanes = []
    for number, track in enumerate(trace.tracks):
        is_stream = track.layer is Layer.STREAM
        key: object = (track.pid, track.tid) if is_stream else number
        lanes.append(first_of.setdefault(key, number))
    return np.array(lanes, dtype=np.intp)
