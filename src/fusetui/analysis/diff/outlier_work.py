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
    """A step whose work is not that of the usual ones."""

    number: int
    lacking: list[int]  # items
    more: list[int]  # its own pieces
    place: Rows  # of each item among its pieces, -1 for those that it lacks
    usual_ns: list[int]  # the time that each item would take in it


def odd_steps(items: WorkItems, twin: WorkItems) -> Iterator[OddStep]:
    """Those of one side; `twin` is the other one."""
    work = items.work
    usual_keys = items.keys_of(work.of_window(items.window))
    steps = np.arange(len(work.windows))
    does_same_work = len(work.windows) == len(twin.work.windows) and np.array_equal(
        items.exact, twin.exact
    )
    for step in np.setdiff1d(steps, items.alike).tolist():
        span = work.of_window(step)
        keys = items.keys_of(span)
        times_ns: list[int] = work.ns[span].tolist()
        usual_ns = items.times
        step_of_twin = np.flatnonzero(twin.alike == step)
        if does_same_work and len(step_of_twin):
            usual_ns = [*twin.samples[step_of_twin[0]].tolist()]
        pairs = match(usual_keys, keys)
        lacking = _unpaired(
            _TimedKeys(usual_keys, usual_ns),
            _TimedKeys(keys, times_ns),
            {item for item, _ in pairs},
        )
        more = _unpaired(
            _TimedKeys(keys, times_ns),
            _TimedKeys(usual_keys, usual_ns),
            {piece for _, piece in pairs},
        )
        yield OddStep(
            number=step,
            lacking=lacking,
            more=more,
            place=_places(usual_keys, keys, lacking, more),
            usual_ns=usual_ns,
        )


def rows_of(items: WorkItems, twin: WorkItems) -> Rows:
    """The row of each item in every step, -1 where a step lacks it; shape [steps,
    items]."""
    work = items.work
    rows_of_steps = np.full((len(work.windows), len(items)), -1, dtype=np.intp)
    for step in items.alike.tolist():
        rows_of_steps[step] = work.row[work.of_window(step)]
    for odd in odd_steps(items, twin):
        rows_of_step = work.row[work.of_window(odd.number)]
        rows_of_steps[odd.number] = np.where(
            odd.place >= 0, rows_of_step[odd.place], -1
        )
    return rows_of_steps


def _places(
    usual_keys: Int64s, keys: Int64s, lacking: list[int], more: list[int]
) -> Rows:
    """For each item its piece of an odd step: in order among what is the same kernel
    under the same op on the same lane. -1 for none, and for all if what is neither
    lacking nor more is not the same."""
    places = np.full(len(usual_keys), -1, dtype=np.intp)
    items = np.setdiff1d(np.arange(len(usual_keys)), lacking)
    pieces = np.setdiff1d(np.arange(len(keys)), more)
    items = items[np.argsort(usual_keys[items], kind="stable")]
    pieces = pieces[np.argsort(keys[pieces], kind="stable")]
    if np.array_equal(usual_keys[items], keys[pieces]):
        places[items] = pieces
    return places


class _TimedKeys(msgspec.Struct, frozen=True, eq=False):
    """The pieces of a step."""

    keys: Int64s
    ns: list[int]


def _unpaired(own: _TimedKeys, other: _TimedKeys, paired: set[int]) -> list[int]:
    """The pieces of one step without a partner in the other; of repeated kernels those
    whose times no partner is close to."""
    unpaired = [n for n in range(len(own.keys)) if n not in paired]
    ambiguous = _ambiguous(own.keys, unpaired)
    certain = set(unpaired).difference(ambiguous)
    for key in {int(own.keys[n]) for n in ambiguous}:
        candidates = [
            n for n in np.flatnonzero(own.keys == key).tolist() if n not in certain
        ]
        partners = np.flatnonzero(other.keys == key).tolist()
        if len(partners) >= len(candidates):
            continue
        if not is_feasible(len(partners), len(candidates)):
            continue
        few_ns = [other.ns[n] for n in partners]
        many_ns = [own.ns[n] for n in candidates]
        with_partner = {candidates[place] for place in closest(few_ns, many_ns)}
        unpaired = [n for n in unpaired if int(own.keys[n]) != key or n in certain]
        unpaired += [n for n in candidates if n not in with_partner]
    return sorted(unpaired)


def _ambiguous(keys: Int64s, unpaired: list[int]) -> list[int]:
    """Of what has no partner: the stretches that would say the same one place earlier
    or later."""
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
    word: int  # its exact key
    gap: int  # how many pieces of usual work come before it in the step


Pieces = Sequence[OutlierPiece]


class _Kind(msgspec.Struct, frozen=True):
    """Pieces of one kind on both sides cancel out."""

    step: int  # -1 where the n-th steps of both sides have nothing in common
    missing: bool
    word: int


def rows(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[Row]:
    """Rows that are not part of a usual step, each naming its step.

    What is odd on both sides alike (in the same step, if they have equally many) is no
    change. Nor is what changed in all steps: what B does in the place of a kernel
    counts as that kernel, and what only one side has in all steps is told once.
    """
    words_in_a = _words_in_a(a, b, groups)
    told_once = _words_of_one_side(a, b, groups)
    has_same_steps = len(a.work.windows) == len(b.work.windows)

    def kind_of(piece: OutlierPiece) -> _Kind:
        return _Kind(
            step=piece.step if has_same_steps else -1,
            missing=piece.missing,
            word=words_in_a.get(piece.word, piece.word),
        )

    pieces_a = [piece for piece in _pieces(a, b) if piece.word not in told_once]
    pieces_b = [piece for piece in _pieces(b, a) if piece.word not in told_once]
    by_kind_a, by_kind_b = by_key(pieces_a, kind_of), by_key(pieces_b, kind_of)
    return [
        *_rows(a, _surplus(by_kind_a, by_kind_b), "A"),
        *_rows(b, _surplus(by_kind_b, by_kind_a), "B"),
    ]


def _surplus(
    own: dict[_Kind, list[OutlierPiece]], other: dict[_Kind, list[OutlierPiece]]
) -> Pieces:
    """What one side has more of than the other, of each kind."""
    more: list[OutlierPiece] = []
    for kind, members in own.items():
        more += members[len(other.get(kind, ())) :]
    return more


def _words_in_a(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> dict[int, int]:
    """For what only B has: the key of what it replaces in A, where that is always the
    same."""
    items_a, items_b = pairs_of(groups)
    replaced: defaultdict[int, set[int]] = defaultdict(set)
    for before, after in zip(
        a.exact[items_a].tolist(), b.exact[items_b].tolist(), strict=True
    ):
        replaced[after].add(before)
    words_of_a = {*a.exact.tolist()}
    words_in_a = {}
    for after, befores in replaced.items():
        if len(befores) == 1 and after not in words_of_a:
            words_in_a[after] = min(befores)
    return words_in_a


def _words_of_one_side(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> set[int]:
    """The keys of what one side has in all of its usual steps and the other one
    nowhere."""
    only_a: set[int] = set()
    only_b: set[int] = set()
    for group in groups:
        if not group.b:
            only_a.update(int(a.exact[item]) for item in group.a)
        if not group.a:
            only_b.update(int(b.exact[item]) for item in group.b)
    only_a.difference_update(b.every.tolist())
    only_b.difference_update(a.every.tolist())
    return only_a | only_b


def _pieces(items: WorkItems, twin: WorkItems) -> Iterator[OutlierPiece]:
    """What differs in each step with unusual work, less what only runs at another
    place: the same kernel under the same op that takes about as long. Missing work is
    assumed to take as long as in the same step of the other side, or else as in the
    usual steps."""
    work = items.work
    for odd in odd_steps(items, twin):
        span = work.of_window(odd.number)
        words, rows_of_step, ns = items.every[span], work.row[span], work.ns[span]
        more = list(odd.more)
        has_item = odd.place >= 0
        for item in odd.lacking:
            word, usual_ns = int(items.exact[item]), odd.usual_ns[item]
            elsewhere = [
                piece
                for piece in more
                if words[piece] == word and is_like(ns[piece], usual_ns)
            ]
            if elsewhere:
                distance_ns = {
                    piece: abs(int(ns[piece]) - usual_ns) for piece in elsewhere
                }
                more.remove(min(elsewhere, key=distance_ns.__getitem__))
                continue
            yield OutlierPiece(
                step=odd.number,
                missing=True,
                row=int(items.row[item]),
                ns=usual_ns,
                word=word,
                gap=int(has_item[:item].sum()),
            )
        for piece in more:
            yield OutlierPiece(
                step=odd.number,
                missing=False,
                row=int(rows_of_step[piece]),
                ns=int(ns[piece]),
                word=int(words[piece]),
                gap=int((has_item & (odd.place < piece)).sum()),
            )


def _rows(items: WorkItems, pieces: Pieces, side: str) -> list[Row]:
    """One row for each kind of work in each step, or one for all of a step that differs
    in many.

    Where an op has other kernels in a step than usual, these are one row; so is a
    kernel that does the work of several.
    """
    replaced = _replaced(items, pieces, side)
    fused = _fused(items, replaced.rest, side)
    rows = [*replaced.rows, *fused.rows]
    by_step = by_key(fused.rest, lambda piece: (piece.step, piece.missing))
    for members in by_step.values():
        of_words = list(by_key(members, lambda piece: piece.word).values())
        if len(of_words) > MAX_KINDS_OF_WORK:
            rows.append(_row(items, members, side, are_many=True))
        else:
            rows += [_row(items, word, side, are_many=False) for word in of_words]
    return rows


class _RowsAndRest(msgspec.Struct, frozen=True):
    """Rows, and the pieces that are not in them."""

    rows: list[Row]
    rest: Pieces


def _replaced(items: WorkItems, pieces: Pieces, side: str) -> _RowsAndRest:
    """The rows of ops that have other kernels in one step."""
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
    """Whether a call of an op has a few kernels that it usually has not, and lacks
    others."""
    if not more or not lacking or not _op_word(more[0]):
        return False
    if len(more) + len(lacking) > MAX_KINDS_OF_WORK:
        return False
    words = {piece.word for piece in more}
    return words.isdisjoint(piece.word for piece in lacking)


def _op_word(piece: OutlierPiece) -> int:
    return piece.word >> OP_SHIFT


def _by_call(pieces: Pieces) -> Iterator[list[OutlierPiece]]:
    """The pieces of an op in a step that are near enough to be of one call."""
    by_op = by_key(pieces, lambda piece: (piece.step, _op_word(piece)))
    for members in by_op.values():
        members.sort(key=lambda piece: piece.gap)
        gaps = np.diff([piece.gap for piece in members])
        cuts = (np.flatnonzero(gaps > MAX_PIECES_OF_OP) + 1).tolist()
        for first, last in pairwise([0, *cuts, len(members)]):
            yield members[first:last]


def _fused(items: WorkItems, pieces: Pieces, side: str) -> _RowsAndRest:
    """The rows of kernels that do the work of several in one step, or that several do
    the work of: a kernel whose name lists ops, and the pieces of these ops, in a row,
    that the step lacks (or has, if it lacks the kernel)."""
    rows: list[Row] = []
    collectors: set[OutlierPiece] = set()
    collected: set[OutlierPiece] = set()
    for members in by_key(pieces, lambda piece: piece.step).values():
        members.sort(key=lambda piece: piece.row)
        if len(members) > MAX_PIECES_FOR_FUSION:
            continue
        for one in members:
            collector = collector_of(items.trace.name_of(one.row))
            if collector is None:
                continue
            others = [
                piece
                for piece in members
                if piece.missing != one.missing and piece not in collected
            ]
            many = _collected(items.trace, others, collector)
            if not many:
                continue
            more, lacking = (many, [one]) if one.missing else ([one], many)
            rows.append(_other_kernels(items, more, lacking, side))
            collectors.add(one)
            collected.update(many)
    in_rows = collectors | collected
    return _RowsAndRest(
        rows=rows, rest=[piece for piece in pieces if piece not in in_rows]
    )


def _collected(trace: Trace, others: Pieces, collector: Collector) -> Pieces:
    """The first pieces in a row whose work the kernel may do, if they are evidence
    enough."""
    collected: list[OutlierPiece] = []
    has_core = False
    for piece in others:
        names = known_names(trace, int(trace.op[piece.row])) & collector.ops
        if names:
            collected.append(piece)
            has_core |= bool(names & collector.core)
        elif collected:
            break
    is_enough = len(collected) >= max(collector.least, 2)
    return collected if is_enough and has_core else ()


def _other_kernels(items: WorkItems, more: Pieces, lacking: Pieces, side: str) -> Row:
    of_step, usual = _share(items, more, more), _share(items, lacking)
    a, b = oriented(0 if side == "A" else 1, of_step, usual)
    if a.count == b.count:
        kind = RowKind.REPLACED
    else:
        kind = RowKind.FUSED if a.count > b.count else RowKind.SPLIT
    op = items.trace.name_of(int(items.trace.op[more[0].row]))
    return row_of(kind, op, a, b, _only(items, more[0], side), counts=False)


def _row(items: WorkItems, pieces: Pieces, side: str, *, are_many: bool) -> Row:
    """What a step has more or lacks. The rows of the trace are of `side` even if the
    work is missing in it: those in the representative step."""
    trace, missing = items.trace, pieces[0].missing
    is_of_a = side == "A"
    is_more_in_b = missing == is_of_a
    counted_a = () if is_more_in_b else pieces
    counted_b = pieces if is_more_in_b else ()
    shown_a = pieces if is_of_a else ()
    shown_b = () if is_of_a else pieces
    if are_many:
        what = f"{plural(len(pieces), 'piece')} of work"
    else:
        op = int(trace.op[pieces[0].row])
        what = trace.name_of(op) if op >= 0 else ""
    why = f"{'missing ' if missing else ''}{_only(items, pieces[0], side)}"
    return row_of(
        RowKind.ADDED if is_more_in_b else RowKind.REMOVED,
        what,
        _share(items, counted_a, shown_a),
        _share(items, counted_b, shown_b),
        why,
        counts=False,
    )


def _only(items: WorkItems, piece: OutlierPiece, side: str) -> str:
    return f"only in step {items.work.windows.labels[piece.step]} of {side}"


def _share(items: WorkItems, pieces: Pieces, shown: Pieces = ()) -> RowShare:
    ns = sum(piece.ns for piece in pieces)
    return RowShare(
        names=[items.trace.name_of(piece.row) for piece in pieces],
        ns=ns,
        count=len(pieces),
        median_ns=ns,
        rows=tuple(piece.row for piece in shown),
    )
