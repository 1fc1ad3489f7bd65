"""Which lanes a timeline shows, and the lines of each: one per depth, more where slices
overlap."""

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
    **{Layer.ANNOTATIONS: "annotations", Layer.PYTHON: "python", Layer.OPS: "ops"},
    **{
        Layer.STREAM: "stream",
        Layer.GPU_ANNOTATIONS: "annotations",
        Layer.SYNC: "sync",
    },
    **{Layer.DEVICE: "device", Layer.OTHER: "other"},
}
MOST = 1000  # lanes
# lines of a lane that are made before it is shown, and soon after
FIRST_LINES, MOST_LINES = 8, 500
NORMAL_LINES = {Layer.OPS: 6, Layer.ANNOTATIONS: 3, Layer.STREAM: 3, Layer.PYTHON: 4}
LITTLE = 100  # a lane of another program says little when busy for less than 1 / LITTLE
FOLDED, ALL = 1, 1 << 20  # how many lines of a lane are shown at most


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

    @cached_property
    def lines(self) -> DepthRows:
        return DepthRows(self.trace, self.tracks, self.kinds)

    def prepare(self, most: int = MOST_LINES) -> None:
        """Makes its first lines, which a frame would make otherwise."""
        _ = [*islice(self.lines, most)]

    @property
    def some(self) -> int:
        """How many lines of it are enough at first sight."""
        return NORMAL_LINES.get(self.layer, 2)

    @property
    def first_fold(self) -> int:
        return FOLDED if self.layer in (Layer.PYTHON, Layer.OTHER) else self.some

    @property
    def has_where(self) -> bool:
        """Has it a line of where the program was, above those of its depths."""
        return self.layer is Layer.PYTHON and len(self.lines) > 1

    @property
    def height(self) -> int:
        return len(self.lines) + self.has_where

    def shown(self, most: int) -> int:
        return max(1, min(most, self.height))

    @cached_property
    def sum_ns(self) -> int:
        return sum(int(self.trace.dur[track.rows].sum()) for track in self.tracks)

    @cached_property
    def busy_ns(self) -> int:
        """The union of its slices."""
        own = np.concatenate(
            [np.arange(one.first_row, one.end_row) for one in self.tracks]
        )
        own = own[self.trace.depth[own] == 0]
        return union_length(self.trace.start[own], self.trace.end[own])


def lanes_of(trace: Trace) -> tuple[Lane, ...]:
    """Lanes in the order of the tracks; sub-rows join the lane that they overlap. All
    beyond MOST are one lane, because every movement loops over the lanes."""
    grouped: dict[tuple[Layer, Id, Id], list[Track]] = {}
    for track in trace.tracks:
        if track.layer is not Layer.CAPTURED:  # that belongs to another trace
            grouped.setdefault((track.layer, track.pid, track.tid), []).append(track)
    tracks, kinds = list(grouped.values()), numbers_of(trace)
    lanes = tuple(_lane(trace, own, kinds) for own in tracks[:MOST])
    if len(tracks) <= MOST:
        return lanes
    rest = tuple(chain.from_iterable(tracks[MOST:]))
    label = f"{plural(len(tracks) - MOST, 'more lane')} as one"
    return (*lanes, Lane(trace, "other", label, label, Layer.OTHER, rest, kinds))


def key_lanes(lanes: Sequence[Lane]) -> tuple[Lane, ...]:
    """The lanes that a comparison needs: the streams, else the ops of the busiest
    thread."""
    if streams := tuple(lane for lane in lanes if lane.layer is Layer.STREAM):
        return streams
    ops = [lane for lane in lanes if lane.layer is Layer.OPS]
    return (
        (max(ops, key=lambda lane: sum(map(len, lane.tracks))),)
        if ops
        else tuple(lanes[:1])
    )


def main_lane(lanes: Sequence[Lane]) -> int:
    """The index of the GPU stream with the most time, else of such a device lane; else
    -1."""
    for layer in (Layer.STREAM, Layer.DEVICE):
        if found := [n for n, lane in enumerate(lanes) if lane.layer is layer]:
            return max(found, key=lambda n: (lanes[n].sum_ns, -n))
    return -1


def groups(lanes: Sequence[Lane]) -> Iterator[tuple[str, list[int]]]:
    """Neighboring lanes of one thread or device, as (group, indices into lanes)."""
    for group, indices in groupby(range(len(lanes)), lambda n: lanes[n].group):
        yield group, list(indices)


def _lane(trace: Trace, tracks: Sequence[Track], kinds: Kinds) -> Lane:
    first = tracks[0]
    group = title = narrow(first.label)
    label = LAYER_LABELS[first.layer]
    if first.layer in GPU_LAYERS:
        group, _, stream = title.partition(" stream ")
        label = f"{label} {stream}" if stream else label
    elif first.layer not in CPU_LAYERS:
        label, group = title, "other"
    return Lane(trace, group, label, title, first.layer, tuple(tracks), kinds)


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

    def is_foreign(lane: Lane) -> bool:
        roles = np.concatenate([lane.trace.role[track.rows] for track in lane.tracks])
        return bool((roles == Role.PROFILER).all()) or LITTLE * lane.busy_ns < span_ns

    found = {n for n in others if is_foreign(lanes[n])}
    if any(lane.layer is Layer.OPS for lane in lanes):
        for _, indices in groups(lanes):
            if all(lanes[n].layer is Layer.PYTHON for n in indices):
                found |= set(indices)
    return frozenset(found)


def but_streams(lanes: Sequence[Lane]) -> frozenset[int]:
    """All lanes but the GPU streams; none where there is no stream."""
    others = frozenset(
        n for n, lane in enumerate(lanes) if lane.layer is not Layer.STREAM
    )
    return others if len(others) < len(lanes) else frozenset()


def arranged(
    lanes: Sequence[Lane], arrangement: Arrangement, shown: int = -1
) -> Iterator[tuple[str, list[int]]]:
    """Groups of lanes as they are shown, without those pinned; `shown`: one not hidden
    anyway."""
    away = (arrangement.hidden - {shown}) | set(arrangement.pinned)
    found = list(groups(lanes))
    if arrangement.by_busy:
        by_busy = (
            (group, sorted(own, key=lambda n: -lanes[n].busy_ns))
            for group, own in found
        )
        found = sorted(by_busy, key=lambda group: -lanes[group[1][0]].busy_ns)
    for group, indices in found:
        if kept := [n for n in indices if n not in away]:
            yield group, kept


def matching(lanes: Sequence[Lane], pattern: str) -> frozenset[int]:
    """Lanes whose group and label contain one of some texts, which `|` divides; in any
    case."""
    wanted = [text.strip().lower() for text in pattern.split("|") if text.strip()]
    names = (name.lower() for name in names_of(lanes))
    return frozenset(
        n for n, name in enumerate(names) if any(text in name for text in wanted)
    )


def names_of(lanes: Sequence[Lane]) -> list[str]:
    return [f"{lane.title} {lane.group} {lane.label}" for lane in lanes]


def hidden_names(lanes: Sequence[Lane], hidden: frozenset[int]) -> Iterator[str]:
    """What is hidden in a few words: whole groups by their names."""
    for group, indices in groups(lanes):
        is_whole = hidden.issuperset(indices) and group != "other"
        yield from (
            [group] if is_whole else (lanes[n].title for n in indices if n in hidden)
        )
