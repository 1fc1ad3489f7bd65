"""Finds the collective at which the dumps end in an earlier trace of the same job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
import numpy as np

from fusetui.analysis.hang.mismatches import read_operation_kind
from fusetui.analysis.hang.model import HangAnswer, Wait
from fusetui.analysis.questions.chain import find_launch_chain
from fusetui.analysis.questions.collectives import (
    IssuedCollectives,
    KnownCollective,
    find_collectives,
)
from fusetui.gpu.dtypes import scalar_bytes
from fusetui.trace.flight.columns import FlightDumps, GroupName, Tensors
from fusetui.trace.layout.steps import labels_of, steps_of
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.columns import Trace

UNKNOWN_BYTES = -1
SIZED_BY_OUTPUT = ("all_gather", "gather")
"""A trace records the size of the output of these collectives, and of the input of all
others; see `find_collectives`."""

Reason = Literal[
    "",  # it was found
    "no_group",  # the trace has no collective of the group
    "not_recorded",  # no collective of the group in the trace is like it
    "several_places",  # the collectives before it do not tell several places apart
]


class _DumpedCollective(msgspec.Struct, frozen=True):
    """A collective as a dump records it."""

    operation: str  # all_reduce
    moved_bytes: int  # UNKNOWN_BYTES where it is not known


class _Signatures(msgspec.Struct, frozen=True, eq=False):
    """What both a dump and a trace say of collectives, in the order of their issue.

    Both arrays have one element per collective.
    """

    operation: Int64s  # an index for each name, the same in the dump and in the trace
    moved_bytes: Int64s  # UNKNOWN_BYTES where it is not known

    def __len__(self) -> int:
        return len(self.operation)

    def are_like(self, indices: Rows, other: _Signatures, other_index: int) -> Flags:
        """Decide which of these collectives may be the same as a certain other one.

        The operation must be the same, and the size too where both are known.

        Args:
            indices: The indices of the collectives to compare.
            other: The signatures of other collectives.
            other_index: The index of the one in `other` to compare with.

        Returns:
            One flag for each of `indices`.
        """
        moved_bytes = self.moved_bytes[indices]
        other_bytes = other.moved_bytes[other_index]
        has_both_sizes = (moved_bytes != UNKNOWN_BYTES) & (other_bytes != UNKNOWN_BYTES)
        has_other_size = has_both_sizes & (moved_bytes != other_bytes)

        is_same_operation = self.operation[indices] == other.operation[other_index]
        return np.asarray(is_same_operation & ~has_other_size)


def _number_operations(
    collectives: Sequence[_DumpedCollective | _TracedCollective],
) -> dict[str, int]:
    """Number the operations of some collectives, by the one spelling of their names."""
    number_of_name: dict[str, int] = {}
    for collective in collectives:
        name = _unify_spelling(collective.operation)
        number_of_name.setdefault(name, len(number_of_name))
    return number_of_name


def _make_signatures(
    collectives: Sequence[_DumpedCollective | _TracedCollective],
    number_of_operation: dict[str, int],
) -> _Signatures:
    """Make the signatures by which collectives of a dump and of a trace are compared.

    A signature is the operation, as a number, and the bytes that it moves.

    Args:
        collectives: The collectives.
        number_of_operation: The number of each of their operations; see
            `_number_operations`.
    """
    operations = [
        number_of_operation[_unify_spelling(collective.operation)]
        for collective in collectives
    ]
    moved_bytes = [collective.moved_bytes for collective in collectives]
    return _Signatures(
        operation=np.array(operations, dtype=np.int64),
        moved_bytes=np.array(moved_bytes, dtype=np.int64),
    )


def _unify_spelling(operation: str) -> str:
    """Return one spelling for a name that torch spells in several ways.

    `allgatherbase` stands for both `_allgather_base` and `_all_gather_base`.
    """
    return operation.replace("_", "")


class CollectiveInStep(msgspec.Struct, frozen=True):
    """A place of the program: one of the collectives of a group in a step.

    It is the `number`-th, from 1, of the `of` collectives that are issued in the step.
    In a trace without steps the whole trace counts as one.
    """

    number: int
    of: int


class InTrace(msgspec.Struct, frozen=True):
    """The collective in which ranks wait, as it ran in an earlier step of a trace.

    `row` is that slice. If none was found, it is -1, and `reason` says why.
    """

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


class _TracedCollective(msgspec.Struct, frozen=True):
    """A collective of the group as a trace records it."""

    row: int
    operation: str
    moved_bytes: int  # UNKNOWN_BYTES where it is not known
    step: int  # index; -1 outside of all steps
    place: CollectiveInStep

    @property
    def is_in_step(self) -> bool:
        """Whether it was issued in a step."""
        return self.step >= 0


def find_hang_in_trace(
    answer: HangAnswer, dumps: FlightDumps, trace: Trace, path: str
) -> InTrace | None:
    """Find the collective in which ranks wait in a trace of the same job.

    A trace and a dump rarely cover the same time, so the numbers of the collectives do
    not help. What does is their order: the collectives of the group that a waiting rank
    issued last are compared with those in the trace before each place of a step. A
    place is ruled out if one of them differs before the trace or the dump begins; the
    only place that is left is the answer.

    Args:
        answer: Why the job hangs. The first collective in which ranks wait is searched.
        dumps: The dumps of the job.
        trace: The trace.
        path: The path of the trace.

    Returns:
        None if ranks wait in no collective.
    """
    waits_in_collectives = [wait for wait in answer.waits if not wait.is_p2p]
    if not waits_in_collectives:
        return None
    wait = waits_in_collectives[0]
    not_in_trace = InTrace(path=path, group=wait.group, sequence=wait.sequence)

    traced = _find_collectives_of_group(trace, wait.group)
    if not traced:
        return msgspec.structs.replace(not_in_trace, reason="no_group")

    issued = _list_issued_up_to(dumps, wait)
    number_of_operation = _number_operations([*issued, *traced])
    runs = _measure_agreeing_runs(
        _make_signatures(issued, number_of_operation),
        _make_signatures(traced, number_of_operation),
    )
    candidates = _choose_possible_collectives(traced, runs)
    if not candidates:
        return msgspec.structs.replace(not_in_trace, reason="not_recorded")

    agreeing = min(int(runs.length[index]) for index in candidates)
    if len(candidates) > 1:
        return msgspec.structs.replace(
            not_in_trace,
            reason="several_places",
            places=len(candidates),
            agreeing=agreeing,
        )

    (only_index,) = candidates
    collective = traced[only_index]
    return msgspec.structs.replace(
        not_in_trace,
        row=collective.row,
        name=trace.name_of(collective.row),
        step=_make_step_label(trace, collective.step),
        place=collective.place,
        places=1,
        agreeing=agreeing,
        issued_by=_list_issuers(trace, collective.row),
    )


class _AgreeingRuns(msgspec.Struct, frozen=True, eq=False):
    """For each collective in a trace, how well it fits the end of a dump.

    Both arrays have one element per collective in the trace.
    """

    length: Int64s  # how many in a row up to it agree with the last ones of the dump
    # whether the one before these differs, rather than that there is none
    differs: Flags


def _measure_agreeing_runs(issued: _Signatures, traced: _Signatures) -> _AgreeingRuns:
    """Compare the end of a dump with the collectives before each place of a trace.

    E.g. if the dump ends with a, b, c and the trace has x, b, c, c: the run that ends
    at the first c has length 2 and then differs (a is not x), and that at the second c
    has length 1 and then differs. All places are compared at once, going back from the
    last collective of the dump.

    Args:
        issued: The collectives of the dump, up to the one in which ranks wait.
        traced: The collectives in the trace.
    """
    length = np.zeros(len(traced), dtype=np.int64)
    differs = np.zeros(len(traced), dtype=np.bool_)

    # Indices into `traced` of the places at which all compared so far agree.
    agreeing = np.arange(len(traced))
    for back, issued_index in enumerate(reversed(range(len(issued)))):
        # Nearer to the begin of the trace there is nothing left to compare with.
        agreeing = agreeing[agreeing >= back]
        is_like = traced.are_like(agreeing - back, issued, issued_index)
        differs[agreeing[~is_like]] = True

        agreeing = agreeing[is_like]
        length[agreeing] += 1
        if not len(agreeing):
            break
    return _AgreeingRuns(length=length, differs=differs)


def _choose_possible_collectives(
    traced: Sequence[_TracedCollective], runs: _AgreeingRuns
) -> list[int]:
    """Choose one collective for each place of a step that is not ruled out.

    A place is a number in the step, such as the third collective. Steps are taken to be
    alike, so only the last step in which a place occurs counts. If all places are ruled
    out, as where steps differ, those with the longest agreeing run are returned.

    Returns:
        Indices into `traced`.
    """
    last_by_number: dict[int, int] = {}  # by the number of the place in its step
    for index, collective in enumerate(traced):
        if not collective.is_in_step:
            continue
        number = collective.place.number
        last_by_number.pop(number, None)  # a later step replaces an earlier one
        if runs.length[index] > 0:
            last_by_number[number] = index

    candidates = list(last_by_number.values())
    not_ruled_out = [index for index in candidates if not runs.differs[index]]
    if not_ruled_out or not candidates:
        return not_ruled_out
    longest = max(int(runs.length[index]) for index in candidates)
    return [index for index in candidates if runs.length[index] == longest]


def _list_issued_up_to(dumps: FlightDumps, wait: Wait) -> list[_DumpedCollective]:
    """List the collectives that the first waiting rank issued in the group of a wait,
    in order.

    The last one is the collective in which the rank waits.
    """
    entries = dumps.entries
    rank_of_dump = np.array([dump.rank for dump in dumps.ranks])
    is_of_rank = rank_of_dump[entries.dump] == wait.example.rank
    is_of_group = entries.group == dumps.groups.index(wait.group)
    is_collective = ~entries.is_p2p
    is_early_enough = entries.sequence <= wait.sequence

    rows = np.flatnonzero(is_of_rank & is_of_group & is_collective & is_early_enough)
    in_order = rows[np.argsort(entries.sequence[rows], kind="stable")]
    return [_read_collective(dumps, row) for row in in_order.tolist()]


def _read_collective(dumps: FlightDumps, row: int) -> _DumpedCollective:
    """Read from an entry of a dump the operation of a collective and how many bytes it
    moves.

    The bytes are those of the outputs for operations such as all_gather, and else of
    the inputs.
    """
    entries = dumps.entries
    operation = read_operation_kind(dumps.operations[entries.operation[row]])
    if operation in SIZED_BY_OUTPUT:
        tensors = dumps.tensors[entries.outputs[row]]
    else:
        tensors = dumps.tensors[entries.inputs[row]]
    return _DumpedCollective(operation=operation, moved_bytes=_count_bytes(tensors))


def _count_bytes(tensors: Tensors) -> int:
    """Count the bytes of all elements of some tensors.

    Returns UNKNOWN_BYTES if they are of several dtypes, or of an unknown one.
    """
    if len(set(tensors.dtypes)) != 1:
        return UNKNOWN_BYTES
    element_bytes = scalar_bytes(tensors.dtypes[0])
    if not element_bytes:
        return UNKNOWN_BYTES
    return tensors.element_count * element_bytes


def _find_collectives_of_group(
    trace: Trace, group: GroupName
) -> list[_TracedCollective]:
    """Find the collectives of a process group in a trace, in the order of their issue.

    Sends and receives are left out. In a trace without steps, all count as of one step.
    """
    issued = find_collectives(trace)
    indices = []
    for index, collective in enumerate(issued.collectives):
        is_message = collective.name.startswith(("send", "recv"))
        if _is_of_group(collective, group) and not is_message:
            indices.append(index)

    steps = steps_of(trace)
    if len(steps):
        step_of_collective = steps.at(issued.issued[indices]).tolist()
    else:
        step_of_collective = [0] * len(indices)
    return list(_number_in_steps(issued, indices, step_of_collective))


def _number_in_steps(
    issued: IssuedCollectives, indices: Sequence[int], step_of_collective: Sequence[int]
) -> Iterable[_TracedCollective]:
    """Yield collectives with their places in their steps.

    E.g. three collectives, two of step 0 and one of step 1, are number 1 of 2, number 2
    of 2, and number 1 of 1.

    Args:
        issued: All collectives of the trace.
        indices: The indices of some of these, in order.
        step_of_collective: For each of `indices` the index of its step.
    """
    total_in_step = Counter(step_of_collective)
    number_in_step: Counter[int] = Counter()
    for index, step in zip(indices, step_of_collective, strict=True):
        number_in_step[step] += 1
        collective = issued.collectives[index]
        yield _TracedCollective(
            row=int(issued.rows[index]),
            operation=collective.name,
            moved_bytes=collective.bytes,
            step=step,
            place=CollectiveInStep(number=number_in_step[step], of=total_in_step[step]),
        )


def _is_of_group(collective: KnownCollective, group: GroupName) -> bool:
    """Decide whether a collective in a trace is of a certain process group.

    The name of the group decides, because all ranks agree on it. If the trace does not
    have the name, the description does.
    """
    traced_group = collective.group
    if traced_group.name:
        return traced_group.name == group.name
    return group.description != "" and traced_group.description == group.description


def _make_step_label(trace: Trace, step: int) -> str:
    """Return the label of a step; "" in a trace without steps."""
    names = steps_of(trace).names
    return labels_of(names)[step] if names else ""


def _list_issuers(trace: Trace, row: int) -> tuple[str, ...]:
    """List the names of the slices that issued a collective, such as an op, the
    innermost first.

    Each name stands once.
    """
    names = (trace.name_of(issuer) for issuer in find_launch_chain(trace, row))
    return tuple(dict.fromkeys(names))
