"""Which lanes a timeline shows, and the lines of each: one per depth, more where slices overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import chain

import msgspec

from fusetui.trace.cells.kinds import Numbers
from fusetui.trace.cells.raster import Lines
from fusetui.trace.model.categories import CPU_LAYERS, GPU_LAYERS, Layer
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.ids import Id
from fusetui.trace.text.figures import plural
from fusetui.tui.layout.kinds import narrow, numbers_of

LAYER_LABELS = {
    Layer.ANNOTATIONS: "notes",
    Layer.PYTHON: "python",
    Layer.OPS: "ops",
    Layer.STREAM: "stream",
    Layer.GPU_ANNOTATIONS: "gpu notes",
    Layer.SYNC: "sync",
    Layer.DEVICE: "device",
    Layer.OTHER: "other",
}
MOST = 1000  # lanes
PREPARED = 500  # lines
NORMAL_LINES = {Layer.OPS: 6, Layer.ANNOTATIONS: 3, Layer.STREAM: 3, Layer.PYTHON: 4}


class Fold(IntEnum):
    """How much of a lane is visible."""

    FOLDED = 0  # one line
    NORMAL = 1  # the first few depths
    OPEN = 2  # everything


class Lane(msgspec.Struct, frozen=True, eq=False, dict=True):
    """All tracks of one layer of one thread or stream; every character of its texts is one cell
    wide."""

    trace: Trace
    group: str  # the thread or device it belongs to
    label: str  # within its group
    title: str  # of a lane that is alone in its group
    layer: Layer
    tracks: tuple[Track, ...]
    kinds: Numbers  # of all rows of the trace

    @property
    def key(self) -> tuple[Layer, Id, Id]:
        """What identifies it among the lanes of any part of the trace."""
        return self.tracks[0].layer, self.tracks[0].pid, self.tracks[0].tid

    @property
    def is_cpu(self) -> bool:
        return self.layer in CPU_LAYERS

    @cached_property
    def lines(self) -> Lines:
        """The lines, each computed when it is first shown, or beforehand by `prepare`."""
        return Lines(self.trace, self.tracks, self.kinds)

    def prepare(self) -> None:
        """Compute the lines that fit on any screen."""
        _ = self.lines[:PREPARED]

    @property
    def first_fold(self) -> Fold:
        return Fold.FOLDED if self.layer in (Layer.PYTHON, Layer.OTHER) else Fold.NORMAL

    def shown(self, fold: Fold) -> int:
        """How many lines the lane has on the screen when folded like this."""
        if fold is Fold.FOLDED:
            return 1
        limit = NORMAL_LINES.get(self.layer, 2) if fold is Fold.NORMAL else len(self.lines)
        return max(1, min(limit, len(self.lines)))


def lanes_of(trace: Trace) -> tuple[Lane, ...]:
    """Lanes in the order of the tracks; sub-rows join the lane that they overlap.

    All beyond MOST are one lane, because every movement loops over the lanes.
    """
    grouped: dict[tuple[Layer, Id, Id], list[Track]] = {}
    for track in trace.tracks:
        grouped.setdefault((track.layer, track.pid, track.tid), []).append(track)
    tracks = list(grouped.values())
    kinds = numbers_of(trace)
    lanes = tuple(_lane(trace, own, kinds) for own in tracks[:MOST])
    rest = tuple(chain.from_iterable(tracks[MOST:]))
    if not rest:
        return lanes
    label = f"{plural(len(tracks) - MOST, 'more lane')} as one"
    return (*lanes, Lane(trace, "other", label, label, Layer.OTHER, rest, kinds))


def key_lanes(lanes: Sequence[Lane]) -> tuple[Lane, ...]:
    """The lanes that a comparison needs: the streams, else the ops of the busiest thread."""
    streams = tuple(lane for lane in lanes if lane.layer is Layer.STREAM)
    if streams:
        return streams
    ops = [lane for lane in lanes if lane.layer is Layer.OPS]
    return (max(ops, key=_slices),) if ops else tuple(lanes[:1])


def groups(lanes: Sequence[Lane]) -> Iterator[tuple[str, list[int]]]:
    """Neighboring lanes of one thread or device, as (group, indices into lanes)."""
    for index, lane in enumerate(lanes):
        if index and lanes[index - 1].group == lane.group:
            continue
        same = index
        while same < len(lanes) and lanes[same].group == lane.group:
            same += 1
        yield lane.group, list(range(index, same))


def _lane(trace: Trace, tracks: Sequence[Track], kinds: Numbers) -> Lane:
    first = tracks[0]
    group = title = narrow(first.label)
    label = LAYER_LABELS[first.layer]
    if first.layer in GPU_LAYERS:
        group, _, stream = title.partition(" stream ")
        label = f"stream {stream}" if stream else label
        if first.layer is not Layer.STREAM:
            label = LAYER_LABELS[first.layer] + (f" {stream}" if stream else "")
    elif first.layer not in CPU_LAYERS:
        label = title
        group = "other"
    return Lane(trace, group, label, title, first.layer, tuple(tracks), kinds)


def _slices(lane: Lane) -> int:
    return sum(len(track) for track in lane.tracks)
