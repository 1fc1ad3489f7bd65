"""Collectives that the members of a group issued in different ways under one number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.hang.groups import Recorded
from fusetui.analysis.hang.model import Mismatch, MismatchKind, Side
from fusetui.trace.flight.columns import Tensors
from fusetui.trace.model.arrays import Int64s

SAME_INPUT = frozenset(
    {
        "all_reduce",
        "allreduce",
        "allreduce_coalesced",
        "broadcast",
        "reduce",
        "all_gather",
        "_allgather_base",
        "all_gather_into_tensor_coalesced",
        "reduce_scatter",
        "_reduce_scatter_base",
        "reduce_scatter_tensor_coalesced",
        "gather",
    }
)
"""Operations whose inputs have as many elements on every rank; those of all_to_all and
scatter may differ."""
SAME_OUTPUT = frozenset({"scatter"})


def mismatches(recorded: Recorded) -> tuple[Mismatch, ...]:
    """In the order of groups and numbers."""
    return tuple(
        mismatch
        for rows in _suspicious(recorded)
        if (mismatch := _mismatch(recorded, rows)) is not None
    )


def kind_of(operation: str) -> str:
    """The name of an operation without that of the library: all_reduce."""
    return operation.partition(":")[2] or operation


def _suspicious(recorded: Recorded) -> Iterator[Int64s]:
    """The rows of each collective whose entries are not all equal, or that has several
    for a rank."""
    entries = recorded.entries
    rows = np.flatnonzero(~entries.is_p2p)
    if not len(rows):
        return
    order = rows[np.lexsort((rows, entries.sequence[rows], entries.group[rows]))]
    groups = entries.group[order]
    sequences = entries.sequence[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (np.diff(groups) != 0) | (np.diff(sequences) != 0)
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(order))
    differs = np.zeros(len(starts), np.bool_)
    for column in (entries.operation, entries.inputs, entries.outputs):
        values = column[order]
        lowest = np.minimum.reduceat(values, starts)
        highest = np.maximum.reduceat(values, starts)
        differs |= lowest != highest
    is_new_dump = np.ones(len(order), np.int64)
    is_new_dump[1:] = np.diff(entries.dump[order]) != 0
    is_new_dump[starts] = 1
    dump_count = np.add.reduceat(is_new_dump, starts)
    differs |= dump_count != ends - starts  # coalesced: one rank has several
    for place in np.flatnonzero(differs):
        yield order[starts[place] : ends[place]]


def _mismatch(recorded: Recorded, rows: Int64s) -> Mismatch | None:
    """The mismatch of one collective, None if what must agree does."""
    rows_of_rank: dict[int, list[int]] = {}
    for row in rows.tolist():
        rank = int(recorded.rank_of_dump[recorded.entries.dump[row]])
        rows_of_rank.setdefault(rank, []).append(row)
    ranks_of: dict[tuple[object, ...], list[int]] = {}
    for rank, rank_rows in sorted(rows_of_rank.items()):
        signature = tuple(_signature(recorded, row) for row in rank_rows)
        ranks_of.setdefault(signature, []).append(rank)
    if len(ranks_of) < 2:
        return None
    by_size = sorted(ranks_of.values(), key=lambda ranks: (-len(ranks), ranks))
    sides = tuple(
        Side(
            ranks=tuple(ranks),
            issued=tuple(recorded.issued(row) for row in rows_of_rank[ranks[0]]),
        )
        for ranks in by_size
    )
    first = sides[0].issued[0]
    return Mismatch(
        group=first.group,
        sequence=first.sequence,
        kind=_difference(sides),
        is_over=bool(recorded.is_over[rows].all()),
        sides=sides,
    )


def _signature(recorded: Recorded, row: int) -> tuple[object, ...]:
    entries = recorded.entries
    dumps = recorded.dumps
    kind = kind_of(dumps.operations[entries.operation[row]])
    compared = _compared(
        kind, dumps.tensors[entries.inputs[row]], dumps.tensors[entries.outputs[row]]
    )
    if compared is None:
        return (kind,)
    return (kind, compared.element_count, compared.dtypes)


def _compared(kind: str, inputs: Tensors, outputs: Tensors) -> Tensors | None:
    """The tensors of an operation that must agree, if any."""
    if kind in SAME_INPUT:
        return inputs
    if kind in SAME_OUTPUT:
        return outputs
    return None


def _difference(sides: tuple[Side, ...]) -> MismatchKind:
    """What the first two sides differ in."""
    first = sides[0].issued
    second = sides[1].issued
    if len(first) != len(second):
        return "coalesced"
    for left, right in zip(first, second, strict=True):
        kind = kind_of(left.operation)
        if kind != kind_of(right.operation):
            return "operation"
        left_tensors = _compared(kind, left.inputs, left.outputs)
        right_tensors = _compared(kind, right.inputs, right.outputs)
        if left_tensors is None or right_tensors is None:
            continue
        if left_tensors.element_count != right_tensors.element_count:
            return "sizes"
        if left_tensors.dtypes != right_tensors.dtypes:
            return "dtypes"
    return "operation"
