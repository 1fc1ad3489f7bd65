"""Layers, or other repeated blocks, that only one side has, with what the CPU did for
them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.align import Lanes
from fusetui.analysis.diff.blocks import Block
from fusetui.analysis.diff.groups import WorkGroup, oriented
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.names import work_class
from fusetui.analysis.diff.periods import mark_periods
from fusetui.text.figures import count, plural
from fusetui.trace.model.arrays import Flags
from fusetui.trace.model.grouping import by_key


class RowsOfSides(msgspec.Struct, frozen=True, eq=False):
    """Flags of the rows of each trace."""

    a: Flags
    b: Flags


class _Times(msgspec.Struct, frozen=True):
    """How often a block occurs on each side."""

    a: int
    b: int


def surplus(a: WorkItems, b: WorkItems, aligned: Sequence[Lanes]) -> list[WorkGroup]:
    """One group for all blocks that occur as often: a layer has some in each pass, on
    each lane."""
    every_block = [block for lanes in aligned for block in lanes.blocks]
    as_often = by_key(every_block, lambda block: _Times(a=block.a, b=block.b))
    return [
        _group(b if blocks[0].side else a, blocks, times)
        for times, blocks in as_often.items()
    ]


def _group(items: WorkItems, blocks: Sequence[Block], times: _Times) -> WorkGroup:
    """`blocks` are of `items`, and occur equally often."""
    members: list[int] = []
    for block in blocks:
        members += [*block.items, *block.beside]
    members.sort()
    more = abs(times.a - times.b)
    are_layers = any(_attentions(items, block) == more for block in blocks)
    word = "layer" if are_layers else "repeated block"
    of_a, of_b = oriented(blocks[0].side, tuple(members), ())
    return WorkGroup(
        a=of_a,
        b=of_b,
        why=f"{plural(round(len(members) / more), 'piece')} of work in each",
        title=f"{plural(times.a, word)} -> {count(times.b)}",
    )


def _attentions(items: WorkItems, block: Block) -> int:
    """How often a block computes attention: in one kernel or several in a row, or with
    a softmax between products. A block may begin in the middle of it."""
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


def rows_for_surplus(
    a: WorkItems, b: WorkItems, aligned: Sequence[Lanes]
) -> RowsOfSides:
    """Whether the CPU did a row for such a block, in any step alike."""
    sides = (a, b)
    is_for_block = RowsOfSides(
        a=np.zeros(len(a.trace), dtype=np.bool_),
        b=np.zeros(len(b.trace), dtype=np.bool_),
    )
    for lanes in aligned:
        for block in lanes.blocks:
            flags = is_for_block.b if block.side else is_for_block.a
            mark_periods(flags, sides[block.side], block.items)
    return is_for_block
