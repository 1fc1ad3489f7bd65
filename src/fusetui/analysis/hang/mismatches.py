"""Finds the collectives that ranks issued in different ways under the same number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fusetui.analysis.hang.groups import JobDumps
from fusetui.analysis.hang.model import Mismatch, MismatchKind, Side
from fusetui.trace.flight.columns import FlightEntries, Tensors
from fusetui.trace.model.arrays import (
    Flags,
    Int64s,
    begins_runs,
    ends_runs,
    reduce_groups,
)

OPERATIONS_WITH_EQUAL_INPUTS = frozenset(
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
"""Operations whose inputs have as many elements on every rank. Those of all_to_all and
scatter may differ."""

OPERATIONS_WITH_EQUAL_OUTPUTS = frozenset({"scatter"})
"""Operations whose outputs have as many elements on every rank, though their inputs may
differ."""


def find_mismatches(job: JobDumps) -> tuple[Mismatch, ...]:
    """Find the collectives that ranks issued in different ways under one number.

    They come in the order of groups and numbers.
    """
    mismatches = []
    for rows in _find_suspicious_collectives(job):
        mismatch = _compare_ranks(job, rows)
        if mismatch is not None:
            mismatches.append(mismatch)
    return tuple(mismatches)


def read_operation_kind(operation: str) -> str:
    """Read the kind of an operation from its full name: all_reduce from
    "nccl:all_reduce".

    A name without a colon is returned as it is.
    """
    return operation.partition(":")[2] or operation


def _find_suspicious_collectives(job: JobDumps) -> Iterator[Int64s]:
    """Yield the rows of each collective that may be a mismatch.

    Most collectives have equal entries, one for each rank. This sorts them out for all
    collectives at once, so that only the others have to be looked at in detail.
    """
    collectives = _sort_entries(job.entries)
    if not len(collectives.first):
        return

    differs = _mark_differing(job.entries, collectives)

    # A coalesced operation has several entries of one rank.
    entry_counts = collectives.stop - collectives.first
    is_coalesced = _count_dumps(job.entries, collectives) != entry_counts
    for index in np.flatnonzero(differs | is_coalesced).tolist():
        first = collectives.first[index]
        stop = collectives.stop[index]
        yield collectives.order[first:stop]


class _Collectives(NamedTuple):
    """The entries of all collectives; those of one are `order[first:stop]`."""

    order: Int64s  # rows of entries, sorted by collective
    first: Int64s  # per collective: its first index in `order`
    stop: Int64s  # per collective: the index after its last one in `order`


def _sort_entries(entries: FlightEntries) -> _Collectives:
    """Sort the entries of collectives by group and number.

    Those of one collective keep their order.
    """
    rows = np.flatnonzero(~entries.is_p2p)
    # np.lexsort sorts by its last key first, and is stable.
    order = rows[np.lexsort((entries.sequence[rows], entries.group[rows]))]
    group = entries.group[order]
    sequence = entries.sequence[order]
    first = np.flatnonzero(begins_runs(group, sequence))
    stop = np.flatnonzero(ends_runs(group, sequence)) + 1
    return _Collectives(order=order, first=first, stop=stop)


def _mark_differing(entries: FlightEntries, collectives: _Collectives) -> Flags:
    """Mark the collectives whose ranks have entries with different operations, inputs
    or outputs.

    Returns:
        One flag per collective.
    """
    differs = np.zeros(len(collectives.first), np.bool_)
    for column in (entries.operation, entries.inputs, entries.outputs):
        # All values of a collective are equal if its lowest is its highest.
        values = column[collectives.order]
        lowest = reduce_groups(np.minimum, values, collectives.first)
        highest = reduce_groups(np.maximum, values, collectives.first)
        differs |= lowest != highest
    return differs


def _count_dumps(entries: FlightEntries, collectives: _Collectives) -> Int64s:
    """Count for each collective the dumps, one per rank, that have entries of it.

    The entries of one dump are neighbors within a collective.
    """
    is_new_dump = begins_runs(entries.dump[collectives.order])
    is_new_dump[collectives.first] = True
    return reduce_groups(np.add, is_new_dump.astype(np.int64), collectives.first)


def _compare_ranks(job: JobDumps, rows: Int64s) -> Mismatch | None:
    """Compare what the ranks issued as one collective.

    E.g. ranks 0 to 2 issued an all_reduce of 100 floats, and rank 3 one of 200: there
    are two sides, the larger one first.

    Args:
        job: The dumps of all ranks.
        rows: The rows of the entries of the collective.

    Returns:
        None if everything that must agree does.
    """
    sides = _group_ranks(job, rows)
    if len(sides) < 2:
        return None

    example = sides[0].issued[0]
    return Mismatch(
        group=example.group,
        sequence=example.sequence,
        kind=_classify_difference(sides[0], sides[1]),
        is_over=bool(job.is_over[rows].all()),
        sides=tuple(sides),
    )


def _group_ranks(job: JobDumps, rows: Int64s) -> list[Side]:
    """Group the ranks that issued the same as one collective.

    Args:
        job: The dumps of all ranks.
        rows: The rows of the entries of the collective; at least one.

    Returns:
        The groups, that of most ranks first. Its first rank stands for each of them.
    """
    rows_of_rank: dict[int, list[int]] = {}
    for row in rows.tolist():
        rank = int(job.rank_of_dump[job.entries.dump[row]])
        rows_of_rank.setdefault(rank, []).append(row)

    # A rank has several signatures if the operation is coalesced.
    ranks_by_signatures: dict[tuple[_Signature, ...], list[int]] = {}
    for rank in sorted(rows_of_rank):
        signatures = tuple(_make_signature(job, row) for row in rows_of_rank[rank])
        ranks_by_signatures.setdefault(signatures, []).append(rank)

    sides = []
    for ranks in ranks_by_signatures.values():
        first_rank = ranks[0]
        issued = [job.describe_issued(row) for row in rows_of_rank[first_rank]]
        sides.append(Side(ranks=tuple(ranks), issued=tuple(issued)))
    return sorted(sides, key=lambda side: (-len(side.ranks), side.ranks))


class _Signature(NamedTuple):
    """What must be the same on all ranks for an entry of a collective.

    `element_count` and `dtypes` are those of the tensors that must agree, or None if
    none must.
    """

    kind: str  # the operation, as all_reduce
    element_count: int | None
    dtypes: tuple[str, ...] | None


def _make_signature(job: JobDumps, row: int) -> _Signature:
    """Make the signature of an entry: what must agree on all ranks of a collective.

    It is the kind of operation, the number of elements and their dtypes. The last two
    are None for operations whose tensors may differ between ranks.
    """
    entries = job.entries
    dumps = job.dumps
    kind = read_operation_kind(dumps.operations[entries.operation[row]])
    inputs = dumps.tensors[entries.inputs[row]]
    outputs = dumps.tensors[entries.outputs[row]]
    tensors = _select_agreeing_tensors(kind, inputs, outputs)
    if tensors is None:
        return _Signature(kind=kind, element_count=None, dtypes=None)
    return _Signature(
        kind=kind, element_count=tensors.element_count, dtypes=tensors.dtypes
    )


def _select_agreeing_tensors(
    kind: str, inputs: Tensors, outputs: Tensors
) -> Tensors | None:
    """Select the tensors of an operation that must be alike on all ranks: its inputs or
    outputs.

    Returns None if neither has to be, e.g. for an all_to_all with uneven sizes.
    """
    if kind in OPERATIONS_WITH_EQUAL_INPUTS:
        return inputs
    if kind in OPERATIONS_WITH_EQUAL_OUTPUTS:
        return outputs
    return None


def _classify_difference(side: Side, other_side: Side) -> MismatchKind:
    """Classify in what two sides of a mismatch differ first.

    A side is the ranks that issued the same operations. They may differ in the number
    of coalesced operations, in the operation, the sizes or the dtypes.
    """
    if len(side.issued) != len(other_side.issued):
        return "coalesced"
    for issued, other in zip(side.issued, other_side.issued, strict=True):
        kind = read_operation_kind(issued.operation)
        if kind != read_operation_kind(other.operation):
            return "operation"
        tensors = _select_agreeing_tensors(kind, issued.inputs, issued.outputs)
        other_tensors = _select_agreeing_tensors(kind, other.inputs, other.outputs)
        if tensors is None or other_tensors is None:
            continue
        if tensors.element_count != other_tensors.element_count:
            return "sizes"
        if tensors.dtypes != other_tensors.dtypes:
            return "dtypes"
    return "operation"
