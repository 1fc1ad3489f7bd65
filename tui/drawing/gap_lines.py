"""The lines about a stretch of idle time: its reasons, and what the CPU was in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusetui.analysis.why.idle_reasons import IDLE
from fusetui.analysis.why.model import Gap
from fusetui.analysis.why.stretches import IdleTime
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, percent, tick
from fusetui.trace.model.categories import Role
from fusetui.tui.drawing.details import flow
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.said import Said
from fusetui.tui.layout.gaps import idle_of
from fusetui.tui.layout.kinds import label_of, narrow
from fusetui.tui.layout.view import GapAt, Side


def gap_lines(side: Side, at: GapAt, width: int, height: int, glyphs: Glyphs) -> list[Said]:
    """At most `height` lines about one gap."""
    found = idle_of(side, at)
    if found is None:
        return []
    begin, end = int(found.begin[at.gap]), int(found.end[at.gap])
    rank, told = rank_of(found, at.gap), told_of(found, at.gap)
    reasons = sorted(found.over(begin, end).items(), key=lambda item: -item[1])
    label = _device(side, found)
    start = tick(begin - side.origin, max(1, (end - begin) // 100))
    place = f"gap {count(rank + 1)} of {count(len(found.begin))} by length" if rank >= 0 else ""
    lines = [Said("   ".join(filter(None, _head(end - begin, label, start, place))), "title")]
    main = [f"{IDLE[name].sentence}: {_part(ns, end - begin)}" for name, ns in reasons[:1]]
    others = [f"{IDLE[name].short} {_part(ns, end - begin)}" for name, ns in reasons[1:]]
    lines += [Said(text, "name") for text in main]
    lines += [Said(text) for text in flow(others, width)]
    lines += [Said(text) for parts in _covered(told) for text in flow(parts, width)]
    return [Said(clip(one.text, width, glyphs.ellipsis), one.look) for one in lines][:height]


def rank_of(found: IdleTime, gap: int) -> int:
    """The rank of a gap by its length, -1 if it is not among the longest."""
    at = np.flatnonzero(found.longest == gap)
    return int(at[0]) if len(at) else -1


def told_of(found: IdleTime, gap: int) -> Gap | None:
    rank = rank_of(found, gap)
    return found.told[rank] if rank >= 0 else None


def _head(ns: int, label: str, start: str, place: str) -> Sequence[str]:
    return f"idle for {duration(ns)}", label, f"from {start}", place


def _part(ns: int, whole: int) -> str:
    return f"{duration(ns)}, {percent(ns, whole)}"


def _device(side: Side, found: IdleTime) -> str:
    lanes = (lane for lane in side.lanes if lane.key[1] == found.device and not lane.is_cpu)
    return next((lane.group for lane in lanes), "")


def _covered(told: Gap | None) -> list[list[str]]:
    """What covered most of the time before the launch, and the kernels before and after the gap."""
    if told is None:
        return []
    around = (
        ("the CPU was in", told.frame),
        ("module", told.module),
        ("op", told.op),
        ("annotation", told.annotation),
    )
    inside = [f"{what} {narrow(_frame(name))}" for what, name in around if name]
    drained = f"drained by {narrow(told.drained_by)}" if told.drained_by else ""
    ends = f"before {label_of(int(Role.KERNEL), told.next)}"
    after = f"after {label_of(int(Role.KERNEL), told.previous)}" if told.previous else ""
    return [inside, [*filter(None, (drained, after, ends))]]


def _frame(name: str) -> str:
    return label_of(int(Role.PYTHON), name)
