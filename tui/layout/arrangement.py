"""Which lanes are shown, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.trace.model.categories import Layer, Role
from fusetui.tui.layout.lanes import Lane, groups

LITTLE = 100
"""A lane of another program says little when it is busy for less than 1 / LITTLE of the time."""


class Arrangement(msgspec.Struct, frozen=True):
    """Indices of lanes; those that are hidden are named in the last line."""

    hidden: frozenset[int] = frozenset()
    pinned: tuple[int, ...] = ()  # above all others
    by_busy: bool = False  # the busiest threads and devices first, else as in the trace
    families: bool = False  # a line for each kind of slices below each stream

    def pin(self, lane: int) -> Arrangement:
        """A lane pinned, or no longer."""
        kept = tuple(n for n in self.pinned if n != lane)
        pinned = kept if lane in self.pinned else (*kept, lane)
        return replace(self, pinned=pinned, hidden=self.hidden - {lane})

    def hide(self, lane: int) -> Arrangement:
        pinned = tuple(n for n in self.pinned if n != lane)
        return replace(self, hidden=self.hidden | {lane}, pinned=pinned)


def quiet(lanes: Sequence[Lane], span_ns: int) -> frozenset[int]:
    """Lanes that say little beside the others: those of the profiler itself, of other programs that
    do next to nothing, of threads that run Python but no op while others do."""
    if all(lane.layer is Layer.OTHER for lane in lanes):
        return frozenset()
    found = {n for n, lane in enumerate(lanes) if _is_foreign(lane, span_ns)}
    if any(lane.layer is Layer.OPS for lane in lanes):
        for _, indices in groups(lanes):
            if all(lanes[n].layer is Layer.PYTHON for n in indices):
                found |= set(indices)
    return frozenset(found)


def but_streams(lanes: Sequence[Lane]) -> frozenset[int]:
    """All lanes but the GPU streams; none where there is no stream."""
    others = frozenset(n for n, lane in enumerate(lanes) if lane.layer is not Layer.STREAM)
    return others if len(others) < len(lanes) else frozenset()


def arranged(
    lanes: Sequence[Lane], arrangement: Arrangement, shown: int = -1
) -> Iterator[tuple[str, list[int]]]:
    """Groups of lanes as they are shown, without those that are pinned; `shown`: a lane that is
    not hidden in any case."""
    away = (arrangement.hidden | set(arrangement.pinned)) - ({shown} - set(arrangement.pinned))
    found = list(groups(lanes))
    if arrangement.by_busy:
        found.sort(key=lambda group: -max(lanes[n].busy_ns for n in group[1]))
    for group, indices in found:
        kept = [n for n in indices if n not in away]
        if arrangement.by_busy:
            kept.sort(key=lambda n: -lanes[n].busy_ns)
        if kept:
            yield group, kept


def matching(lanes: Sequence[Lane], pattern: str) -> frozenset[int]:
    """Lanes whose group and label contain one of some texts, which `|` divides; in any case."""
    wanted = [text.strip().lower() for text in pattern.split("|") if text.strip()]
    names = (name.lower() for name in names_of(lanes))
    return frozenset(n for n, name in enumerate(names) if any(text in name for text in wanted))


def names_of(lanes: Sequence[Lane]) -> list[str]:
    """What a pattern is looked for in: title, group and label of each lane."""
    return [f"{lane.title} {lane.group} {lane.label}" for lane in lanes]


def hidden_names(lanes: Sequence[Lane], hidden: frozenset[int]) -> list[str]:
    """What is hidden in a few words: whole groups by their names."""
    found: list[str] = []
    for group, indices in groups(lanes):
        away = [n for n in indices if n in hidden]
        if away and len(away) == len(indices) and group != "other":
            found.append(group)
        else:
            found += [lanes[n].title for n in away]
    return found


def _is_foreign(lane: Lane, span_ns: int) -> bool:
    if lane.layer is not Layer.OTHER:
        return False
    roles = np.concatenate([lane.trace.role[track.rows] for track in lane.tracks])
    return bool((roles == Role.PROFILER).all()) or LITTLE * lane.busy_ns < span_ns
