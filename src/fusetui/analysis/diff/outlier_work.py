"""Creates rows for work that only one step has or lacks; each row names the step.

An *odd step* is one that does other work than the representative step of its side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from fusetui.analysis.diff.blocks import consecutive_runs
from fusetui.analysis.diff.fusion import Collector, collector_of
from fusetui.analysis.diff.groups import WorkGroup, known_names, paired_items
from fusetui.analysis.diff.instances import MAX_PIECES_OF_OP
from fusetui.analysis.diff.items import NO_OP, OP_SHIFT, WorkItems
from fusetui.analysis.diff.model import Row, RowKind, RowShare, row_of
from fusetui.analysis.diff.sequences import (
    are_similar_times,
    closest,
    is_feasible,
    match,
)
from fusetui.text.figures import plural
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key, grouped

MAX_PIECES_FOR_FUSION = 16
"""A step that differs in more pieces is not searched for fused kernels."""

MAX_KINDS_OF_WORK = 8
"""A step that differs in more kinds of work than this is one row."""

NO_PIECE = -1
"""The piece of an item that an odd step lacks; also its row in that step."""

ANY_STEP = -1
"""The step of work if the n-th steps of both sides have nothing in common."""


class OddStep(msgspec.Struct, frozen=True, eq=False):
    """A step whose work is not that of the usual ones.

    Its pieces are counted from 0. The items are the pieces of the representative step.
    """

    index: int  # of the step
    missing_items: list[int]  # the items that it lacks, ascending
    extra_pieces: list[int]  # its pieces that are none of the items, ascending
    piece_of_item: Rows  # one per item, NO_PIECE if it lacks the item
    expected_ns: list[int]  # the time that each item would take in it


def odd_steps(items: WorkItems, other_side: WorkItems) -> Iterator[OddStep]:
    """Yield the steps of a side that do other work than the representative one."""
    all_steps = np.arange(len(items.work.windows))
    for step in np.setdiff1d(all_steps, items.alike_steps).tolist():
        yield _odd_step(items, step, _expected_times(items, other_side, step))


def _odd_step(items: WorkItems, step: int, expected_ns: list[int]) -> OddStep:
    """Compare the work of an odd step with that of the representative step.

    Args:
        items: The items (kernels and copies) of the representative step of the side.
        step: The index of the odd step.
        expected_ns: The time that each item would take in it.
    """
    work = items.work
    pieces = work.slice_of_window(step)
    usual_keys = items.keys_of(work.slice_of_window(items.representative_step))
    odd_keys = items.keys_of(pieces)
    usual = _TimedPieces(keys=usual_keys, ns=expected_ns)
    odd = _TimedPieces(keys=odd_keys, ns=work.ns[pieces].tolist())

    pairs = match(usual_keys, odd_keys)
    missing_items = _without_partner(usual, odd, paired={item for item, _ in pairs})
    extra_pieces = _without_partner(odd, usual, paired={piece for _, piece in pairs})
    return OddStep(
        index=step,
        missing_items=missing_items,
        extra_pieces=extra_pieces,
        piece_of_item=_piece_of_item(usual_keys, odd_keys, missing_items, extra_pieces),
        expected_ns=expected_ns,
    )


def _expected_times(items: WorkItems, other_side: WorkItems, step: int) -> list[int]:
    """Return the time that each item of a side would take in one of its steps (ns).

    A step may be slow or fast as a whole. So the time of an item is its time in the
    same step of the other side, if both sides have equally many steps and the same
    usual work, and the other side does that work in this step. Else it is its usual
    time.
    """
    has_as_many_steps = len(items.work.windows) == len(other_side.work.windows)
    has_same_work = np.array_equal(items.exact_keys, other_side.exact_keys)
    is_this_step = other_side.alike_steps == step  # one flag per row of `samples`
    if not has_as_many_steps or not has_same_work or not is_this_step.any():
        return items.times

    (times_in_step,) = other_side.samples[is_this_step].tolist()
    return [*times_in_step]


def rows_by_step(items: WorkItems, other_side: WorkItems) -> Rows:
    """Return the row of the event of each item in every step of a side.

    Returns:
        Rows of the trace, [steps, items]; -1 where a step lacks the item.
    """
    work = items.work
    rows = np.full((len(work.windows), len(items)), NO_PIECE, dtype=np.intp)
    for step in items.alike_steps.tolist():
        rows[step] = work.row[work.slice_of_window(step)]

    for odd in odd_steps(items, other_side):
        rows_of_step = work.row[work.slice_of_window(odd.index)]
        has_item = odd.piece_of_item != NO_PIECE
        rows_of_items = rows_of_step[odd.piece_of_item]
        rows[odd.index] = np.where(has_item, rows_of_items, NO_PIECE)
    return rows


def _piece_of_item(
    usual_keys: Int64s,
    odd_keys: Int64s,
    missing_items: list[int],
    extra_pieces: list[int],
) -> Rows:
    """Find the kernel of an odd step that does the work of each kernel of a usual one.

    The n-th kernel with a key in one step is the n-th kernel with this key in the
    other, without counting those that only one of the steps has.

    >>> usual, odd = np.array([7, 8, 7, 9]), np.array([8, 7, 6, 7])
    >>> _piece_of_item(usual, odd, missing_items=[3], extra_pieces=[2]).tolist()
    [1, 0, 3, -1]

    Args:
        usual_keys: The key of each item, which is a kernel of the usual step.
        odd_keys: The key of each piece, which is a kernel of the odd step.
        missing_items: The items that the odd step lacks.
        extra_pieces: The pieces that the usual step lacks.

    Returns:
        The index of a piece for each item, NO_PIECE for missing items. All are NO_PIECE
        if the steps differ by more than these items and pieces.
    """
    piece_of_item = np.full(len(usual_keys), NO_PIECE, dtype=np.intp)
    common_items = np.setdiff1d(np.arange(len(usual_keys)), missing_items)
    common_pieces = np.setdiff1d(np.arange(len(odd_keys)), extra_pieces)

    items_by_key = common_items[grouped(usual_keys[common_items]).order]
    pieces_by_key = common_pieces[grouped(odd_keys[common_pieces]).order]
    if np.array_equal(usual_keys[items_by_key], odd_keys[pieces_by_key]):
        piece_of_item[items_by_key] = pieces_by_key
    return piece_of_item


class _TimedPieces(msgspec.Struct, frozen=True, eq=False):
    """The pieces of a step, one entry per piece."""

    keys: Int64s
    ns: list[int]  # their times


def _without_partner(
    own: _TimedPieces, other: _TimedPieces, *, paired: set[int]
) -> list[int]:
    """Return the kernels of one step that have no partner in the other step.

    An alignment by keys alone is arbitrary among neighbors with equal keys
    (`_ambiguous_pieces`). Then times decide: if one step runs a kernel for 10 and 50 us
    and the other one only for 49 us, the one of 10 us has no partner, whichever the
    alignment left out.

    Args:
        own: The pieces (kernels) of one step.
        other: The pieces of the other step.
        paired: The indices of the pieces of `own` that the alignment paired.

    Returns:
        Indices of pieces of `own`, ascending.
    """
    unpaired = [piece for piece in range(len(own.keys)) if piece not in paired]
    ambiguous = _ambiguous_pieces(own.keys, unpaired)
    certain = set(unpaired).difference(ambiguous)
    for key in {int(own.keys[piece]) for piece in ambiguous}:
        pieces_of_key = np.flatnonzero(own.keys == key).tolist()
        candidates = [piece for piece in pieces_of_key if piece not in certain]
        partners = np.flatnonzero(other.keys == key).tolist()
        has_fewer_partners = len(partners) < len(candidates)
        if has_fewer_partners and is_feasible(len(partners), len(candidates)):
            unpaired = [piece for piece in unpaired if piece not in candidates]
            unpaired += _not_closest(own, candidates, other, partners)
    return sorted(unpaired)


def _not_closest(
    own: _TimedPieces, candidates: list[int], other: _TimedPieces, partners: list[int]
) -> list[int]:
    """Return the candidates that remain when partners are paired by their times.

    Each partner is paired, in order, with the candidate whose time is the closest.

    Args:
        own: The pieces of one step.
        candidates: Some of these pieces.
        other: The pieces of the other step.
        partners: Some of these pieces, fewer than there are candidates.
    """
    partners_ns = [other.ns[piece] for piece in partners]
    candidates_ns = [own.ns[piece] for piece in candidates]
    positions = closest(partners_ns, candidates_ns)
    with_partner = {candidates[position] for position in positions}
    return [piece for piece in candidates if piece not in with_partner]


def _ambiguous_pieces(keys: Int64s, unpaired: list[int]) -> list[int]:
    """Return the pieces without a partner that might as well be their neighbors.

    These are the pieces of a run that could be one position earlier or later, because
    the keys that remain would be the same.

    >>> _ambiguous_pieces(np.array([5, 6, 6, 7]), unpaired=[2, 3])  # 6 and 7 are left
    []
    >>> _ambiguous_pieces(np.array([5, 6, 6, 7]), unpaired=[2])  # or the 6 before it
    [2]

    Args:
        keys: The keys of the pieces of a step.
        unpaired: The indices of the pieces without a partner, ascending.
    """
    ambiguous: list[int] = []
    for first, last in consecutive_runs(np.array(unpaired, dtype=np.intp)):
        may_be_earlier = first > 0 and keys[first - 1] == keys[last]
        may_be_later = last + 1 < len(keys) and keys[last + 1] == keys[first]
        if may_be_earlier or may_be_later:
            ambiguous += range(first, last + 1)
    return ambiguous


class OutlierPiece(msgspec.Struct, frozen=True):
    """A piece of work that a step has and usual steps lack, or the reverse."""

    step: int  # the index of the step
    missing: bool  # the step lacks it, and usual steps have it
    row: int  # of the trace; if it is missing, in the representative step
    ns: int
    key: int  # its exact key: the same kernel under the same op
    gap: int  # how many pieces of usual work come before it in the step


Pieces = Sequence[OutlierPiece]


class _KindOfPiece(msgspec.Struct, frozen=True):
    """What pieces have in common that cancel out if both sides have them."""

    step: int  # ANY_STEP if the n-th steps of both sides have nothing in common
    missing: bool
    key: int


def rows(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[Row]:
    """Make the rows of the work that single steps of a side have or lack.

    They are not part of the sum, which is of usual steps. What is odd on both sides
    alike (in the same step, if they have equally many) is no change. Nor is what
    changed in all steps: what B does in the place of a kernel counts as that kernel,
    and what only one side has in all steps has a row already.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        groups: Which items do the same work.

    Returns:
        The rows about A first.
    """
    key_in_a = _replaced_key_in_a(a, b, groups)
    keys_with_row = _keys_of_one_side(a, b, groups)
    has_same_steps = len(a.work.windows) == len(b.work.windows)

    def kind_of(piece: OutlierPiece) -> _KindOfPiece:
        return _KindOfPiece(
            step=piece.step if has_same_steps else ANY_STEP,
            missing=piece.missing,
            key=key_in_a.get(piece.key, piece.key),
        )

    pieces_a = [piece for piece in _pieces(a, b) if piece.key not in keys_with_row]
    pieces_b = [piece for piece in _pieces(b, a) if piece.key not in keys_with_row]
    by_kind_a = by_key(pieces_a, kind_of)
    by_kind_b = by_key(pieces_b, kind_of)
    surplus_of_a = _surplus_pieces(own=by_kind_a, other=by_kind_b)
    surplus_of_b = _surplus_pieces(own=by_kind_b, other=by_kind_a)
    return [
        *_rows_of_side(a, surplus_of_a, "A"),
        *_rows_of_side(b, surplus_of_b, "B"),
    ]


def _surplus_pieces(
    *,
    own: dict[_KindOfPiece, list[OutlierPiece]],
    other: dict[_KindOfPiece, list[OutlierPiece]],
) -> Pieces:
    """Return the pieces that one side has more of; of each kind, the last ones."""
    surplus: list[OutlierPiece] = []
    for kind, members in own.items():
        count_on_other_side = len(other.get(kind, ()))
        surplus += members[count_on_other_side:]
    return surplus


def _replaced_key_in_a(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> dict[int, int]:
    """Return which work of A the work that only B has replaces.

    Returns:
        {exact key that only B has: the exact key in A}, if all pairs of that key
        replace the same work.
    """
    items_a, items_b = paired_items(groups)
    keys_before = a.exact_keys[items_a].tolist()
    keys_after = b.exact_keys[items_b].tolist()
    replaced_by_key: defaultdict[int, set[int]] = defaultdict(set)
    for before, after in zip(keys_before, keys_after, strict=True):
        replaced_by_key[after].add(before)

    keys_of_a = set(a.exact_keys.tolist())
    key_in_a = {}
    for after, replaced_keys in replaced_by_key.items():
        if len(replaced_keys) == 1 and after not in keys_of_a:
            key_in_a[after] = min(replaced_keys)
    return key_in_a


def _keys_of_one_side(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> set[int]:
    """Return the exact keys of work that only one side has, in its usual steps.

    It has no counterpart, and the other side has it in none of its steps.
    """
    only_in_a: set[int] = set()
    only_in_b: set[int] = set()
    for group in groups:
        if not group.b:
            only_in_a.update(int(a.exact_keys[item]) for item in group.a)
        if not group.a:
            only_in_b.update(int(b.exact_keys[item]) for item in group.b)
    only_in_a.difference_update(b.exact_keys_of_all_steps.tolist())
    only_in_b.difference_update(a.exact_keys_of_all_steps.tolist())
    return only_in_a | only_in_b


def _pieces(items: WorkItems, other_side: WorkItems) -> Iterator[OutlierPiece]:
    """Yield what differs in each odd step of a side.

    What only runs at another position is left out: a piece that the step lacks and one
    that it has in addition, of the same kernel under the same op, that take about as
    long. Missing work is assumed to take the expected time.
    """
    for odd in odd_steps(items, other_side):
        extra_pieces = list(odd.extra_pieces)
        for item in odd.missing_items:
            piece = _at_another_position(items, odd, item, extra_pieces)
            if piece is None:
                yield _missing_piece(items, odd, item)
            else:
                extra_pieces.remove(piece)
        for piece in extra_pieces:
            yield _extra_piece(items, odd, piece)


def _at_another_position(
    items: WorkItems, odd: OddStep, item: int, extra_pieces: list[int]
) -> int | None:
    """Return the extra piece of an odd step that is an item which it seems to lack.

    Of the pieces of the same kernel under the same op that take about as long, it is
    the one whose time is the closest.

    Args:
        items: The items (kernels and copies) of the representative step of a side.
        odd: One of its odd steps.
        item: An item that the step lacks.
        extra_pieces: Pieces of the step that are none of the items.

    Returns:
        None if there is no such piece.
    """
    pieces = items.work.slice_of_window(odd.index)
    keys = items.exact_keys_of_all_steps[pieces]
    ns = items.work.ns[pieces]
    expected_ns = odd.expected_ns[item]
    distance_ns = {}
    for piece in extra_pieces:
        is_same_kernel = keys[piece] == items.exact_keys[item]
        if is_same_kernel and are_similar_times(ns[piece], expected_ns):
            distance_ns[piece] = abs(int(ns[piece]) - expected_ns)
    return min(distance_ns, key=distance_ns.__getitem__, default=None)


def _missing_piece(items: WorkItems, odd: OddStep, item: int) -> OutlierPiece:
    """Describe an item that an odd step lacks."""
    has_item = odd.piece_of_item != NO_PIECE
    items_before = int(has_item[:item].sum())
    return OutlierPiece(
        step=odd.index,
        missing=True,
        row=int(items.row[item]),
        ns=odd.expected_ns[item],
        key=int(items.exact_keys[item]),
        gap=items_before,
    )


def _extra_piece(items: WorkItems, odd: OddStep, piece: int) -> OutlierPiece:
    """Describe a piece that an odd step has and the representative step lacks."""
    work = items.work
    pieces = work.slice_of_window(odd.index)
    has_item = odd.piece_of_item != NO_PIECE
    is_before = has_item & (odd.piece_of_item < piece)
    return OutlierPiece(
        step=odd.index,
        missing=False,
        row=int(work.row[pieces][piece]),
        ns=int(work.ns[pieces][piece]),
        key=int(items.exact_keys_of_all_steps[pieces][piece]),
        gap=int(is_before.sum()),
    )


def _rows_of_side(items: WorkItems, pieces: Pieces, side: str) -> list[Row]:
    """Make the rows of the pieces of one side.

    Rows of ops that have other kernels in a step come first, then those of fused
    kernels, then the rest. The rest is one row for each exact key in each step. If a
    step has or lacks more than MAX_KINDS_OF_WORK keys, it is one row for all of them.

    Args:
        items: The items (kernels and copies) of the representative step of the side.
        pieces: The pieces that the other side does not have.
        side: `A` or `B`.
    """
    replaced = _replaced_kernels(items, pieces, side)
    fused = _fused_kernels(items, replaced.rest, side)
    rows = [*replaced.rows, *fused.rows]
    by_step = by_key(fused.rest, lambda piece: (piece.step, piece.missing))
    for members in by_step.values():
        pieces_by_key = by_key(members, lambda piece: piece.key)
        if len(pieces_by_key) > MAX_KINDS_OF_WORK:
            rows.append(_row_of_pieces(items, members, side, are_many=True))
            continue
        for pieces_of_key in pieces_by_key.values():
            rows.append(_row_of_pieces(items, pieces_of_key, side, are_many=False))
    return rows


class _RowsAndRest(msgspec.Struct, frozen=True):
    """Rows, and the pieces that are not in them."""

    rows: list[Row]
    rest: Pieces


def _replaced_kernels(items: WorkItems, pieces: Pieces, side: str) -> _RowsAndRest:
    """Make a row for each call of an op that has other kernels in one step than usual.

    Args:
        items: The items (kernels and copies) of the representative step of the side.
        pieces: Pieces of the side.
        side: `A` or `B`.
    """
    rows: list[Row] = []
    rest: list[OutlierPiece] = []
    for members in _pieces_by_call(pieces):
        extra = [piece for piece in members if not piece.missing]
        missing = [piece for piece in members if piece.missing]
        if _are_other_kernels(extra, missing):
            rows.append(_row_of_other_kernels(items, extra, missing, side))
        else:
            rest += [*extra, *missing]
    return _RowsAndRest(rows=rows, rest=rest)


def _are_other_kernels(extra: Pieces, missing: Pieces) -> bool:
    """Return whether a call of an op ran a few other kernels instead of the usual ones.

    So it is if one kernel runs instead of another, and not if the same kernel runs at
    another position: then it is among both.

    Args:
        extra: The kernels that the call ran and usually does not run.
        missing: The kernels that it usually runs, and did not run this time.
    """
    is_exchange = len(extra) > 0 and len(missing) > 0
    if not is_exchange or len(extra) + len(missing) > MAX_KINDS_OF_WORK:
        return False

    has_op = _op_id(extra[0]) != NO_OP
    extra_keys = {piece.key for piece in extra}
    return has_op and extra_keys.isdisjoint(piece.key for piece in missing)


def _op_id(piece: OutlierPiece) -> int:
    """Return the id of the op of a piece, NO_OP for none."""
    return piece.key >> OP_SHIFT


def _pieces_by_call(pieces: Pieces) -> Iterator[list[OutlierPiece]]:
    """Yield the pieces of each call of an op in each step.

    If more than MAX_PIECES_OF_OP pieces of usual work lie between two pieces of an op,
    these are taken for two calls.
    """
    by_op = by_key(pieces, lambda piece: (piece.step, _op_id(piece)))
    for members in by_op.values():
        members.sort(key=lambda piece: piece.gap)
        usual_pieces_between = np.diff([piece.gap for piece in members])
        is_next_call = usual_pieces_between > MAX_PIECES_OF_OP
        cuts = (np.flatnonzero(is_next_call) + 1).tolist()
        for first, last in pairwise([0, *cuts, len(members)]):
            yield members[first:last]


def _fused_kernels(items: WorkItems, pieces: Pieces, side: str) -> _RowsAndRest:
    """Make a row for each kernel that does the work of several in one step.

    The name of the kernel lists ops. The several are the pieces of these ops, in a row,
    that the step lacks. The reverse counts too: the step lacks the kernel, and has the
    several pieces instead.

    Args:
        items: The items (kernels and copies) of the representative step of the side.
        pieces: Pieces of the side.
        side: `A` or `B`.
    """
    rows: list[Row] = []
    in_rows: set[OutlierPiece] = set()
    for members in by_key(pieces, lambda piece: piece.step).values():
        members.sort(key=lambda piece: piece.row)
        if len(members) > MAX_PIECES_FOR_FUSION:
            continue
        for fusion in _fusions_of_step(items.trace, members):
            row = _row_of_other_kernels(items, fusion.extra, fusion.missing, side)
            rows.append(row)
            in_rows.update(fusion.extra, fusion.missing)
    rest = [piece for piece in pieces if piece not in in_rows]
    return _RowsAndRest(rows=rows, rest=rest)


class _Fusion(msgspec.Struct, frozen=True):
    """Pieces of a step that do the work of others that the step lacks."""

    extra: Pieces
    missing: Pieces


def _fusions_of_step(trace: Trace, members: Pieces) -> Iterator[_Fusion]:
    """Yield the kernels of a step that do the work of several others, or the reverse.

    No piece is part of two kernels.

    Args:
        trace: The trace.
        members: The pieces that the step has or lacks, in the order of their rows.
    """
    used_pieces: set[OutlierPiece] = set()
    for kernel in members:
        collector = collector_of(trace.name_of(kernel.row))
        if collector is None:
            continue
        opposite_pieces = []
        for piece in members:
            if piece.missing != kernel.missing and piece not in used_pieces:
                opposite_pieces.append(piece)
        parts = _parts_on_list(trace, opposite_pieces, collector)
        if not parts:
            continue
        used_pieces.update(parts)
        if kernel.missing:
            yield _Fusion(extra=parts, missing=[kernel])
        else:
            yield _Fusion(extra=[kernel], missing=parts)


def _parts_on_list(trace: Trace, pieces: Pieces, collector: Collector) -> Pieces:
    """Return the first pieces in a row whose ops are on the list of a kernel.

    Returns:
        An empty sequence if they are fewer than two or than the list requires, or if
        none is an op of its core.
    """
    parts: list[OutlierPiece] = []
    has_core = False
    for piece in pieces:
        op = int(trace.op[piece.row])
        listed_names = known_names(trace, op) & collector.ops
        if listed_names:
            parts.append(piece)
            has_core |= bool(listed_names & collector.core)
        elif parts:
            break
    is_enough = len(parts) >= max(collector.min_pieces, 2)
    return parts if is_enough and has_core else ()


def _row_of_other_kernels(
    items: WorkItems, extra: Pieces, missing: Pieces, side: str
) -> Row:
    """Make the row of a step that does its work with other kernels than usual.

    The step's own kernels stand on its side, with their rows of the trace, and the
    usual kernels on the other side, without rows. A step of B that runs one kernel
    instead of the usual three gives a row with three kernels of A and one of B: FUSED.

    Args:
        items: The items of the side of the step.
        extra: The kernels that the step runs instead of the usual ones.
        missing: The usual kernels that they replace.
        side: `A` or `B`.
    """
    share_of_step = _with_rows(_share_of_pieces(items, extra), extra)
    usual_share = _share_of_pieces(items, missing)
    if side == "A":
        a = share_of_step
        b = usual_share
    else:
        a = usual_share
        b = share_of_step

    if a.count == b.count:
        kind = RowKind.REPLACED
    elif a.count > b.count:
        kind = RowKind.FUSED
    else:
        kind = RowKind.SPLIT
    op = _op_name(items.trace, extra[0])
    why = _only_in_step(items, extra[0], side)
    return row_of(kind, op, a, b, why, counts=False)


def _row_of_pieces(
    items: WorkItems, pieces: Pieces, side: str, *, are_many: bool
) -> Row:
    """Make the row of kernels that a step has in addition, or that a step lacks.

    B has more of such work, and the row is ADDED, if a step of B has it in addition or
    if a step of A lacks it. Else it is REMOVED.

    Args:
        items: The items of the side that the step belongs to.
        pieces: Pieces of one step: all of them are missing, or none is.
        side: `A` or `B`.
        are_many: Whether the row says how many pieces they are, instead of their op.

    Returns:
        A row with the rows of the trace on the side of the step, even if that side has
        less of the work: a missing kernel is shown in the representative step.
    """
    is_missing = pieces[0].missing
    is_of_a = side == "A"
    is_more_in_b = is_missing == is_of_a
    work = _share_of_pieces(items, pieces)
    share_of_a = RowShare() if is_more_in_b else work
    share_of_b = work if is_more_in_b else RowShare()
    if is_of_a:
        share_of_a = _with_rows(share_of_a, pieces)
    else:
        share_of_b = _with_rows(share_of_b, pieces)

    op = _op_name(items.trace, pieces[0])
    what = f"{plural(len(pieces), 'piece')} of work" if are_many else op
    where = _only_in_step(items, pieces[0], side)
    return row_of(
        RowKind.ADDED if is_more_in_b else RowKind.REMOVED,
        what,
        share_of_a,
        share_of_b,
        f"missing {where}" if is_missing else where,
        counts=False,
    )


def _op_name(trace: Trace, piece: OutlierPiece) -> str:
    """Return the name of the op of a piece; "" when unknown."""
    op = int(trace.op[piece.row])
    return trace.name_of(op) if op >= 0 else ""


def _only_in_step(items: WorkItems, piece: OutlierPiece, side: str) -> str:
    """Say in which step the piece is: `only in step 12 of B`."""
    return f"only in step {items.work.windows.labels[piece.step]} of {side}"


def _share_of_pieces(items: WorkItems, pieces: Pieces) -> RowShare:
    """Add up the times of kernels of one step, and list their names; without rows."""
    ns = sum(piece.ns for piece in pieces)
    return RowShare(
        names=[items.trace.name_of(piece.row) for piece in pieces],
        ns=ns,
        count=len(pieces),
        median_ns=ns,  # of one step
    )


def _with_rows(share: RowShare, pieces: Pieces) -> RowShare:
    """Add the rows of the trace that the app shows for these pieces."""
    rows = tuple(piece.row for piece in pieces)
    return msgspec.structs.replace(share, rows=rows)
