"""Determines which lanes a timeline shows, and the lines of each: one per depth, and
more if slices overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, groupby, islice

import msgspec
import numpy as np

from fusetui.text.figures import plural
from fusetui.timeline.cells import DepthRows
from fusetui.trace.model.arrays import Kinds
from fusetui.trace.model.categories import CPU_LAYERS, GPU_LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.ids import Id
from fusetui.trace.model.intervals import union_length
from fusetui.tui.layout.kinds import narrow, numbers_of

LAYER_LABELS = {
    Layer.ANNOTATIONS: "annotations",
    Layer.PYTHON: "python",
    Layer.OPS: "ops",
    Layer.STREAM: "stream",
    Layer.GPU_ANNOTATIONS: "annotations",
    Layer.SYNC: "sync",
    Layer.DEVICE: "device",
    Layer.OTHER: "other",
}
MAX_LANES = 1000
FIRST_LINES = 8  # of a lane, that are made before it is shown
MAX_PREPARED_LINES = 500  # of a lane, that are made soon after
NORMAL_LINES = {Layer.OPS: 6, Layer.ANNOTATIONS: 3, Layer.STREAM: 3, Layer.PYTHON: 4}
QUIET_PART = 100
"""A lane of another program says little when busy for less than this part of the
trace."""
FOLDED = 1
ALL = 1 << 20
"""How many lines of a lane are shown at most."""


class Lane(msgspec.Struct, frozen=True, eq=False, dict=True):
    """All tracks of one layer of a thread or stream; its texts have a cell a
    character."""

    trace: Trace
    group: str  # the thread or device it belongs to
    label: str  # within its group
    title: str  # of a lane that is alone in its group
    layer: Layer
    tracks: tuple[Track, ...]
    kinds: Kinds  # of all rows of the trace

    @property
    def key(self) -> tuple[Layer, Id, Id]:
        """What identifies it among the lanes of any part of the trace."""
        return self.tracks[0].layer, self.tracks[0].pid, self.tracks[0].tid

    @property
    def pid(self) -> Id:
        """The id of its device, or of the process of its thread."""
        return self.tracks[0].pid

    @cached_property
    def lines(self) -> DepthRows:
        """Its slices, a row for each depth of its tracks."""
        return DepthRows(self.trace, self.tracks, self.kinds)

    def prepare(self, most: int = MAX_PREPARED_LINES) -> None:
        """Makes its first lines, which a frame would make otherwise."""
        _ = [*islice(self.lines, most)]

    @property
    def some(self) -> int:
        """How many lines of it are enough at first sight."""
        return NORMAL_LINES.get(self.layer, 2)

    @property
    def first_fold(self) -> int:
        """How many lines of it are shown at most at first."""
        return FOLDED if self.layer in (Layer.PYTHON, Layer.OTHER) else self.some

    @property
    def has_where(self) -> bool:
        """Whether it has a line of where the program was, above those of its depths."""
        return self.layer is Layer.PYTHON and len(self.lines) > 1

    @property
    def height(self) -> int:
        """How many lines it has in all."""
        return len(self.lines) + (1 if self.has_where else 0)

    def shown(self, most: int) -> int:
        """How many of at most `most` lines it has."""
        return max(1, min(most, self.height))

    @cached_property
    def sum_ns(self) -> int:
        """The durations of its slices added up."""
        durations = [self.trace.dur[track.rows] for track in self.tracks]
        return sum(int(of_track.sum()) for of_track in durations)

    @cached_property
    def busy_ns(self) -> int:
        """The union of its slices."""
        rows_of_tracks = [
            np.arange(track.first_row, track.end_row) for track in self.tracks
        ]
        rows = np.concatenate(rows_of_tracks)
        outermost = rows[self.trace.depth[rows] == 0]
        return union_length(self.trace.start[outermost], self.trace.end[outermost])


def lanes_of(trace: Trace) -> tuple[Lane, ...]:
    """Lanes in the order of the tracks; sub-rows join the lane that they overlap. All
    beyond MAX_LANES are one lane, because every movement loops over the lanes."""
    tracks_of_lane: dict[tuple[Layer, Id, Id], list[Track]] = {}
    for track in trace.tracks:
        if track.layer is not Layer.CAPTURED:  # that belongs to another trace
            lane = (track.layer, track.pid, track.tid)
            tracks_of_lane.setdefault(lane, []).append(track)
    tracks = list(tracks_of_lane.values())
    kinds = numbers_of(trace)
    lanes = [_lane(trace, of_lane, kinds) for of_lane in tracks[:MAX_LANES]]
    if len(tracks) > MAX_LANES:
        lanes.append(_lane_of_others(trace, tracks[MAX_LANES:], kinds))
    return tuple(lanes)


def _lane_of_others(
    trace: Trace, tracks: Sequence[Sequence[Track]], kinds: Kinds
) -> Lane:
    """The tracks of many lanes as one lane."""
    label = f"{plural(len(tracks), 'more lane')} as one"
    return Lane(
        trace=trace,
        group="other",
        label=label,
        title=label,
        layer=Layer.OTHER,
        tracks=tuple(chain.from_iterable(tracks)),
        kinds=kinds,
    )


def key_lanes(lanes: Sequence[Lane]) -> tuple[Lane, ...]:
    """The lanes that a comparison needs: the streams, else the ops of the thread with
    the most slices, else the first lane."""
    streams = tuple(lane for lane in lanes if lane.layer is Layer.STREAM)
    if streams:
        return streams
    ops = [lane for lane in lanes if lane.layer is Layer.OPS]
    if ops:
        return (max(ops, key=_slice_count),)
    return tuple(lanes[:1])


def _slice_count(lane: Lane) -> int:
    """How many slices a lane has."""
    return sum(len(track) for track in lane.tracks)


def main_lane(lanes: Sequence[Lane]) -> int:
    """The index of the GPU stream with the most time, else of such a device lane; else
    -1."""
    for layer in (Layer.STREAM, Layer.DEVICE):
        indices = [n for n, lane in enumerate(lanes) if lane.layer is layer]
        if indices:
            return max(indices, key=lambda n: (lanes[n].sum_ns, -n))
    return -1


def groups(lanes: Sequence[Lane]) -> Iterator[tuple[str, list[int]]]:
    """Neighboring lanes of one thread or device, as (group, indices into lanes)."""
    for group, indices in groupby(range(len(lanes)), lambda n: lanes[n].group):
        yield group, list(indices)


def _lane(trace: Trace, tracks: Sequence[Track], kinds: Kinds) -> Lane:
    """The lane of some tracks of one layer of a thread or stream."""
    layer = tracks[0].layer
    title = narrow(tracks[0].label)
    if layer in GPU_LAYERS:
        group, _, stream = title.partition(" stream ")
        label = LAYER_LABELS[layer]
        if stream:
            label += f" {stream}"
    elif layer in CPU_LAYERS:
        group = title
        label = LAYER_LABELS[layer]
    else:
        group = "other"
        label = title
    return Lane(
        trace=trace,
        group=group,
        label=label,
        title=title,
        layer=layer,
        tracks=tuple(tracks),
        kinds=kinds,
    )


class Arrangement(msgspec.Struct, frozen=True):
    """Indices of lanes; those that are hidden are named in the last line."""

    hidden: frozenset[int] = frozenset()
    pinned: tuple[int, ...] = ()  # above all others
    by_busy: bool = False  # the busiest threads and devices first, else as in the trace
    families: bool = False  # a line for each kind of slices below each stream


def quiet(lanes: Sequence[Lane], span_ns: int) -> frozenset[int]:
    """Lanes that say little beside the others: those of the profiler itself, of other
    programs that do next to nothing, of threads that run Python but no op while others
    do."""
    others = [n for n, lane in enumerate(lanes) if lane.layer is Layer.OTHER]
    if len(others) == len(lanes):
        return frozenset()
    hidden = {n for n in others if _says_little(lanes[n], span_ns)}
    has_ops = any(lane.layer is Layer.OPS for lane in lanes)
    if has_ops:
        for _, indices in groups(lanes):
            if all(lanes[n].layer is Layer.PYTHON for n in indices):
                hidden |= set(indices)
    return frozenset(hidden)


def _says_little(lane: Lane, span_ns: int) -> bool:
    """Whether a lane is of the profiler alone, or busy for next to nothing of the
    trace, which takes `span_ns`."""
    roles = np.concatenate([lane.trace.role[track.rows] for track in lane.tracks])
    is_of_profiler = bool((roles == Role.PROFILER).all())
    return is_of_profiler or QUIET_PART * lane.busy_ns < span_ns


def but_streams(lanes: Sequence[Lane]) -> frozenset[int]:
    """All lanes but the GPU streams; none where there is no stream."""
    others = [n for n, lane in enumerate(lanes) if lane.layer is not Layer.STREAM]
    has_streams = len(others) < len(lanes)
    return frozenset(others) if has_streams else frozenset()


def arranged(
    lanes: Sequence[Lane], arrangement: Arrangement, shown: int = -1
) -> Iterator[tuple[str, list[int]]]:
    """Groups of lanes as they are shown, without those pinned; `shown`: one not hidden
    anyway."""
    left_out = (arrangement.hidden - {shown}) | set(arrangement.pinned)
    in_order = groups(lanes)
    if arrangement.by_busy:
        in_order = _by_busy(lanes)
    for group, indices in in_order:
        kept = [n for n in indices if n not in left_out]
        if kept:
            yield group, kept


def _by_busy(lanes: Sequence[Lane]) -> Iterator[tuple[str, list[int]]]:
    """The groups, the busiest first, and in each the busiest lanes first."""
    sorted_groups = []
    for group, indices in groups(lanes):
        by_busy = sorted(indices, key=lambda n: -lanes[n].busy_ns)
        sorted_groups.append((group, by_busy))

    def busiest_ns(entry: tuple[str, list[int]]) -> int:
        """The busy time of the first lane of a group."""
        _, indices = entry
        return lanes[indices[0]].busy_ns

    sorted_groups.sort(key=busiest_ns, reverse=True)
    yield from sorted_groups


def matching(lanes: Sequence[Lane], pattern: str) -> frozenset[int]:
    """Lanes whose group and label contain one of some texts, which `|` divides; in any
    case."""
    texts = [text.strip().lower() for text in pattern.split("|") if text.strip()]
    matches = set()
    for index, name in enumerate(names_of(lanes)):
        if any(text in name.lower() for text in texts):
            matches.add(index)
    return frozenset(matches)


def names_of(lanes: Sequence[Lane]) -> list[str]:
    """What a text is looked for in, of each lane."""
    return [f"{lane.title} {lane.group} {lane.label}" for lane in lanes]


def hidden_names(lanes: Sequence[Lane], hidden: frozenset[int]) -> Iterator[str]:
    """What is hidden in a few words: whole groups by their names."""
    for group, indices in groups(lanes):
        if group != "other" and hidden.issuperset(indices):
            yield group
            continue
        for index in indices:
            if index in hidden:
                yield lanes[index].title
