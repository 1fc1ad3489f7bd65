"""A trace as it would have been recorded with a change: what the replay moves, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.replay.apply import changed
from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.changes import parse_change
from fusetui.analysis.replay.graph import Graph, Node
from fusetui.analysis.replay.replay import replay as replayed
from fusetui.analysis.replay.replay import slices_of, step_bounds
from fusetui.trace.layout.nesting import Nesting, arrange, nest_tracks
from fusetui.trace.model.arrays import Flags, Int32s, Int64s, Rows, distinct
from fusetui.trace.model.categories import CPU_LAYERS, Layer
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.memo import once

SAME = ("name", "cat", "role", "correlation", "external_id", "order")


class Predicted(msgspec.Struct, frozen=True, eq=False):
    """Where slices would be; arrays have the shape [slices that are left]. Left out is what takes
    no time any more, and what is on no thread or stream that was replayed."""

    rows: Rows  # of the recorded trace
    tracks: tuple[Track, ...]
    start: Int64s
    dur: Int64s
    tree: Nesting
    bounds: Int64s  # see step_bounds: as recorded, and replayed, ns of the file; [2, steps + 1]

    def place_in(self, trace: Trace) -> Int32s:
        """Of each recorded slice, and of none: the row that it has here, -1 for none."""
        place = np.full(len(trace) + 1, -1, dtype=np.int32)
        place[self.rows] = np.arange(len(self.rows))
        return place

    def trace_of(self, trace: Trace) -> Trace:
        """A Trace of these slices; `trace`: the recorded one."""
        place, tree = self.place_in(trace), self.tree
        sizes = [len(track) for track in self.tracks]
        return Trace(
            report=trace.report,
            keys=trace.keys,
            names=trace.names,
            categories=trace.categories,
            tracks=self.tracks,
            start=self.start,
            dur=self.dur,
            track=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
            parent=tree.parent,
            end_row=tree.end_row,
            depth=tree.depth,
            launch=place[trace.launch[self.rows]],
            op=place[trace.op[self.rows]],
            elements=trace.elements,
            **{column: getattr(trace, column)[self.rows] for column in SAME},
        )

    def earlier_at(self, time: int, until: int) -> int:
        """How much earlier than recorded (ns) the step begins that begins first in [time, until),
        or else the one that `time` is in; times of the recorded trace."""
        before, after = self.bounds
        at = int(np.searchsorted(before, time))
        if at == len(before) or before[at] >= until:
            at -= 1
        return int(before[at] - after[at]) if at >= 0 else 0


def predicted(trace: Trace, changes: Sequence[str]) -> Predicted:
    """The trace with some changes. Raises WrongChange."""
    graph = once(trace, graph_of)
    made, _ = changed(trace, graph, [parse_change(text) for text in changes])
    times = replayed(made)
    start, end = slices_of(trace, made, times)
    rows, tracks = _laid_out(trace, np.flatnonzero(_left(trace, made, start, end)), start, end)
    edges = np.array([0, *(track.end_row for track in tracks)])
    recorded = step_bounds(trace, graph, graph.recorded)
    return Predicted(
        rows,
        tracks,
        start[rows],
        end[rows] - start[rows],
        nest_tracks(edges, start[rows], end[rows], {}),
        np.stack((recorded, step_bounds(trace, made, times))) + graph.origin_ns,
    )


def _left(trace: Trace, graph: Graph, start: Int64s, end: Int64s) -> Flags:
    threads = [chain.thread for chain in graph.chains if not chain.is_stream]
    on_cpu = np.isin([track.layer for track in trace.tracks], CPU_LAYERS)
    left: Flags = (on_cpu & np.isin(trace.thread_of_track, threads))[trace.track]
    left[graph.row[graph.nodes(Node.ITEM)]] = True
    left[graph.row[graph.gone & (graph.row >= 0)]] = False
    left &= (end > start) | (trace.dur == 0)
    return left


def _laid_out(
    trace: Trace, rows: Rows, start: Int64s, end: Int64s
) -> tuple[Rows, tuple[Track, ...]]:
    """Rows by track and time. Slices of a thread nest as they did, because its time passes for all
    of them alike; those of a stream may overlap where they did not."""
    first = dict[object, int]()
    lane_of = [
        first.setdefault((t.pid, t.tid) if t.layer is Layer.STREAM else n, n)
        for n, t in enumerate(trace.tracks)
    ]
    lane = np.array(lane_of, dtype=np.intp)[trace.track[rows]]
    rows = rows[np.lexsort((rows, start[rows] - end[rows], start[rows], lane))]
    lane = np.sort(lane)
    parts, tracks, at = [rows[:0]], list[Track](), 0
    for own in np.split(rows, np.flatnonzero(np.diff(lane)) + 1) if len(rows) else ():
        track = trace.tracks[lane[at]]
        subrow = np.full(len(own), track.subrow)
        if track.layer is Layer.STREAM:
            subrow = arrange(start[own], end[own], own < 0, True)[0]
        for number in distinct(subrow).tolist():
            parts.append(own[subrow == number])
            until = at + len(parts[-1])
            tracks.append(replace(track, subrow=number, first_row=at, end_row=until))
            at = until
    return np.concatenate(parts), tuple(tracks)
