"""Layers, or other repeated blocks, that only one side has: one group each, and what the CPU did
for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusetui.analysis.diff.align import Lanes
from fusetui.analysis.diff.blocks import Block, runs
from fusetui.analysis.diff.groups import WorkGroup
from fusetui.analysis.diff.items import Items
from fusetui.analysis.diff.names import work_class
from fusetui.text.figures import count, plural
from fusetui.trace.model.arrays import Flags
from fusetui.trace.model.grouping import by_key


def surplus(a: Items, b: Items, aligned: Sequence[Lanes]) -> list[WorkGroup]:
    """One group for all blocks that occur as often: a layer has work in the forward and in the
    backward pass, and on several lanes."""
    blocks = (block for lanes in aligned for block in lanes.blocks)
    alike = by_key(blocks, lambda block: (block.a, block.b))
    return [_group((a, b)[found[0].side], found) for found in alike.values()]


def _group(items: Items, found: Sequence[Block]) -> WorkGroup:
    first, members = found[0], tuple(sorted(item for block in found for item in block.items))
    more = abs(first.a - first.b)
    layers = any(_attentions(items, block) == more for block in found)
    word = "layer" if layers else "repeated block"
    named = f"{plural(first.a, word)} -> {count(first.b)}"
    why = f"{plural(round(len(members) / more), 'piece')} of work in each"
    of_a, of_b = ((), members) if first.side else (members, ())
    return WorkGroup(of_a, of_b, why, named=named)


def _attentions(items: Items, block: Block) -> int:
    """How often a block computes attention: in one kernel or several in a row, or with a softmax
    between products. A block may begin in the middle of it."""
    kinds = [work_class(items.op_names[item], items.names[item]) for item in block.items]
    found = [kind == "attention" for kind in kinds]
    starts = sum(now and not before for before, now in zip(found[-1:] + found, found, strict=False))
    return starts or kinds.count("softmax")


def around(a: Items, b: Items, groups: Sequence[WorkGroup]) -> tuple[Flags, Flags]:
    """Per row of each trace: whether the CPU did it for such a block, in any step alike."""
    found = [np.zeros(len(items.trace), dtype=np.bool_) for items in (a, b)]
    for group in groups:
        side, items = (0, a) if group.a else (1, b)
        members = np.array(group.a or group.b if group.named else (), dtype=np.intp)
        for first, last in runs(members):
            bounds = _bounds(items, first, last)
            for step in items.alike.tolist():
                _mark(found[side], items, *bounds, step)
    return found[0], found[1]


def _bounds(items: Items, first: int, last: int) -> tuple[int, int, int]:
    """From the first piece of a block to the first of the next one or, where other work follows,
    from after the last piece of the block before it to its last (1: what is between begins after
    both launches): one period of what the CPU does."""
    after = last + 1 < len(items) and items.by_op[last + 1] == items.by_op[first]
    return (first, last + 1, 0) if after or not first else (first - 1, last, 1)


def _mark(flags: Flags, items: Items, first: int, last: int, later: int, step: int) -> None:
    """What began on the thread of the launches of two items between them."""
    trace, work = items.trace, items.work
    launch = trace.launch[work.row[work.of_window(step)]]
    if last >= len(launch) or min(launch[first], launch[last]) < 0:
        return
    begin, end = trace.start[launch[first]] + later, trace.start[launch[last]] + later
    lane = trace.track_of(int(launch[first]))
    for track in trace.tracks:
        if (track.pid, track.tid) == (lane.pid, lane.tid):
            starts = trace.start[track.rows]
            flags[track.rows] |= (starts >= begin) & (starts < end)
