"""What work only one step has, or lacks, as rows that name the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from fusetui.analysis.diff.blocks import runs
from fusetui.analysis.diff.fusion import Collector, collector_of
from fusetui.analysis.diff.groups import WorkGroup, known_names, oriented, pairs_of
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
    work = items.work
    usual_keys = items.keys_of(work.of_window(items.window))
    all_steps = np.arange(len(work.windows))
    for step in np.setdiff1d(all_steps, items.alike).tolist():
        span = work.of_window(step)
        keys = items.keys_of(span)
        expected_ns = _expected_times(items, twin, step)
        usual_step = _TimedKeys(keys=usual_keys, ns=expected_ns)
        odd_step = _TimedKeys(keys=keys, ns=work.ns[span].tolist())
        pairs = match(usual_keys, keys)
        lacking = _unpaired(usual_step, odd_step, paired={item for item, _ in pairs})
        more = _unpaired(odd_step, usual_step, paired={piece for _, piece in pairs})
        yield OddStep(
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
    place_in_samples = np.flatnonzero(twin.alike == step)
    if not len(place_in_samples) or not np.array_equal(items.exact, twin.exact):
        return items.times
    return [*twin.samples[place_in_samples[0]].tolist()]


def rows_of(items: WorkItems, twin: WorkItems) -> Rows:
    """The row of the event of each item in every step of a side; shape [steps, items],
    -1 where a step lacks the item. `twin` is the other side."""
    work = items.work
    rows_of_steps = np.full((len(work.windows), len(items)), -1, dtype=np.intp)
    for step in items.alike.tolist():
        rows_of_steps[step] = work.row[work.of_window(step)]
    for odd in odd_steps(items, twin):
        rows_of_step = work.row[work.of_window(odd.number)]
        rows_of_steps[odd.number] = np.where(
            odd.piece_of_item >= 0, rows_of_step[odd.piece_of_item], -1
        )
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
    it is decided by their times: those that remain when each piece of the other step is
    paired with the one whose time is the closest, in order.
    """
    unpaired = [piece for piece in range(len(own.keys)) if piece not in paired]
    ambiguous = _ambiguous(own.keys, unpaired)
    certain = set(unpaired).difference(ambiguous)
    for key in {int(own.keys[piece]) for piece in ambiguous}:
        of_key = np.flatnonzero(own.keys == key).tolist()
        candidates = [piece for piece in of_key if piece not in certain]
        partners = np.flatnonzero(other.keys == key).tolist()
        if len(partners) >= len(candidates):
            continue
        if not is_feasible(len(partners), len(candidates)):
            continue
        few_ns = [other.ns[piece] for piece in partners]
        many_ns = [own.ns[piece] for piece in candidates]
        with_partner = {candidates[place] for place in closest(few_ns, many_ns)}
        unpaired = [piece for piece in unpaired if piece not in candidates]
        unpaired += [piece for piece in candidates if piece not in with_partner]
    return sorted(unpaired)


def _ambiguous(keys: Int64s, unpaired: list[int]) -> list[int]:
    """Of the pieces without a partner those in a run that might as well be one place
    earlier or later: the keys that remain would be the same. In `a b b c`, that is one
    `b` without a partner."""
    ambiguous: list[int] = []
    for first, last in runs(np.array(unpaired, dtype=np.intp)):
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
    by_kind_a, by_kind_b = by_key(pieces_a, kind_of), by_key(pieces_b, kind_of)
    return [
        *_rows(a, _surplus(by_kind_a, by_kind_b), "A"),
        *_rows(b, _surplus(by_kind_b, by_kind_a), "B"),
    ]


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
    items_a, items_b = pairs_of(groups)
    replaced: defaultdict[int, set[int]] = defaultdict(set)
    for before, after in zip(
        a.exact[items_a].tolist(), b.exact[items_b].tolist(), strict=True
    ):
        replaced[after].add(before)
    keys_of_a = {*a.exact.tolist()}
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
            only_a.update(int(a.exact[item]) for item in group.a)
        if not group.a:
            only_b.update(int(b.exact[item]) for item in group.b)
    only_a.difference_update(b.exact_of_all_steps.tolist())
    only_b.difference_update(a.exact_of_all_steps.tolist())
    return only_a | only_b


def _pieces(items: WorkItems, twin: WorkItems) -> Iterator[OutlierPiece]:
    """What differs in each step with unusual work, less what only runs at another
    place: a piece that the step lacks and one that it has more, of the same kernel
    under the same op, that take about as long. Missing work is assumed to take the
    expected time (`OddStep`). `twin` is the other side."""
    work = items.work
    for odd in odd_steps(items, twin):
        span = work.of_window(odd.number)
        keys, rows_of_step, ns = (
            items.exact_of_all_steps[span],
            work.row[span],
            work.ns[span],
        )
        more = list(odd.more)
        is_there = odd.piece_of_item >= 0
        for item in odd.lacking:
            key, expected_ns = int(items.exact[item]), odd.expected_ns[item]
            distance_ns = {
                piece: abs(int(ns[piece]) - expected_ns)
                for piece in more
                if keys[piece] == key and is_like(ns[piece], expected_ns)
            }
            if distance_ns:
                at_another_place = min(distance_ns, key=distance_ns.__getitem__)
                more.remove(at_another_place)
                continue
            yield OutlierPiece(
                step=odd.number,
                missing=True,
                row=int(items.row[item]),
                ns=expected_ns,
                key=key,
                gap=int(is_there[:item].sum()),
            )
        for piece in more:
            is_before = is_there & (odd.piece_of_item < piece)
            yield OutlierPiece(
                step=odd.number,
                missing=False,
                row=int(rows_of_step[piece]),
                ns=int(ns[piece]),
                key=int(keys[piece]),
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
    collectors: set[OutlierPiece] = set()
    collected: set[OutlierPiece] = set()
    for members in by_key(pieces, lambda piece: piece.step).values():
        members.sort(key=lambda piece: piece.row)
        if len(members) > MAX_PIECES_FOR_FUSION:
            continue
        for fused in members:
            collector = collector_of(items.trace.name_of(fused.row))
            if collector is None:
                continue
            others = [
                piece
                for piece in members
                if piece.missing != fused.missing and piece not in collected
            ]
            parts = _collected(items.trace, others, collector)
            if not parts:
                continue
            more, lacking = (parts, [fused]) if fused.missing else ([fused], parts)
            rows.append(_other_kernels(items, more, lacking, side))
            collectors.add(fused)
            collected.update(parts)
    in_rows = collectors | collected
    return _RowsAndRest(
        rows=rows, rest=[piece for piece in pieces if piece not in in_rows]
    )


def _collected(trace: Trace, others: Pieces, collector: Collector) -> Pieces:
    """The first pieces in a row whose ops are on a kernel's list (`collector`). Empty if
    they are fewer than two or than the list requires, or include no op of its core."""
    collected: list[OutlierPiece] = []
    has_core = False
    for piece in others:
        names = known_names(trace, int(trace.op[piece.row])) & collector.ops
        if names:
            collected.append(piece)
            has_core |= bool(names & collector.core)
        elif collected:
            break
    is_enough = len(collected) >= max(collector.min_pieces, 2)
    return collected if is_enough and has_core else ()


def _other_kernels(items: WorkItems, more: Pieces, lacking: Pieces, side: str) -> Row:
    """The row of a step of `side` that does the work of the `lacking` pieces in `more`
    pieces. The usual work stands on the other side of the row, without rows of the
    trace."""
    of_step, usual = _share(items, more, more), _share(items, lacking)
    a, b = oriented(0 if side == "A" else 1, of_step, usual)
    if a.count == b.count:
        kind = RowKind.REPLACED
    else:
        kind = RowKind.FUSED if a.count > b.count else RowKind.SPLIT
    op = _op_name(items.trace, more[0])
    return row_of(kind, op, a, b, _only(items, more[0], side), counts=False)


def _row(items: WorkItems, pieces: Pieces, side: str, *, are_many: bool) -> Row:
    """The row of pieces that all are in one step of `side`, or all are missing in it.

    Work that A lacks in a step counts as added, as what B has more does. The rows of
    the trace are of `side` in both cases; of missing work, they are those in the
    representative step. `are_many`: the row says how many pieces, instead of their op.
    """
    missing = pieces[0].missing
    is_of_a = side == "A"
    is_more_in_b = missing if is_of_a else not missing
    counted_a = () if is_more_in_b else pieces
    counted_b = pieces if is_more_in_b else ()
    shown_a = pieces if is_of_a else ()
    shown_b = () if is_of_a else pieces
    if are_many:
        what = f"{plural(len(pieces), 'piece')} of work"
    else:
        what = _op_name(items.trace, pieces[0])
    why = f"{'missing ' if missing else ''}{_only(items, pieces[0], side)}"
    return row_of(
        RowKind.ADDED if is_more_in_b else RowKind.REMOVED,
        what,
        _share(items, counted_a, shown_a),
        _share(items, counted_b, shown_b),
        why,
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
