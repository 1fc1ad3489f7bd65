"""Collectives that the members of a group issued in different ways under one number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fusetui.analysis.hang.groups import Recorded
from fusetui.analysis.hang.model import Mismatch, MismatchKind, Side
from fusetui.trace.flight.columns import FlightEntries, Tensors
from fusetui.trace.model.arrays import Flags, Int64s, begins_runs, ends_runs

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
    """All mismatches, in the order of groups and numbers."""
    every_mismatch = []
    for rows in _suspicious(recorded):
        mismatch = _mismatch(recorded, rows)
        if mismatch is not None:
            every_mismatch.append(mismatch)
    return tuple(every_mismatch)


def kind_of(operation: str) -> str:
    """The name of an operation without that of the library: all_reduce."""
    return operation.partition(":")[2] or operation


def _suspicious(recorded: Recorded) -> Iterator[Int64s]:
    """The rows of each collective whose entries are not all equal, or that has several
    for a rank."""
    collectives = _collectives(recorded.entries)
    if not len(collectives.first):
        return
    suspicious = _has_differing_entries(recorded.entries, collectives)
    # coalesced: one rank has several
    dumps = _dump_counts(recorded.entries, collectives)
    suspicious |= dumps != collectives.stop - collectives.first
    for place in np.flatnonzero(suspicious):
        yield collectives.order[collectives.first[place] : collectives.stop[place]]


class _Collectives(NamedTuple):
    """Entries by collective; those of one are `order[first:stop]`."""

    order: Int64s  # rows of entries; shape [entries of collectives]
    first: Int64s  # shape [collectives]
    stop: Int64s


def _collectives(entries: FlightEntries) -> _Collectives:
    """The entries of collectives by group and number, those of one in their order."""
    rows = np.flatnonzero(~entries.is_p2p)
    order = rows[np.lexsort((rows, entries.sequence[rows], entries.group[rows]))]
    group = entries.group[order]
    sequence = entries.sequence[order]
    first = np.flatnonzero(begins_runs(group, sequence))
    stop = np.flatnonzero(ends_runs(group, sequence)) + 1
    return _Collectives(order=order, first=first, stop=stop)


def _has_differing_entries(entries: FlightEntries, collectives: _Collectives) -> Flags:
    """Which collectives have entries that differ in operation, inputs or outputs."""
    differs = np.zeros(len(collectives.first), np.bool_)
    for column in (entries.operation, entries.inputs, entries.outputs):
        values = column[collectives.order]
        lowest = np.minimum.reduceat(values, collectives.first)
        highest = np.maximum.reduceat(values, collectives.first)
        differs |= lowest != highest
    return differs


def _dump_counts(entries: FlightEntries, collectives: _Collectives) -> Int64s:
    """How many dumps have entries of each collective; those of one are neighbors."""
    is_new_dump = begins_runs(entries.dump[collectives.order])
    is_new_dump[collectives.first] = True
    return np.add.reduceat(is_new_dump.astype(np.int64), collectives.first)


def _mismatch(recorded: Recorded, rows: Int64s) -> Mismatch | None:
    """The mismatch of one collective, None if what must agree does."""
    rows_of_rank: dict[int, list[int]] = {}
    for row in rows.tolist():
        rank = int(recorded.rank_of_dump[recorded.entries.dump[row]])
        rows_of_rank.setdefault(rank, []).append(row)
    ranks_of: dict[tuple[_Signature, ...], list[int]] = {}
    for rank, rank_rows in sorted(rows_of_rank.items()):
        signatures = tuple(_signature(recorded, row) for row in rank_rows)
        ranks_of.setdefault(signatures, []).append(rank)
    if len(ranks_of) < 2:
        return None
    largest_first = sorted(ranks_of.values(), key=lambda ranks: (-len(ranks), ranks))
    sides = []
    for ranks in largest_first:
        issued = [recorded.issued(row) for row in rows_of_rank[ranks[0]]]
        sides.append(Side(ranks=tuple(ranks), issued=tuple(issued)))
    first = sides[0].issued[0]
    return Mismatch(
        group=first.group,
        sequence=first.sequence,
        kind=_difference(sides[0], sides[1]),
        is_over=bool(recorded.is_over[rows].all()),
        sides=tuple(sides),
    )


class _Signature(NamedTuple):
    """What must agree of the entries of one collective on all ranks."""

    kind: str  # the operation, as all_reduce
    # of the tensors that must have as many elements everywhere; None if none must
    element_count: int | None
    dtypes: tuple[str, ...] | None


def _signature(recorded: Recorded, row: int) -> _Signature:
    """The operation of an entry, with the size and the types of those of its tensors
    that must agree with the other ranks: of the inputs, or of the outputs, or of
    none."""
    entries = recorded.entries
    dumps = recorded.dumps
    kind = kind_of(dumps.operations[entries.operation[row]])
    inputs = dumps.tensors[entries.inputs[row]]
    outputs = dumps.tensors[entries.outputs[row]]
    tensors = _compared(kind, inputs, outputs)
    if tensors is None:
        return _Signature(kind=kind, element_count=None, dtypes=None)
    return _Signature(
        kind=kind, element_count=tensors.element_count, dtypes=tensors.dtypes
    )


def _compared(kind: str, inputs: Tensors, outputs: Tensors) -> Tensors | None:
    """The tensors of an operation that must agree, if any."""
    if kind in SAME_INPUT:
        return inputs
    if kind in SAME_OUTPUT:
        return outputs
    return None


def _difference(one: Side, other: Side) -> MismatchKind:
    """What two sides of a mismatch differ in."""
    if len(one.issued) != len(other.issued):
        return "coalesced"
    for left, right in zip(one.issued, other.issued, strict=True):
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
