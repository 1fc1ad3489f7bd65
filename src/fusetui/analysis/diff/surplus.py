"""Forms one group from the layers that only one side has.

Where A has six layers and B has five, the work of the sixth is one group, and what the
CPU did to launch it is known to belong to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.align import AlignedLanes
from fusetui.analysis.diff.blocks import Block
from fusetui.analysis.diff.groups import WorkGroup, order_as_a_and_b
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.names import classify_work
from fusetui.analysis.diff.periods import flag_rows_of_periods
from fusetui.text.figures import count, plural
from fusetui.trace.model.arrays import Flags


class RowsOfSides(msgspec.Struct, frozen=True, eq=False):
    """A flag for each row of the trace of each side."""

    a: Flags
    b: Flags


class _Occurrences(msgspec.Struct, frozen=True):
    """How often a block occurs on each side."""

    a: int
    b: int


def group_surplus_blocks(
    a: WorkItems, b: WorkItems, aligned: Sequence[AlignedLanes]
) -> list[WorkGroup]:
    """Group the repeated blocks, such as layers, that A or B has more of.

    All blocks that occur equally often in A, and equally often in B, become one group.
    A layer has a block in the forward pass, one in the backward pass, and maybe others
    on other streams.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        aligned: The pairs of lanes (streams), with the surplus blocks that were found
            in them.
    """
    blocks_by_occurrences: defaultdict[_Occurrences, list[Block]] = defaultdict(list)
    for lanes in aligned:
        for block in lanes.blocks:
            occurrences = _Occurrences(a=block.times_in_a, b=block.times_in_b)
            blocks_by_occurrences[occurrences].append(block)

    groups = []
    for occurrences, blocks in blocks_by_occurrences.items():
        items = a if occurrences.a > occurrences.b else b
        groups.append(_make_group_of_blocks(items, blocks, occurrences))
    return groups


def _make_group_of_blocks(
    items: WorkItems, blocks: Sequence[Block], occurrences: _Occurrences
) -> WorkGroup:
    """Make one group of all kernels of some blocks that A or B repeats more often.

    A block is a repeated sequence of kernels. The title is `6 layers -> 5`, or `6
    repeated blocks -> 5` if no block computes attention exactly once in each
    repetition.

    Args:
        items: The items (kernels and copies) of the trace that has the blocks more
            often.
        blocks: Blocks that occur equally often.
        occurrences: How often each of these blocks occurs in A and in B.
    """
    members: list[int] = []
    for block in blocks:
        members += [*block.items, *block.items_on_other_lanes]
    members.sort()

    surplus_blocks = abs(occurrences.a - occurrences.b)
    are_layers = any(
        _count_attention(items, block) == surplus_blocks for block in blocks
    )
    what = "layer" if are_layers else "repeated block"
    pieces_per_block = round(len(members) / surplus_blocks)
    of_a, of_b = order_as_a_and_b(blocks[0].side, tuple(members), ())
    return WorkGroup(
        a=of_a,
        b=of_b,
        why=f"{plural(pieces_per_block, 'piece')} of work in each",
        title=f"{plural(occurrences.a, what)} -> {count(occurrences.b)}",
    )


def _count_attention(items: WorkItems, block: Block) -> int:
    """Count how often the surplus items of a block compute attention.

    Attention kernels in a row count once. If the last kernel is attention too, a run at
    the beginning does not count: then the block begins in the middle of attention. If
    there are no attention kernels, softmax kernels are counted instead.

    Args:
        items: All kernels of a step.
        block: A repeated sequence of them, with at least one kernel.
    """
    kinds = [
        classify_work(items.op_names[item], items.names[item]) for item in block.items
    ]
    # The last kernel precedes the first one of the next repetition.
    previous_kinds = [kinds[-1], *kinds[:-1]]
    runs_of_attention = 0
    for previous, kind in zip(previous_kinds, kinds, strict=True):
        if kind == "attention" and previous != "attention":
            runs_of_attention += 1
    return runs_of_attention or kinds.count("softmax")


def flag_rows_of_surplus_blocks(
    a: WorkItems, b: WorkItems, aligned: Sequence[AlignedLanes]
) -> RowsOfSides:
    """Flag the rows of each trace in which the CPU launched surplus blocks.

    A surplus block is a repeated sequence of kernels, such as a layer, that only one
    trace has. It has a row of the comparison already, so its launches get no row as
    dispatch.
    """
    flags_a = np.zeros(len(a.trace), dtype=np.bool_)
    flags_b = np.zeros(len(b.trace), dtype=np.bool_)
    for lanes in aligned:
        for block in lanes.blocks:
            if block.side == 0:
                flag_rows_of_periods(flags_a, a, block.items)
            else:
                flag_rows_of_periods(flags_b, b, block.items)
    return RowsOfSides(a=flags_a, b=flags_b)
