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
from fusetui.analysis.diff.groups import WorkGroup, find_known_names, paired_items
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


def find_odd_steps(items: WorkItems, other_side: WorkItems) -> Iterator[OddStep]:
    """Yield each step of a side that does other work than its representative step.

    A side is one of the two traces that are compared. Its representative step is the
    step of median length among those that do the most common work.
    """
    all_steps = np.arange(len(items.work.windows))
    for step in np.setdiff1d(all_steps, items.alike_steps).tolist():
        yield _compare_odd_step(
            items, step, _estimate_item_times(items, other_side, step)
        )


def _compare_odd_step(items: WorkItems, step: int, expected_ns: list[int]) -> OddStep:
    """Compare the kernels of an odd step with those of the representative step.

    An odd step is one that does other work than usual. The result lists the items that
    it lacks, and the pieces (kernels or copies) that it has in addition.

    Args:
        items: The items (kernels and copies) of the representative step.
        step: The index of the odd step.
        expected_ns: The time (ns) that each item would take in the odd step.
    """
    work = items.work
    pieces = work.slice_of_window(step)
    usual_keys = items.keys_of(work.slice_of_window(items.representative_step))
    odd_keys = items.keys_of(pieces)
    usual = _TimedPieces(keys=usual_keys, ns=expected_ns)
    odd = _TimedPieces(keys=odd_keys, ns=work.ns[pieces].tolist())

    pairs = match(usual_keys, odd_keys)
    missing_items = _find_unpaired_pieces(
        usual, odd, paired={item for item, _ in pairs}
    )
    extra_pieces = _find_unpaired_pieces(
        odd, usual, paired={piece for _, piece in pairs}
    )
    return OddStep(
        index=step,
        missing_items=missing_items,
        extra_pieces=extra_pieces,
        piece_of_item=_match_items_to_pieces(
            usual_keys, odd_keys, missing_items, extra_pieces
        ),
        expected_ns=expected_ns,
    )


def _estimate_item_times(
    items: WorkItems, other_side: WorkItems, step: int
) -> list[int]:
    """Estimate how long each item would take in another step (ns).

    An item is a kernel or copy of the representative step of a trace. A step may be
    slow or fast as a whole. So the time of an item is its time in the same step of the
    other trace. This needs equally many steps, the same usual work, and an other trace
    that does that work in this step. Otherwise it is the usual time of the item.
    """
    has_as_many_steps = len(items.work.windows) == len(other_side.work.windows)
    has_same_work = np.array_equal(items.exact_keys, other_side.exact_keys)
    is_this_step = other_side.alike_steps == step  # one flag per row of `samples`
    if not has_as_many_steps or not has_same_work or not is_this_step.any():
        return items.times

    (times_in_step,) = other_side.samples[is_this_step].tolist()
    return [*times_in_step]


def collect_rows_by_step(items: WorkItems, other_side: WorkItems) -> Rows:
    """Return the row of the trace that holds each item in every step.

    An item is a kernel or copy of the representative step of a trace. It is looked for
    in all other steps too, also in those that do other work.

    Returns:
        Rows of the trace, of shape [steps, items]; -1 where a step lacks the item.
    """
    work = items.work
    rows = np.full((len(work.windows), len(items)), NO_PIECE, dtype=np.intp)
    for step in items.alike_steps.tolist():
        rows[step] = work.row[work.slice_of_window(step)]

    for odd in find_odd_steps(items, other_side):
        rows_of_step = work.row[work.slice_of_window(odd.index)]
        has_item = odd.piece_of_item != NO_PIECE
        rows_of_items = rows_of_step[odd.piece_of_item]
        rows[odd.index] = np.where(has_item, rows_of_items, NO_PIECE)
    return rows


def _match_items_to_pieces(
    usual_keys: Int64s,
    odd_keys: Int64s,
    missing_items: list[int],
    extra_pieces: list[int],
) -> Rows:
    """Find the kernel of an odd step that does the work of each kernel of a usual one.

    The n-th kernel with a key in one step is the n-th kernel with this key in the
    other, without counting those that only one of the steps has.

    >>> usual, odd = np.array([7, 8, 7, 9]), np.array([8, 7, 6, 7])
    >>> _match_items_to_pieces(usual, odd, missing_items=[3], extra_pieces=[2]).tolist()
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


def _find_unpaired_pieces(
    own: _TimedPieces, other: _TimedPieces, *, paired: set[int]
) -> list[int]:
    """Find the kernels of one step that have no partner in the other step.

    An alignment by keys (numbers that are equal for equal work) is arbitrary among
    neighbors with equal keys. Then times decide. Take 10 and 50 us in one step against
    49 us in the other: the one of 10 us has no partner.

    Args:
        own: The pieces (kernels) of one step.
        other: The pieces of the other step.
        paired: The indices of the pieces of `own` that the alignment paired.

    Returns:
        Indices of pieces of `own`, ascending.
    """
    unpaired = [piece for piece in range(len(own.keys)) if piece not in paired]
    ambiguous = _find_ambiguous_pieces(own.keys, unpaired)
    certain = set(unpaired).difference(ambiguous)
    for key in {int(own.keys[piece]) for piece in ambiguous}:
        pieces_of_key = np.flatnonzero(own.keys == key).tolist()
        candidates = [piece for piece in pieces_of_key if piece not in certain]
        partners = np.flatnonzero(other.keys == key).tolist()
        has_fewer_partners = len(partners) < len(candidates)
        if has_fewer_partners and is_feasible(len(partners), len(candidates)):
            unpaired = [piece for piece in unpaired if piece not in candidates]
            unpaired += _reject_closest(own, candidates, other, partners)
    return sorted(unpaired)


def _reject_closest(
    own: _TimedPieces, candidates: list[int], other: _TimedPieces, partners: list[int]
) -> list[int]:
    """Return the candidates that remain after each partner took the closest one.

    The partners are paired in order, so that the sum of the differences of time is
    least.

    Args:
        own: The pieces (kernels or copies) of one step.
        candidates: Indices of some pieces of `own`.
        other: The pieces of the other step.
        partners: Indices of some pieces of `other`, fewer than there are candidates.
    """
    partners_ns = [other.ns[piece] for piece in partners]
    candidates_ns = [own.ns[piece] for piece in candidates]
    positions = closest(partners_ns, candidates_ns)
    with_partner = {candidates[position] for position in positions}
    return [piece for piece in candidates if piece not in with_partner]


def _find_ambiguous_pieces(keys: Int64s, unpaired: list[int]) -> list[int]:
    """Find the unpaired pieces that cannot be told from their paired neighbors by keys.

    A piece is a kernel or copy of a step; equal keys mean equal work. A run of unpaired
    pieces is ambiguous if it could as well lie one position earlier or later. The
    sequence of the other keys would then be the same.

        >>> _find_ambiguous_pieces(np.array([5, 6, 6, 7]), unpaired=[2, 3])  # 6, 7 left
        []
        >>> _find_ambiguous_pieces(np.array([5, 6, 6, 7]), unpaired=[2])  # or the other 6
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
    """Make the rows of the work that single steps of a trace have or lack.

    The rows are not part of the sum that explains the change, because that sum is about
    usual steps. Three kinds of work get no row here:

        - What both traces have or lack alike; in the same step if they have equally
          many.
        - Work that B does in all steps in the place of a kernel of A.
        - Work that only one trace has, in all its steps: it has a row already.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        groups: Which items of A and B do the same work.

    Returns:
        The rows about A first.
    """
    replaced_key_in_a = _map_keys_to_replaced(a, b, groups)
    keys_of_one_side = _find_one_sided_keys(a, b, groups)
    has_same_steps = len(a.work.windows) == len(b.work.windows)

    def kind_of(piece: OutlierPiece) -> _KindOfPiece:
        return _KindOfPiece(
            step=piece.step if has_same_steps else ANY_STEP,
            missing=piece.missing,
            key=replaced_key_in_a.get(piece.key, piece.key),
        )

    pieces_a = [
        piece
        for piece in _find_differing_pieces(a, b)
        if piece.key not in keys_of_one_side
    ]
    pieces_b = [
        piece
        for piece in _find_differing_pieces(b, a)
        if piece.key not in keys_of_one_side
    ]
    by_kind_a = by_key(pieces_a, kind_of)
    by_kind_b = by_key(pieces_b, kind_of)
    surplus_of_a = _select_surplus_pieces(own=by_kind_a, other=by_kind_b)
    surplus_of_b = _select_surplus_pieces(own=by_kind_b, other=by_kind_a)
    return [
        *_make_rows_of_side(a, surplus_of_a, "A"),
        *_make_rows_of_side(b, surplus_of_b, "B"),
    ]


def _select_surplus_pieces(
    *,
    own: dict[_KindOfPiece, list[OutlierPiece]],
    other: dict[_KindOfPiece, list[OutlierPiece]],
) -> Pieces:
    """Return the pieces of one trace that are more than those of the other.

    A piece is a kernel or copy that a step has or lacks. Pieces of one kind cancel out
    between the traces. If `own` has three of a kind and `other` has two, the last one
    of `own` remains.
    """
    surplus: list[OutlierPiece] = []
    for kind, members in own.items():
        count_on_other_side = len(other.get(kind, ()))
        surplus += members[count_on_other_side:]
    return surplus


def _map_keys_to_replaced(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> dict[int, int]:
    """Return which work of A was replaced by work that only B has.

    Work is named by its exact key, a number that is equal for the same kernel under the
    same op.

    Returns:
        {exact key that only B has: exact key in A}, without keys whose pairs replace
        different work of A.
    """
    items_a, items_b = paired_items(groups)
    keys_before = a.exact_keys[items_a].tolist()
    keys_after = b.exact_keys[items_b].tolist()
    replaced_by_key: defaultdict[int, set[int]] = defaultdict(set)
    for key_before, key_after in zip(keys_before, keys_after, strict=True):
        replaced_by_key[key_after].add(key_before)

    keys_of_a = set(a.exact_keys.tolist())
    key_in_a = {}
    for key_after, replaced_keys in replaced_by_key.items():
        if len(replaced_keys) == 1 and key_after not in keys_of_a:
            key_in_a[key_after] = min(replaced_keys)
    return key_in_a


def _find_one_sided_keys(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> set[int]:
    """Return the exact keys of the usual work that only one of the two traces does.

    An exact key is a number that is equal for the same kernel under the same op. The
    work has no counterpart in its group, and no step of the other trace has its key.
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


def _find_differing_pieces(
    items: WorkItems, other_side: WorkItems
) -> Iterator[OutlierPiece]:
    """Yield the kernels and copies that the odd steps of a trace have or lack.

    An odd step does other work than usual. A kernel that merely runs at another
    position of the step is left out. It shows as one missing and one extra piece of the
    same kernel under the same op, which take about as long. Missing work is assumed to
    take its expected time.
    """
    for odd in find_odd_steps(items, other_side):
        extra_pieces = list(odd.extra_pieces)
        for item in odd.missing_items:
            piece = _find_moved_piece(items, odd, item, extra_pieces)
            if piece is None:
                yield _describe_missing_item(items, odd, item)
            else:
                extra_pieces.remove(piece)
        for piece in extra_pieces:
            yield _describe_extra_piece(items, odd, piece)


def _find_moved_piece(
    items: WorkItems, odd: OddStep, item: int, extra_pieces: list[int]
) -> int | None:
    """Find the extra piece of an odd step that is the item which it seems to lack.

    The item may run at another position of the step. So the piece has to be the same
    kernel under the same op and take about as long. Of several such pieces, the one
    with the closest time is returned.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        odd: A step of that trace that does other work.
        item: The index of an item that the step lacks.
        extra_pieces: Indices of the pieces of the step that are none of the items.

    Returns:
        The index of the piece; None if there is none.
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


def _describe_missing_item(items: WorkItems, odd: OddStep, item: int) -> OutlierPiece:
    """Describe an item that an odd step lacks.

    An item is a kernel or copy of the representative step of a trace. The row of the
    result is that of the item in the representative step, and its time is the expected
    one.
    """
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


def _describe_extra_piece(items: WorkItems, odd: OddStep, piece: int) -> OutlierPiece:
    """Describe a kernel or copy that an odd step has and the representative step lacks.

    The row and the time of the result are those in the odd step.
    """
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


def _make_rows_of_side(items: WorkItems, pieces: Pieces, side: str) -> list[Row]:
    """Make the rows of the work that single steps of one trace have or lack.

    Rows of ops that run other kernels in a step come first, then those of fused
    kernels, then the rest. The rest has one row for each step and kind of work (the
    same kernel under the same op). If a step has or lacks more than MAX_KINDS_OF_WORK
    kinds, it has one row for all of them.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        pieces: The differing pieces that the other trace does not have.
        side: `A` or `B`.
    """
    replaced = _make_rows_of_replaced_kernels(items, pieces, side)
    fused = _make_rows_of_fused_kernels(items, replaced.rest, side)
    rows = [*replaced.rows, *fused.rows]
    by_step = by_key(fused.rest, lambda piece: (piece.step, piece.missing))
    for members in by_step.values():
        pieces_by_key = by_key(members, lambda piece: piece.key)
        if len(pieces_by_key) > MAX_KINDS_OF_WORK:
            rows.append(_make_row_of_pieces(items, members, side, are_many=True))
            continue
        for pieces_of_key in pieces_by_key.values():
            rows.append(_make_row_of_pieces(items, pieces_of_key, side, are_many=False))
    return rows


class _RowsAndRest(msgspec.Struct, frozen=True):
    """Rows, and the pieces that are not in them."""

    rows: list[Row]
    rest: Pieces


def _make_rows_of_replaced_kernels(
    items: WorkItems, pieces: Pieces, side: str
) -> _RowsAndRest:
    """Make a row for each call of an op that runs other kernels in one step than usual.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        pieces: Kernels and copies that single steps of the trace have or lack.
        side: `A` or `B`.

    Returns:
        The rows, and the pieces that are in none of them.
    """
    rows: list[Row] = []
    rest: list[OutlierPiece] = []
    for members in _group_pieces_by_call(pieces):
        extra = [piece for piece in members if not piece.missing]
        missing = [piece for piece in members if piece.missing]
        if _are_other_kernels(extra, missing):
            rows.append(_make_row_of_other_kernels(items, extra, missing, side))
        else:
            rest += [*extra, *missing]
    return _RowsAndRest(rows=rows, rest=rest)


def _are_other_kernels(extra: Pieces, missing: Pieces) -> bool:
    """Return whether a call of an op ran a few other kernels instead of the usual ones.

    It did if some kernels are missing and different ones are there instead. A kernel
    that only ran at another position is among both, so the result is False. It is False
    too for more than MAX_KINDS_OF_WORK kernels, and for kernels without an op.

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


def _group_pieces_by_call(pieces: Pieces) -> Iterator[list[OutlierPiece]]:
    """Yield the pieces (kernels or copies) of each call of an op in each step.

    A call is not recorded with the pieces. So two pieces of an op belong to different
    calls if more than MAX_PIECES_OF_OP pieces of usual work lie between them.
    """
    by_op = by_key(pieces, lambda piece: (piece.step, _op_id(piece)))
    for members in by_op.values():
        members.sort(key=lambda piece: piece.gap)
        usual_pieces_between = np.diff([piece.gap for piece in members])
        is_next_call = usual_pieces_between > MAX_PIECES_OF_OP
        call_starts = (np.flatnonzero(is_next_call) + 1).tolist()
        for first, last in pairwise([0, *call_starts, len(members)]):
            yield members[first:last]


def _make_rows_of_fused_kernels(
    items: WorkItems, pieces: Pieces, side: str
) -> _RowsAndRest:
    """Make a row for each kernel that does the work of several others in one step.

    The name of such a kernel lists ops. The others are consecutive kernels of these ops
    that the step lacks. The reverse counts too: the step lacks the fused kernel and has
    the several kernels instead.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        pieces: Kernels and copies that single steps have or lack.
        side: `A` or `B`.

    Returns:
        The rows, and the pieces that are in none of them.
    """
    rows: list[Row] = []
    explained_pieces: set[OutlierPiece] = set()
    for members in by_key(pieces, lambda piece: piece.step).values():
        members.sort(key=lambda piece: piece.row)
        # So many differences are other work rather than a fusion, and slow to search.
        if len(members) > MAX_PIECES_FOR_FUSION:
            continue
        for fusion in _find_fusions_in_step(items.trace, members):
            row = _make_row_of_other_kernels(items, fusion.extra, fusion.missing, side)
            rows.append(row)
            explained_pieces.update(fusion.extra, fusion.missing)
    rest = [piece for piece in pieces if piece not in explained_pieces]
    return _RowsAndRest(rows=rows, rest=rest)


class _Fusion(msgspec.Struct, frozen=True):
    """Pieces of a step that do the work of others that the step lacks."""

    extra: Pieces
    missing: Pieces


def _find_fusions_in_step(trace: Trace, members: Pieces) -> Iterator[_Fusion]:
    """Yield the kernels of a step that do the work of several others, or the reverse.

    Each of the several kernels belongs to at most one fusion.

    Args:
        trace: The trace.
        members: The kernels and copies that the step has or lacks, in the order of
            their rows.
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
        parts = _find_fused_parts(trace, opposite_pieces, collector)
        if not parts:
            continue
        used_pieces.update(parts)
        if kernel.missing:
            yield _Fusion(extra=parts, missing=[kernel])
        else:
            yield _Fusion(extra=[kernel], missing=parts)


def _find_fused_parts(trace: Trace, pieces: Pieces, collector: Collector) -> Pieces:
    """Return the first consecutive pieces whose ops are named by a fused kernel.

    A piece is a kernel or copy. `collector` holds the ops that the name of the fused
    kernel lists, and its core: the ops that it cannot do without.

    Returns:
        The pieces. Empty if they are fewer than two or than the collector requires, or
        if none is of an op of the core.
    """
    parts: list[OutlierPiece] = []
    has_core = False
    for piece in pieces:
        op = int(trace.op[piece.row])
        listed_names = find_known_names(trace, op) & collector.ops
        if listed_names:
            parts.append(piece)
            has_core |= bool(listed_names & collector.core)
        elif parts:
            break
    is_enough = len(parts) >= max(collector.min_pieces, 2)
    return parts if is_enough and has_core else ()


def _make_row_of_other_kernels(
    items: WorkItems, extra: Pieces, missing: Pieces, side: str
) -> Row:
    """Make the row of a step that does its work with other kernels than usual.

    The kernels of the step stand under the name of its trace, and the usual kernels
    under that of the other trace. A step of B that runs one kernel instead of the usual
    three gives a row with three kernels of A and one of B: FUSED.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        extra: The kernels that the step runs instead of the usual ones.
        missing: The usual kernels that they replace.
        side: The trace of the step, `A` or `B`.
    """
    share_of_step = _add_rows_to_share(_sum_pieces(items, extra), extra)
    usual_share = _sum_pieces(items, missing)
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
    why = _describe_step(items, extra[0], side)
    return row_of(kind, op, a, b, why, counts=False)


def _make_row_of_pieces(
    items: WorkItems, pieces: Pieces, side: str, *, are_many: bool
) -> Row:
    """Make the row of kernels that one step has in addition, or that it lacks.

    The row is ADDED if a step of B has them in addition or a step of A lacks them. Else
    it is REMOVED. A missing kernel is shown where the representative step has it.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        pieces: Kernels and copies of one step: all of them are missing, or none is.
        side: The trace of the step, `A` or `B`.
        are_many: Whether the row says how many they are, instead of their op.
    """
    is_missing = pieces[0].missing
    is_of_a = side == "A"
    is_more_in_b = is_missing == is_of_a
    work = _sum_pieces(items, pieces)
    share_of_a = RowShare() if is_more_in_b else work
    share_of_b = work if is_more_in_b else RowShare()
    if is_of_a:
        share_of_a = _add_rows_to_share(share_of_a, pieces)
    else:
        share_of_b = _add_rows_to_share(share_of_b, pieces)

    op = _op_name(items.trace, pieces[0])
    what = f"{plural(len(pieces), 'piece')} of work" if are_many else op
    where = _describe_step(items, pieces[0], side)
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


def _describe_step(items: WorkItems, piece: OutlierPiece, side: str) -> str:
    """Say in which step the piece is: `only in step 12 of B`."""
    return f"only in step {items.work.windows.labels[piece.step]} of {side}"


def _sum_pieces(items: WorkItems, pieces: Pieces) -> RowShare:
    """Add up the times of kernels of one step, and list their names; without rows."""
    ns = sum(piece.ns for piece in pieces)
    return RowShare(
        names=[items.trace.name_of(piece.row) for piece in pieces],
        ns=ns,
        count=len(pieces),
        median_ns=ns,  # of one step
    )


def _add_rows_to_share(share: RowShare, pieces: Pieces) -> RowShare:
    """Add the rows of the trace that the app shows for these pieces."""
    rows = tuple(piece.row for piece in pieces)
    return msgspec.structs.replace(share, rows=rows)
