"""Where each slice would be with a change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import asdict, replace

from fusetui.analysis.replay.apply import changed
from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.changes import parse_change
from fusetui.analysis.replay.graph import Graph, Node
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
        return Trace(
            tracks=self.tracks,
            start=self.start,
            dur=self.dur,
            track=np.repeat(track_numbers, slices_of_track),
            launch=place[trace.launch[self.rows]],
            op=place[trace.op[self.rows]],
            **asdict(self.tree),
            **{field: getattr(trace, field) for field in KEPT_WHOLE},
            **{column: getattr(trace, column)[self.rows] for column in KEPT_OF_SLICES},
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
    rows, tracks = _laid_out(trace, np.flatnonzero(is_left), start, end)
    track_edges = np.array([0, *(track.end_row for track in tracks)])
    ends = step_ends(trace, graph)
    recorded_bounds = bounds_of(graph, graph.recorded, ends)
    replayed_bounds = bounds_of(changed_graph, times, ends)
    bounds = np.stack([recorded_bounds, replayed_bounds])
    return Predicted(
        rows=rows,
        tracks=tracks,
        start=start[rows],
        dur=end[rows] - start[rows],
        tree=nest_tracks(track_edges, start[rows], end[rows]),
        bounds=bounds[:, : len(ends.edges)] + graph.origin_ns,
    )


def _is_left(trace: Trace, graph: Graph, start: Int64s, end: Int64s) -> Flags:
    threads = [chain.thread for chain in graph.chains if not chain.is_stream]
    is_on_cpu = np.isin([track.layer for track in trace.tracks], CPU_LAYERS)
    is_replayed = is_on_cpu & np.isin(trace.thread_of_track, threads)
    is_left: Flags = is_replayed[trace.track]
    is_left[graph.row[graph.nodes(Node.ITEM)]] = True
    is_left[graph.row[graph.gone & (graph.row >= 0)]] = False
    had_no_time = trace.dur == 0
    is_left &= (end > start) | had_no_time
    return is_left


def _laid_out(
    trace: Trace, rows: Rows, start: Int64s, end: Int64s
) -> tuple[Rows, tuple[Track, ...]]:
    """Rows by track and time, and their tracks. Slices of a thread nest as they did,
    because its time passes for all of them alike; those of a stream may overlap where
    they did not."""
    lane = _lane_of_track(trace)[trace.track[rows]]
    order = np.lexsort((rows, start[rows] - end[rows], start[rows], lane))
    rows = rows[order]
    lane = lane[order]
    ordered = [rows[:0]]
    tracks: list[Track] = []
    if not len(rows):
        return rows, ()
    lane_begins = np.flatnonzero(np.diff(lane)) + 1
    for rows_of_lane in np.split(rows, lane_begins):
        laid_out = sum(len(part) for part in ordered)
        track = trace.tracks[lane[laid_out]]
        subrow = np.full(len(rows_of_lane), track.subrow)
        if track.layer is Layer.STREAM:
            is_call = np.zeros(len(rows_of_lane), dtype=np.bool_)
            subrow = arrange(start[rows_of_lane], end[rows_of_lane], is_call, True)
        for number in distinct(subrow).tolist():
            rows_of_track = rows_of_lane[subrow == number]
            first_row = laid_out
            laid_out += len(rows_of_track)
            ordered.append(rows_of_track)
            tracks.append(
                replace(track, subrow=number, first_row=first_row, end_row=laid_out)
            )
    return np.concatenate(ordered), tuple(tracks)


def _lane_of_track(trace: Trace) -> Rows:
    """The first of the tracks that are one lane: the rows of a stream."""
    first_of: dict[object, int] = {}
    lanes = []
    for number, track in enumerate(trace.tracks):
        is_stream = track.layer is Layer.STREAM
        key: object = (track.pid, track.tid) if is_stream else number
        lanes.append(first_of.setdefault(key, number))
    return np.array(lanes, dtype=np.intp)
