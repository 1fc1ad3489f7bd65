"""What work only one step has, or lacks, as rows that name the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

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

MOST = 16  # a step that differs in more pieces is not searched for fused kernels
KINDS = 8  # a step that differs in more kinds of work than this is one row


class OddStep(msgspec.Struct, frozen=True, eq=False):
    """A step whose work is not that of the usual ones; `lacking` are items, `more` its
    own pieces.

    `place` is of each item among the pieces of the step, -1 for those that it lacks;
    `usual` is the time (ns) that each item would take in it.
    """

    number: int
    lacking: list[int]
    more: list[int]
    place: Rows
    usual: list[int]


def odd_steps(items: WorkItems, twin: WorkItems) -> Iterator[OddStep]:
    """Those of one side; `twin` is the other one."""
    work = items.work
    keys = items.keys_of(work.of_window(items.window))
    same = len(work.windows) == len(twin.work.windows)
    same = same and np.array_equal(items.exact, twin.exact)
    for step in np.setdiff1d(np.arange(len(work.windows)), items.alike).tolist():
        span = work.of_window(step)
        other, times = items.keys_of(span), work.ns[span].tolist()
        pairs = match(keys, other)
        here = np.flatnonzero(same & (twin.alike == step))  # as on the other side
        usual = [*twin.samples[here[0]].tolist()] if len(here) else items.times
        lacking = _unpaired(keys, usual, other, times, {i for i, _ in pairs})
        more = _unpaired(other, times, keys, usual, {j for _, j in pairs})
        yield OddStep(step, lacking, more, _places(keys, other, lacking, more), usual)


def rows_of(items: WorkItems, twin: WorkItems) -> Rows:
    """The row of each item in every step, -1 where a step lacks it; shape [steps,
    items]."""
    work = items.work
    found = np.full((len(work.windows), len(items)), -1, dtype=np.intp)
    for step in items.alike.tolist():
        found[step] = work.row[work.of_window(step)]
    for odd in odd_steps(items, twin):
        rows = work.row[work.of_window(odd.number)]
        found[odd.number] = np.where(odd.place >= 0, rows[odd.place], -1)
    return found


def _places(keys: Int64s, other: Int64s, lacking: list[int], more: list[int]) -> Rows:
    """In order among what is the same kernel under the same op on the same lane."""
    found = np.full(len(keys), -1, dtype=np.intp)
    left, theirs = (
        np.setdiff1d(np.arange(len(of)), gone)
        for of, gone in ((keys, lacking), (other, more))
    )
    left = left[np.argsort(keys[left], kind="stable")]
    theirs = theirs[np.argsort(other[theirs], kind="stable")]
    if np.array_equal(keys[left], other[theirs]):
        found[left] = theirs
    return found


def _unpaired(
    keys: Int64s,
    times: list[int],
    others: Int64s,
    other_times: list[int],
    paired: set[int],
) -> list[int]:
    """What has no partner; of repeated kernels those whose times no partner is close
    to."""
    left = [n for n in range(len(keys)) if n not in paired]
    loose = _loose(keys, left)
    sure = np.setdiff1d(left, loose)
    for key in {int(keys[n]) for n in loose}:
        mine, other = np.flatnonzero(keys == key), np.flatnonzero(others == key)
        mine = np.setdiff1d(mine, sure)
        if len(other) < len(mine) and is_feasible(len(other), len(mine)):
            few, many = [other_times[n] for n in other], [times[n] for n in mine]
            left = [n for n in left if int(keys[n]) != key or n in sure]
            left += np.delete(mine, closest(few, many)).tolist()
    return sorted(left)


def _loose(keys: Int64s, left: list[int]) -> list[int]:
    """Of what has no partner: the stretches that would say the same one place earlier
    or later."""
    found: list[int] = []
    for first, last in runs(np.array(left, dtype=np.intp)):
        earlier = first > 0 and keys[first - 1] == keys[last]
        later = last + 1 < len(keys) and keys[last + 1] == keys[first]
        found += range(first, last + 1) if earlier or later else ()
    return found


class OutlierPiece(msgspec.Struct, frozen=True):
    """A piece of work that a step has, but usual steps lack; or, if `missing`, the
    reverse."""

    step: int
    missing: bool
    row: int  # of the trace; of what is missing: in the representative step
    ns: int
    word: int
    gap: int  # how many pieces of usual work come before it in the step


Pieces = Sequence[OutlierPiece]


def _run(trace: Trace, others: Pieces, kind: Collector) -> Pieces:
    """The first pieces in a row that the kernel may do, if they are evidence enough."""
    listed = [
        known_names(trace, int(trace.op[piece.row])) & kind.ops for piece in others
    ]
    first = next((n for n, names in enumerate(listed) if names), 0)
    found = list(takewhile(bool, listed[first:]))
    enough = len(found) >= max(kind.least, 2) and any(
        names & kind.core for names in found
    )
    return others[first : first + len(found)] if enough else ()


def rows(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[Row]:
    """Rows that are not part of a usual step, each naming its step.

    What is odd on both sides alike (in the same step, if they have equally many) is no
    change. Nor is what changed in all steps: what B does in the place of a kernel
    counts as that kernel, and what only one side has in all steps is told once.
    """
    words = _words_in_a(a, b, groups)
    everywhere = _everywhere(a, b, groups)
    same_steps = len(a.work.windows) == len(b.work.windows)

    def key(piece: OutlierPiece) -> tuple[int, bool, int]:
        return (
            piece.step if same_steps else -1,
            piece.missing,
            words.get(piece.word, piece.word),
        )

    found = [
        by_key((piece for piece in _odd(*sides) if piece.word not in everywhere), key)
        for sides in ((a, b), (b, a))
    ]
    changed: list[Row] = []
    for side, (mine, other) in enumerate((found, found[::-1])):
        left = [
            p for of, members in mine.items() for p in members[len(other.get(of, ())) :]
        ]
        changed += _rows((a, b)[side], left, "AB"[side])
    return changed


def _words_in_a(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> dict[int, int]:
    """For what only B has: the key of what it replaces in A, where that is always the
    same."""
    one, other = pairs_of(groups)
    found: defaultdict[int, set[int]] = defaultdict(set)
    for before, after in zip(
        a.exact[one].tolist(), b.exact[other].tolist(), strict=True
    ):
        found[after].add(before)
    own = {*a.exact.tolist()}
    return {
        after: min(before)
        for after, before in found.items()
        if len(before) == 1 and after not in own
    }


def _everywhere(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> set[int]:
    """The keys of what one side has in all of its usual steps and the other one
    nowhere."""
    of_a = {int(a.exact[i]) for group in groups if not group.b for i in group.a}
    of_b = {int(b.exact[j]) for group in groups if not group.a for j in group.b}
    return {*(of_a - {*b.every.tolist()}), *(of_b - {*a.every.tolist()})}


def _odd(items: WorkItems, twin: WorkItems) -> Iterator[OutlierPiece]:
    """What differs in each step with unusual work, less what only runs at another
    place: the same kernel under the same op that takes about as long. Missing work is
    assumed to take as long as in the same step of the other side, or else as in the
    usual steps."""
    work = items.work
    for odd in odd_steps(items, twin):
        span = work.of_window(odd.number)
        words, own, ns = items.every[span], work.row[span], work.ns[span]
        more, has = list(odd.more), odd.place >= 0
        for item in odd.lacking:
            word, usual = int(items.exact[item]), odd.usual[item]
            if moved := [p for p in more if words[p] == word and is_like(ns[p], usual)]:
                more.remove(min(moved, key=lambda p: abs(int(ns[p]) - usual)))
                continue
            gap = int(has[:item].sum())
            yield OutlierPiece(
                odd.number, True, int(items.row[item]), odd.usual[item], word, gap
            )
        for place in more:
            gap, word = int((has & (odd.place < place)).sum()), int(words[place])
            yield OutlierPiece(
                odd.number, False, int(own[place]), int(ns[place]), word, gap
            )


def _rows(items: WorkItems, pieces: Sequence[OutlierPiece], side: str) -> list[Row]:
    """One row for each kind of work in each step, or one for all of a step that differs
    in many.

    Where an op has other kernels in a step than usual, these are one row; so is a
    kernel that does the work of several.
    """
    replaced, pieces = _replaced(items, pieces, side)
    compiled, pieces = _fused(items, pieces, side)
    found = [*replaced, *compiled]
    for members in by_key(pieces, lambda piece: (piece.step, piece.missing)).values():
        groups = list(by_key(members, lambda piece: piece.word).values())
        many = len(groups) > KINDS
        found += [
            _row(items, group, side, many) for group in ([members] if many else groups)
        ]
    return found


def _replaced(items: WorkItems, pieces: Pieces, side: str) -> tuple[list[Row], Pieces]:
    """The rows of ops that have other kernels in one step, and the pieces that are not
    in them."""
    found, left = [], []
    for op, members in _near(pieces):
        more, lacking = (
            [p for p in members if p.missing is gone] for gone in (False, True)
        )
        other = {p.word for p in more}.isdisjoint(p.word for p in lacking)
        if op and more and lacking and other and len(members) <= KINDS:
            found.append(_other_kernels(items, more, lacking, side))
        else:
            left += [*more, *lacking]
    return found, left


def _near(pieces: Sequence[OutlierPiece]) -> Iterator[tuple[int, list[OutlierPiece]]]:
    """The number of an op, and its pieces in a step that are near enough to be of one
    call."""
    ops = by_key(pieces, lambda piece: (piece.step, piece.word >> OP_SHIFT))
    for (_, op), members in ops.items():
        members.sort(key=lambda piece: piece.gap)
        far = np.diff([piece.gap for piece in members]) > MAX_PIECES_OF_OP
        for first, last in pairwise(
            [0, *(np.flatnonzero(far) + 1).tolist(), len(members)]
        ):
            yield op, members[first:last]


def _fused(items: WorkItems, pieces: Pieces, side: str) -> tuple[list[Row], Pieces]:
    """The rows of kernels that do the work of several in one step, or that several do
    the work of, and the pieces that are not in them: a kernel whose name lists ops, and
    the pieces of these ops, in a row, that the step lacks (or has, if it lacks the
    kernel)."""
    found, ones, taken = [], set[OutlierPiece](), set[OutlierPiece]()
    for members in by_key(pieces, lambda piece: piece.step).values():
        members.sort(key=lambda piece: piece.row)
        for one in members if len(members) <= MOST else ():
            kind = collector_of(items.trace.name_of(one.row))
            others = [p for p in members if p.missing != one.missing and p not in taken]
            if kind is not None and (many := _run(items.trace, others, kind)):
                more, lacking = (many, [one]) if one.missing else ([one], many)
                found.append(_other_kernels(items, more, lacking, side))
                ones.add(one)
                taken.update(many)
    return found, [piece for piece in pieces if piece not in ones | taken]


def _other_kernels(items: WorkItems, more: Pieces, lacking: Pieces, side: str) -> Row:
    a, b = oriented("AB".index(side), _share(items, more, more), _share(items, lacking))
    several = RowKind.FUSED if a.count > b.count else RowKind.SPLIT
    kind = RowKind.REPLACED if a.count == b.count else several
    op = items.trace.name_of(int(items.trace.op[more[0].row]))
    return row_of(kind, op, a, b, _only(items, more[0], side), counts=False)


def _row(
    items: WorkItems, pieces: Sequence[OutlierPiece], side: str, many: bool
) -> Row:
    trace, missing = items.trace, pieces[0].missing
    op = int(trace.op[pieces[0].row])
    more = missing == (side == "A")
    here = [pieces if more == (n == 1) else () for n in (0, 1)]
    # its rows are of this side even if missing in it: those in the representative step
    a, b = (_share(items, here[n], pieces if side == "AB"[n] else ()) for n in (0, 1))
    named = trace.name_of(op) if op >= 0 else ""
    what = plural(len(pieces), "piece") + " of work" if many else named
    why = f"{'missing ' if missing else ''}{_only(items, pieces[0], side)}"
    return row_of(
        RowKind.ADDED if more else RowKind.REMOVED, what, a, b, why, counts=False
    )


def _only(items: WorkItems, piece: OutlierPiece, side: str) -> str:
    return f"only in step {items.work.windows.labels[piece.step]} of {side}"


def _share(items: WorkItems, pieces: Pieces, shown: Pieces = ()) -> RowShare:
    names, ns = (
        [items.trace.name_of(piece.row) for piece in pieces],
        sum(p.ns for p in pieces),
    )
    return RowShare(names, ns, len(pieces), ns, tuple(piece.row for piece in shown))
