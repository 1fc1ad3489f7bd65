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


class Signature(msgspec.Struct, frozen=True):
    """What a dump and a trace both say of a collective."""

    operation: str  # all_reduce
    moved_bytes: int  # UNKNOWN_BYTES where one of the two does not say it

    def is_like(self, other: Signature) -> bool:
        """Whether both can be the same collective."""
        if _plain(self.operation) != _plain(other.operation):
            return False
        sizes = (self.moved_bytes, other.moved_bytes)
        return UNKNOWN_BYTES in sizes or sizes[0] == sizes[1]


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
    signature: Signature
    step: int  # index; -1 outside of all steps
    place: CollectiveInStep


def in_trace(
    answer: HangAnswer, dumps: FlightDumps, trace: Trace, path: str
) -> InTrace | None:
    """The first collective of the answer in which ranks wait, in a trace of the same
    job; None if they wait in none.

    A trace and a dump rarely cover the same time, so the numbers of the collectives do
    not help. What does is their order: the last collectives that a waiting rank issued
    in the group are sought in the trace, as many of them as agree there. If all places
    where the longest run agrees are the same place of a step, it is found.
    """
    wait = next((wait for wait in answer.waits if not wait.is_p2p), None)
    if wait is None:
        return None
    absent = InTrace(path=path, group=wait.group, sequence=wait.sequence)
    traced = _of_group(trace, wait.group)
    if not traced:
        return msgspec.structs.replace(absent, reason="no_group")
    issued = _issued_up_to(dumps, wait)
    lengths = [
        _agreeing(issued, traced[: end + 1]) if one.step >= 0 else 0
        for end, one in enumerate(traced)
    ]
    longest = max(lengths)
    if not longest:
        return msgspec.structs.replace(absent, reason="not_recorded")
    best = [
        one for one, length in zip(traced, lengths, strict=True) if length == longest
    ]
    places = {one.place for one in best}
    if len(places) > 1:
        return msgspec.structs.replace(
            absent, reason="several_places", places=len(places), agreeing=longest
        )
    last = best[-1]
    return msgspec.structs.replace(
        absent,
        row=last.row,
        name=trace.name_of(last.row),
        step=_label(trace, last.step),
        place=last.place,
        places=1,
        agreeing=longest,
        issued_by=_around(trace, last.row),
    )


def _agreeing(issued: Sequence[Signature], traced: Sequence[_Traced]) -> int:
    """How many of the last collectives of both agree, one by one from the end."""
    count = 0
    for one, other in zip(reversed(issued), reversed(traced), strict=False):
        if not one.is_like(other.signature):
            break
        count += 1
    return count


def _issued_up_to(dumps: FlightDumps, wait: Wait) -> list[Signature]:
    """What the first waiting rank issued in the group, up to the collective in which it
    waits."""
    entries = dumps.entries
    ranks = np.array([dump.rank for dump in dumps.ranks])
    is_wanted = ranks[entries.dump] == wait.example.rank
    is_wanted &= entries.group == dumps.groups.index(wait.group)
    is_wanted &= ~entries.is_p2p & (entries.sequence <= wait.sequence)
    rows = np.flatnonzero(is_wanted)
    in_order = rows[np.argsort(entries.sequence[rows], kind="stable")]
    return [_signature_in_dump(dumps, row) for row in in_order.tolist()]


def _signature_in_dump(dumps: FlightDumps, row: int) -> Signature:
    entries = dumps.entries
    operation = kind_of(dumps.operations[entries.operation[row]])
    side = entries.outputs if operation in SIZED_BY_OUTPUT else entries.inputs
    return Signature(
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
            signature=Signature(operation=known.name, moved_bytes=known.bytes),
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
