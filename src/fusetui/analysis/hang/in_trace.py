"""Where in a trace of the same job the collective is at which the dumps stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
import numpy as np

from fusetui.analysis.hang.mismatches import kind_of
from fusetui.analysis.hang.model import HangAnswer, Wait
from fusetui.analysis.questions.chain import launch_chain
from fusetui.analysis.questions.collectives import (
    IssuedCollectives,
    KnownCollective,
    collectives_of,
)
from fusetui.gpu.dtypes import scalar_bytes
from fusetui.trace.flight.columns import FlightDumps, GroupName, Tensors
from fusetui.trace.layout.steps import labels_of, steps_of
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.columns import Trace

UNKNOWN_BYTES = -1
SIZED_BY_OUTPUT = ("all_gather", "gather")
"""Collectives whose size in a trace is that of the output; see `collectives_of`."""

Reason = Literal[
    "",  # it was found
    "no_group",  # the trace has no collective of the group
    "not_recorded",  # no collective of the group in the trace is like it
    "several_places",  # the collectives before it do not tell these apart
]


class _Collective(msgspec.Struct, frozen=True):
    """A collective of a dump."""

    operation: str  # all_reduce
    moved_bytes: int  # UNKNOWN_BYTES where it is not known


class _Signatures(msgspec.Struct, frozen=True, eq=False):
    """What a dump and a trace both say of collectives, in the order in which they were
    issued; arrays of shape [collectives]."""

    operation: Int64s  # a number for each name, the same in the dump and in the trace
    moved_bytes: Int64s  # UNKNOWN_BYTES where it is not known

    def __len__(self) -> int:
        return len(self.operation)

    def are_like(self, places: Rows, other: _Signatures, place: int) -> Flags:
        """Which of these collectives can be the one at `place` of others; shape
        [places]."""
        moved_bytes = self.moved_bytes[places]
        other_bytes = other.moved_bytes[place]
        is_same_size = moved_bytes == other_bytes
        is_same_size |= (moved_bytes == UNKNOWN_BYTES) | (other_bytes == UNKNOWN_BYTES)
        return np.asarray(
            is_same_size & (self.operation[places] == other.operation[place])
        )


def _signatures(
    collectives: Sequence[_Collective | _Traced], numbers: dict[str, int]
) -> _Signatures:
    """The signatures of collectives; `numbers` gets those of further names."""
    operations = [
        numbers.setdefault(_plain(collective.operation), len(numbers))
        for collective in collectives
    ]
    moved_bytes = [collective.moved_bytes for collective in collectives]
    return _Signatures(
        operation=np.array(operations, dtype=np.int64),
        moved_bytes=np.array(moved_bytes, dtype=np.int64),
    )


def _plain(operation: str) -> str:
    """`allgatherbase` for both `_allgather_base` and `_all_gather_base`, which torch
    calls it in different places."""
    return operation.replace("_", "")


class CollectiveInStep(msgspec.Struct, frozen=True):
    """A place of the program: the `number`-th, from 1, of the `of` collectives of a group
    that are issued in a step. Without steps, in the whole trace."""

    number: int
    of: int


class InTrace(msgspec.Struct, frozen=True):
    """The collective in which ranks wait, in an earlier step. `row` is that slice,
    -1 if none was found, and `reason` the reason."""

    path: str  # of the trace
    group: GroupName
    sequence: int  # in the dumps
    reason: Reason = ""
    row: int = -1
    name: str = ""  # of the slice
    step: str = ""  # its label; "" where the trace has no steps
    place: CollectiveInStep | None = None
    places: int = 0  # in a step at which it may be
    agreeing: int = 0  # collectives in a row, the last one included, that agree
    issued_by: tuple[str, ...] = ()  # calls, ops, annotations; innermost first


class _Traced(msgspec.Struct, frozen=True):
    """A collective of the group in the trace."""

    row: int
    operation: str
    moved_bytes: int  # UNKNOWN_BYTES where it is not known
    step: int  # index; -1 outside of all steps
    place: CollectiveInStep


def in_trace(
    answer: HangAnswer, dumps: FlightDumps, trace: Trace, path: str
) -> InTrace | None:
    """The first collective of the answer in which ranks wait, in a trace of the same
    job; None if they wait in none.

    A trace and a dump rarely cover the same time, so the numbers of the collectives do
    not help. What does is their order: the collectives of the group that a waiting rank
    issued last are compared with those in the trace before each place of a step. A
    place is ruled out if one of them differs before the trace or the dump begins; the
    only place that is left is the answer.
    """
    wait = next((wait for wait in answer.waits if not wait.is_p2p), None)
    if wait is None:
        return None
    absent = InTrace(path=path, group=wait.group, sequence=wait.sequence)
    traced = _of_group(trace, wait.group)
    if not traced:
        return msgspec.structs.replace(absent, reason="no_group")
    numbers: dict[str, int] = {}
    issued = _signatures(_issued_up_to(dumps, wait), numbers)
    runs = _agreeing_runs(issued, _signatures(traced, numbers))
    left = _places_left(traced, runs)
    if not left:
        return msgspec.structs.replace(absent, reason="not_recorded")
    agreeing = min(int(runs.length[index]) for index in left)
    if len(left) > 1:
        return msgspec.structs.replace(
            absent, reason="several_places", places=len(left), agreeing=agreeing
        )
    last = traced[left[0]]
    return msgspec.structs.replace(
        absent,
        row=last.row,
        name=trace.name_of(last.row),
        step=_label(trace, last.step),
        place=last.place,
        places=1,
        agreeing=agreeing,
        issued_by=_around(trace, last.row),
    )


class _AgreeingRuns(msgspec.Struct, frozen=True, eq=False):
    """For each collective in the trace, how many in a row up to it agree with the last
    of the dump, and whether the one before these differs, rather than that there is
    none; arrays of shape [collectives]."""

    length: Int64s
    differs: Flags


def _agreeing_runs(issued: _Signatures, traced: _Signatures) -> _AgreeingRuns:
    """Compares all places of the trace at once, from the last collective of the dump
    back to its first."""
    length = np.zeros(len(traced), dtype=np.int64)
    differs = np.zeros(len(traced), dtype=np.bool_)
    agreeing = np.arange(len(traced))
    for back in range(len(issued)):
        agreeing = agreeing[agreeing >= back]
        is_like = traced.are_like(agreeing - back, issued, len(issued) - 1 - back)
        differs[agreeing[~is_like]] = True
        agreeing = agreeing[is_like]
        if not len(agreeing):
            break
        length[agreeing] += 1
    return _AgreeingRuns(length=length, differs=differs)


def _places_left(traced: Sequence[_Traced], runs: _AgreeingRuns) -> list[int]:
    """Of each place of a step that is not ruled out, its last occurrence, as an index
    into `traced`; steps are taken to be alike. If all places are ruled out, as where
    steps differ, those with the longest run."""
    last_of_place: dict[int, int] = {}
    for index, collective in enumerate(traced):
        if collective.step >= 0 and runs.length[index]:
            last_of_place[collective.place.number] = index
        elif collective.step >= 0:
            last_of_place.pop(collective.place.number, None)
    last = list(last_of_place.values())
    not_ruled_out = [index for index in last if not runs.differs[index]]
    if not_ruled_out or not last:
        return not_ruled_out
    longest = max(int(runs.length[index]) for index in last)
    return [index for index in last if runs.length[index] == longest]


def _issued_up_to(dumps: FlightDumps, wait: Wait) -> list[_Collective]:
    """What the first waiting rank issued in the group, up to the collective in which it
    waits."""
    entries = dumps.entries
    ranks = np.array([dump.rank for dump in dumps.ranks])
    is_wanted = ranks[entries.dump] == wait.example.rank
    is_wanted &= entries.group == dumps.groups.index(wait.group)
    is_wanted &= ~entries.is_p2p & (entries.sequence <= wait.sequence)
    rows = np.flatnonzero(is_wanted)
    in_order = rows[np.argsort(entries.sequence[rows], kind="stable")]
    return [_collective_in_dump(dumps, row) for row in in_order.tolist()]


def _collective_in_dump(dumps: FlightDumps, row: int) -> _Collective:
    """What an entry says of its collective."""
    entries = dumps.entries
    operation = kind_of(dumps.operations[entries.operation[row]])
    side = entries.outputs if operation in SIZED_BY_OUTPUT else entries.inputs
    return _Collective(
        operation=operation, moved_bytes=_bytes_of(dumps.tensors[side[row]])
    )


def _bytes_of(tensors: Tensors) -> int:
    """UNKNOWN_BYTES where the tensors are of several dtypes, or of an unknown one."""
    if len(set(tensors.dtypes)) != 1:
        return UNKNOWN_BYTES
    element_bytes = scalar_bytes(tensors.dtypes[0])
    if not element_bytes:
        return UNKNOWN_BYTES
    return tensors.element_count * element_bytes


def _of_group(trace: Trace, group: GroupName) -> list[_Traced]:
    """The collectives of a group in the order in which they were issued."""
    issued = collectives_of(trace)
    indices = [
        index
        for index, known in enumerate(issued.told)
        if _is_of_group(known, group) and not known.name.startswith(("send", "recv"))
    ]
    steps = steps_of(trace)
    if len(steps):
        step_of = steps.at(issued.issued[indices]).tolist()
    else:
        step_of = [0] * len(indices)
    return list(_numbered(issued, indices, step_of))


def _numbered(
    issued: IssuedCollectives, indices: Sequence[int], step_of: Sequence[int]
) -> Iterable[_Traced]:
    """These collectives with their places in their steps."""
    counts: dict[int, int] = {}
    for step in step_of:
        counts[step] = counts.get(step, 0) + 1
    seen: dict[int, int] = {}
    for index, step in zip(indices, step_of, strict=True):
        seen[step] = seen.get(step, 0) + 1
        known = issued.told[index]
        yield _Traced(
            row=int(issued.rows[index]),
            operation=known.name,
            moved_bytes=known.bytes,
            step=step,
            place=CollectiveInStep(number=seen[step], of=counts[step]),
        )


def _is_of_group(known: KnownCollective, group: GroupName) -> bool:
    """By its name, which all ranks agree on, else by its description."""
    if known.group.name:
        return known.group.name == group.name
    return bool(group.description) and known.group.description == group.description


def _label(trace: Trace, step: int) -> str:
    """The label of a step; "" in a trace without steps."""
    names = steps_of(trace).names
    return labels_of(names)[step] if names else ""


def _around(trace: Trace, row: int) -> tuple[str, ...]:
    """The names of what issued a collective and of what is around that, innermost first,
    each once."""
    names = (trace.name_of(each) for each in launch_chain(trace, row))
    return tuple(dict.fromkeys(names))
