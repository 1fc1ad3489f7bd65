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
from fusetui.tui.layout.kinds import narrow, number_kinds

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
        """The layer, process or device, and thread or stream of the lane. They identify
        it in any part of the same trace."""
        return self.tracks[0].layer, self.tracks[0].pid, self.tracks[0].tid

    @property
    def pid(self) -> Id:
        """The id of its device, or of the process of its thread."""
        return self.tracks[0].pid

    @cached_property
    def lines(self) -> DepthRows:
        """The slices of the lane, with one line for each nesting depth. Each line is
        computed on first access."""
        return DepthRows(self.trace, self.tracks, self.kinds)

    def prepare(self, most: int = MAX_PREPARED_LINES) -> None:
        """Compute the first `most` lines of the lane now, so that drawing a frame does
        not wait for them."""
        _ = [*islice(self.lines, most)]

    @property
    def some(self) -> int:
        """The number of lines that the lane shows when it is neither folded nor fully
        open."""
        return NORMAL_LINES.get(self.layer, 2)

    @property
    def first_fold(self) -> int:
        """The maximum number of lines that the lane shows at first. Lanes with Python
        frames or unknown slices begin with one line."""
        return FOLDED if self.layer in (Layer.PYTHON, Layer.OTHER) else self.some

    @property
    def has_where(self) -> bool:
        """Whether the lane has an additional line above its slices, which shows the
        current module. Only lanes of nested Python frames do."""
        return self.layer is Layer.PYTHON and len(self.lines) > 1

    @property
    def height(self) -> int:
        """The number of lines of the lane when it is fully open."""
        return len(self.lines) + (1 if self.has_where else 0)

    def shown(self, most: int) -> int:
        """Return how many lines the lane shows if it may show `most`; at least one."""
        return max(1, min(most, self.height))

    @cached_property
    def sum_ns(self) -> int:
        """The sum of the durations of all slices in ns. Slices inside each other count
        twice."""
        durations = [self.trace.dur[track.rows] for track in self.tracks]
        return sum(int(track_durations.sum()) for track_durations in durations)

    @cached_property
    def busy_ns(self) -> int:
        """The time in ns during which at least one slice of the lane runs."""
        rows_of_tracks = [
            np.arange(track.first_row, track.end_row) for track in self.tracks
        ]
        rows = np.concatenate(rows_of_tracks)
        outermost = rows[self.trace.depth[rows] == 0]
        return union_length(self.trace.start[outermost], self.trace.end[outermost])


def build_lanes(trace: Trace) -> tuple[Lane, ...]:
    """Group the tracks of a trace into the lanes of the timeline, in the order of the
    tracks.

    A track is a range of perfectly nested slices. Slices that overlap others are in
    tracks of their own, which join the lane that they overlap. All lanes beyond
    MAX_LANES are merged into one, because each key press loops over the lanes.
    """
    tracks_of_lane: dict[tuple[Layer, Id, Id], list[Track]] = {}
    for track in trace.tracks:
        if track.layer is not Layer.CAPTURED:  # that belongs to another trace
            lane_key = (track.layer, track.pid, track.tid)
            tracks_of_lane.setdefault(lane_key, []).append(track)
    tracks_by_lane = list(tracks_of_lane.values())
    kinds = number_kinds(trace)
    lanes = [
        _make_lane(trace, lane_tracks, kinds)
        for lane_tracks in tracks_by_lane[:MAX_LANES]
    ]
    if len(tracks_by_lane) > MAX_LANES:
        lanes.append(_merge_lanes(trace, tracks_by_lane[MAX_LANES:], kinds))
    return tuple(lanes)


def _merge_lanes(trace: Trace, tracks: Sequence[Sequence[Track]], kinds: Kinds) -> Lane:
    """Return one lane with the tracks of many lanes, whose label says how many."""
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


def select_key_lanes(lanes: Sequence[Lane]) -> tuple[Lane, ...]:
    """Return the lanes to show in a comparison of traces.

    These are all GPU streams. Without a GPU it is the lane of ops with the most slices,
    or else the first lane. The result is empty if there are no lanes.
    """
    streams = tuple(lane for lane in lanes if lane.layer is Layer.STREAM)
    if streams:
        return streams
    ops = [lane for lane in lanes if lane.layer is Layer.OPS]
    if ops:
        return (max(ops, key=_count_slices),)
    return tuple(lanes[:1])


def _count_slices(lane: Lane) -> int:
    """Return the number of slices of a lane."""
    return sum(len(track) for track in lane.tracks)


def find_main_lane(lanes: Sequence[Lane]) -> int:
    """Return the index of the busiest GPU stream, by the sum of its durations. Without
    a stream it is the busiest lane of another device, or -1 if there is none either."""
    for layer in (Layer.STREAM, Layer.DEVICE):
        indices = [n for n, lane in enumerate(lanes) if lane.layer is layer]
        if indices:
            # of equally busy lanes the first
            return max(indices, key=lambda n: (lanes[n].sum_ns, -n))
    return -1


def groups(lanes: Sequence[Lane]) -> Iterator[tuple[str, list[int]]]:
    """Generate the groups of neighboring lanes that belong to one thread or device.
    Each is a pair of the name of the group and the indices of its lanes."""
    for group, indices in groupby(range(len(lanes)), lambda n: lanes[n].group):
        yield group, list(indices)


def _make_lane(trace: Trace, tracks: Sequence[Track], kinds: Kinds) -> Lane:
    """Make a lane from the tracks of one layer of a thread or stream.

    It is grouped under its thread or device, or under "other" if it is neither. Its
    label within the group is the layer, and for a stream also its number.
    """
    layer = tracks[0].layer
    title = narrow(tracks[0].label)
    if layer in GPU_LAYERS:
        # a title such as `GPU 0 stream 7`
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
    """Return the indices of lanes that a timeline hides at first, because they say
    little.

    These are lanes of the profiler itself, and of other programs that are hardly busy.
    If the trace has ops, threads with nothing but Python frames are hidden too. No lane
    is hidden if all are of other programs.
    """
    layers = [lane.layer for lane in lanes]
    are_all_other = all(layer is Layer.OTHER for layer in layers)
    if are_all_other:
        return frozenset()
    hidden: set[int] = set()
    for index, lane in enumerate(lanes):
        if lane.layer is Layer.OTHER and _says_little(lane, span_ns):
            hidden.add(index)
    if Layer.OPS in layers:
        # the Python frames of a thread that runs no ops are of little interest
        for _, lanes_of_thread in groups(lanes):
            if all(layers[index] is Layer.PYTHON for index in lanes_of_thread):
                hidden.update(lanes_of_thread)
    return frozenset(hidden)


def _says_little(lane: Lane, span_ns: int) -> bool:
    """Tell whether a lane has only slices of the profiler, or is busy for less than
    1/QUIET_PART of the trace, whose duration is `span_ns`."""
    roles = np.concatenate([lane.trace.role[track.rows] for track in lane.tracks])
    is_of_profiler = bool((roles == Role.PROFILER).all())
    return is_of_profiler or QUIET_PART * lane.busy_ns < span_ns


def find_lanes_to_hide(lanes: Sequence[Lane]) -> frozenset[int]:
    """Return the indices of all lanes except the GPU streams, for a view of the GPU
    alone. The result is empty in a trace without streams, which would otherwise show
    nothing."""
    others = [
        index for index, lane in enumerate(lanes) if lane.layer is not Layer.STREAM
    ]
    has_streams = len(others) < len(lanes)
    return frozenset(others) if has_streams else frozenset()


def arranged(
    lanes: Sequence[Lane], arrangement: Arrangement, shown: int = -1
) -> Iterator[tuple[str, list[int]]]:
    """Generate the groups of lanes in the order on the screen, as (name, indices of
    lanes).

    Hidden and pinned lanes are left out: pinned ones have their own place at the top.
    Groups without any remaining lane are skipped.

    Args:
        lanes: All lanes of the trace.
        arrangement: Which lanes are hidden or pinned, and the order of the groups.
        shown: A lane to show even if it is hidden, such as that of the selection; -1
            for none.
    """
    left_out = (arrangement.hidden - {shown}) | set(arrangement.pinned)
    ordered_groups = groups(lanes)
    if arrangement.by_busy:
        ordered_groups = _sort_groups_by_busy_time(lanes)
    for group, indices in ordered_groups:
        visible_lanes = [index for index in indices if index not in left_out]
        if visible_lanes:
            yield group, visible_lanes


def _sort_groups_by_busy_time(lanes: Sequence[Lane]) -> Iterator[tuple[str, list[int]]]:
    """Generate the groups of lanes, the busiest first, each with its busiest lane
    first. A group counts as busy as its busiest lane."""
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


def find_matching_lanes(lanes: Sequence[Lane], pattern: str) -> frozenset[int]:
    """Return the indices of the lanes whose name contains one of several texts.

    `pattern` has the texts, separated by `|`; case does not matter. An empty pattern
    matches no lane.
    """
    search_texts = [text.strip().lower() for text in pattern.split("|") if text.strip()]
    matches = set()
    for index, name in enumerate(join_lane_names(lanes)):
        if any(text in name.lower() for text in search_texts):
            matches.add(index)
    return frozenset(matches)


def join_lane_names(lanes: Sequence[Lane]) -> list[str]:
    """Return the text of each lane in which a filter searches: its title, group and
    label."""
    return [f"{lane.title} {lane.group} {lane.label}" for lane in lanes]


def name_hidden_lanes(lanes: Sequence[Lane], hidden: frozenset[int]) -> Iterator[str]:
    """Generate the names of hidden lanes, for the last line of the timeline. A group of
    which all lanes are hidden is named once."""
    for group, indices in groups(lanes):
        if group != "other" and hidden.issuperset(indices):
            yield group
            continue
        for index in indices:
            if index in hidden:
                yield lanes[index].title
