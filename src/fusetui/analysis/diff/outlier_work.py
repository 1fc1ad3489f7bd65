"""What work only one step has, or lacks, as rows that name the step."""

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
from fusetui.analysis.diff.items import OP_SHIFT, WorkItems
from fusetui.analysis.diff.model import Row, RowKind, RowShare, row_of
from fusetui.analysis.diff.sequences import closest, is_feasible, is_like, match
from fusetui.text.figures import plural
from fusetui.trace.model.arrays import Int64s, Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key

MAX_PIECES_FOR_FUSION = 16
"""A step that differs in more pieces is not searched for fused kernels."""

MAX_KINDS_OF_WORK = 8
"""A step that differs in more kinds of work than this is one row."""


class OddStep(msgspec.Struct, frozen=True, eq=False):
    """A step of a side whose work is not that of the usual ones. Its pieces are counted
    from 0; the items are the pieces of the representative step."""

    number: int
    lacking: list[int]  # the items that it lacks, ascending
    more: list[int]  # the pieces that are none of the items, ascending
    piece_of_item: Rows  # shape [items]; -1 for those that it lacks, see `_pieces_of`
    expected_ns: list[int]  # the time that each item would take in it


def odd_steps(items: WorkItems, twin: WorkItems) -> Iterator[OddStep]:
    """The steps of a side that do other work than the representative one; `twin` is the
    other side."""
    all_steps = np.arange(len(items.work.windows))
    for step in np.setdiff1d(all_steps, items.alike_steps).tolist():
        yield _odd_step(items, step, _expected_times(items, twin, step))


def _odd_step(items: WorkItems, step: int, expected_ns: list[int]) -> OddStep:
    """What a step of a side has more than the representative one, and what it lacks.
    `expected_ns`: the time that each item would take in it."""
    work = items.work
    span = work.slice_of_window(step)
    usual_keys = items.keys_of(work.slice_of_window(items.representative_step))
    keys = items.keys_of(span)
    usual = _TimedKeys(keys=usual_keys, ns=expected_ns)
    odd = _TimedKeys(keys=keys, ns=work.ns[span].tolist())
    pairs = match(usual_keys, keys)
    lacking = _unpaired(usual, odd, paired={item for item, _ in pairs})
    more = _unpaired(odd, usual, paired={piece for _, piece in pairs})
    return OddStep(
        number=step,
        lacking=lacking,
        more=more,
        piece_of_item=_pieces_of(usual_keys, keys, lacking, more),
        expected_ns=expected_ns,
    )


def _expected_times(items: WorkItems, twin: WorkItems, step: int) -> list[int]:
    """The time that each item of a side would take in one of its steps (ns).

    That is its time in the same step of the other side, which may be slow or fast as a
    whole, if both sides have equally many steps and the same usual work, and the other
    side does that work in this step; else its usual time.
    """
    if len(items.work.windows) != len(twin.work.windows):
        return items.times
    place_in_samples = np.flatnonzero(twin.alike_steps == step)
    if not len(place_in_samples) or not np.array_equal(
        items.exact_keys, twin.exact_keys
    ):
        return items.times
    return [*twin.samples[place_in_samples[0]].tolist()]


def rows_by_step(items: WorkItems, twin: WorkItems) -> Rows:
    """The row of the event of each item in every step of a side; shape [steps, items],
    -1 where a step lacks the item. `twin` is the other side."""
    work = items.work
    rows_of_steps = np.full((len(work.windows), len(items)), -1, dtype=np.intp)
    for step in items.alike_steps.tolist():
        rows_of_steps[step] = work.row[work.slice_of_window(step)]
    for odd in odd_steps(items, twin):
        rows_of_step = work.row[work.slice_of_window(odd.number)]
        has_item = odd.piece_of_item >= 0
        rows_of_items = rows_of_step[odd.piece_of_item]
        rows_of_steps[odd.number] = np.where(has_item, rows_of_items, -1)
    return rows_of_steps


def _pieces_of(
    usual_keys: Int64s, keys: Int64s, lacking: list[int], more: list[int]
) -> Rows:
    """For each item the piece of an odd step that is the same work, -1 where it lacks
    the item; shape [items]. The n-th item of a key is the n-th piece of that key, both
    counted without `lacking` and `more`. All are -1 if what these leave differs."""
    piece_of_item = np.full(len(usual_keys), -1, dtype=np.intp)
    items = np.setdiff1d(np.arange(len(usual_keys)), lacking)
    pieces = np.setdiff1d(np.arange(len(keys)), more)
    items = items[np.argsort(usual_keys[items], kind="stable")]
    pieces = pieces[np.argsort(keys[pieces], kind="stable")]
    if np.array_equal(usual_keys[items], keys[pieces]):
        piece_of_item[items] = pieces
    return piece_of_item


class _TimedKeys(msgspec.Struct, frozen=True, eq=False):
    """The pieces of a step: their keys and times, both of shape [pieces]."""

    keys: Int64s
    ns: list[int]


def _unpaired(own: _TimedKeys, other: _TimedKeys, *, paired: set[int]) -> list[int]:
    """The pieces of one step without a partner in the other step, ascending; `paired`
    are those with one, by an alignment of the keys.

    Which of several pieces of one key have none may be arbitrary (`_ambiguous`). Then
    their times decide (`_without_closest`), if the other step has fewer of that key.
    """
    unpaired = [piece for piece in range(len(own.keys)) if piece not in paired]
    ambiguous = _ambiguous(own.keys, unpaired)
    certain = set(unpaired).difference(ambiguous)
    for key in {int(own.keys[piece]) for piece in ambiguous}:
        of_key = np.flatnonzero(own.keys == key).tolist()
        candidates = [piece for piece in of_key if piece not in certain]
        partners = np.flatnonzero(other.keys == key).tolist()
        is_decided = len(partners) < len(candidates)
        if is_decided and is_feasible(len(partners), len(candidates)):
            unpaired = [piece for piece in unpaired if piece not in candidates]
            unpaired += _without_closest(own, candidates, other, partners)
    return sorted(unpaired)


def _without_closest(
    own: _TimedKeys, candidates: list[int], other: _TimedKeys, partners: list[int]
) -> list[int]:
    """The candidates, pieces of one step, that remain when each of `partners`, fewer
    pieces of the other step, is paired with the one whose time is the closest, in
    order."""
    partners_ns = [other.ns[piece] for piece in partners]
    candidates_ns = [own.ns[piece] for piece in candidates]
    places = closest(partners_ns, candidates_ns)
    with_partner = {candidates[place] for place in places}
    return [piece for piece in candidates if piece not in with_partner]


def _ambiguous(keys: Int64s, unpaired: list[int]) -> list[int]:
    """Of the pieces without a partner those in a run that might as well be one place
    earlier or later: the keys that remain would be the same. In `a b b c`, that is one
    `b` without a partner."""
    ambiguous: list[int] = []
    for first, last in consecutive_runs(np.array(unpaired, dtype=np.intp)):
        may_be_earlier = first > 0 and keys[first - 1] == keys[last]
        may_be_later = last + 1 < len(keys) and keys[last + 1] == keys[first]
        if may_be_earlier or may_be_later:
            ambiguous += range(first, last + 1)
    return ambiguous


class OutlierPiece(msgspec.Struct, frozen=True):
    """A piece of work that a step has, but usual steps lack; or, if `missing`, the
    reverse."""

    step: int
    missing: bool
    row: int  # of the trace; of what is missing: in the representative step
    ns: int
    key: int  # its exact key: the same kernel under the same op
    gap: int  # how many pieces of usual work come before it in the step


Pieces = Sequence[OutlierPiece]


class _Kind(msgspec.Struct, frozen=True):
    """Pieces of one kind on both sides cancel out."""

    step: int  # -1 where the n-th steps of both sides have nothing in common
    missing: bool
    key: int


def rows(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[Row]:
    """Rows for the work that single steps of a side have or lack, each naming its step;
    A's first. They are not part of the sum, which is of usual steps.

    What is odd on both sides alike (in the same step, if they have equally many) is no
    change. Nor is what changed in all steps: what B does in the place of a kernel
    counts as that kernel, and what only one side has in all steps has a row already.
    """
    key_in_a = _keys_in_a(a, b, groups)
    with_own_row = _keys_of_one_side(a, b, groups)
    has_same_steps = len(a.work.windows) == len(b.work.windows)

    def kind_of(piece: OutlierPiece) -> _Kind:
        return _Kind(
            step=piece.step if has_same_steps else -1,
            missing=piece.missing,
            key=key_in_a.get(piece.key, piece.key),
        )

    pieces_a = [piece for piece in _pieces(a, b) if piece.key not in with_own_row]
    pieces_b = [piece for piece in _pieces(b, a) if piece.key not in with_own_row]
    by_kind_a = by_key(pieces_a, kind_of)
    by_kind_b = by_key(pieces_b, kind_of)
    surplus_of_a = _surplus(by_kind_a, by_kind_b)
    surplus_of_b = _surplus(by_kind_b, by_kind_a)
    return [*_rows(a, surplus_of_a, "A"), *_rows(b, surplus_of_b, "B")]


def _surplus(
    own: dict[_Kind, list[OutlierPiece]], other: dict[_Kind, list[OutlierPiece]]
) -> Pieces:
    """The pieces that one side has more of than the other: of each kind the last
    ones."""
    more: list[OutlierPiece] = []
    for kind, members in own.items():
        also_on_other_side = len(other.get(kind, ()))
        more += members[also_on_other_side:]
    return more


def _keys_in_a(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> dict[int, int]:
    """{exact key that only B has: the key of what it replaces in A}, where all of its
    pairs replace the same."""
    items_a, items_b = paired_items(groups)
    replaced: defaultdict[int, set[int]] = defaultdict(set)
    for before, after in zip(
        a.exact_keys[items_a].tolist(), b.exact_keys[items_b].tolist(), strict=True
    ):
        replaced[after].add(before)
    keys_of_a = {*a.exact_keys.tolist()}
    key_in_a = {}
    for after, befores in replaced.items():
        if len(befores) == 1 and after not in keys_of_a:
            key_in_a[after] = min(befores)
    return key_in_a


def _keys_of_one_side(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> set[int]:
    """The exact keys of what one side has in its usual steps, without a counterpart,
    and the other one in none of its steps."""
    only_a: set[int] = set()
    only_b: set[int] = set()
    for group in groups:
        if not group.b:
            only_a.update(int(a.exact_keys[item]) for item in group.a)
        if not group.a:
            only_b.update(int(b.exact_keys[item]) for item in group.b)
    only_a.difference_update(b.exact_keys_of_all_steps.tolist())
    only_b.difference_update(a.exact_keys_of_all_steps.tolist())
    return only_a | only_b


def _pieces(items: WorkItems, twin: WorkItems) -> Iterator[OutlierPiece]:
    """What differs in each step with unusual work, less what only runs at another
    place: a piece that the step lacks and one that it has more, of the same kernel
    under the same op, that take about as long. Missing work is assumed to take the
    expected time (`OddStep`). `twin` is the other side."""
    for odd in odd_steps(items, twin):
        more = list(odd.more)
        for item in odd.lacking:
            piece = _at_another_place(items, odd, item, more)
            if piece is None:
                yield _missing_piece(items, odd, item)
            else:
                more.remove(piece)
        for piece in more:
            yield _added_piece(items, odd, piece)


def _at_another_place(
    items: WorkItems, odd: OddStep, item: int, pieces: list[int]
) -> int | None:
    """Which of these pieces of an odd step, if any, is an item that the step lacks: of
    those of the same kernel under the same op that take about as long, the one whose
    time is the closest."""
    span = items.work.slice_of_window(odd.number)
    keys = items.exact_keys_of_all_steps[span]
    ns = items.work.ns[span]
    expected_ns = odd.expected_ns[item]
    distance_ns = {}
    for piece in pieces:
        if keys[piece] == items.exact_keys[item] and is_like(ns[piece], expected_ns):
            distance_ns[piece] = abs(int(ns[piece]) - expected_ns)
    return min(distance_ns, key=distance_ns.__getitem__, default=None)


def _missing_piece(items: WorkItems, odd: OddStep, item: int) -> OutlierPiece:
    """An item that an odd step lacks."""
    has_item = odd.piece_of_item >= 0
    return OutlierPiece(
        step=odd.number,
        missing=True,
        row=int(items.row[item]),
        ns=odd.expected_ns[item],
        key=int(items.exact_keys[item]),
        gap=int(has_item[:item].sum()),
    )


def _added_piece(items: WorkItems, odd: OddStep, piece: int) -> OutlierPiece:
    """A piece that an odd step has more than the representative one."""
    work = items.work
    span = work.slice_of_window(odd.number)
    is_before = (odd.piece_of_item >= 0) & (odd.piece_of_item < piece)
    return OutlierPiece(
        step=odd.number,
        missing=False,
        row=int(work.row[span][piece]),
        ns=int(work.ns[span][piece]),
        key=int(items.exact_keys_of_all_steps[span][piece]),
        gap=int(is_before.sum()),
    )


def _rows(items: WorkItems, pieces: Pieces, side: str) -> list[Row]:
    """The rows of the pieces of one side, `A` or `B`: first those of ops that have
    other kernels in a step, then those of fused kernels, then the rest.

    The rest is one row for each exact key in each step, or one for all that a step has
    more (or lacks) if these are more than MAX_KINDS_OF_WORK keys.
    """
    replaced = _replaced(items, pieces, side)
    fused = _fused(items, replaced.rest, side)
    rows = [*replaced.rows, *fused.rows]
    by_step = by_key(fused.rest, lambda piece: (piece.step, piece.missing))
    for members in by_step.values():
        pieces_by_key = by_key(members, lambda piece: piece.key)
        if len(pieces_by_key) > MAX_KINDS_OF_WORK:
            rows.append(_row(items, members, side, are_many=True))
            continue
        for of_key in pieces_by_key.values():
            rows.append(_row(items, of_key, side, are_many=False))
    return rows


class _RowsAndRest(msgspec.Struct, frozen=True):
    """Rows, and the pieces that are not in them."""

    rows: list[Row]
    rest: Pieces


def _replaced(items: WorkItems, pieces: Pieces, side: str) -> _RowsAndRest:
    """A row for each call of an op that has other kernels in one step than usual
    (`_are_other_kernels`), and the pieces of all other calls."""
    rows: list[Row] = []
    rest: list[OutlierPiece] = []
    for members in _by_call(pieces):
        more = [piece for piece in members if not piece.missing]
        lacking = [piece for piece in members if piece.missing]
        if _are_other_kernels(more, lacking):
            rows.append(_other_kernels(items, more, lacking, side))
        else:
            rest += [*more, *lacking]
    return _RowsAndRest(rows=rows, rest=rest)


def _are_other_kernels(more: Pieces, lacking: Pieces) -> bool:
    """Whether a call of an op has a few kernels that it usually has not (`more`), and
    lacks others. Not without an op, or where the same kernel is in both."""
    if not more or not lacking or not _op_number(more[0]):
        return False
    if len(more) + len(lacking) > MAX_KINDS_OF_WORK:
        return False
    keys = {piece.key for piece in more}
    return keys.isdisjoint(piece.key for piece in lacking)


def _op_number(piece: OutlierPiece) -> int:
    """The number of the op of a piece, 0 for none."""
    return piece.key >> OP_SHIFT


def _by_call(pieces: Pieces) -> Iterator[list[OutlierPiece]]:
    """The pieces of each op in each step, divided where more than MAX_PIECES_OF_OP
    pieces of usual work lie between two of them: these are taken for two calls."""
    by_op = by_key(pieces, lambda piece: (piece.step, _op_number(piece)))
    for members in by_op.values():
        members.sort(key=lambda piece: piece.gap)
        gaps = np.diff([piece.gap for piece in members])
        cuts = (np.flatnonzero(gaps > MAX_PIECES_OF_OP) + 1).tolist()
        for first, last in pairwise([0, *cuts, len(members)]):
            yield members[first:last]


def _fused(items: WorkItems, pieces: Pieces, side: str) -> _RowsAndRest:
    """A row for each kernel that does the work of several in one step, or of which
    several do the work there, and the pieces that are in no such row. The name of the
    kernel lists ops; the several are the pieces of these ops, in a row, that the step
    lacks (or has more, if it lacks the kernel)."""
    rows: list[Row] = []
    in_rows: set[OutlierPiece] = set()
    for members in by_key(pieces, lambda piece: piece.step).values():
        members.sort(key=lambda piece: piece.row)
        if len(members) > MAX_PIECES_FOR_FUSION:
            continue
        for fusion in _fusions_of_step(items.trace, members):
            rows.append(_other_kernels(items, fusion.more, fusion.lacking, side))
            in_rows.update(fusion.more, fusion.lacking)
    rest = [piece for piece in pieces if piece not in in_rows]
    return _RowsAndRest(rows=rows, rest=rest)


class _Fusion(msgspec.Struct, frozen=True):
    """Pieces of work of a step that do the work of others that the step lacks."""

    more: Pieces
    lacking: Pieces


def _fusions_of_step(trace: Trace, members: Pieces) -> Iterator[_Fusion]:
    """The kernels among the pieces of a step that do the work of several others, which
    are the reverse of it: missing if the kernel is not. No piece is part of two
    kernels."""
    collected: set[OutlierPiece] = set()
    for kernel in members:
        collector = collector_of(trace.name_of(kernel.row))
        if collector is None:
            continue
        others = []
        for piece in members:
            if piece.missing != kernel.missing and piece not in collected:
                others.append(piece)
        parts = _collected(trace, others, collector)
        if not parts:
            continue
        collected.update(parts)
        if kernel.missing:
            yield _Fusion(more=parts, lacking=[kernel])
        else:
            yield _Fusion(more=[kernel], lacking=parts)


def _collected(trace: Trace, others: Pieces, collector: Collector) -> Pieces:
    """The first pieces in a row whose ops are on a kernel's list (`collector`). Empty if
    they are fewer than two or than the list requires, or include no op of its core."""
    collected: list[OutlierPiece] = []
    has_core = False
    for piece in others:
        op = int(trace.op[piece.row])
        names = known_names(trace, op) & collector.ops
        if names:
            collected.append(piece)
            has_core |= bool(names & collector.core)
        elif collected:
            break
    is_enough = len(collected) >= max(collector.min_pieces, 2)
    return collected if is_enough and has_core else ()


def _other_kernels(items: WorkItems, more: Pieces, lacking: Pieces, side: str) -> Row:
    """The row of a step of `side`, `A` or `B`, that does its work with other kernels
    than usual: with the pieces in `more` instead of those in `lacking`.

    The row has the step's own kernels on that side, with their rows of the trace, and
    the usual kernels on the other side, without rows. Its kind says how A and B differ
    then: REPLACED if they are equally many, FUSED if A has more of them, else SPLIT.
    """
    of_step = _share(items, more, shown=more)
    usual = _share(items, lacking)
    if side == "A":
        a = of_step
        b = usual
    else:
        a = usual
        b = of_step
    if a.count == b.count:
        kind = RowKind.REPLACED
    elif a.count > b.count:
        kind = RowKind.FUSED
    else:
        kind = RowKind.SPLIT
    op = _op_name(items.trace, more[0])
    why = _only(items, more[0], side)
    return row_of(kind, op, a, b, why, counts=False)


def _row(items: WorkItems, pieces: Pieces, side: str, *, are_many: bool) -> Row:
    """The row of pieces that all are in one step of `side`, or all are missing in it.

    Work that A lacks in a step counts as added, as what B has more does. The rows of
    the trace are of `side` in both cases; of missing work, they are those in the
    representative step. `are_many`: the row says how many pieces, instead of their op.
    """
    missing = pieces[0].missing
    is_of_a = side == "A"
    is_more_in_b = missing == is_of_a
    if are_many:
        what = f"{plural(len(pieces), 'piece')} of work"
    else:
        what = _op_name(items.trace, pieces[0])
    where = _only(items, pieces[0], side)
    return row_of(
        RowKind.ADDED if is_more_in_b else RowKind.REMOVED,
        what,
        _share(
            items,
            () if is_more_in_b else pieces,
            shown=pieces if is_of_a else (),
        ),
        _share(
            items,
            pieces if is_more_in_b else (),
            shown=() if is_of_a else pieces,
        ),
        f"missing {where}" if missing else where,
        counts=False,
    )


def _op_name(trace: Trace, piece: OutlierPiece) -> str:
    """The name of the op of a piece; "" when unknown."""
    op = int(trace.op[piece.row])
    return trace.name_of(op) if op >= 0 else ""


def _only(items: WorkItems, piece: OutlierPiece, side: str) -> str:
    """`only in step 12 of B`."""
    return f"only in step {items.work.windows.labels[piece.step]} of {side}"


def _share(items: WorkItems, pieces: Pieces, shown: Pieces = ()) -> RowShare:
    """The sums over pieces, with the rows of the trace of the pieces `shown`."""
    ns = sum(piece.ns for piece in pieces)
    return RowShare(
        names=[items.trace.name_of(piece.row) for piece in pieces],
        ns=ns,
        count=len(pieces),
        median_ns=ns,
        rows=tuple(piece.row for piece in shown),
    )
