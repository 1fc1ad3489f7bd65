"""Layers, or other repeated blocks, that only one side has, with what the CPU did for
them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.align import AlignedLanes
from fusetui.analysis.diff.blocks import Block
from fusetui.analysis.diff.groups import WorkGroup, as_a_and_b
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.names import work_class
from fusetui.analysis.diff.periods import mark_periods
from fusetui.text.figures import count, plural
from fusetui.trace.model.arrays import Flags
from fusetui.trace.model.grouping import by_key


class RowsOfSides(msgspec.Struct, frozen=True, eq=False):
    """Flags of the rows of each trace, of shape [slices]."""

    a: Flags
    b: Flags


class _Occurrences(msgspec.Struct, frozen=True):
    """How often a block occurs on each side."""

    a: int
    b: int


def surplus_groups(
    a: WorkItems, b: WorkItems, aligned: Sequence[AlignedLanes]
) -> list[WorkGroup]:
    """The groups of the repeated blocks that only one side has: one for all blocks that
    occur equally often in A, and equally often in B, because a layer has a block in each
    pass and on each lane."""
    every_block = [block for lanes in aligned for block in lanes.blocks]
    by_occurrences = by_key(
        every_block, lambda block: _Occurrences(a=block.a, b=block.b)
    )
    groups = []
    for times, blocks in by_occurrences.items():
        items = a if blocks[0].side == 0 else b
        groups.append(_group(items, blocks, times))
    return groups


def _group(items: WorkItems, blocks: Sequence[Block], times: _Occurrences) -> WorkGroup:
    """The group of all items of some blocks of one side, `items`; `times` is how often
    each of the blocks occurs. Titled `6 layers -> 5`, or `6 repeated blocks -> 5` where
    none of them computes attention once in each."""
    members: list[int] = []
    for block in blocks:
        members += [*block.items, *block.items_on_other_lanes]
    members.sort()
    more = abs(times.a - times.b)
    are_layers = any(_attentions(items, block) == more for block in blocks)
    word = "layer" if are_layers else "repeated block"
    of_a, of_b = as_a_and_b(blocks[0].side, tuple(members), ())
    return WorkGroup(
        a=of_a,
        b=of_b,
        why=f"{plural(round(len(members) / more), 'piece')} of work in each",
        title=f"{plural(times.a, word)} -> {count(times.b)}",
    )


def _attentions(items: WorkItems, block: Block) -> int:
    """How often the items of a block compute attention: the number of runs of attention
    kernels or, if there are none, of softmax kernels. A run at the beginning does not
    count where the last item is attention too: the block begins in the middle of it."""
    kinds = [
        work_class(items.op_names[item], items.names[item]) for item in block.items
    ]
    starts = 0
    was_attention = kinds[-1:] == ["attention"]
    for kind in kinds:
        is_attention = kind == "attention"
        if is_attention and not was_attention:
            starts += 1
        was_attention = is_attention
    return starts or kinds.count("softmax")


def rows_for_surplus_blocks(
    a: WorkItems, b: WorkItems, aligned: Sequence[AlignedLanes]
) -> RowsOfSides:
    """Whether each row of a trace is what the CPU did for a block that only this side
    has, in any step alike."""
    flags_a = np.zeros(len(a.trace), dtype=np.bool_)
    flags_b = np.zeros(len(b.trace), dtype=np.bool_)
    for lanes in aligned:
        for block in lanes.blocks:
            if block.side == 0:
                mark_periods(flags_a, a, block.items)
            else:
                mark_periods(flags_b, b, block.items)
    return RowsOfSides(a=flags_a, b=flags_b)
